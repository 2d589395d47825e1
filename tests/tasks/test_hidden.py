"""Hiding variables from a model in training."""

import jax
import numpy as np

from acenode.series import series, stack
from acenode.tasks.hidden import hidden


def test_a_part_of_the_variables_of_each_series_is_hidden_anew_every_time(key):
    values = np.random.default_rng(0).normal(size=(40, 3, 20))
    whole = stack([series(np.arange(3.0), np.where(v > 1, np.nan, v)) for v in values])
    measured = whole.observed.any(axis=1)
    one, two = (hidden(whole, 0.3, k) for k in jax.random.split(key))
    for given in (one, two):
        left = np.asarray(given.observed).any(axis=1)
        assert 0.25 < 1 - left.sum() / measured.sum() < 0.35
        np.testing.assert_array_equal(given.observed, whole.observed & left[:, None])  # a variable as a whole
        np.testing.assert_array_equal(given.values, np.where(given.observed, whole.values, 0))
        np.testing.assert_array_equal(given.times, whole.times)
        assert np.any(left[0] != left[1])
    assert np.any(one.observed != two.observed)


def test_no_part_hides_nothing(key):
    whole = stack([series([0.0, 1.0], [[1.0], [2.0]])])
    assert hidden(whole, 0.0, key) is whole
