"""`acenode data`: which data sets there are, where their files lie, how to get them, and what is in them."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import fail

if TYPE_CHECKING:
    from ..datasets.catalogue import DataSet
    from ..datasets.facts import Facts

app = typer.Typer(
    help="The data sets: list them, get their files, see what is in them.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="A name from `acenode data list`.")]
Place = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the data files, if not $ACENODE_DATA.")]
Set = Annotated[str | None, typer.Option("--set", help="Which set, of a collection such as physiome.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("list")
def list_(data_dir: Place = None, as_json: AsJson = False) -> None:
    """Every data set: what it is, how large, under which licence, and whether its files are here."""
    from ..datasets.catalogue import CATALOGUE

    with _sentences():
        places = {name: each.found(data_dir) for name, each in CATALOGUE.items()}
    if as_json:
        rows = [
            {"name": each.name, "what": each.what, "size": each.size, "licence": each.licence}
            | {"generated": each.generated, "found": None if places[name] is None else str(places[name])}
            for name, each in CATALOGUE.items()
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    width = max(map(len, CATALOGUE))
    for name, each in CATALOGUE.items():
        typer.echo(f"{name:{width}s}  {each.what}")
        typer.echo(f"{'':{width}s}  {each.size}; {each.licence}; {_where(each, places[name])}")


@app.command()
def get(
    name: Name,
    data_dir: Place = None,
    checkout: Annotated[
        Path | None,
        typer.Option("--from", help="A checkout of the benchmark, for physiome. This runs code of it: its model.py."),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="A set of physiome; repeat it for each. [default: all 50]")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that make physiome. [default: one for each processor]")
    ] = None,
) -> None:
    """Download the official files of a data set, checked, into the data folder (or the cache); or say how to.

    physiome is made from a checkout of the public benchmark instead: this runs the checkout's code, the model.py of
    each set that is made, so name only one that you trust.
    """
    each = _known(name)
    if each.make is None and (checkout is not None or sets or jobs is not None):
        fail(f"{name} is not made from a checkout: leave out --from, --set and --jobs.")
    if each.generated:
        typer.echo(f"{name} is generated; there is nothing to get.")
        return
    if data_dir is not None and data_dir.exists() and not data_dir.is_dir():
        fail(f"{data_dir} is not a folder. Choose another with --data-dir.")
    with _sentences():
        if each.make is not None:
            _make(each, checkout, sets, _target(each, data_dir), jobs)
            return
        place = each.found(data_dir if data_dir is not None and data_dir.is_dir() else None)
        if place is not None and (data_dir is None or place.is_relative_to(data_dir)):
            typer.echo(f"{name} is in {place}")
            return
        if each.official is None:
            fail(each.steps())
        _fetch(each, _target(each, data_dir))


@app.command()
def info(name: Name, set_name: Set = None, data_dir: Place = None, as_json: AsJson = False) -> None:
    """What the files of a data set hold: samples, variables, ranges, classes, and everything odd about them."""
    each = _known(name)
    with _sentences():
        place = _must_be_here(each, data_dir)
        facts = each.facts(each.load(data_dir, *_of_collection(each, set_name, data_dir)))
    if as_json:
        head = {
            "name": name,
            **({"set": set_name} if set_name else {}),
            "licence": each.licence,
            "folder": None if place is None else str(place),
        }
        typer.echo(json.dumps(head | asdict(facts), indent=1))
        return
    typer.echo(f"{name}: {each.what}")
    typer.echo(f"licence: {each.licence}")
    typer.echo(f"files: {_where(each, place)}")
    _show(facts)


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="File for the table, .csv or .parquet.")],
    labelled: Annotated[
        bool | None, typer.Option("--labelled/--unlabelled", help="Only series with, or without, a known label.")
    ] = None,
    set_name: Set = None,
    data_dir: Place = None,
) -> None:
    """Write a data set of series as a table, for `acenode train` and `acenode predict` or for other tools."""
    from .read import write_table

    each = _known(name)
    if each.table is None:
        tables = ", ".join(n for n, d in _catalogue().items() if d.table is not None)
        fail(f"{name} is not written as a table of series; these are: {tables}.")
    if out.suffix not in (".csv", ".parquet"):
        fail(f"{out}: expected a file that ends with .csv or .parquet.")
    _must_be_here(each, data_dir)
    with _sentences():
        table = each.table(data_dir, *_of_collection(each, set_name, data_dir))
        rows = table.rows
        if labelled is not None:
            if table.label is None:
                fail(f"{name} has no labels; leave out --labelled and --unlabelled.")
            rows = rows.filter(rows[table.label].is_valid() if labelled else rows[table.label].is_null())
            rows = rows if labelled else rows.drop_columns([table.label])
        if len(rows) == 0:
            fail(f"{name}: there are no such series.")
        write_table(rows, out)
    label = f", --label {table.label}" if table.label in rows.column_names else ""
    typer.echo(f"{len(rows):,} rows written to {out} (--id {table.id}, --time {table.time}{label})")


# --- parts -----------------------------------------------------------------------------------------------------------


def _catalogue() -> dict[str, "DataSet"]:
    from ..datasets.catalogue import CATALOGUE

    return CATALOGUE


def _known(name: str) -> "DataSet":
    known = _catalogue()
    if name not in known:
        fail(f"no data set {name!r}. There are: {', '.join(known)}.")
    return known[name]


def _must_be_here(each: "DataSet", data_dir: Path | None) -> Path | None:
    """The folder of its files; none where it has none."""
    place = each.found(data_dir)
    if place is None and not each.generated:
        looked = "".join(f"\n  {folder}" for folder in each.places(data_dir))
        call = f"acenode data get {each.name}{' --from CHECKOUT' if each.make else ''}"
        fail(f"{each.name} is not here. Looked in:{looked}\nGet it with: {call}\n{each.steps()}")
    return place


def _of_collection(each: "DataSet", name: str | None, data_dir: Path | None) -> tuple[str, ...]:
    """The named set of a collection; nothing for a data set that is not one."""
    if each.sets is None:
        if name is not None:
            fail(f"{each.name} is one data set: leave out --set.")
        return ()
    if name is None:
        fail(f"{each.name} has several sets: name one with --set. Here are: {', '.join(each.sets(data_dir))}.")
    return (name,)


def _where(each: "DataSet", place: Path | None) -> str:
    if each.generated:
        return "no files needed"
    if place is not None:
        return f"in {place}"
    if each.make is not None:
        return f"not here: acenode data get {each.name} --from CHECKOUT"
    return f"not here: acenode data get {each.name}" if each.official else "not here, to be fetched by hand"


def _target(each: "DataSet", data_dir: Path | None) -> Path:
    """The folder that downloads go to."""
    from ..datasets import files

    given = data_dir or os.environ.get("ACENODE_DATA")
    return Path(given or files.cache_folder()) / each.folder


def _make(each: "DataSet", checkout: Path | None, sets: list[str] | None, target: Path, jobs: int | None) -> None:
    """Make the sets that are not there, each whole before the next; everything is checked before the first."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ..datasets import physiome_raw

    if checkout is None:
        fail(f"{each.name}: name a checkout of the benchmark with --from. {each.source}")
    wanted = list(dict.fromkeys(sets or physiome_raw.known()))
    for name in wanted:
        physiome_raw.system(checkout, name)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for name in wanted:
            if not (target / f"{name}.npz").exists():
                task = progress.add_task(name, total=physiome_raw.SERIES)
                advance = partial(progress.advance, task)
                physiome_raw.make(checkout, name, target, processes=jobs, advance=advance)
    typer.echo(f"{', '.join(wanted)} of {each.name} in {target}")


def _fetch(each: "DataSet", target: Path) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from ..datasets import files

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for remote in each.official() if each.official else ():
            bar = _Bar(progress, remote.name)
            files.fetch(each.name, remote, target, bar=bar)
    typer.echo(f"{each.name} is in {target}")


class _Bar:
    """A line of a progress display, in the form that pooch talks to."""

    def __init__(self, progress: Any, name: str):
        self.progress = progress
        self.task = progress.add_task(name, total=None)

    @property
    def total(self) -> float | int | None:
        return self.progress.tasks[self.task].total

    @total.setter
    def total(self, total: int) -> None:
        self.progress.update(self.task, total=total or None)

    def update(self, amount: int) -> None:
        self.progress.advance(self.task, amount)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        pass


def _show(facts: "Facts") -> None:
    """The facts as text."""
    typer.echo(f"samples: {facts.samples:,}")
    if facts.rows is not None and facts.observed is not None:
        typer.echo(f"rows: {facts.rows:,} with {facts.observed:.1%} of their values observed")
        typer.echo(f"times: 0 to {facts.until:g} {facts.time_unit}".rstrip())
    total = max(sum(facts.classes.values()), 1)
    for label, count in facts.classes.items():
        typer.echo(f"class {label}: {count:,} ({count / total:.1%})")
    for line in facts.remarks:
        typer.echo(line)
    for file, sha256 in facts.sha256.items():
        typer.echo(f"sha256 of {file}: {sha256}")
    width = max(len(v.name) for v in facts.variables)
    typer.echo(f"\n{'variable':{max(width, 8)}s} {'observed':>9s} {'least':>11s} {'mean':>11s} {'greatest':>11s}  unit")
    for v in facts.variables:
        numbers = " ".join(f"{'':>11s}" if n is None else f"{n:11.5g}" for n in (v.low, v.mean, v.high))
        typer.echo(f"{v.name:{max(width, 8)}s} {v.observed:9.2%} {numbers}  {v.unit}".rstrip())


@contextmanager
def _sentences() -> Iterator[None]:
    """Faults of data and folders become one sentence, warnings a line."""
    from ..datasets.files import DataCorrupted, DataNotFound

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (DataNotFound, DataCorrupted, ImportError) as error:
            fail(str(error))
        except OSError as error:
            fail(f"{error.filename or 'a file'}: {error.strerror or error}. Choose another folder, or free some space.")
        except ValueError as error:
            fail(str(error))
        finally:
            for each in caught:
                typer.echo(f"acenode: {each.message}", err=True)
