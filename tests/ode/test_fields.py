"""Vector fields: sizes, formulas against loops, bounds, what sees what."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import count, noise, solve

from acenode.ode import (
    CoEvolvingODE,
    ConditionedGRUField,
    ConditionedMLPField,
    GRUField,
    MLPField,
    NeuralODE,
    Pairwise,
    RowField,
    Solver,
)

call = eqx.filter_jit(lambda field, t, *inputs: field(t, *inputs))
now = jnp.asarray(0.3)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# --- MLPField -------------------------------------------------------------------------------------------------


def test_mlp_parameter_counts(key):
    assert count(MLPField, 20, 50, 4, key=key) == 9_720  # 20-50-50-50-50-20
    assert count(MLPField, 20, 50, 4, timed=True, key=key) == 9_720 + 50
    assert count(MLPField, (4, 5), 50, 4, key=key) == 9_720
    assert count(MLPField, 15, 500, 2, out=(15, 15), key=key) == 16 * 500 + 501 * 500 + 501 * 225


def test_mlp_against_a_loop(key):
    field = MLPField(3, 4, 2, key=key)
    h = noise(3)
    x = np.asarray(h)
    for k, layer in enumerate(field.net.layers):
        x = np.asarray(layer.weight) @ x + np.asarray(layer.bias)
        x = np.tanh(x) if k < 2 else x
    np.testing.assert_allclose(call(field, now, h), x, rtol=1e-12)


@pytest.mark.slow
def test_mlp_shapes_and_time(key):
    field = MLPField((2, 3), 4, 1, out=(5,), timed=True, key=key)
    h = noise(2, 3)
    early, late = call(field, now, h), call(field, 2 * now, h)
    assert early.shape == (5,) and np.abs(early - late).min() > 0
    autonomous = MLPField((2, 3), 4, 1, key=key)
    early, late = call(autonomous, now, h), call(autonomous, 2 * now, h)
    assert early.shape == (2, 3)
    np.testing.assert_array_equal(early, late)


def test_mlp_last_layer_factor(key):
    plain, damped = (MLPField(2, 4, 1, last=last, key=key) for last in (1.0, 0.01))
    h = noise(2)
    np.testing.assert_allclose(call(damped, now, h), 0.01 * call(plain, now, h), rtol=1e-12)


def test_normal_init_statistics(key):
    net = MLPField(60, 60, 3, init="normal", key=key).net
    weights = np.concatenate([np.asarray(layer.weight).ravel() for layer in net.layers])
    assert weights.mean() == pytest.approx(0, abs=0.005)
    assert weights.std() == pytest.approx(0.1, rel=0.03)
    assert (np.abs(weights) > 0.3).mean() == pytest.approx(0.0027, abs=0.002)  # tails of a normal distribution
    assert not any(np.asarray(layer.bias).any() for layer in net.layers)
    first, second = (np.asarray(layer.weight).ravel() for layer in net.layers[:2])
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1  # no two layers share their draws


def test_an_unknown_init_is_refused(key):
    with pytest.raises((ValueError, TypeError), match="init"):  # jaxtyping may be the first to see it
        MLPField(3, 4, 1, init="uniformly", key=key)  # pyright: ignore[reportArgumentType]


def test_uniform_init_statistics(key):
    net = MLPField(50, 50, 1, key=key).net
    weights = np.concatenate([np.asarray(layer.weight).ravel() for layer in net.layers])
    assert np.abs(weights).max() <= 1 / np.sqrt(50)
    assert weights.std() == pytest.approx(1 / np.sqrt(150), rel=0.05)


# --- GRUField -------------------------------------------------------------------------------------------------


def test_gru_against_a_loop(key):
    field = GRUField(3, key=key)
    h = np.asarray(noise(3))
    w_r, w_z, w_u = (np.asarray(layer.weight) for layer in (field.reset, field.update, field.candidate))
    expected = []
    for i in range(3):
        r = [sigmoid(sum(w_r[j, k] * h[k] for k in range(3))) for j in range(3)]
        z = sigmoid(sum(w_z[i, k] * h[k] for k in range(3)))
        u = np.tanh(sum(w_u[i, j] * r[j] * h[j] for j in range(3)))
        expected.append((1 - z) * (u - h[i]))
    np.testing.assert_allclose(call(field, now, jnp.asarray(h)), expected, rtol=1e-12)
    assert count(GRUField, 50, key=key) == 7_500


@pytest.mark.slow
def test_gru_keeps_a_state_within_one(key):
    field = jax.tree.map(lambda w: 20 * w, GRUField(4, key=key))  # large weights: saturated gates
    h0 = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (16, 4)).round())
    path = solve(NeuralODE(field, Solver(rtol=1e-6, atol=1e-7)), h0, jnp.linspace(0.0, 30.0, 40))
    assert not np.asarray(path.stats.failed).any()
    assert np.abs(path.h).max() <= 1 + 1e-5
    assert np.abs(path.h[:, -1] - h0).max() > 0.1


def test_gru_with_a_leak_of_its_own(key):
    shared, own = GRUField(3, key=key), GRUField(3, self_decay=True, key=key)
    h, attended = noise(3), 2 * noise(3) + 1
    z = jax.nn.sigmoid(own.update(attended))
    difference = call(own, now, attended, h) - call(shared, now, attended)
    np.testing.assert_allclose(difference, (1 - z) * (attended - h), rtol=1e-9)
    np.testing.assert_array_equal(call(own, now, h), call(shared, now, h))


def test_a_gru_conditioned_on_the_attended_state(key):
    field = ConditionedGRUField(3, start=0.7, key=key)
    h, attended = (np.asarray(x) for x in (noise(3), 2 * noise(3) + 1))
    w_r, w_z, w_u = (np.asarray(layer.weight) for layer in (field.cell.reset, field.cell.update, field.cell.candidate))
    v_r, v_z, v_u = np.split(np.asarray(field.inputs.weight), 3)
    r, z = (1 / (1 + np.exp(-(w @ h + v @ attended))) for w, v in ((w_r, v_r), (w_z, v_z)))
    expected = (1 - z) * (np.tanh(w_u @ (r * h) + v_u @ attended) - h)
    np.testing.assert_allclose(call(field, now, jnp.asarray(attended), jnp.asarray(h)), expected, rtol=1e-9)
    without = ConditionedGRUField(3, start=0.0, key=key)
    alone = call(without.cell, now, jnp.asarray(h))
    np.testing.assert_allclose(call(without, now, jnp.asarray(attended), jnp.asarray(h)), alone, rtol=1e-12)
    assert count(ConditionedGRUField, 50, key=key) == 15_000


def test_a_perceptron_conditioned_on_the_attended_state_sees_both(key):
    field = ConditionedMLPField(3, 4, 1, key=key)
    attended, h = noise(3), noise(3, seed=1)
    first, last = field.field.net.layers
    hidden = np.tanh(np.asarray(first.weight) @ np.concatenate([h, attended]) + np.asarray(first.bias))
    expected = np.asarray(last.weight) @ hidden + np.asarray(last.bias)
    np.testing.assert_allclose(call(field, now, attended, h), expected, rtol=1e-12)


@pytest.mark.slow
def test_a_conditioned_gru_keeps_a_state_within_one(key):
    swap = 20 * jnp.eye(4)[jnp.asarray([1, 0, 3, 2])]
    field = jax.tree.map(lambda w: 20 * w, ConditionedGRUField(4, start=1.0, key=key))
    ode = CoEvolvingODE(field, None, Pairwise(), lambda h: jnp.tile(swap, (16, 1, 1)), Solver(), "frozen")
    h0 = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (16, 4)))
    path = solve(ode, h0, jnp.linspace(0.0, 20.0, 5))
    assert np.abs(path.h).max() <= 1 + 1e-3 and np.abs(path.h[:, -1] - h0).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("self_decay", [True, False])
def test_attention_lets_a_gru_diverge_without_self_decay(key, self_decay):
    """Where two dimensions attend to each other, the leak of either pushes the other away."""
    swap = 20 * jnp.eye(4)[jnp.asarray([1, 0, 3, 2])]
    field, always = GRUField(4, self_decay, key=key), lambda h: jnp.tile(swap, (16, 1, 1))
    ode = CoEvolvingODE(field, None, Pairwise(), always, Solver(), "frozen")
    h0 = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (16, 4)))
    farthest = np.abs(solve(ode, h0, jnp.linspace(0.0, 20.0, 5)).h).max()
    assert (farthest <= 1) if self_decay else (farthest > 10)


# --- RowField -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_move_alone(key):
    field = RowField((4, 3), 8, 1, key=key)
    h = noise(4, 3)
    before, after = np.asarray(call(field, now, h)), np.asarray(call(field, now, h.at[2].add(1.0)))
    np.testing.assert_array_equal(np.delete(before, 2, axis=0), np.delete(after, 2, axis=0))
    assert np.abs(before[2] - after[2]).min() > 0


@pytest.mark.slow
def test_rows_share_one_network_and_differ_by_their_places(key):
    field = RowField((3, 2), 8, 1, key=key)
    h = jnp.tile(noise(1, 2), (3, 1))
    assert np.abs(np.diff(np.asarray(call(field, now, h)), axis=0)).min() > 1e-6
    same = eqx.tree_at(lambda f: f.places, field, jnp.ones_like(field.places))
    rows = np.asarray(call(same, now, h))
    np.testing.assert_allclose(rows, rows[[0, 0, 0]], rtol=1e-12)
    sizes = [count(RowField, (rows, 2), 8, 1, rank=5, key=key) for rows in (10, 20)]
    assert sizes[1] - sizes[0] == 10 * 5  # only the places grow


def test_rows_can_see_the_time(key):
    timed, untimed = (RowField((3, 2), 8, 1, timed=timed, key=key) for timed in (True, False))
    h = noise(3, 2)
    assert np.abs(np.asarray(call(timed, now, h) - call(timed, 2 * now, h))).min() > 0
    np.testing.assert_array_equal(call(untimed, now, h), call(untimed, 2 * now, h))
