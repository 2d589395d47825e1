"""The paper's own numbers, and which runs of ours are of the same."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

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
    dataset: str = ""


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
    ] + _of_physiome()


def _of_physiome() -> list[Published]:
    """The leaderboard of the Physiome-ODE paper."""
    text = files("acenode.paper").joinpath("physiome.csv").read_text(encoding="utf-8")
    return [
        Published(
            *("physiome", r["forecaster"], "mse", float(r["mse"]), float(r["sd"]), ""),
            "physiome",
            r["forecaster"],
            r["set"],
        )
        for r in csv.DictReader(text.splitlines())
    ]


def runs_of(results: Sequence[Result], table: str, row: str, metric: str) -> tuple[Result, ...]:
    """The runs of a row, by seed: the full ones, or the quick ones where there are no others."""
    found = [r for r in results if (r.table, r.row) == (table, row) and metric in r.metrics]
    full = [r for r in found if not r.config.get("quick")]
    return tuple(sorted(full or found, key=lambda r: r.seed))
