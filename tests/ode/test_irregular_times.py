"""Any irregular times, any padding, any choice among them: the path at a real time is the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from problems import coevolving, leaves_equal, noise, solve

from acenode.ode import Elementwise, NeuralODE, Pairwise, Solver

quick = settings(max_examples=25)
BATCH, LENGTH = 3, 6
H0 = noise(BATCH, 2)

# Any moments of any size, and coarse ones among them so that some coincide with each other and with steps.
moment = st.one_of(st.floats(-2, 2), st.integers(-8, 8).map(lambda n: n / 4), st.floats(-1e-9, 1e-9))
row = st.lists(moment, min_size=LENGTH, max_size=LENGTH).map(sorted)
rows = st.lists(row, min_size=BATCH, max_size=BATCH).map(np.array)
lengths = st.lists(st.integers(1, LENGTH), min_size=BATCH, max_size=BATCH)
masks = st.lists(st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH), min_size=BATCH, max_size=BATCH)

both = pytest.mark.parametrize("solver", [Solver(), Solver("heun", step=0.25)], ids=["adaptive", "fixed step"])


@quick
@given(rows)
def test_the_known_path_at_any_times(times):
    # dh/dt = h cos(t): h(t) = h(0) exp(sin t - sin t0).
    path = solve(NeuralODE(grow, Solver(rtol=1e-7, atol=1e-8)), H0, jnp.asarray(times))
    known = np.asarray(H0)[:, None] * np.exp(np.sin(times) - np.sin(times[:, :1]))[..., None]
    np.testing.assert_allclose(path.h, known, rtol=1e-5)
    assert not np.asarray(path.stats.failed).any()


def grow(t, h):
    return h * jnp.cos(t)


@pytest.mark.slow
@both
@quick
@given(times=rows, mask=masks)
def test_leaving_times_out_leaves_the_others_unchanged(solver, times, mask):
    """Between the first time and the last, each that is left out becomes a repeat of the one before."""
    mask = np.array(mask)
    mask[:, [0, -1]] = True
    fewer = times.copy()
    for k in range(1, LENGTH):
        fewer[:, k] = np.where(mask[:, k], times[:, k], fewer[:, k - 1])
    ode = coevolving(Pairwise(), 2, solver)
    full, left = solve(ode, H0, jnp.asarray(times)), solve(ode, H0, jnp.asarray(fewer))
    assert leaves_equal(
        (np.asarray(full.h)[mask], np.asarray(full.a)[mask]), (np.asarray(left.h)[mask], np.asarray(left.a)[mask])
    )
    assert leaves_equal(full.stats, left.stats)


@pytest.mark.slow
@both
@quick
@given(times=rows, lengths=lengths)
def test_padding_may_stand_at_either_end(solver, times, lengths):
    """n real times, then their last again and again; or their first again and again, then the n."""
    behind, before = times.copy(), times.copy()
    for k, n in enumerate(lengths):
        behind[k, n:] = times[k, n - 1]
        before[k] = np.concatenate([np.full(LENGTH - n, times[k, 0]), times[k, :n]])
    ode = coevolving(Pairwise(), 2, solver)
    one, two = solve(ode, H0, jnp.asarray(behind)), solve(ode, H0, jnp.asarray(before))
    for k, n in enumerate(lengths):
        assert leaves_equal((one.h[k, :n], one.a[k, :n]), (two.h[k, LENGTH - n :], two.a[k, LENGTH - n :]))
        if n < LENGTH:  # padding reads the last state again
            assert leaves_equal(one.h[k, n:], jnp.broadcast_to(one.h[k, n - 1], (LENGTH - n, 2)))
    assert np.isfinite(one.h).all()


@eqx.filter_jit
@eqx.filter_grad
def gradient(ode, times, weights):
    return jnp.sum(weights[..., None] * ode(H0, times, attention=False).h ** 2)


@quick
@given(times=rows, lengths=lengths)
def test_padding_has_no_part_in_a_gradient(times, lengths):
    behind, before = times.copy(), times.copy()
    weights = np.zeros((2, BATCH, LENGTH))
    for k, n in enumerate(lengths):
        behind[k, n:] = times[k, n - 1]
        before[k] = np.concatenate([np.full(LENGTH - n, times[k, 0]), times[k, :n]])
        weights[0, k, :n] = weights[1, k, LENGTH - n :] = 1 + np.arange(n)
    ode = coevolving(Elementwise(), 2, Solver("heun", step=0.25, max_steps=32))
    one, two = gradient(ode, jnp.asarray(behind), weights[0]), gradient(ode, jnp.asarray(before), weights[1])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        assert np.isfinite(a).all()
