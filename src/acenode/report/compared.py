"""The paper's tables with our runs beside them: which runs stand for which number."""

import functools as ft
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import cast

import numpy as np

from ..paper.published import Published, published, runs_of
from ..paper.results import Result
from ..paper.row import Row
from ..paper.tables import TABLES
from . import verdict

EPOCHS = {  # as published
    "mnist": 160,
    "svhn": 160,
    "cifar10": 160,
    "silhouette": 160,
    "ushcn": 300,
    "physionet-classification": 30,
    "physionet-regression": 30,
    "activity": 70,
}
COPIES = {
    "regenerated SVHN, sound": "The SVHN images are cut anew from the pictures of whole house numbers: a few dozen of "
    "their 305 million grey levels may differ by 1 from the official files.",
}
"""Protocols of runs on a copy of the paper's data that is as good, and what is to be said of it."""

COMPARABLE = {"comparable", *COPIES}  # protocols of runs on the paper's data and question

UNDEFINED = {"silhouette": "features, images and clusters of our choice"}
"""Metrics that the paper does not define, and what ours are of."""

BESIDE = {"physionet-regression": ("mse_per_value",), "double-ou": ("negll", "mse")}
"""Metrics to show beside the published ones, which are not sound or not there."""

ABLATIONS = ("attention-size", "attention-type")  # tables that are about the attention itself


@ft.cache
def _of_the_paper() -> frozenset[tuple[str, str]]:
    """Table and name of our rows that the paper has a number for."""
    return frozenset((p.ours_table, p.ours_row) for p in published())


@ft.cache
def _usual_epochs(table: str) -> frozenset[int]:
    """Of our recipes for the rows of a table that the paper has."""
    paper = _of_the_paper()
    return frozenset(row.epochs for row in TABLES.get(table, ()) if isinstance(row, Row) and (table, row.name) in paper)


def _spread(number: Published) -> float | None:
    """Of a published number over seeds; an ablation repeats numbers of other tables without it."""
    what = attrgetter("ours_table", "ours_row", "metric", "mean")
    return next((p.sd for p in published() if what(p) == what(number) and p.sd is not None), None)


@dataclass(frozen=True)
class Compared:
    """One number of a table: the paper's, where it has one, and our runs, where there are any."""

    table: str
    row: str
    metric: str
    ours: tuple[str, str]  # table and row of our runs
    published: Published | None
    runs: tuple[Result, ...]

    @property
    def values(self) -> list[float]:
        """By run; infinitely bad where it diverged."""
        found = [float(r.metrics[self.metric]) for r in self.runs]
        return np.where(verdict.ran_away(found, self.metric), verdict.gain(-np.inf, self.metric), found).tolist()

    @property
    def ran_away(self) -> int:
        """How many of the runs."""
        return sum(not np.isfinite(value) for value in self.values)

    @property
    def by_seed(self) -> dict[int, float]:
        return {r.seed: value for r, value in zip(self.runs, self.values, strict=True)}

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.values)) if self.runs else None

    @property
    def sd(self) -> float | None:
        """Over seeds; none of a single one, or where a run diverged."""
        if len(self.runs) < 2 or not np.isfinite(self.values).all():
            return None
        return float(np.std(self.values, ddof=1))

    @property
    def validation_by_seed(self) -> dict[int, float]:
        """The scores on validation data; not a number where there is none."""
        return {r.seed: r.validation.get(f"validation_{self.metric}", np.nan) for r in self.runs}

    @property
    def validation(self) -> float:
        """The mean score on validation data; not a number where there is none."""
        return float(np.mean(list(self.validation_by_seed.values()))) if self.runs else np.nan

    @property
    def median(self) -> float:
        """Over seeds; infinite where most diverged."""
        return float(np.median(self.values))

    @property
    def gap(self) -> verdict.Gap | None:
        """Ours minus the paper's number, where they are comparable."""
        if self.published is None or not self.runs or self.other_protocol:
            return None
        return verdict.from_number(self.values, self.published.mean, _spread(self.published))

    @property
    def quick(self) -> bool:
        """Whether any of the runs had a budget smaller than its recipe's."""
        return any(r.config.get("quick") for r in self.runs)

    def tried(self, setting: str) -> set[float]:
        """Among which learning rates, or lambdas, validation chose; none if it did not."""
        return {each[setting] for r in self.runs for each in cast(list[dict], r.config.get("grid", []))}

    @property
    def epochs(self) -> int:
        """Epochs that were planned, for the seed with the fewest: training may stop earlier by itself."""
        return min(int(str(r.config.get("epochs", r.epochs))) for r in self.runs)

    @property
    def in_paper(self) -> bool:
        """Whether the paper has a number for this row, if not for this metric."""
        return self.ours in _of_the_paper()

    @property
    def full_epochs(self) -> int | None:
        """As published; of a row that the paper does not have and that is not as long as others, its recipe's."""
        if self.in_paper or (self.trained_as and self.trained_as.epochs in _usual_epochs(self.ours[0])):
            return EPOCHS.get(self.ours[0])
        return None if self.trained_as is None else self.trained_as.epochs

    @property
    def trained_as(self) -> Row | None:
        """Our row of that name, if it is one to train."""
        named = (row for row in TABLES.get(self.ours[0], ()) if row.name == self.ours[1])
        return next((row for row in named if isinstance(row, Row)), None)

    @property
    def base(self) -> str:
        """The row that this one extends by an attention, if it does."""
        return self.trained_as.base if self.trained_as else ""

    @property
    def held_against(self) -> tuple[str, ...]:
        """The rows that tell what its attention does, if it has one."""
        return (self.base, self.trained_as.control) if self.trained_as else ()

    @property
    def outdated(self) -> tuple[str, ...]:
        """Settings of the row that have changed since the runs."""
        changed = (self.trained_as.changed(r.config) for r in self.runs) if self.trained_as else ()
        return tuple(dict.fromkeys(name for names in changed for name in names))

    @property
    def trained(self) -> bool:
        """Whether there was anything to train, unlike with the last value carried forward."""
        return any(r.parameters for r in self.runs)

    @property
    def short(self) -> bool:
        """Whether the runs had fewer epochs than the published ones, or than their recipe if they are ours alone."""
        return self.trained and (self.quick or self.epochs < (self.full_epochs or 0))

    @property
    def other_protocol(self) -> str:
        """Where the runs differ from the paper in data or question, or the metric is not defined there: the words."""
        undefined = (UNDEFINED[self.metric],) if self.metric in UNDEFINED and self.runs else ()
        return "; ".join(dict.fromkeys([*undefined, *(r.protocol for r in self.runs if r.protocol not in COMPARABLE)]))


def tables(results: Sequence[Result]) -> dict[str, list[Compared]]:
    """Every number of the paper, table by table in its order; after each table's own rows those that only we have."""
    numbers = published()
    made: dict[str, list[Compared]] = {}
    for p in numbers:
        ours = (p.ours_table, p.ours_row)
        made.setdefault(p.table, []).append(
            Compared(p.table, p.row, p.metric, ours, p, runs_of(results, *ours, p.metric))
        )
    ranks = {(row.table, row.name): k for rows in TABLES.values() for k, row in enumerate(rows)}
    for ours in sorted({(r.table, r.row) for r in results}, key=lambda each: (each[0], ranks.get(each, 99), each)):
        table, row = ours
        lines = made.setdefault(table, [])
        queried = dict.fromkeys([*(p.metric for p in numbers if p.ours_table == table), *BESIDE.get(table, ())])
        had = next(r.metrics for r in results if (r.table, r.row) == ours)
        for metric in [m for m in queried if m in had] or [*had][:1]:
            if not any(line.ours == ours and line.metric == metric for line in lines):
                elsewhere = next((p for p in numbers if (p.ours_table, p.ours_row, p.metric) == (*ours, metric)), None)
                lines.append(Compared(table, row, metric, ours, elsewhere, runs_of(results, *ours, metric)))
    return made


def digits(line: Compared) -> int | None:
    """Decimal places with which the paper prints such a number, or else the numbers of such a table, if there are."""
    table = [p for p in published() if p.ours_table == line.ours[0]]
    such = [p for p in table if p.metric == line.metric] or table
    numbers = [x for p in such for x in (p.mean, p.sd) if x is not None]
    return max((-int(Decimal(repr(x)).as_tuple().exponent) for x in numbers), default=None)
