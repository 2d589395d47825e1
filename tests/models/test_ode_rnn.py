"""The ODE-RNN against a plain loop over one record, and its cutting of time against the published rule."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import ODERNN
from acenode.models.ode_rnn import moves
from acenode.series import series, stack

TIMES = np.array([0.0, 0.01, 0.03, 0.06, 0.5, 1.0])


def increments(times, backward):
    """The published rule, one hop after the other: (steps of a hop, row that ends it)."""
    order = list(range(len(times)))[:: -1 if backward else 1]
    shortest = (times[-1] - times[0]) / 50
    before = times[order[0]] + (0.01 if backward else -0.01)
    hops = []
    for row in order:
        gap = abs(times[row] - before)
        steps = 1 if gap < shortest else max(2, int(gap / shortest)) - 1
        hops.append(([(times[row] - before) / steps] * steps, row))
        before = times[row]
    return hops


@pytest.mark.slow
@pytest.mark.parametrize("backward", [True, False])
def test_moves_follow_the_published_rule(backward):
    laid = moves(jnp.asarray(TIMES), jnp.asarray(len(TIMES)), backward)
    expected = increments(TIMES, backward)
    dts = np.concatenate([dt for dt, _ in expected])
    np.testing.assert_allclose(laid.dt[: len(dts)], dts, rtol=1e-9)
    assert not np.any(laid.dt[len(dts) :])
    assert list(np.asarray(laid.row)[np.asarray(laid.update)]) == [row for _, row in expected]


@pytest.mark.slow
def test_forward_moves_add_up_to_the_time_that_passes():
    laid = moves(jnp.asarray(TIMES), jnp.asarray(len(TIMES)), False)
    ends = np.cumsum(laid.dt)[np.asarray(laid.update)]
    np.testing.assert_allclose(ends - ends[0], TIMES - TIMES[0], atol=1e-12)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(model, times, values, observed, stop=None):
    """Equations of the encoder in numpy, one record; the state after its first `stop` rows if not after all."""

    def linear(layer, x):
        return np.asarray(layer.weight) @ x + np.asarray(layer.bias)

    def field(m):
        layers = model.field.net.layers
        for layer in layers[:-1]:
            m = np.tanh(linear(layer, m))
        return linear(layers[-1], m)

    unit = model.unit
    mean = spread = np.zeros(model.size)
    for dts, row in increments(times, model.backward)[:stop]:
        for dt in dts:
            mean = mean + dt * field(mean)
        if not observed[row].any():
            continue
        x = np.concatenate([values[row], observed[row]])
        hidden = np.tanh(linear(unit.gates, np.concatenate([mean, spread])) + np.asarray(unit.gates_in) @ x)
        half = len(hidden) // 2
        u, r = sigmoid(linear(unit.update_out, hidden[:half])), sigmoid(linear(unit.reset_out, hidden[half:]))
        inner = linear(unit.candidate, np.concatenate([mean * r, spread * r])) + np.asarray(unit.candidate_in) @ x
        new = linear(unit.candidate_out, np.tanh(inner))
        mean = (1 - u) * new[: model.size] + u * mean
        spread = np.abs((1 - u) * np.abs(new[model.size :]) + u * spread)
    return np.concatenate([mean, spread])


@pytest.mark.slow
@pytest.mark.parametrize("backward", [True, False])
def test_one_record_equals_the_equations(key, backward):
    model = ODERNN(3, size=4, width=6, hidden=2, backward=backward, key=key)
    random = np.random.default_rng(0)
    values = random.normal(size=(len(TIMES), 3))
    observed = random.random((len(TIMES), 3)) > 0.4
    observed[2] = False
    one = series(TIMES, values, observed)
    expected = by_hand(model, one.times.astype(float), one.values.astype(float), one.observed)
    np.testing.assert_allclose(eqx.filter_jit(model)(stack([one]))[0], expected, rtol=2e-4, atol=1e-6)


@pytest.mark.slow
def test_padding_changes_nothing(key):
    model = ODERNN(2, size=4, width=6, hidden=2, key=key)
    short = series([0.1, 0.4], [[1.0, 2.0], [3.0, np.nan]])
    run = eqx.filter_jit(model)
    np.testing.assert_allclose(run(stack([short], rows=6))[0], run(stack([short]))[0], rtol=1e-6)


@pytest.mark.slow
def test_a_record_of_no_rows_gives_the_first_state(key):
    model = ODERNN(2, size=4, width=6, hidden=2, key=key)
    empty = series(np.zeros(0), np.zeros((0, 2)))
    assert not np.any(model(stack([empty], rows=3)))


@pytest.mark.slow
@pytest.mark.parametrize("times", [[0.5], [0.5, 0.501]])
def test_a_record_shorter_than_the_first_hop_is_read_to_its_end(times):
    for backward in (True, False):
        laid = moves(jnp.asarray(times), jnp.asarray(len(times)), backward)
        assert int(laid.update.sum()) == len(times)


@pytest.mark.slow
def test_gates_with_a_memory_keep_what_was_read_first(key):
    """The first of many rows still matters at the end; with gates that start at a half it does not."""
    records = [series(np.arange(40) / 40, np.r_[first, np.zeros(39)][:, None]) for first in (0.0, 5.0)]

    def distance(memory):
        model = ODERNN(1, size=8, width=6, hidden=1, memory=memory, backward=False, key=key)
        one, other = eqx.filter_jit(model)(stack(records))[:, :8]
        return float(jnp.abs(one - other).max())

    assert distance(40.0) > 1e-3 > 100 * distance(None)
