"""Rows compared with each other: what an attention adds to a model, and whether the two had the same chance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..paper import settings
from ..paper.published import published
from . import verdict
from .compared import ABLATIONS, Compared

_OWN = {"grid", "penalty", "eval_batch", "reference"}  # settings of a run that its fairness does not hang on
_OF_ATTENTION = {"algorithm", "unit", "main_gradient", "initial_with", "norm"}  # without g they mean nothing


@dataclass(frozen=True)
class Pair:
    """A row compared with another of the same table."""

    one: Compared
    other: Compared
    usual_gain: float | None = None  # of such an attention in the paper's table, if not of this row

    @property
    def gap(self) -> verdict.Gap | None:
        if not (self.one.runs and self.other.runs):
            return None
        return verdict.from_values(self.one.by_seed, self.other.by_seed)

    @property
    def claimed(self) -> float | None:
        """The paper's gain; more is better."""
        one, other = self.one.published, self.other.published
        return verdict.gain(one.mean - other.mean, self.one.metric) if one and other else None

    @property
    def expected(self) -> float | None:
        """The gain to hold ours against: none where data or question are not the paper's."""
        if self.one.other_protocol:
            return None
        return self.usual_gain if self.claimed is None else self.claimed

    @property
    def effect(self) -> verdict.Effect:
        if self.gap is None:
            return "cannot tell"
        if self.one.ran_away and not self.other.ran_away:
            return "diverges"
        return "cannot tell" if self.vague else verdict.effect(self.gap, self.one.metric, self.expected)

    @property
    def vague(self) -> bool:
        """Whether there is no gain to hold it against, and the interval holds zero and the whole score of the other."""
        if self.expected is not None or self.gap is None or self.gap.low is None or self.gap.high is None:
            return False
        if self.gap.sign:
            return False
        return max(-self.gap.low, self.gap.high) > abs(self.other.mean or 0.0)

    @property
    def control(self) -> bool:
        """Whether it is compared with its control, not against the row that it extends."""
        row = self.one.trained_as
        return bool(row) and self.other.ours[1] == row.control

    @property
    def uncontrolled(self) -> bool:
        """Whether there is a control, and this is not the pair with it."""
        row = self.one.trained_as
        return bool(row and row.control) and not self.control

    @property
    def worse(self) -> int:
        """In how many of the seeds that both have it is worse."""
        one, other = self.one.by_seed, self.other.by_seed
        return sum(verdict.gain(one[s] - other[s], self.one.metric) < 0 for s in {*one} & {*other})

    @property
    def differs(self) -> str:
        """What else than the attention is not the same in both, by their definition."""
        return (
            self.one.trained_as.differs if self.one.trained_as and self.other.ours[1] in self.one.held_against else ""
        )

    @property
    def alike(self) -> bool:
        """Whether the two differ in the attention alone: as rows, and in the settings that their runs wrote down.

        Where validation chose the learning rates of both among the same, each may have its own.
        """
        both = self.one, self.other
        if self.differs:
            return False
        written = [set.intersection(*(set(r.config) for r in c.runs)) for c in both if c.runs]
        shared = set.intersection(*written) - _OWN - (set() if self.other.base else _OF_ATTENTION)
        if all("grid" in names for names in written) and self.one.tried("learning_rate") == self.other.tried(
            "learning_rate"
        ):
            shared -= {"learning_rate"}
        had = [{repr([r.config[name] for name in sorted(shared)]) for r in c.runs} for c in both]
        wanted = set.intersection(*(set(c.trained_as.config if c.trained_as else ()) for c in both))
        missing = [wanted & set(c.outdated) for c in both]
        return had[0] == had[1] and missing[0] == missing[1]

    @property
    def short(self) -> bool:
        """Whether either had less than a full budget."""
        return self.one.short or self.other.short


def pairs(table: str, lines: Sequence[Compared]) -> list[Pair]:
    """The rows of a table to be compared with each other, as far as one of the two has runs."""
    held = {"attention-size": _larger, "attention-type": _evolving}.get(table, _attentive)
    if table == settings.TABLE:
        kept = (settings.BASE, settings.USUAL, chosen(lines))
        lines = [line for line in lines if line.row in kept]
    found = [
        Pair(one, other)
        for one in lines
        for other in lines
        if (one.ours[0], one.metric) == (other.ours[0], other.metric) and (one.runs or other.runs) and held(one, other)
    ]
    gains = _published_gains() if table == settings.TABLE else {}
    for pair in found:
        if pair.claimed is not None:
            gains[_kind(pair)] = max(pair.claimed, gains.get(_kind(pair), pair.claimed))
    return [replace(pair, usual_gain=gains.get(_kind(pair))) for pair in found]


def _published_gains() -> dict[tuple[str, str], float]:
    """Of the attention at the question that its settings are tried on."""
    of = {row: p for p in published() for row in settings.PUBLISHED if (p.ours_table, p.ours_row) == row}
    one, other = (of[row] for row in settings.PUBLISHED)
    return {(one.metric, ""): verdict.gain(one.mean - other.mean, one.metric)}


def deciding(table: str, lines: Sequence[Compared]) -> list[Pair]:
    """One pair for each row with runs, of an ablation for each two: by the metric that chose its epoch.

    An attention is compared with its control, if that was run, and else against the row without one.
    """
    best: dict[tuple[str, ...], Pair] = {}
    for pair in pairs(table, lines):
        queried = (pair.one.row, pair.other.row) if table in ABLATIONS else (pair.one.row,)
        if pair.gap and (queried not in best or _rank(pair) > _rank(best[queried])):
            best[queried] = pair
    return list(best.values())


def explained_away(table: str, lines: Sequence[Compared]) -> list[Pair]:
    """Rows better than the one that they extend, but as far as the runs tell not than their control: with that."""
    gained = {(p.one.row, p.one.metric) for p in pairs(table, lines) if not p.control and p.effect == "helps"}
    level = [p for p in deciding(table, lines) if p.control and p.effect != "helps"]
    return [p for p in level if (p.one.row, p.one.metric) in gained]


def _rank(pair: Pair) -> tuple[bool, bool]:
    row = pair.one.trained_as
    return bool(row) and pair.one.metric == row.task.monitor, pair.control


def eligible(lines: Sequence[Compared]) -> list[Compared]:
    """Settings with a validation score and the seeds and epochs of the row without attention, best first."""
    scored = [line for line in lines if np.isfinite(line.validation)]
    budget = next((_budget(line) for line in scored if line.row == settings.BASE), None)
    alike = [line for line in scored if _budget(line) == budget]
    return sorted(alike, key=lambda line: verdict.gain(line.validation, line.metric), reverse=True)


def chosen(lines: Sequence[Compared]) -> str | None:
    """The attentive setting with the best validation score."""
    return next((line.row for line in eligible(lines) if line.base), None)


def _budget(line: Compared) -> tuple:
    return sorted(line.by_seed), line.epochs, line.quick


def _kind(pair: Pair) -> tuple[str, str]:
    """The metric, and the kind of attention: evolved, from a dense layer, fixed."""
    return pair.one.metric, pair.one.ours[1].partition("ACE")[0]


def _attentive(one: Compared, other: Compared) -> bool:
    """A row, and the one that it extends by an attention, or its control."""
    return other.ours[1] in one.held_against


def _larger(one: Compared, other: Compared) -> bool:
    return (one.ours[1], other.ours[1]) == ("ACE-ODE-Net (Large)", "ACE-ODE-Net")


def _evolving(one: Compared, other: Compared) -> bool:
    """An attention that evolves from a correlation, and another of the same model."""
    alike = one.base and one.base == other.base
    return bool(alike) and one.ours[1].startswith("ACE") and other.ours[1].startswith(("FC-", "Fixed-"))
