"""Statistics of series against loops, and their bins against interpolation."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import Statistics, statistic_edges
from acenode.models.statistics import statistics
from acenode.ode import Constant
from acenode.series import series, stack

RECORDS = [
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
    found, known = eqx.filter_jit(statistics)(stack(RECORDS))
    for r, record in enumerate(RECORDS):
        for v in range(2):
            seen = record.observed[:, v]
            expected = by_hand(record.times[seen], record.values[seen, v])
            np.testing.assert_allclose(found[r, :, v], expected, rtol=1e-6, atol=1e-12)
            assert bool(known[r, v]) == seen.any()


def test_padding_is_no_value():
    for padded, plain in zip(statistics(stack(RECORDS, rows=9)), statistics(stack(RECORDS)), strict=True):
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
