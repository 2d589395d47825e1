"""Hiding values from a model in training."""

import jax
import numpy as np

from acenode.series import series, stack
from acenode.tasks.hidden import hidden


def test_a_part_of_the_values_is_hidden_anew_every_time(key):
    values = np.random.default_rng(0).normal(size=(200, 5))
    whole = stack([series(np.arange(200.0), np.where(values > 1, np.nan, values))])
    one, two = (hidden(whole, 0.3, k) for k in jax.random.split(key))
    for given in (one, two):
        assert not np.any(given.observed & ~whole.observed)
        assert 0.25 < 1 - given.observed.sum() / whole.observed.sum() < 0.35
        np.testing.assert_array_equal(given.values, np.where(given.observed, whole.values, 0))
        np.testing.assert_array_equal(given.times, whole.times)
    assert np.any(one.observed != two.observed)


def test_no_part_hides_nothing(key):
    whole = stack([series([0.0, 1.0], [[1.0], [2.0]])])
    assert hidden(whole, 0.0, key) is whole
