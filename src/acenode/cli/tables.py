"""`acenode tables`: the paper's numbers and ours."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .say import fail

if TYPE_CHECKING:
    from ..report.compared import Compared


def tables(
    names: Annotated[list[str] | None, typer.Argument(help="Tables to show; all if none is named.")] = None,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Every row of every table: what the paper printed, and what we measured (over seeds, on test data)."""
    from ..paper.results import BrokenResult, load, worded
    from ..report.compared import tables as compared

    try:
        made = compared(load(results) if results.is_dir() else [])
    except BrokenResult as error:
        fail(str(error))
    for name in names or ():
        if name not in made:
            fail(f"no table {name!r}. There are: {', '.join(made)}.")
    chosen = {name: lines for name, lines in made.items() if not names or name in names}
    if as_json:
        typer.echo(json.dumps(worded([_record(line) for lines in chosen.values() for line in lines]), indent=1))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(width=max(Console().width, 132))  # a terminal scrolls; words cut short are lost
    for name, lines in chosen.items():
        protocols = list(dict.fromkeys(run.protocol for line in lines for run in line.runs))
        title = f"{name} ({protocols[0]})" if len(protocols) == 1 else name
        grid = Table(title=title, title_justify="left", box=SIMPLE)
        headings = ["row", "metric", "published", "ours", "seeds x epochs", "parameters"]
        for heading in [*headings, "protocol"] if len(protocols) > 1 else headings:
            side = "left" if heading in ("row", "metric", "protocol") else "right"
            grid.add_column(heading, justify=side, overflow="fold")
        for line in lines:
            grid.add_row(*_cells(line)[: len(grid.columns)])
        console.print(grid)


def _cells(line: "Compared") -> list[str]:
    from ..report import words

    theirs = words.published(line) if line.published else ""
    start = [line.row, line.metric, theirs]
    if not line.runs:
        return [*start, "", "not run", "", ""]
    budget = f"{len(line.runs)} x {line.epochs}" + (", quick" if line.quick else "")
    return [*start, words.ours(line), budget, f"{line.runs[0].parameters:,}", line.runs[0].protocol]


def _record(line: "Compared") -> dict[str, object]:
    p, run = line.published, line.runs[0] if line.runs else None
    return {
        "table": line.table,
        "row": line.row,
        "metric": line.metric,
        "published_mean": p.mean if p else None,
        "published_sd": p.sd if p else None,
        "published_parameters": p.parameters if p else "",
        "mean": line.mean,
        "sd": line.sd,
        "seeds": len(line.runs),
        "epochs": line.epochs if run else None,
        "protocol": run.protocol if run else None,
        "parameters": run.parameters if run else None,
        "quick": line.quick,
    }
