"""`acenode tables`: the paper's numbers and ours."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ..report.compared import Compared


OUTDATED = "* The runs do not have today's settings, or did not write them down: reproduce trains them again."


def tables(
    names: Annotated[list[str] | None, typer.Argument(help="Tables to show; all if none is named.")] = None,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Every row of every table: what the paper printed, and what we measured (over seeds, on test data)."""
    from ..paper.results import BrokenResult, load, worded
    from ..paper.tables import names as known, rows_of
    from ..report.compared import tables as compared

    try:
        made = compared(load(results))
    except BrokenResult as error:
        fail(str(error))
    made |= {name: [] for name in known() if name not in made}
    for name in names or ():
        if name not in made:
            fail(f"no table {name!r}. There are: {', '.join(made)}.")
    chosen = {name: lines for name, lines in made.items() if not names or name in names}
    if as_json:
        typer.echo(json.dumps(worded([_record(line) for lines in chosen.values() for line in lines]), indent=1))
        return
    from rich.console import Console

    console = Console(width=max(Console().width, 132))  # a terminal scrolls; words cut short are lost
    for name, lines in chosen.items():
        if lines:
            console.print(_grid(name, lines))
        others = [row for row in rows_of(name) if row not in {line.row for line in lines}]
        if others:
            typer.echo(f"Rows of ours in {name} that have not been run: {'; '.join(others)}.\n")


def _grid(name: str, lines: "Sequence[Compared]") -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table

    settings = list(dict.fromkeys(_setting(run.protocol) for line in lines for run in line.runs))
    title = f"{name} ({settings[0]})" if len(settings) == 1 and settings[0] else name
    below = OUTDATED if any(line.outdated for line in lines) else None
    grid = Table(title=title, title_justify="left", box=SIMPLE, caption=below, caption_justify="left")
    headings = ["row", "metric", "published", "ours", "seeds x epochs", "parameters"]
    for heading in [*headings, "protocol"] if len(settings) > 1 else headings:
        side = "left" if heading in ("row", "metric", "protocol") else "right"
        grid.add_column(heading, justify=side, overflow="fold")
    for line in lines:
        grid.add_row(*_cells(line)[: len(grid.columns)])
    return grid


def _cells(line: "Compared") -> list[str]:
    from ..report import words

    theirs = words.published(line) if line.published else ""
    start = [line.row, line.metric, theirs]
    if not line.runs:
        return [*start, "", "not run", "", ""]
    run = line.runs[0]
    size = words.size(line) + (" *" if line.outdated else "")
    return [*start, words.ours(line), size, f"{run.parameters:,}", _setting(run.protocol)]


def _setting(protocol: str) -> str:
    """A protocol in words for strangers: nothing where data and question are the paper's."""
    return protocol.removesuffix("sound").removesuffix(", ")


def _record(line: "Compared") -> dict[str, object]:
    from ..report import words

    p, gap, run = line.published, line.gap, line.runs[0] if line.runs else None
    rates = dict.fromkeys(run.config["learning_rate"] for run in line.runs if "learning_rate" in run.config)
    return {
        "table": line.table,
        "row": line.row,
        "metric": line.metric,
        "published_mean": p.mean if p else None,
        "published_sd": p.sd if p else None,
        "published_parameters": p.parameters if p else "",
        "mean": None if line.ran_away else line.mean,
        "sd": line.sd,
        "median": line.median if line.runs and math.isfinite(line.median) else None,
        "ran_away": line.ran_away,
        "seeds": len(line.runs),
        "epochs": line.epochs if run else None,
        "protocol": run.protocol if run else None,
        "parameters": run.parameters if run else None,
        "quick": line.quick,
        "full_epochs": line.full_epochs,
        "short": line.short,
        "outdated": line.outdated,
        "difference": gap.difference if gap else None,
        "low": gap.low if gap else None,
        "high": gap.high if gap else None,
        "verdict": words.standing(line) or None,
        "learning_rate": list(rates),
    }
