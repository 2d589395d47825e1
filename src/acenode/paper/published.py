"""The paper's own numbers, and ours beside them."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from .results import Result


@dataclass(frozen=True)
class Published:
    """A number of the paper. Accuracies are parts of one, squared errors as in its tables times the power it prints.

    `ours_table` and `ours_row` say under which name our runs of the same are kept.
    """

    table: str
    row: str
    metric: str
    mean: float
    sd: float | None
    parameters: str
    ours_table: str
    ours_row: str


def published() -> list[Published]:
    """Every number of the paper's tables, in their order."""
    text = files("acenode.paper").joinpath("published.csv").read_text(encoding="utf-8")
    return [
        Published(
            r["table"],
            r["row"],
            r["metric"],
            float(r["mean"]),
            float(r["sd"]) if r["sd"] else None,
            r["parameters"],
            r["ours_table"],
            r["ours_row"],
        )
        for r in csv.DictReader(text.splitlines())
    ]


def runs_of(results: Sequence[Result], table: str, row: str, metric: str) -> tuple[Result, ...]:
    """The runs of a row, by seed: the full ones, or the quick ones where there are no others."""
    found = [r for r in results if (r.table, r.row) == (table, row) and metric in r.metrics]
    full = [r for r in found if not r.config.get("quick")]
    return tuple(sorted(full or found, key=lambda r: r.seed))


@dataclass(frozen=True)
class Line:
    """A line of a table: the paper's number, where it has one, and ours, where we have one."""

    table: str
    row: str
    metric: str
    published_mean: float | None
    published_sd: float | None
    published_parameters: str
    mean: float | None
    sd: float | None
    seeds: int
    epochs: int | None
    protocol: str | None
    parameters: int | None
    quick: bool


def lines(results: Sequence[Result], monitors: dict[str, str]) -> list[Line]:
    """Every number of the paper with ours beside it, then our rows that the paper does not have.

    `monitors` names the metric to show for such rows, table by table.
    """
    made, used = [], set()
    for p in published():
        own = runs_of(results, p.ours_table, p.ours_row, p.metric)
        used.add((p.ours_table, p.ours_row))
        made.append(_line(p.table, p.row, p.metric, own, p))
    rest = dict.fromkeys((r.table, r.row) for r in results if (r.table, r.row) not in used)
    for table, row in rest:
        had = next(r.metrics for r in results if (r.table, r.row) == (table, row))
        metric = monitors.get(table, next(iter(had)))
        made.append(_line(table, row, metric, runs_of(results, table, row, metric), None))
    order = list(dict.fromkeys(line.table for line in made))
    return sorted(made, key=lambda line: order.index(line.table))


def _line(table: str, row: str, metric: str, own: Sequence[Result], p: Published | None) -> Line:
    values = np.array([r.metrics[metric] for r in own])
    return Line(
        table,
        row,
        metric,
        p.mean if p else None,
        p.sd if p else None,
        p.parameters if p else "",
        float(values.mean()) if len(own) else None,
        float(values.std(ddof=1)) if len(own) > 1 and np.isfinite(values).all() else None,
        len(own),
        min(r.epochs for r in own) if own else None,
        own[0].protocol if own else None,
        own[0].parameters if own else None,
        any(r.config.get("quick") for r in own),
    )
