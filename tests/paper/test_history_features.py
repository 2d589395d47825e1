"""What PhysioNet rows are given besides: last values against loops, statistics and their bins against interpolation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import Trace
from acenode.ode import Constant, Stats
from acenode.paper.history_features import (
    CarriedForward,
    ResidualDecoder,
    Statistics,
    WithLastValue,
    last_rows,
    statistic_edges,
    statistics,
)
from acenode.series import series, stack

NAN = np.nan
RECORDS = stack(
    [
        series([0.1, 0.3, 0.6], [[1.0, NAN, NAN], [2.0, 5.0, NAN], [NAN, 6.0, NAN]]),
        series([0.2], [[NAN, NAN, 7.0]]),
    ]
)
MEAN = np.array([0.5, -0.5, 0.25])


def test_last_rows():
    np.testing.assert_array_equal(last_rows(RECORDS)[0], [[0, -1, -1], [1, 1, -1], [1, 2, -1]])
    np.testing.assert_array_equal(last_rows(RECORDS)[1], [[-1, -1, 0]] * 3)


def test_an_encoder_sees_values_carried_forward():
    seen = {}

    def look(given):
        seen.update(values=np.asarray(given.values), observed=np.asarray(given.observed))
        return jnp.zeros((2, 1))

    CarriedForward(look)(RECORDS)
    np.testing.assert_array_equal(seen["values"][0], [[1, 0, 0], [2, 5, 0], [2, 6, 0]])
    np.testing.assert_array_equal(seen["observed"], RECORDS.observed)


def _line(series, times, key, *, attention=False):
    """A model whose states are the first values and the time."""
    first = jnp.broadcast_to(jnp.asarray(series.values)[:, :1], (*times.shape, series.variables))
    states = jnp.concatenate([first, times[..., None]], axis=-1)[None]
    return Trace(states, states[:, :, 0], jnp.zeros(len(times)), None, Stats.none(len(times)), None, None)


def _still(series, times, key, *, attention=False):
    """A model whose states are zeros, whatever the query."""
    none = jnp.zeros(2)
    return Trace(jnp.zeros((1, *times.shape, 2)), jnp.zeros((1, 2, 2)), none, None, Stats.none(2), None, None)


def test_states_are_followed_by_last_values_and_their_age(key):
    times = jnp.asarray([[0.7, 0.9], [0.8, 1.0]])
    plain = _line(RECORDS, times, key).states
    states = WithLastValue(_line, Constant(jnp.asarray(MEAN)))(RECORDS, times, key).states
    np.testing.assert_array_equal(states[..., :-6], plain)
    values, age = states[0, ..., -6:-3], states[0, ..., -3:]
    np.testing.assert_allclose(values[0], [[2.0, 6.0, 0.25]] * 2)
    np.testing.assert_allclose(values[1], [[0.5, -0.5, 7.0]] * 2)
    np.testing.assert_allclose(age[0], [[0.4, 0.1, 0.7], [0.6, 0.3, 0.9]], rtol=1e-6)
    np.testing.assert_allclose(age[1], [[0.8, 0.8, 0.6], [1.0, 1.0, 0.8]], rtol=1e-6)


def test_the_last_value_is_of_no_later_row(key):
    times = jnp.asarray([[0.05, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.4]], RECORDS.times.dtype)
    states = WithLastValue(_still, Constant(jnp.asarray(MEAN)))(RECORDS, times, key).states
    values, age = states[0, ..., -6:-3], states[0, ..., -3:]
    np.testing.assert_allclose(values[0], [[0.5, -0.5, 0.25], [1.0, -0.5, 0.25], [2.0, 5.0, 0.25], [2.0, 5.0, 0.25]])
    np.testing.assert_allclose(age[0], [[0.05] * 3, [0.1, 0.2, 0.2], [0.0, 0.0, 0.3], [0.2, 0.2, 0.5]], atol=1e-6)
    np.testing.assert_allclose(values[1, :, 2], [0.25, 7.0, 7.0, 7.0])
    np.testing.assert_allclose(age[1, :, 2], [0.1, 0.0, 0.1, 0.2], atol=1e-6)


def test_the_last_value_counts_less_with_age(key):
    decoder = ResidualDecoder(4, 3, key=key)
    own, last = np.array([0.1, -0.2, 0.3, 0.0]), np.array([2.0, 6.0, -1.0])
    both = np.asarray(decoder.net.weight) @ own + np.asarray(decoder.net.bias)
    guess, logit = both[:3], both[3:]
    distances = []
    for age in (0.0, 0.5, 50.0):
        trust = 1 / (1 + np.exp(age * np.log(2.0) - logit))  # softplus(0) = log 2
        value = decoder(jnp.concatenate([own, last, np.full(3, age)]))
        np.testing.assert_allclose(value, guess + trust * (last - guess), rtol=1e-5)
        distances.append(np.abs(np.asarray(value) - last))
    assert (distances[0] < 0.2 * np.abs(guess - last)).all()
    assert (distances[0] < distances[1]).all() and (distances[1] < distances[2]).all()
    assert jax.grad(lambda d: d(jnp.ones(10)).sum())(decoder).fading.shape == (3,)


# --- statistics -----------------------------------------------------------------------------------------------

HISTORIES = [
    series([0.0, 1.0, 3.0], [[3.0, np.nan], [2.5, -2.0], [-1.0, np.nan]]),
    series([0.5], [[np.nan, 4.0]]),
    series(np.zeros(0), np.zeros((0, 2))),
]


def by_hand(times, values) -> list[float]:
    if not len(values):
        return [0.0] * 7
    slope = np.polyfit(times, values, 1)[0] if len(values) > 1 else 0.0
    ends = [values.min(), values.max()]
    return [values[-1], values.mean(), values.std(), slope * times.std(), *ends, np.log1p(len(values))]


def test_statistics_of_every_variable():
    found, known = eqx.filter_jit(statistics)(stack(HISTORIES))
    for r, record in enumerate(HISTORIES):
        for v in range(2):
            seen = record.observed[:, v]
            expected = by_hand(record.times[seen], record.values[seen, v])
            np.testing.assert_allclose(found[r, :, v], expected, rtol=1e-6, atol=1e-12)
            assert bool(known[r, v]) == seen.any()


def test_padding_is_no_value():
    for padded, plain in zip(statistics(stack(HISTORIES, rows=9)), statistics(stack(HISTORIES)), strict=True):
        np.testing.assert_allclose(padded, plain, rtol=1e-6)


@pytest.fixture(scope="module")
def many():
    random = np.random.default_rng(0)
    return stack([series(np.arange(4.0), random.normal(size=(4, 3)), random.random((4, 3)) > 0.7) for _ in range(60)])


def test_bins_hold_equally_many_training_series(many):
    edges = statistic_edges(many, bins=4)
    assert edges.shape == (7, 3, 5)
    found, known = statistics(many)
    for v in range(3):
        means = np.asarray(found)[np.asarray(known)[:, v], 1, v]
        counts, _ = np.histogram(means, edges[1, v])
        assert counts.max() - counts.min() <= 1


def test_a_variable_without_a_value_in_training_has_bins_without_width(many):
    none = eqx.tree_at(lambda s: s.observed, many, many.observed & np.asarray([True, False, True]))
    assert not statistic_edges(none)[:, 1].any()


def test_a_statistic_is_told_by_how_far_it_came_through_each_bin(many):
    edges = statistic_edges(many, bins=4)
    encoder = Statistics(Constant(jnp.asarray(edges)))
    given = many[:5]
    told = np.asarray(eqx.filter_jit(encoder)(given))
    assert told.shape == (5, encoder.size) and encoder.size == 3 * (7 * 4 + 1)
    bins, flags = told[:, :-3].reshape(5, 7, 3, 4), told[:, -3:]
    found, known = (np.asarray(x) for x in statistics(given))
    np.testing.assert_array_equal(flags, known - 0.5)
    assert not known.all() and not bins[~np.broadcast_to(known[:, None], bins.shape[:-1])].any()
    for r, s, v in np.argwhere(np.broadcast_to(known[:, None], bins.shape[:-1])):
        if np.all(np.diff(edges[s, v]) > 0):  # how many bins lie behind it, as a broken line
            through = np.interp(found[r, s, v], edges[s, v], np.arange(5))
            np.testing.assert_allclose((bins[r, s, v] + 0.5).sum(), through, rtol=1e-5, atol=1e-6)


def test_values_that_are_all_the_same_have_no_spread_and_no_trend():
    found, _ = statistics(stack([series([0.0, 1.0, 2.5], [[0.1], [0.1], [0.1]])]))
    np.testing.assert_allclose(found[0, :, 0], [0.1, 0.1, 0, 0, 0.1, 0.1, np.log(4)], rtol=1e-6)
    assert not np.any(found[0, 2:4])


def test_rounding_moves_nothing_through_a_bin_without_width():
    encoder = Statistics(Constant(jnp.ones((7, 1, 3))))
    at, above = (np.asarray(encoder(stack([series([0.0], [[x]])]))) for x in (1.0, 1.0 + 1e-7))
    np.testing.assert_allclose(at, above, atol=1e-3)


def test_bins_without_width_are_steps():
    edges = np.zeros((7, 1, 3), np.float32)
    encoder = Statistics(Constant(jnp.asarray(edges)))
    low, high = (np.asarray(encoder(stack([series([0.0], [[x]])])))[0] for x in (-2.0, 2.0))
    last = slice(0, 2)
    assert low[last].tolist() == [-0.5, -0.5] and high[last].tolist() == [0.5, 0.5]


def test_outliers_are_not_far_away(many):
    encoder = Statistics(Constant(jnp.asarray(statistic_edges(many))))
    told = encoder(stack([series([0.0], [[1e6, -1e6, 0.0]])]))
    assert np.abs(told).max() <= 0.5
