"""Neural flows against their equations in numpy, that they are flows, and what a prediction may see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from baselines import assert_ensemble_in_single_precision, assert_learns, seen
from sines import KEY, answer, assert_stands_alone, batch_of, gru, linear, perceptron, quick, rows, sigmoid

from acenode.models import NeuralFlow
from acenode.models.neural_flow import Flow, spectral_bound
from acenode.train import parameter_count

VARIABLES, SIZE, LAYERS, PREPARED, WIDTH = 2, 5, 2, 3, 4
SCALE = 2.0
KINDS = ["gru", "resnet", "coupling"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def model(kind="gru", **options) -> NeuralFlow:
    sizes = {"prepared": PREPARED, "width": WIDTH, "time_scale": SCALE}
    return quick(lambda key: NeuralFlow(VARIABLES, SIZE, LAYERS, kind, **sizes, **options, key=key))


def flow(kind) -> Flow:
    return quick(lambda key: Flow(SIZE, LAYERS, kind, key=key), 1.0).normalised()


# --- the flows ------------------------------------------------------------------------------------------------


def contracted(layer, limit):
    """With the largest singular value, where the model has a bound a little above it."""
    weight = np.asarray(layer.weight)
    return weight / max(1.0, np.linalg.norm(weight, 2) / limit)


def flowed(kind, f, h, t):
    for i, layer in enumerate(f.layers):
        if kind == "coupling":
            first, second = h[: SIZE // 2], h[SIZE // 2 :]
            kept, changed = (first, second) if i % 2 == 0 else (second, first)
            u, v = np.split(perceptron(layer.net, np.append(kept, t)), 2)
            phi_u, phi_v = (np.tanh(np.asarray(gate.rate) * t) for gate in (layer.scale_gate, layer.shift_gate))
            changed = changed * np.exp(u * phi_u) + v * phi_v
            h = np.concatenate([kept, changed] if i % 2 == 0 else [changed, kept])
            continue
        phi = np.tanh(np.asarray(layer.gate.rate) * t)
        if kind == "resnet":
            hidden = np.tanh(linear(layer.inner, np.append(h, t)))
            h = h + phi * linear(layer.outer, hidden)
        else:
            z = 0.4 * sigmoid(linear(layer.update, np.append(h, t)))
            r = 0.8 * sigmoid(linear(layer.reset, np.append(h, t)))
            c = np.tanh(linear(layer.candidate, np.append(r * h, t)))
            h = h + phi * z * (c - h)
    return h


@each_kind
def test_a_flow_equals_its_equations_and_is_the_identity_at_time_zero(kind):
    f, h = flow(kind), np.random.default_rng(0).uniform(-1, 1, SIZE)
    np.testing.assert_allclose(f(jnp.asarray(h), jnp.asarray(0.7)), flowed(kind, f, h, 0.7), rtol=1e-10)
    np.testing.assert_array_equal(f(jnp.asarray(h), jnp.zeros(())), h)
    assert not np.allclose(f(jnp.asarray(h), jnp.asarray(0.7)), h, atol=1e-2)


@each_kind
@pytest.mark.parametrize("time", [0.1, 3.0])
def test_every_layer_can_be_inverted(kind, time):
    f, points = flow(kind), np.random.default_rng(2).uniform(-1, 1, (20, SIZE))
    for layer in f.layers:
        ends = jax.vmap(layer, (0, None))(jnp.asarray(points), jnp.asarray(time))
        if kind == "coupling":
            back = np.stack([uncoupled(layer, end, time) for end in np.asarray(ends)])
        else:
            back = taken_back(layer, ends, jnp.asarray(time))
        assert not np.allclose(ends, points, atol=1e-2)
        np.testing.assert_allclose(back, points, atol=1e-6)


def uncoupled(layer, h, t):
    first, second = h[: SIZE // 2], h[SIZE // 2 :]
    kept, changed = (second, first) if layer.swapped else (first, second)
    u, v = np.split(perceptron(layer.net, np.append(kept, t)), 2)
    phi_u, phi_v = (np.tanh(np.asarray(gate.rate) * t) for gate in (layer.scale_gate, layer.shift_gate))
    changed = (changed - v * phi_v) * np.exp(-u * phi_u)
    return np.concatenate([changed, kept] if layer.swapped else [kept, changed])


@eqx.filter_jit
def taken_back(layer, goal, time):
    """By fixed-point iteration: a layer moves points by less than their distance."""
    step = lambda _, guess: goal - (jax.vmap(layer, (0, None))(guess, time) - guess)  # noqa: E731
    return jax.lax.fori_loop(0, 300, step, goal)


@pytest.mark.parametrize("kind, limit", [("gru", 1.0), ("resnet", 0.97**0.5)])
def test_no_singular_value_is_above_its_limit(kind, limit):
    raw = quick(lambda key: Flow(SIZE, LAYERS, kind, key=key), 1.0)
    for before, after in zip(raw.layers, raw.normalised().layers, strict=True):
        for name in ("update", "reset", "candidate") if kind == "gru" else ("inner", "outer"):
            weight = np.asarray(getattr(after, name).weight)
            assert 0.97 * limit < np.linalg.norm(weight, 2) <= limit + 1e-9
            np.testing.assert_allclose(weight, contracted(getattr(before, name), limit), rtol=0.03)
    small = jax.tree.map(lambda x: 0.01 * x, raw)
    assert eqx.tree_equal(small.normalised(), small)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_the_bound_of_singular_values_is_tight(scale):
    weight = scale * np.random.default_rng(0).normal(size=(64, 65)).astype(np.float32)
    largest = np.linalg.norm(weight, 2)
    assert largest <= spectral_bound(jnp.asarray(weight)) * (1 + 1e-5) <= 1.035 * largest
    assert np.isfinite(jax.grad(spectral_bound)(jnp.asarray(weight))).all()


def test_the_slope_of_the_bound_at_zero_is_finite():
    assert np.isfinite(jax.grad(spectral_bound)(jnp.zeros((3, 4)))).all()


# --- the filter -----------------------------------------------------------------------------------------------


def emit(m, h):
    return np.split(linear(m.emission.last, np.maximum(linear(m.emission.first, h), 0)), 2)


def by_hand(m, kind, times, values, observed, query):
    """h at `query`, and the penalty of the rows before it."""
    first, second = m.first.layers
    h = np.tanh(linear(second, np.maximum(np.asarray(first.bias), 0)))
    f, before, penalty, count = m.flow.normalised(), times[0], 0.0, 0
    for time, x, o in zip(times, values, observed, strict=True):
        if time < query and o.any():
            h = flowed(kind, f, h, (time - before) / SCALE)
            mean, log_variance = emit(m, h)
            says = np.stack([x, mean, log_variance, (x - mean) * np.exp(-log_variance / 2)], axis=1)
            prepared = np.maximum(np.einsum("vk,vkp->vp", says, m.jump.weight) + m.jump.bias, 0) * o[:, None]
            h = gru(m.jump.cell, prepared.ravel(), h)
            mean, log_variance = emit(m, h)
            kl = np.log(0.01) - log_variance / 2 + (np.exp(log_variance) + (mean - x) ** 2) / (2 * 0.01**2) - 0.5
            penalty, count, before = penalty + kl[o].sum(), count + o.sum(), time
    return flowed(kind, f, h, (query - before) / SCALE), 1e-4 * penalty / count


@pytest.mark.slow
@each_kind
def test_predictions_equal_the_equations(kind):
    made, one = model(kind), rows()[0]
    queries = np.asarray([one[0][1], 1.5, 4.0])
    trace = answer(made, batch_of([one]), queries[None])
    expected = np.stack([by_hand(made, kind, *one, q)[0] for q in queries])
    np.testing.assert_allclose(trace.states[0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(trace.penalty[0], by_hand(made, kind, *one, 9.0)[1], rtol=1e-6)
    mean, log_variance = made.emission(trace.states[0, 0, 1])
    np.testing.assert_allclose(np.concatenate([mean, log_variance]), np.concatenate(emit(made, expected[1])), rtol=1e-6)


# --- sizes ----------------------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("v, h, n, p, w", [(2, 5, 2, 3, 4), (5, 64, 2, 10, 25)])
def test_parameter_count(kind, v, h, n, p, w):
    kept, changed = h // 2, h - h // 2
    of_layer = {
        "gru": n * (3 * h * (h + 2) + h),
        "resnet": n * (h * (h + 2) + h * (h + 1) + h),
        "coupling": n // 2 * sum(h * (a + 2) + 2 * b * (h + 1) + 2 * b for a, b in ((kept, changed), (changed, kept))),
    }
    first = 2 * h + h * (h + 1)
    jump = v * 5 * p + 3 * h * (v * p + h + 1) + h
    emission = w * (h + 1) + 2 * v * (w + 1)
    made = quick(lambda key: NeuralFlow(v, h, n, kind, prepared=p, width=w, key=key))
    assert parameter_count(made) == of_layer[kind] + first + jump + emission
    assert made.size == h


def test_bad_choices_are_refused():
    with pytest.raises(ValueError, match="choose from gru, resnet, coupling"):
        NeuralFlow(2, 4, kind="ode", key=KEY)
    with pytest.raises(ValueError, match="at least 2"):
        NeuralFlow(2, 4, 1, "coupling", key=KEY)
    with pytest.raises(ValueError, match="time_scale=0"):
        NeuralFlow(2, 4, time_scale=0.0, key=KEY)


# --- what matters and what does not ---------------------------------------------------------------------------


@pytest.mark.slow
@each_kind
def test_a_prediction_stands_alone(kind):
    slopes = assert_stands_alone(model(kind))
    for path, x in jax.tree_util.tree_leaves_with_path(slopes):
        name = jax.tree_util.keystr(path)
        read = name != ".first.layers[0].weight"  # of an input that is 0
        assert np.asarray(x).any() == read, name


def test_it_is_causal():
    assert NeuralFlow.causal
    assert seen(model()) == [True, True, False, False, False]
    assert seen(model(including=True)) == [True, True, True, False, False]


@pytest.mark.slow
@each_kind
def test_an_ensemble_in_single_precision(kind):
    assert_ensemble_in_single_precision(model(kind))


@pytest.mark.slow
def test_it_learns():
    assert_learns(lambda key: NeuralFlow(2, 12, 2, time_scale=1.5, key=key))
