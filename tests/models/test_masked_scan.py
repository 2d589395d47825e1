"""`masked_scan` against `lax.scan`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from acenode.models.masked_scan import masked_scan

BATCH, SIZE = 3, 4
LENGTHS = [((40, 3, 17), 50), ((5, 0, 2), 5), ((0, 0, 0), 20), ((16, 32, 48), 48)]


class Step(eqx.Module):
    """A state of two parts, of which one has an input and a flag."""

    cell: eqx.nn.GRUCell
    name: str = eqx.field(static=True)

    def __call__(self, states, xs):
        return jax.vmap(self.one)(states, xs)

    def one(self, state, x):
        hidden, sum_ = state
        row, moves = x
        new = self.cell(row, hidden)
        return jnp.where(moves, new, hidden), jnp.where(moves, sum_ + jnp.sin(new) * hidden, sum_)


def example(key, lengths, length):
    one, two, three = jax.random.split(key, 3)
    step = Step(eqx.nn.GRUCell(2, SIZE, key=one), "step")
    start = (jax.random.normal(two, (BATCH, SIZE)), jnp.ones((BATCH, SIZE)))
    rows = jax.random.normal(three, (length, BATCH, 2))
    return step, start, rows, jnp.arange(length)[:, None] < jnp.asarray(lengths)


def plain(step, start, xs, moves):
    return lax.scan(lambda state, x: (step(state, x), state), start, xs)


@eqx.filter_jit
def value_and_gradient(how, given, moves, which):
    @eqx.filter_value_and_grad
    def loss(given):
        step, start, rows = given
        last, before = how(step, start, (rows, moves), moves)
        weights = jnp.arange(1.0, moves.shape[0] + 1)[:, None, None]
        parts = {"last": jnp.sum(last[0] ** 2 + last[1]), "before": jnp.sum(jnp.cos(before[1]) * weights)}
        return sum(parts[name] for name in which)

    return loss(given)


@pytest.mark.slow
@pytest.mark.parametrize("which", [("last",), ("before",), ("last", "before")])
@pytest.mark.parametrize(("lengths", "length"), LENGTHS)
def test_values_and_gradients_equal_those_of_a_scan(key, which, lengths, length):
    step, start, rows, moves = example(key, lengths, length)
    ours = value_and_gradient(masked_scan, (step, start, rows), moves, which)
    theirs = value_and_gradient(plain, (step, start, rows), moves, which)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_gradients_move_by_move_as_on_a_gpu(key, monkeypatch):
    step, start, rows, moves = example(key, (40, 3, 17), 50)
    together = value_and_gradient(masked_scan, (step, start, rows), moves, ("last", "before"))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    apart = value_and_gradient(lambda *given: masked_scan(*given), (step, start, rows), moves, ("last", "before"))
    for one, other in zip(jax.tree.leaves(apart), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_states_before_the_moves(key):
    step, start, rows, moves = example(key, (20, 3, 7), 21)
    last, before = masked_scan(step, start, (rows, moves), moves)
    expected_last, expected = plain(step, start, (rows, moves), moves)
    for one, other in zip(jax.tree.leaves((last, before)), jax.tree.leaves((expected_last, expected)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_an_ensemble_of_walkers(key):
    keys = jax.random.split(key, 2)
    _, start, rows, moves = example(key, (20, 3, 7), 40)

    def gradient(how):
        make = eqx.filter_vmap(lambda key: example(key, (1, 1, 1), 1)[0])
        one = lambda step: value_and_gradient(how, (step, start, rows), moves, ("last",))  # noqa: E731
        return eqx.filter_vmap(one)(make(keys))

    for one, other in zip(jax.tree.leaves(gradient(masked_scan)), jax.tree.leaves(gradient(plain)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_stretches_without_a_move_are_skipped(key):
    """A step that may not be taken there would give NaN."""
    step, start, rows, moves = example(key, (3, 3, 3), 64)
    rows = jnp.where(jnp.arange(64)[:, None, None] < 16, rows, jnp.nan)
    _, gradient = value_and_gradient(masked_scan, (step, start, rows), moves, ("last",))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient[0]))
    _, gradient = value_and_gradient(plain, (step, start, rows), moves, ("last",))
    assert not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient[0]))
