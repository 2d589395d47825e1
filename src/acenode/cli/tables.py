"""`acenode tables`: the paper's numbers and ours."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .say import fail


def tables(
    names: Annotated[list[str] | None, typer.Argument(help="Tables to show; all if none is named.")] = None,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Every row of every table: what the paper printed, and what we measured (over seeds, on test data)."""
    from ..paper.published import Line, lines
    from ..paper.results import BrokenResult, load, worded
    from ..paper.row import Row
    from ..paper.tables import TABLES

    monitors = {row.table: row.task.monitor for rows in TABLES.values() for row in rows if isinstance(row, Row)}
    try:
        made = lines(load(results) if results.is_dir() else [], monitors)
    except BrokenResult as error:
        fail(str(error))
    known = list(dict.fromkeys(line.table for line in made))
    for name in names or ():
        if name not in known:
            fail(f"no table {name!r}. There are: {', '.join(known)}.")
    chosen = [line for line in made if not names or line.table in names]
    if as_json:
        typer.echo(json.dumps(worded([asdict(line) for line in chosen]), indent=1))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(width=max(Console().width, 132))  # a terminal scrolls; words cut short are lost

    def number(mean: float | None, sd: float | None) -> str:
        if mean is None:
            return ""
        places = 4 if abs(mean) >= 0.01 else 6
        return f"{mean:.{places}f}" + (f" ± {sd:.{places}f}" if sd is not None else "")

    def cells(line: Line) -> list[str]:
        budget = "not run" if line.mean is None else f"{line.seeds} x {line.epochs}" + (", quick" if line.quick else "")
        size = "" if line.parameters is None else f"{line.parameters:,}"
        published = number(line.published_mean, line.published_sd)
        return [line.row, line.metric, published, number(line.mean, line.sd), budget, size, line.protocol or ""]

    for name in dict.fromkeys(line.table for line in chosen):
        grid = Table(title=name, title_justify="left", box=SIMPLE)
        for heading in ("row", "metric", "published", "ours", "seeds x epochs", "parameters", "protocol"):
            side = "left" if heading in ("row", "metric", "protocol") else "right"
            grid.add_column(heading, justify=side, overflow="fold")
        for line in chosen:
            if line.table == name:
                grid.add_row(*cells(line))
        console.print(grid)
