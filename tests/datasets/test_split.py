"""Divisions into training, validation and test samples."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from acenode.datasets.split import Split, k_fold, random_split


def assert_partition(split: Split, n: int):
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(n))
    for part in split:
        assert (np.diff(part) > 0).all()


@given(st.integers(1, 200), st.integers(0, 5), st.sampled_from([(0.8, 0.1, 0.1), (1, 0, 0), (0.33, 0.33, 0.34)]))
def test_random_split_is_a_partition(n, seed, fractions):
    split = random_split(n, fractions, seed)
    assert_partition(split, n)
    for part, fraction in zip(split, fractions, strict=True):
        assert abs(len(part) - n * fraction) < 1


def test_random_split_sizes_are_exact():
    assert [len(part) for part in random_split(10, (0.9, 0.1, 0.0), 0)] == [9, 1, 0]
    assert [len(part) for part in random_split(3200, (0.9, 0.1, 0.0), 0)] == [2880, 320, 0]


def test_random_split_depends_on_the_seed_only():
    first, same, other = (random_split(100, (0.6, 0.2, 0.2), seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first.test, other.test)


def test_stratified_split_keeps_the_shares():
    labels = np.r_[np.zeros(860), np.ones(100), np.full(40, np.nan)]
    split = random_split(1000, (0.8, 0.1, 0.1), 3, stratify=labels)
    assert_partition(split, 1000)
    for part, deaths, unknown in zip(split, (80, 10, 10), (32, 4, 4), strict=True):
        assert np.nansum(labels[part]) == deaths
        assert np.isnan(labels[part]).sum() == unknown


@pytest.mark.parametrize("fractions", [(0.8, 0.2), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (0.5, 0.5, np.nan)])
def test_bad_fractions(fractions):
    with pytest.raises(ValueError, match="sum to 1"):
        random_split(10, fractions, 0)


def test_bad_arguments():
    with pytest.raises(ValueError, match="n is 0"):
        random_split(0, (0.8, 0.1, 0.1), 0)
    with pytest.raises(ValueError, match=r"stratify has shape \(3,\)"):
        random_split(4, (0.8, 0.1, 0.1), 0, stratify=[0, 1, 0])
    with pytest.raises(ValueError, match=r"groups has shape \(2,\)"):
        k_fold(4, 2, 0, groups=[0, 1])
    with pytest.raises(ValueError, match="folds is 5; expected 2 to 4"):
        k_fold(4, 5, 0)
    with pytest.raises(ValueError, match="folds is 1"):
        k_fold(4, 1, 0)
    with pytest.raises(ValueError, match="validation is 1"):
        k_fold(4, 2, 0, validation=1)
    with pytest.raises(ValueError, match="n is 0"):
        k_fold(0, 2, 0)


@given(st.integers(5, 100), st.integers(2, 5), st.sampled_from([0, 0.2, 0.99]))
def test_k_fold_tests_everything_once(n, folds, validation):
    splits = k_fold(n, folds, 7, validation=validation)
    assert len(splits) == folds
    assert np.array_equal(np.sort(np.concatenate([split.test for split in splits])), np.arange(n))
    for split in splits:
        assert_partition(split, n)
        assert len(split.train) >= 1
        assert n // folds <= len(split.test) <= -(-n // folds)


def test_k_fold_keeps_groups_together():
    rng = np.random.default_rng(0)
    groups = np.array([f"person {i}" for i in rng.integers(0, 20, 500)])
    for split in k_fold(500, 5, 1, groups, validation=0.25):
        assert_partition(split, 500)
        sides = [set(groups[part]) for part in split]
        assert sum(len(side) for side in sides) == 20
        assert [len(side) for side in sides[:2]] == [12, 4]
        assert 80 <= len(split.test) <= 120
