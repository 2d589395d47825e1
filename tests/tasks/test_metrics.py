"""Metrics: against scikit-learn, and the recovery of influence on cases made by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from acenode.tasks.metrics import average_precision, calibration_error, edge_auc, influence_correlation, roc_auc


@pytest.mark.parametrize("seed", range(3))
def test_areas_equal_scikit_learn_with_ties_and_padding(seed):
    random = np.random.default_rng(seed)
    score = np.round(random.random(60), 1)
    label = (random.random(60) < 0.3).astype(float)
    weight = (np.arange(60) < 50).astype(float)
    args = jnp.asarray(score), jnp.asarray(label), jnp.asarray(weight)
    np.testing.assert_allclose(roc_auc(*args), roc_auc_score(label[:50], score[:50]), rtol=1e-9)
    np.testing.assert_allclose(average_precision(*args), average_precision_score(label[:50], score[:50]), rtol=1e-9)


def test_one_class_alone_has_no_area():
    ones = jnp.ones(4)
    assert np.isnan(roc_auc(jnp.arange(4.0), ones, ones))
    assert np.isnan(roc_auc(jnp.arange(4.0), 0 * ones, ones))
    assert np.isnan(roc_auc(jnp.arange(4.0), jnp.asarray([0.0, 0, 0, 1]), jnp.asarray([1.0, 1, 1, 0])))


def test_calibration_of_a_perfect_and_of_a_wrong_forecast():
    label = jnp.asarray([0.0, 1.0, 0.0, 1.0])
    assert calibration_error(jnp.full(4, 0.5), label, jnp.ones(4)) == 0
    np.testing.assert_allclose(calibration_error(jnp.full(4, 0.9), label, jnp.ones(4)), 0.4, rtol=1e-6)


# --- recovery of known influence ------------------------------------------------------------------------------

# Two samples, one moment, three units: the first has the edges 1 -> 0 and 0 -> 2, the second 2 -> 1.
TRUTH = np.zeros((2, 1, 3, 3))
TRUTH[0, 0, 0, 1], TRUTH[0, 0, 2, 0], TRUTH[1, 0, 1, 2] = 1.0, -2.0, 0.5


def test_edges_are_found_whatever_their_sign():
    assert edge_auc(TRUTH, TRUTH) == 1
    assert edge_auc(-TRUTH, TRUTH) == 1
    assert edge_auc(1 - np.abs(TRUTH), TRUTH) < 0.5


def test_equal_weights_find_no_edge():
    assert edge_auc(np.full_like(TRUTH, 1 / 3), TRUTH) == 0.5


def test_edge_auc_by_hand():
    """Three edges among 12 pairs; a weight on one edge and on one other pair."""
    weights = np.zeros_like(TRUTH)
    weights[0, 0, 0, 1], weights[1, 0, 0, 1] = 0.7, -0.9
    # the edge with 0.7 is above 8 of 9 pairs; the two of 0 tie with 8 each
    assert edge_auc(weights, TRUTH) == pytest.approx((8 + 2 * 0.5 * 8) / 27)


def test_the_diagonal_does_not_count():
    shifted = TRUTH + 5 * np.eye(3)
    assert edge_auc(shifted, TRUTH) == edge_auc(TRUTH, shifted) == 1
    assert influence_correlation(shifted, TRUTH) == pytest.approx(1)


def test_a_truth_of_one_class_has_no_edge_auc():
    assert np.isnan(edge_auc(TRUTH, np.zeros_like(TRUTH)))
    assert np.isnan(edge_auc(TRUTH, np.ones_like(TRUTH)))


def test_correlation_is_of_each_sample_and_sees_the_sign():
    assert influence_correlation(3 * TRUTH + 1, TRUTH) == pytest.approx(1)
    assert influence_correlation(-TRUTH, TRUTH) == pytest.approx(-1)
    half = TRUTH.copy()
    half[1] *= -4  # the scale of a sample does not matter
    assert influence_correlation(half, TRUTH) == pytest.approx(0, abs=1e-12)


def test_correlation_over_time():
    """A graph that switches: static weights fit one half of the time."""
    before, after = np.zeros((3, 3)), np.zeros((3, 3))
    before[0, 1], after[2, 1] = 1.0, 1.0
    truth = np.stack([before, before, after, after])[None]
    static = np.broadcast_to((before + after) / 2, truth.shape)
    pairs = ~np.eye(3, dtype=bool)
    expected = np.corrcoef(static[0][:, pairs].ravel(), truth[0][:, pairs].ravel())[0, 1]
    assert influence_correlation(static, truth) == pytest.approx(expected) and 0.5 < expected < 0.8


def test_constant_weights_have_no_correlation():
    same = np.full_like(TRUTH, 0.25)
    assert np.isnan(influence_correlation(same, TRUTH))
    same[0] = TRUTH[0]
    assert influence_correlation(same, TRUTH) == pytest.approx(1)


def test_weights_at_other_moments_are_refused():
    with pytest.raises(ValueError, match=r"weights have shape \(2, 1, 3, 3\) and the true influence \(2, 4, 3, 3\)"):
        edge_auc(TRUTH, np.repeat(TRUTH, 4, axis=1))
