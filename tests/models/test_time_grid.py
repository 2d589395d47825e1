"""A series as steps of its own clock."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from acenode.models.time_grid import time_grid

COUNT = 40


@jax.jit
def laid(rows, real, queries):
    return time_grid(rows, real, queries, 0.0, 0.25, COUNT)


def call(rows, queries, real=None):
    rows = jnp.asarray(rows, float)
    return laid(rows, jnp.ones(rows.shape, bool) if real is None else jnp.asarray(real), jnp.asarray(queries, float))


def test_gaps_are_cut_into_equal_steps():
    masked_scan = call([0.0, 0.6], [1.0])
    assert masked_scan.enough and masked_scan.used == 1 + 3 + 2
    np.testing.assert_allclose(masked_scan.dt[:7], [0, 0.2, 0.2, 0.2, 0.2, 0.2, 0])
    np.testing.assert_allclose(masked_scan.time[:6], [0, 0, 0.2, 0.4, 0.6, 0.8], atol=1e-12)
    assert masked_scan.row.tolist()[:6] == [0, -1, -1, 1, -1, -1]
    assert masked_scan.query.tolist() == [5]


def test_a_whole_number_of_steps_is_not_cut_again():
    rows = np.float32(0.25) * np.arange(1, 9, dtype=np.float32)
    masked_scan = call(rows, [2.0])
    assert masked_scan.used == 1 + 8
    np.testing.assert_allclose(masked_scan.dt[1:9], 0.25, rtol=1e-6)


def test_padding_and_times_before_the_start_take_no_steps():
    masked_scan = call([0.5, 0.5, 0.5], [-1.0, 0.0], real=[True, False, False])
    assert masked_scan.used == 1 + 2
    assert masked_scan.row.tolist().count(0) == 1 and 1 not in masked_scan.row and 2 not in masked_scan.row
    assert masked_scan.query.tolist() == [0, 0]


def test_a_series_that_does_not_fit_says_so():
    assert not call([0.0, 100.0], [1.0]).enough


moment = st.floats(0, 6).map(lambda t: round(t, 12))  # apart by no subnormal number, which the compiler takes for zero
times = st.lists(moment, min_size=1, max_size=5).map(sorted)


@pytest.mark.slow
@settings(max_examples=60)
@given(times, st.lists(moment, min_size=1, max_size=5))
def test_every_moment_is_reached_in_steps_of_at_most_the_given_size(rows, queries):
    rows = (rows + [rows[-1]] * 5)[:5]
    queries = (queries + [queries[-1]] * 5)[:5]
    real = [True] + [b > a for a, b in itertools.pairwise(rows)]
    masked_scan = call(rows, queries, real)
    ends = np.cumsum(masked_scan.dt)
    assert masked_scan.enough and (np.asarray(masked_scan.dt) >= 0).all() and np.max(masked_scan.dt) <= 0.25 + 1e-3
    np.testing.assert_allclose(ends[np.asarray(masked_scan.query)], queries, atol=1e-6)
    for k, row in enumerate(rows):
        if real[k]:
            assert np.isclose(ends[masked_scan.row.tolist().index(k)], row, atol=1e-6)
