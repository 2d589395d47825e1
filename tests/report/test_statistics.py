"""Differences, intervals and adjusted p-values, against numbers worked out by hand and against scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from acenode.report.statistics import Moments, difference, gain, holm, moments, welch

T2 = 4.302652729696142  # Student's t, 97.5 %, two degrees of freedom


def test_the_same_seeds_are_paired():
    found = difference({0: 0.1, 1: 0.5, 2: 0.9}, {2: 0.99, 1: 0.61, 0: 0.2})  # differences -0.1, -0.11, -0.09
    reach = T2 * 0.01 / math.sqrt(3)
    assert found[:3] == pytest.approx((-0.1, -0.1 - reach, -0.1 + reach))
    assert found.p == pytest.approx(stats.ttest_rel([0.1, 0.5, 0.9], [0.2, 0.61, 0.99]).pvalue)


def test_folds_that_overlap_are_no_independent_values():
    """The corrected test of resampled folds, by its formula."""
    one, other = {0: 0.1, 1: 0.5, 2: 0.9}, {2: 0.99, 1: 0.61, 0: 0.2}
    found = difference(one, other, 0.25)
    error = 0.01 * math.sqrt(1 / 3 + 0.25)
    assert found[:3] == pytest.approx((-0.1, -0.1 - T2 * error, -0.1 + T2 * error))
    assert found.p == pytest.approx(2 * stats.t.sf(0.1 / error, 2)) and found.p > difference(one, other).p


def test_other_seeds_have_welchs_interval():
    one, other = {0: 1.0, 1: 2.0, 2: 3.5}, {1: 1.0, 2: 2.0, 3: 3.0, 4: 7.0}
    found = difference(one, other)
    theirs = stats.ttest_ind(list(one.values()), list(other.values()), equal_var=False)
    assert found[1:3] == pytest.approx(tuple(theirs.confidence_interval(0.95))) and found.p == pytest.approx(
        theirs.pvalue
    )


def test_a_published_number_has_the_spread_that_it_is_printed_with_or_none():
    ours = moments([0.80, 0.82, 0.84])
    exact = welch(ours, Moments(0.85))
    reach = T2 * 0.02 / math.sqrt(3)
    assert exact[:3] == pytest.approx((-0.03, -0.03 - reach, -0.03 + reach))
    theirs = stats.ttest_ind_from_stats(0.82, 0.02, 3, 0.85, 0.03, 5, equal_var=False)
    assert welch(ours, Moments(0.85, 0.03, 5)).p == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(
    "one, other", [({0: 0.8}, {0: 0.9}), ({0: 1.0}, {1: 2.0}), ({0: 0.8, 1: math.nan}, {0: 1.0, 1: 1.0})]
)
def test_there_is_no_interval_without_two_finite_values(one, other):
    assert np.isnan(difference(one, other)[1:]).all()


def test_values_without_spread_differ_exactly():
    assert difference({0: 1.0, 1: 1.0}, {2: 0.5, 3: 0.5}) == (0.5, 0.5, 0.5, 0.0)
    assert difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p == 1.0


def test_holm_steps_down_and_leaves_out_what_was_not_tested():
    # Sorted 0.01, 0.02, 0.03: times 3, 2, 1, and never less than the one before.
    np.testing.assert_allclose(holm([0.03, math.nan, 0.01, 0.02]), [0.04, math.nan, 0.03, 0.04])
    assert holm([0.6, 0.9]).tolist() == [1.0, 1.0] and holm([]).tolist() == [] and np.isnan(holm([math.nan])).all()


def test_more_is_better_for_some_metrics_only():
    assert gain(0.1, "accuracy") == 0.1 and gain(0.1, "mse") == -0.1
