"""`acenode reproduce`: train rows of the paper's tables."""

import difflib
import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import answered, checked, device_failed, fail

if TYPE_CHECKING:
    from ..launch import Job
    from ..paper.baselines import Baseline
    from ..paper.row import Row

UNFINISHED = 75  # what Unix calls a temporary failure: try again
INTERRUPTED = 130  # what a shell says of a command that Ctrl-C ended
STOPPING = (
    "Stopping at the end of the epoch; Ctrl-C again stops at once. The same call resumes from the last whole epoch."
)


class Launcher(StrEnum):
    local = "local"
    slurm = "slurm"
    ray = "ray"


def reproduce(
    table: Annotated[str, typer.Argument(help="Name of the table, e.g. physionet-classification.")],
    rows: Annotated[
        list[str] | None, typer.Option("--row", "--rows", help="A row of it, by its name; repeat it for each.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="A packed set, for physiome; repeat it for each. [default: all in the data folder]"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds, trained as one ensemble. [default: 5, or 2 if quick]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs, if not those of the recipe.")] = None,
    learning_rate: Annotated[
        list[float] | None,
        typer.Option(help="If not that of the row; of several (repeat it), the validation score chooses."),
    ] = None,
    penalty: Annotated[
        list[float] | None,
        typer.Option(help="Lambda of Equation 6, if not that of the row; likewise."),
    ] = None,
    grid: Annotated[
        bool,
        typer.Option("--grid", help="The paper's grid of both (without g, of rates alone); validation chooses."),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the epochs; the results are marked as such.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Rows at a time: while one trains on an accelerator, the host compiles another.")
    ] = 1,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop at the end of the epoch after so many; the same call resumes (exit status 75)."),
    ] = None,
    launcher: Annotated[
        Launcher,
        typer.Option(help="Where rows train, one a job: in this process, on Slurm by submitit, or as tasks of Ray."),
    ] = Launcher.local,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            "--resource",
            help="KEY=VALUE for the launcher, such as timeout_min=60, slurm_partition=gpu or num_gpus=1; repeat it.",
        ),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the data files.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result files.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Folder for checkpoints.")] = Path("runs"),
) -> None:
    """Train rows of a table of the paper, seeds as one ensemble; resumes where it was stopped."""
    from jax.errors import JaxRuntimeError

    from ..datasets.files import DataCorrupted, DataNotFound
    from ..paper import climate, physiome
    from ..paper.reproduce import reproduce as run_row
    from ..paper.results import BrokenResult
    from ..paper.row import Refused, Row
    from ..paper.tables import names, rows_of
    from ..paper.together import OutOfTime, together
    from ..train import CheckpointMismatch
    from ..train.checkpoint import DamagedCheckpoint

    if table not in names():
        fail(f"no table {table!r}. There are: {', '.join(names())}.")
    if grid and (learning_rate or penalty):
        fail("--grid chooses the learning rate and lambda itself. Leave out --learning-rate and --penalty, or --grid.")
    if not all(0 < rate < math.inf for rate in learning_rate or ()):
        fail("--learning-rate has to be a number above 0.")
    if not all(0 <= value < math.inf for value in penalty or ()):
        fail("--penalty has to be a number not below 0.")
    if sets and table != physiome.TABLE:
        fail(f"--set: table {table} has no sets to choose from, only {physiome.TABLE} has. Leave it out.")
    if table == physiome.TABLE:
        known = _on_sets(sets or (), data_dir)
    else:
        known = {name: [row] for name, row in rows_of(table).items()}
    unknown = [name for name in rows or () if name not in known]
    if unknown:
        fail(_no_row(table, unknown[0], known))
    chosen = [row for name in rows or known for row in known[name]]
    without = [row.name for row in chosen if isinstance(row, Row) and not row.grid]
    if grid and without:
        fail(f"--grid: the paper has none for {without[0]!r}. Give --learning-rate and --penalty, several of each.")
    budget = {"epochs": epochs, "learning_rates": learning_rate or (), "penalties": penalty or (), "grid": grid}
    seeded = range(seeds or (2 if quick else 5))
    if len(seeded) > climate.FOLDS and any(row.table == "ushcn" for row in chosen):
        fail(f"--seeds {seeds}: each seed of ushcn is a fold of its data, and there are {climate.FOLDS} of these.")
    seconds = math.inf if minutes is None else 60 * minutes

    if launcher is not Launcher.local:
        if minutes is not None or jobs > 1:
            fail(f"--minutes and --jobs are for --launcher local; give {launcher.value} its limits by --resource.")
        from ..launch import Job

        folders: dict[str, Any] = {"results": str(results.resolve()), "runs": str(runs.resolve())}
        folders["data_dir"] = None if data_dir is None else str(data_dir.resolve())
        rates = {"learning_rates": tuple(learning_rate or ()), "penalties": tuple(penalty or ())}
        told = {**rates, **folders, "epochs": epochs, "grid": grid, "quick": quick, "seeds": tuple(seeded)}
        _launch([Job(row.table, row.name, row.dataset, **told) for row in chosen], launcher, resources or (), runs)
        return
    if resources:
        fail("--resource is for --launcher slurm or ray.")

    def run(row, progress):
        return run_row(row, seeded, results, runs, **budget, quick=quick, data_dir=data_dir, progress=progress)

    try:
        with answered(STOPPING):
            for row, done in together(chosen, run, jobs, _label, seconds):
                told = _told(row, done, quick) if done else f"done before, see {results / row.table}"
                typer.echo(f"{_label(row)}: {told}")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except OutOfTime:
        typer.echo(f"{minutes:g} minutes are over. The same call resumes from the last whole epoch.", err=True)
        raise typer.Exit(UNFINISHED) from None
    except (
        DataNotFound,
        DataCorrupted,
        BrokenResult,
        CheckpointMismatch,
        DamagedCheckpoint,
        Refused,
        ImportError,
    ) as error:
        fail(str(error))
    except JaxRuntimeError as error:
        fail(device_failed(error))
    except OSError as error:
        fail(f"cannot use {error.filename or 'a file'}: {error.strerror or error}.")


def _launch(jobs: Sequence[Any], launcher: Launcher, resources: Iterable[str], runs: Path) -> None:
    """Let an engine train the rows, and say of each how it ended."""
    from ..launch import on_ray, on_slurm

    given = dict(map(_resource, resources))
    failed = []

    def all_of_them() -> None:
        outcomes = on_ray(jobs, given) if launcher is Launcher.ray else on_slurm(jobs, runs / "slurm", given)
        for job, outcome in outcomes:
            typer.echo(f"{_label(job)}: {outcome.said}", err=outcome.failed)
            failed.extend([job] * outcome.failed)

    checked(all_of_them)
    if failed:
        raise typer.Exit(1)


def _resource(given: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as a number where it is one."""
    name, equals, value = given.partition("=")
    if not name or not equals:
        fail(f"--resource {given}: expected KEY=VALUE, such as timeout_min=60.")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _on_sets(sets: Sequence[str], data_dir: Path | None) -> "dict[str, list[Row | Baseline]]":
    """The rows of Physiome-ODE by name, each on all chosen sets."""
    from ..datasets.files import DataNotFound
    from ..paper import physiome
    from ..paper.row import Refused

    try:
        names = physiome.chosen_sets(sets, data_dir)
    except (DataNotFound, Refused) as error:
        fail(str(error))
    return {rows[0].name: list(rows) for rows in zip(*map(physiome.rows, names), strict=True)}


def _label(row: "Row | Baseline | Job") -> str:
    return f"{row.dataset}, {row.name}" if row.dataset else row.name


def _no_row(table: str, name: str, known: Iterable[str]) -> str:
    """That there is no such row, and which may be meant."""
    lower = {row.lower(): row for row in known}
    near = [lower[each] for each in difflib.get_close_matches(name.lower(), lower, n=5, cutoff=0.3)]
    meant = f"Near to it: {'; '.join(near)}. " if near else ""
    return (
        f"table {table} has no row {name!r}. {meant}Each row needs a --row of its own; see all with: "
        f"acenode tables {table}"
    )


def _told(row, done, quick: bool) -> str:
    from ..paper.baselines import Baseline
    from ..paper.reproduce import summary

    scores = summary(done, "mse" if isinstance(row, Baseline) else row.task.monitor)
    return f"{scores}, a quick run of {done[0].epochs} epochs" if quick and done[0].epochs else scores
