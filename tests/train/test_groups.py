"""Which parameters are whose is read off the structure of a model."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_task import Field, First, Toy, build, leaves, same

from acenode.ode import CoEvolvingODE, Constant, Correlation, Elementwise, Identity, Pairwise, Solver
from acenode.ode.coevolve import _ReferencePath
from acenode.train import fit_reference_statistics, groups, hold_attention, parameter_count
from acenode.train.groups import belongs, has_attention, needs_reference_statistics, norm

FIXED = Solver("euler", step=0.5)


def ode(mark: float, **kwargs) -> CoEvolvingODE:
    """An ODE whose arrays say where they are: f holds mark + 0.1, g mark + 0.2, q mark + 0.3."""
    f, g, q = (jnp.full((2,), mark + 0.1 * i) for i in (1, 2, 3))
    return CoEvolvingODE(Field(f, (2,)), Field(g, (2,)), Elementwise(), First(q), FIXED, **kwargs)


class Pair(NamedTuple):
    left: object
    right: object


class Deep(eqx.Module):
    """ODEs wherever they can sit."""

    inside: Toy
    listed: list
    named: dict
    paired: Pair
    bias: jax.Array
    steps: jax.Array
    label: str
    activation: object = jnp.tanh


def deep() -> Deep:
    return Deep(
        Toy(ode(1.0), jnp.full((2,), 1.4), Constant(jnp.full((2,), 1.5))),
        [ode(2.0), jnp.full((2,), 2.4)],
        {"a": (ode(3.0),), "b": jnp.full((2,), 3.4)},
        Pair(eqx.nn.Lambda(ode(4.0)), jnp.full((2,), 4.4)),
        jnp.full((2,), 5.4),
        jnp.arange(3),
        "a name",
    )


def test_theta_g_and_theta_q_are_found_wherever_an_ode_sits():
    model = deep()
    for label, leaf in zip(jax.tree.leaves(groups(model)), jax.tree.leaves(model), strict=True):
        if not eqx.is_inexact_array(leaf):
            assert label == "other"
            continue
        tenth = round(10 * float(leaf[0])) % 10
        assert label == {1: "main", 2: "attention", 3: "initial", 4: "main", 5: "constant"}[tenth]


def test_nothing_is_left_out_and_nothing_is_there_twice():
    model = deep()
    parts = [eqx.filter(model, belongs(model, g)) for g in ("main", "attention", "initial", "constant", "other")]
    counts = [len(jax.tree.leaves(part)) for part in parts]
    assert counts[:4] == [9, 4, 4, 1]
    assert sum(counts) == len(jax.tree.leaves(model))
    assert same(eqx.combine(*parts), model)
    assert parameter_count(model) == 2 * (9 + 4 + 4)
    both = eqx.filter(model, belongs(model, "attention", "initial"))
    assert len(jax.tree.leaves(both)) == counts[1] + counts[2]


def test_a_reference_inside_q_is_constant_and_not_theta_q():
    model = CoEvolvingODE(Field(jnp.ones(2), (2,)), Field(jnp.ones(2), (2, 2)), Pairwise(), Correlation(2), FIXED)
    assert groups(model).initial.reference.array == "constant"
    assert groups(model.initial.reference).array == "constant"  # also on its own


def test_a_reference_path_is_constant():
    w = jnp.ones((4, 2))
    model = CoEvolvingODE(Field(w[:2], (2,)), None, Pairwise(), Correlation(2), FIXED, "fixed")
    path = _ReferencePath(Constant(jnp.arange(2.0)), Constant(jnp.ones((2, 2, 2))))
    model = eqx.tree_at(lambda o: o.reference, model, path, is_leaf=lambda x: x is None)
    assert jax.tree.leaves(groups(model).reference) == ["constant", "constant"]
    assert groups(model).f.w == "main"


@pytest.mark.parametrize("evolution", ["frozen", "fixed"])
def test_without_a_g_there_is_no_attention_to_train(evolution):
    model = CoEvolvingODE(Field(jnp.ones((2, 2)), (2,)), None, Pairwise(), Correlation(2), FIXED, evolution)
    assert not has_attention({"ode": model}) and has_attention({"ode": build(jax.random.key(0))})


def test_hold_attention_changes_every_ode_and_nothing_else():
    model = deep()
    held = hold_attention(model)
    odes = [held.inside.ode, held.listed[0], held.named["a"][0], held.paired.left.fn]
    assert all(o.hold_attention for o in odes) and not model.listed[0].hold_attention
    assert same(held, model)
    free = hold_attention(held, False)
    assert jax.tree.structure(free) == jax.tree.structure(model) and not free.inside.ode.hold_attention


def test_only_models_with_batch_statistics_have_a_reference():
    plain = CoEvolvingODE(Field(jnp.ones((2, 2)), (2,)), Field(jnp.ones((4, 2)), (2, 2)), Pairwise(), Identity(), FIXED)
    measured = eqx.tree_at(lambda o: o.initial, plain, Correlation(2))
    assert not needs_reference_statistics([plain]) and needs_reference_statistics([plain, measured])
    h0 = jnp.asarray(np.random.default_rng(0).normal(size=(50, 2))) @ jnp.asarray([[1.0, 0.5], [0.0, 1.0]])
    after = fit_reference_statistics([plain, measured], h0, jnp.asarray([0.0, 1.0]))
    np.testing.assert_allclose(after[1].initial.reference.value, np.corrcoef(np.asarray(h0).T), rtol=1e-12)
    assert same(after[0], plain)


def test_first_states_of_one_ode_are_not_taken_for_those_of_another():
    f, g = Field(jnp.ones((2, 2)), (2,)), Field(jnp.ones((4, 2)), (2, 2))
    one = CoEvolvingODE(f, g, Pairwise(), Correlation(2))
    assert np.isfinite(fit_reference_statistics([one, ode(1.0)], jnp.eye(2), None)[0].initial.reference.array).all()
    with pytest.raises(ValueError, match="several ODEs whose attention is measured"):
        fit_reference_statistics([one, one], jnp.eye(2), None)


@pytest.mark.parametrize("kind, order", [("l1", 1), ("l2", 2)])
def test_norm_is_that_of_all_weights_in_one_vector(kind, order):
    biases = [jnp.asarray(-5.0), jnp.asarray([6.0, 7.0])]  # and rates
    tree = {"a": jnp.asarray([[3.0, -4.0]]), "b": [jnp.asarray([[-12.0]]), None, jnp.arange(3), *biases]}
    assert norm(tree, kind) == np.linalg.norm([3, -4, -12], order)
    slope = jax.grad(lambda x: norm(x, kind))(jnp.asarray([[3.0, -4.0]]))
    np.testing.assert_allclose(slope, [[1, -1]] if kind == "l1" else [[0.6, -0.8]])


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_norm_of_nothing_and_of_zeros_is_zero_with_a_finite_slope(kind):
    assert norm([], kind) == 0
    value, slope = jax.value_and_grad(lambda x: norm(x, kind))(jnp.zeros((3, 1)))
    assert value == 0 and np.isfinite(slope).all() and not leaves(slope)[0].any()


def test_a_class_that_names_no_keys_is_gone_through():
    partial = jax.tree_util.Partial(lambda w, t, h: w * h, jnp.ones(2))
    model = eqx.tree_at(lambda m: m.f, ode(1.0), partial)
    assert jax.tree.leaves(groups([model, None]))[0] == "main"
    assert parameter_count(model) == 6
