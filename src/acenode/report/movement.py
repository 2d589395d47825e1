"""How an attention moves, by what result files keep of it for pictures."""

import math

import numpy as np

from ..paper.results import Result
from .compared import Compared

EVEN = 0.99  # of the largest entropy
STILL = 1e-3  # change of a weight or gate


def moved_weight(run: Result) -> float | None:
    """By how much any weight of a pairwise attention, a mean over test samples, differs from the first."""
    if "attention" not in run.figures:
        return None
    weights = np.asarray(run.figures["attention"]["matrices"], float)
    return float(np.abs(weights - weights[0]).max())


def moved_gates(run: Result) -> float | None:
    """By how much a gate of an elementwise attention differs at last from the first, in the mean."""
    moved = run.figures.get("attention_maps", {}).get("moved")
    return float(moved[-1]) if moved else None


def ends_even(run: Result) -> bool | None:
    """Whether the last weights of a pairwise attention are nearly all the same, by their entropy."""
    if "attention" not in run.figures:
        return None
    kept = run.figures["attention"]
    return bool(kept["entropy"][-1] >= EVEN * math.log(len(kept["matrices"][-1])))


def steady(line: Compared) -> list[Result]:
    """The runs that did not diverge."""
    return [r for r in line.runs if math.isfinite(line.by_seed[r.seed])]


def moves(line: Compared) -> list[float]:
    """By how much the attention moves in each run of which that is known."""
    found = [moved(r) for r in steady(line) for moved in (moved_weight, moved_gates)]
    return [each for each in found if each is not None]


def stands_still(line: Compared) -> bool:
    """Whether the attention is known to move in none of the runs."""
    return max(moves(line), default=STILL) < STILL
