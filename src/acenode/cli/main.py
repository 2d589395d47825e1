"""The command `acenode`. Heavy imports happen inside the commands, so that `--help` is quick."""

from pathlib import Path
from typing import Annotated

import typer

from . import own
from .say import fail
from .tables import tables

app = typer.Typer(
    name="acenode",
    help="Attentive co-evolving neural ODEs: train, compare, explain and use them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False) -> None:
    if version:
        from .. import __version__

        typer.echo(f"acenode {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the pictures.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training for each model.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the data and of the models.")] = 0,
) -> None:
    """Train an attentive model and its rivals on generated regions, and show what they learned."""
    from ..demo import run

    try:
        run(out, epochs=epochs, seed=seed)
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror or error}. Choose another folder with --out.")


@app.command()
def reproduce(
    table: Annotated[str, typer.Argument(help="Name of the table, e.g. physionet-classification.")],
    rows: Annotated[list[str] | None, typer.Option("--row", help="A row of it, by its name; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, trained as one ensemble.")] = 5,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs, if not those of the recipe.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate, if not that of the row.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the data files.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result files.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Folder for checkpoints.")] = Path("runs"),
) -> None:
    """Train rows of a table of the paper, seeds as one ensemble; goes on from where it was stopped."""
    from ..datasets.files import DataCorrupted, DataNotFound
    from ..paper.reproduce import reproduce as run_row, summary
    from ..paper.tables import TABLES

    if table not in TABLES:
        fail(f"no table {table!r}. There are: {', '.join(TABLES)}.")
    known = {row.name: row for row in TABLES[table]}
    unknown = [name for name in rows or () if name not in known]
    if unknown:
        fail(f"table {table} has no row {unknown[0]!r}. Its rows: {'; '.join(known)}.")
    for name in rows or known:
        try:
            budget = {"epochs": epochs, "learning_rate": learning_rate}
            done = run_row(known[name], range(seeds), results, runs, **budget, data_dir=data_dir)
        except (DataNotFound, DataCorrupted) as error:
            fail(str(error))
        typer.echo(f"{name}: {summary(done, known[name].task.monitor) if done else 'done before'}")


for command in (tables, *own.COMMANDS):
    app.command()(command)


def run() -> None:
    app()
