"""Differences between runs with their intervals, by Student's t over seeds, and Holm's adjustment for many of them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..paper.published import HIGHER_IS_BETTER

ALPHA = 0.05


class Difference(NamedTuple):
    """One mean minus another, its 95 % interval and two-sided p-value; not numbers from a single seed."""

    difference: float
    low: float
    high: float
    p: float


class Moments(NamedTuple):
    """Mean and standard deviation of some values; an exact number counts as infinitely many without deviation.

    Folds of the same series are no independent values, as they train on much the same: their `overlap` is that of
    `paper.row.Row`.
    """

    mean: float
    sd: float = 0.0
    size: float = math.inf
    overlap: float = 0.0

    @property
    def variance(self) -> float:
        """Of the mean; of overlapping folds after Nadeau and Bengio (2003)."""
        return self.sd**2 * (1 / self.size + self.overlap)


def moments(values: Sequence[float], overlap: float = 0.0) -> Moments:
    known = len(values) > 1 and np.isfinite(values).all()
    sd = float(np.std(values, ddof=1)) if known else math.nan
    return Moments(float(np.mean(values)), sd, len(values), overlap)


def difference(one: Mapping[int, float], other: Mapping[int, float], overlap: float = 0.0) -> Difference:
    """Between two rows, both by seed: paired where the seeds are the same, else by Welch's test."""
    if one.keys() == other.keys():
        return welch(moments([one[seed] - other[seed] for seed in one], overlap), Moments(0.0))
    return welch(moments([*one.values()], overlap), moments([*other.values()], overlap))


def welch(one: Moments, other: Moments) -> Difference:
    """Welch's test of two means; with an exact number, Student's."""
    from scipy import stats

    mean, variance = one.mean - other.mean, one.variance + other.variance
    if not (math.isfinite(mean) and math.isfinite(variance)):
        return Difference(mean, math.nan, math.nan, math.nan)
    if variance == 0:
        return Difference(mean, mean, mean, float(mean == 0))
    parts = [each.variance**2 / (each.size - 1) for each in (one, other) if each.variance]
    freedom, error = variance**2 / sum(parts), math.sqrt(variance)
    reach = float(stats.t.ppf(1 - ALPHA / 2, freedom)) * error
    return Difference(mean, mean - reach, mean + reach, 2 * float(stats.t.sf(abs(mean) / error, freedom)))


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values of one family; what is not a number has no test and is not in the family."""
    found = np.array(p, float)
    order = np.argsort(found, kind="stable")[: int(np.isfinite(found).sum())]
    found[order] = np.minimum(np.maximum.accumulate(found[order] * np.arange(len(order), 0, -1)), 1.0)
    return found


def gain(difference: float, metric: str) -> float:
    """A difference, turned so that more is better."""
    return difference if metric in HIGHER_IS_BETTER else -difference
