"""`acenode report`: the page on the paper's tables."""

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
) -> None:
    """Write a page on all tables: published numbers and ours, comparisons with verdicts, figures, and summary.csv."""
    try:
        import jinja2  # noqa: F401
        import markdown_it  # noqa: F401
        import matplotlib
        import pandas  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        fail(f"{error.name} is missing. Install it with: pip install 'acenode[report]'")
    matplotlib.use("Agg")
    from ..datasets.files import DataCorrupted, DataNotFound
    from ..paper.results import BrokenResult, load
    from ..report.paper import write

    try:
        found = load(results)
        page = write(found, results, out, data_dir)
    except (BrokenResult, DataNotFound, DataCorrupted) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot use {error.filename or out}: {error.strerror or error}.")
    if not found:
        typer.echo(f"No result files in {results}: the page has the published numbers alone.", err=True)
    typer.echo(str(page))
