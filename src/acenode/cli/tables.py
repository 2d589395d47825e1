"""`acenode tables`: the published numbers and ours."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import fail

if TYPE_CHECKING:
    from rich.table import Table

OUTDATED = "* The settings of the row have changed since these runs; acenode reproduce trains it again."
RECORD = (
    *("table", "row", "dataset", "metric", "published", "published_sd", "published_parameters", "mean", "sd", "median"),
    *("diverged", "seeds", "epochs", "full_epochs", "quick", "parameters", "protocol", "learning_rate", "attention"),
    *("outdated", "difference", "low", "high", "standing"),
)
MOST = 50  # rows without results that are listed
COUNTS = {"diverged", "seeds", "epochs", "full_epochs", "parameters"}


def tables(
    names: Annotated[list[str] | None, typer.Argument(help="Tables to show; all if none is named.")] = None,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show every row of every table: the published number, and ours (mean and standard deviation on test data)."""
    try:
        import pandas  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        fail(f"{error.name} is missing. Install it with: pip install 'acenode[report]'")
    from ..paper.results import BrokenResult, frame, load
    from ..paper.tables import names as known, rows_of
    from ..report.scores import lines

    try:
        found = lines(frame(load(results))).to_dict("records")
    except BrokenResult as error:
        fail(str(error))
    every = list(dict.fromkeys([*(line["table"] for line in found), *known()]))
    for name in names or ():
        if name not in every:
            fail(f"no table {name!r}. There are: {', '.join(every)}.")
    chosen = {name: [line for line in found if line["table"] == name] for name in names or every}
    if as_json:
        records = [{field: _plain(field, line[field]) for field in RECORD} for own in chosen.values() for line in own]
        typer.echo(json.dumps(records, indent=1))
        return
    from rich.console import Console

    console = Console(width=max(Console().width, 132))  # a terminal scrolls; words cut short are lost
    for name, own in chosen.items():
        if own:
            console.print(_grid(name, own))
        done = {(line["dataset"], line["row"]) for line in own}
        others = [label for label, row in rows_of(name).items() if not {(row.dataset, row.name), ("", label)} & done]
        if others:
            said = "; ".join(others) if len(others) < MOST else f"{len(others)}, the first {others[0]}"
            typer.echo(f"Rows of {name} without results: {said}.\n")


def _plain(field: str, value: Any) -> Any:
    """For JSON, which has no numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return int(value) if field in COUNTS else value


def _grid(name: str, own: list[dict[str, Any]]) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table

    from ..report.paper import budget, ours, theirs

    protocols = dict.fromkeys(line["protocol"] for line in own if line["seeds"])
    title = f"{name} ({next(iter(protocols))})" if len(protocols) == 1 else name
    below = OUTDATED if any(line["seeds"] and line["outdated"] for line in own) else None
    grid = Table(title=title, title_justify="left", box=SIMPLE, caption=below, caption_justify="left")
    shown = {
        "row": lambda line: line["row"],
        "data set": lambda line: line["dataset"],
        "metric": lambda line: line["metric"],
        "published": theirs,
        "ours": ours,
        "seeds x epochs": lambda line: budget(line) + " *" * bool(line["seeds"] and line["outdated"]),
        "parameters": lambda line: f"{line['parameters']:,.0f}" if line["seeds"] else "",
        "against published": lambda line: line["standing"] if line["seeds"] else "",
        "attention": lambda line: line["attention"] if line["seeds"] else "",
        "protocol": lambda line: line["protocol"] if line["seeds"] and len(protocols) > 1 else "",
    }
    columns = {heading: [cell(line) for line in own] for heading, cell in shown.items()}
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    for heading in columns:
        right = heading in ("published", "ours", "seeds x epochs", "parameters")
        grid.add_column(heading, justify="right" if right else "left", overflow="fold")
    for cells in zip(*columns.values(), strict=True):
        grid.add_row(*cells)
    return grid
