"""How a command ends when it cannot go on."""

from typing import NoReturn

import typer


def fail(sentence: str) -> NoReturn:
    """End the command with one sentence and exit code 1."""
    typer.echo(f"acenode: {sentence}", err=True)
    raise typer.Exit(1)
