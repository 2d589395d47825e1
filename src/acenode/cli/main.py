"""The command `acenode`. Heavy imports happen inside the commands, so that `--help` is quick."""

from pathlib import Path
from typing import Annotated

import typer

from . import data, own
from .report import report
from .reproduce import reproduce
from .serve import serve
from .tables import tables
from .terminal import fail
from .tune import tune

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
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training of the large network.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the data and of the models.")] = 0,
) -> None:
    """Forecast generated oscillators with and without an attention that evolves; writes a page."""
    from ..demo import run

    try:
        run(out, epochs=epochs, seed=seed)
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror or error}. Choose another folder with --out.")


for command in (tables, reproduce, report, *own.COMMANDS, tune, serve):
    app.command()(command)
app.add_typer(data.app, name="data")


def run() -> None:
    app()
