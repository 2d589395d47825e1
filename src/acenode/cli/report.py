"""`acenode report`: the page on the paper's tables, and the part of README that is made from result files."""

from pathlib import Path
from typing import Annotated

import typer

from .terminal import fail


def report(
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("report"),
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data files: the attention is then drawn over sample images.")
    ] = None,
    readme: Annotated[Path | None, typer.Option(help="A Markdown file whose results are to be made anew.")] = None,
) -> None:
    """Write the report on the paper's tables from the result files: published and measured numbers side by side."""
    try:
        import matplotlib
        import scipy  # noqa: F401
    except ImportError as error:
        fail(f"{error.name} is missing. Install it with: pip install 'acenode[report]'")
    matplotlib.use("Agg")
    from ..datasets.files import DataCorrupted, DataNotFound
    from ..paper.results import BrokenResult, load
    from ..report.paper import write
    from ..report.readme import NoMarkers, with_results
    from ..train.checkpoint import write_atomically

    try:
        found = load(results)
        if not found:
            fail(
                f"no result files in {results}. Make some with acenode reproduce, or name their folder with --results."
            )
        text = with_results(readme.read_text(encoding="utf-8"), found) if readme else ""
        page = write(found, results, out, data_dir)
    except (BrokenResult, DataNotFound, DataCorrupted) as error:
        fail(str(error))
    except NoMarkers as error:
        fail(f"{readme} {error}.")
    except OSError as error:
        fail(f"cannot use {error.filename or out}: {error.strerror or error}.")
    typer.echo(str(page))
    if readme:
        write_atomically(readme, text.encode())
        typer.echo(str(readme))
