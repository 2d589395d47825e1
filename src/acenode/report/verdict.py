"""What runs say: against a published number, and against the runs of another row.

An interval holds the difference with 95 % confidence, by Student's t over seeds. A published number is taken as exact:
the paper gives no single runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..paper.results import Result

CONFIDENCE = 0.95
HIGHER_IS_BETTER = frozenset({"accuracy", "auc", "auprc", "silhouette"})  # all else is an error or a loss

Effect = Literal["helps", "does not help", "hurts", "cannot tell"]


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


def from_number(values: Sequence[float], number: float) -> Gap:
    """The mean of some values minus a number."""
    return _gap(np.asarray(values, float) - number)


def from_values(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Gap:
    """The mean of ours minus that of theirs, both by seed: paired over the seeds they share, else Welch's interval."""
    shared = sorted(set(ours) & set(theirs))
    if shared:
        return _gap(np.array([ours[s] - theirs[s] for s in shared]), paired=True)
    a, b = (np.array(list(each.values()), float) for each in (ours, theirs))
    difference, seeds = float(a.mean() - b.mean()), min(len(a), len(b))
    if seeds < 2 or not math.isfinite(difference):
        return Gap(difference, None, None, seeds)
    one, two = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    spread = one + two
    freedom = spread**2 / (one**2 / (len(a) - 1) + two**2 / (len(b) - 1)) if spread > 0 else 1.0
    reach = _quantile(freedom) * math.sqrt(spread)
    return Gap(difference, difference - reach, difference + reach, seeds)


def _gap(differences: np.ndarray, paired: bool = False) -> Gap:
    mean, count = float(differences.mean()), len(differences)
    if count < 2 or not math.isfinite(mean):
        return Gap(mean, None, None, count, paired)
    reach = _quantile(count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    return Gap(mean, mean - reach, mean + reach, count, paired)


def _quantile(freedom: int | float) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def by_seed(runs: Sequence[Result], metric: str) -> dict[int, float]:
    return {r.seed: float(r.metrics[metric]) for r in runs if metric in r.metrics}


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

    Where zero lies in the interval, a gain as large as the published one (`claimed`, more is better) may lie in it too:
    then there is no telling. Where it does not, there is no gain such as the paper's.
    """
    if gap.low is None or gap.high is None:
        return "cannot tell"
    if gap.sign:
        return "helps" if gain(gap.sign, metric) > 0 else "hurts"
    most = max(gain(gap.low, metric), gain(gap.high, metric))
    return "does not help" if claimed is not None and most < claimed else "cannot tell"
