"""What runs say: against a published number, and against the runs of another row.

An interval holds the difference with 95 % confidence, by Student's t over seeds. A published number is the mean of five
seeds, says the paper; where it gives no spread of them, the number is taken as exact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

CONFIDENCE = 0.95
HIGHER_IS_BETTER = frozenset({"accuracy", "auc", "auprc", "silhouette"})  # all else is an error or a loss

PUBLISHED_SEEDS = 5
RAN_AWAY = 1000  # times the smallest

Effect = Literal["helps", "does not help", "no difference seen", "hurts", "diverges", "cannot tell"]


@dataclass(frozen=True)
class Gap:
    """Ours minus theirs, and its interval; none from a single seed or from a value that is not finite."""

    difference: float
    low: float | None
    high: float | None
    seeds: int
    paired: bool = False

    @property
    def sign(self) -> float:
        """Above (1) or below (-1) without doubt; 0 where zero lies in the interval, or where there is none."""
        if self.low is None or self.high is None:
            return 0.0
        return float(self.low > 0) - float(self.high < 0)


def from_number(values: Sequence[float], mean: float, sd: float | None = None) -> Gap:
    """The mean of some values minus a published one: by Welch's interval where its spread is known, else as exact."""
    ours = np.asarray(values, float)
    if sd is None or len(ours) < 2 or not np.isfinite(ours).all():
        return _gap(ours - mean)
    low, high = _welch(ours.mean() - mean, ours.var(ddof=1) / len(ours), len(ours), sd**2 / PUBLISHED_SEEDS)
    return Gap(float(ours.mean() - mean), low, high, len(ours))


def from_values(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Gap:
    """The mean of ours minus that of theirs, both by seed: paired over the seeds they share, else Welch's interval."""
    shared = sorted(set(ours) & set(theirs))
    if shared:
        return _gap(np.array([ours[s] - theirs[s] for s in shared]), paired=True)
    a, b = (np.array(list(each.values()), float) for each in (ours, theirs))
    difference, seeds = float(a.mean() - b.mean()), min(len(a), len(b))
    if seeds < 2 or not math.isfinite(difference):
        return Gap(difference, None, None, seeds)
    low, high = _welch(difference, a.var(ddof=1) / len(a), len(a), b.var(ddof=1) / len(b), len(b))
    return Gap(difference, low, high, seeds)


def _welch(difference: float, one: float, ones: int, two: float, twos: int = PUBLISHED_SEEDS) -> tuple[float, float]:
    """Welch's interval, from the variances of the two means and the numbers of values they are of."""
    spread = one + two
    freedom = spread**2 / (one**2 / (ones - 1) + two**2 / (twos - 1)) if spread > 0 else 1.0
    reach = _quantile(freedom) * math.sqrt(spread)
    return float(difference - reach), float(difference + reach)


def _gap(differences: np.ndarray, paired: bool = False) -> Gap:
    mean, count = float(differences.mean()), len(differences)
    if count < 2 or not math.isfinite(mean):
        return Gap(mean, None, None, count, paired)
    reach = _quantile(count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    return Gap(mean, mean - reach, mean + reach, count, paired)


def _quantile(freedom: int | float) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def ran_away(values: Sequence[float], metric: str) -> np.ndarray:
    """Which of the runs of a row: those whose error is not a number, or a thousand times the smallest.

    A NegLL may lie near zero, so at least 1 is taken for the smallest.
    """
    found = np.abs(np.asarray(values, float))
    if metric in HIGHER_IS_BETTER:
        return ~np.isfinite(found)
    known = found[np.isfinite(found) & (found > 0)]
    least = max(known.min(), 1.0 if metric == "negll" else 0.0) if known.size else math.inf
    return ~(found <= RAN_AWAY * least)


def gain(difference: float, metric: str) -> float:
    """A difference, turned so that more is better."""
    return difference if metric in HIGHER_IS_BETTER else -difference


def standing(gap: Gap, metric: str) -> Literal["better", "worse", "level", "unknown"]:
    """Ours against a published number."""
    if gap.low is None:
        return "unknown"
    return "level" if gap.sign == 0 else "better" if gain(gap.sign, metric) > 0 else "worse"


def effect(gap: Gap, metric: str, claimed: float | None) -> Effect:
    """Whether what one row adds to the other helps.

    Where zero lies in the interval, there is no telling if the published difference (`claimed`, more is better) lies
    in it too. If it does not, there is no gain such as the paper's, or no loss; without one, no difference is seen.
    """
    if gap.low is None or gap.high is None:
        return "cannot tell"
    if gap.sign:
        return "helps" if gain(gap.sign, metric) > 0 else "hurts"
    if claimed is None:
        return "no difference seen"
    if gap.low <= gain(claimed, metric) <= gap.high:
        return "cannot tell"
    return "does not help" if claimed > 0 else "no difference seen"
