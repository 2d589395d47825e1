"""Commands for one's own data: train, predict, evaluate, inspect, models, export."""

import json
import math
import sys
import warnings
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import checked, fail, interruptible

File = Annotated[Path, typer.Argument(help="A .csv, .csv.gz or .parquet file: one row for each id and time.")]
Folder = Annotated[Path, typer.Argument(help="A folder made by `acenode train`.")]
Variable = Annotated[
    str | None,
    typer.Option(
        help="For a table in long format: the column with the variable's name; --value names that of its value."
    ),
]
Value = Annotated[str | None, typer.Option(help="For a table in long format: the column of values.")]
STOPPING = (
    "Stopping at the end of the epoch, with the best model so far; Ctrl-C again stops at once. The same command "
    "resumes from the last whole epoch."
)
STOPPING_SEARCH = (
    "Stopping at the end of the epoch, or when the program being compiled is ready, with the best model so far; Ctrl-C "
    "again stops at once. The same command resumes from the last whole epochs, with its whole budget."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


class Task(StrEnum):
    forecast = "forecast"
    classify = "classify"
    regress = "regress"
    impute = "impute"


class Format(StrEnum):
    stablehlo = "stablehlo"
    onnx = "onnx"


Id = Annotated[str, typer.Option("--id", help="The column that identifies the series, such as patient.")]
Time = Annotated[str, typer.Option("--time", help="The column of times: numbers or dates.")]
Chosen = Annotated[Task, typer.Option(help="What to learn.")]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", help="The column of the label or target of a series; classify takes several."),
]
Values = Annotated[
    list[str] | None,
    typer.Option("--value", help="A column to model; repeat it. [default: all others]"),
]


def train(
    data: File,
    id: Id,
    time: Time,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    task: Chosen = Task.forecast,
    label: Label = None,
    values: Values = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")] = None,
    variable: Variable = None,
    future: Annotated[
        list[str] | None, typer.Option("--future", help="A column known ahead, given with the times to forecast.")
    ] = None,
    static: Annotated[
        list[str] | None, typer.Option("--static", help="A column that is the same in all rows of a series.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="The column with the weight of each series in training.")] = None,
    missing: Annotated[
        list[float] | None,
        typer.Option(
            "--missing",
            help="A number that stands for a missing value, such as -999; may be repeated. The model keeps it.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="auto compares several and keeps the best; or a name from `acenode models`.")
    ] = "auto",
    minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="Minutes of training, 5 by default; the best model so far is kept."),
    ] = None,
    ensemble: Annotated[
        int | None, typer.Option(min=1, help="Number of models to average: up to 5 with auto, else 1.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many epochs.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Size of the hidden state.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the model and of the split.")] = 0,
    report: Annotated[bool, typer.Option(help="Write a page with pictures into the folder.")] = True,
    as_json: AsJson = False,
) -> None:
    """Train a model on a table of irregular measurements. Ctrl-C keeps the best so far; the same command resumes."""
    from ..estimators import Classifier, Forecaster, Imputer, Regressor
    from ..estimators.saved import check_target

    kinds: dict[Task, Any] = {Task.forecast: Forecaster, Task.classify: Classifier, Task.impute: Imputer}
    kinds[Task.regress] = Regressor
    given: dict[str, Any] = {"epochs": epochs, "hidden": hidden, "learning_rate": learning_rate, "seed": seed}
    given |= {"id": id, "time": time, "values": values, "missing": missing}
    given |= {"model": model, "minutes": minutes, "ensemble": ensemble, "static": static, "weight": weight}
    if task is Task.forecast:
        given["future"] = future
    elif future:
        fail(f"--future is for --task forecast, not for {task.value}.")
    if variable is not None:
        given["values"] = None
    if task in (Task.classify, Task.regress):
        if not label:
            fail(f"{task.value} needs a label: give its column with --label.")
        if task is Task.regress and len(label) > 1:
            fail("--label: regress takes one target; train a model for each.")
        given["label"] = label[0] if len(label) == 1 else label
    elif label:
        fail(f"--label is for --task classify or regress, not for {task.value}.")
    estimator = kinds[task](**given)
    place = out.resolve()
    checkpoint = place.with_name(f".{place.name}-training{'' if model == 'auto' else '.safetensors'}")
    checked(lambda: check_target(out))
    check_writable(place)
    frame = read(
        data, id=id, labels=label or () if task is Task.classify else (), mixed=values if variable and values else ()
    )
    if variable is not None:
        others = [name for name in (*(label or ()), weight, *(static or ()), *(future or ())) if name is not None]
        frame = _wide(frame, id, time, variable, values, others)
        values = None
    for name in drop or ():
        if name not in frame.columns:
            fail(f"--drop {name}: there is no such column; there are {', '.join(frame.columns)}.")
        if name in (id, time, *(label or ()), *(values or ())):
            fail(f"--drop {name}: another option names the column too.")
    frame = frame.drop(set(drop or ()))
    finished = _fit(estimator, frame, checkpoint, quiet=as_json)
    if not math.isfinite(estimator.summary_.validation):
        _remove(checkpoint)
        fail("the training diverged: no epoch had a finite score, and nothing is saved. Try a lower --learning-rate.")
    checked(lambda: estimator.save(place))
    if finished:
        _remove(checkpoint)
    show_summary(estimator, out, as_json)
    if report:
        from .own_report import write_report

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # such as letters that a font does not have
                page = write_report(estimator, frame, out)
            if page is not None and not as_json:
                typer.echo(f"its page is {page}")
        except Exception as error:  # whatever it is, it must not cost a finished training
            typer.echo(f"acenode: the model is saved, but there is no report: {error}", err=True)


def predict(
    folder: Folder,
    data: File,
    out: Annotated[Path, typer.Option(help="File for the predictions, .csv or .parquet.")],
    at: Annotated[
        list[str] | None, typer.Option("--at", help="A time to forecast, in the table's zone; may be repeated.")
    ] = None,
    at_file: Annotated[Path | None, typer.Option(help="A table of ids and times to forecast.")] = None,
    variable: Variable = None,
    value: Value = None,
) -> None:
    """Forecasts, probabilities or filled blanks for the series of a table."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        fail(f"--out {out}: predictions are written as .csv or .parquet.")
    estimator = _load(folder)
    if estimator.task != "forecast" and (at or at_file):
        fail(f"--at and --at-file are for a model that forecasts; this one is a {type(estimator).__name__}.")
    id = estimator.columns_.id
    worded = set(map(str, estimator.categories_))  # text, even where this table has true and false alone
    frame = read(data, id=id, text=worded, mixed=[value] if variable and value else ())
    if variable is not None:
        frame = _wide_for(estimator, frame, variable, value)
    check_writable(out)
    if estimator.task == "forecast":
        if (at is None) == (at_file is None):
            fail("say at which times: --at TIME (repeated), or --at-file with a table of ids and times.")
        queries = read(at_file, id=id, text=worded, like=frame) if at_file else _times(at or [], estimator)
        predicted = checked(lambda: estimator.predict(frame, at=queries))
    elif estimator.task == "classify":
        predicted = checked(lambda: estimator.predict_proba(frame))
    elif estimator.task == "regress":
        predicted = checked(lambda: estimator.predict(frame))
    else:
        predicted = checked(lambda: estimator.transform(frame))
    from .read import write_table

    checked(lambda: write_table(predicted, out))
    typer.echo(f"{len(predicted):,} rows written to {out}")


def evaluate(
    folder: Folder, data: File, variable: Variable = None, value: Value = None, as_json: AsJson = False
) -> None:
    """How good a model is on a table that it has not seen."""
    estimator = _load(folder)
    roles = estimator.columns_
    # Of classes named by text some may look like numbers, and be alone in this table.
    classes = [each if isinstance(each, tuple) else (each,) for each in getattr(estimator, "classes_", ())]
    text = {name for k, name in enumerate(roles.labels) if any(isinstance(each[k], str) for each in classes)}
    named = roles.labels if classes else ()
    text |= set(map(str, estimator.categories_))
    frame = read(data, id=roles.id, labels=named, text=text, mixed=[value] if variable and value else ())
    if variable is not None:
        frame = _wide_for(estimator, frame, variable, value)
    metrics = checked(lambda: estimator.evaluate(frame))
    if as_json:
        typer.echo(json.dumps({name: value if math.isfinite(value) else None for name, value in metrics.items()}))
    else:
        for name, value in metrics.items():
            typer.echo(f"{name:14s} {value:.4f}")


def inspect(folder: Folder, as_json: AsJson = False) -> None:
    """What a saved model is, how it was trained and on what."""
    from ..estimators.saved import read_head

    head = checked(lambda: read_head(folder))
    head.pop("history")
    if as_json:
        typer.echo(json.dumps(head, indent=1))
        return
    for part in ("estimator", "columns", "left_out", "classes", "members", "settings", "summary", "versions"):
        value = head[part]
        typer.echo(f"{part}:" if isinstance(value, dict) else f"{part}: {value}")
        for name, each in value.items() if isinstance(value, dict) else ():
            typer.echo(f"  {name}: {each}")


def models(as_json: AsJson = False) -> None:
    """The models that `acenode train --model` takes."""
    from ..estimators.registry import MODELS

    if as_json:
        entries = {name: {"description": e.description, "attends": e.attends} for name, e in MODELS.items()}
        typer.echo(json.dumps(entries, indent=1))
        return
    width = max(map(len, MODELS))
    for name, each in MODELS.items():
        typer.echo(f"{name:{width}s}  {each.description}")


def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="File for the program, e.g. model.stablehlo or model.onnx.")],
    format: Annotated[Format, typer.Option(help="The language of the program.")] = Format.stablehlo,
    batch: Annotated[int, typer.Option(min=1, help="Series at a time.")] = 1,
    rows: Annotated[int, typer.Option(min=1, help="Most rows of a series.")] = 128,
    queries: Annotated[int, typer.Option(min=1, help="Query times a series (forecast).")] = 8,
) -> None:
    """A program that predicts without this library, and a JSON file that says how to call it."""
    from ..estimators.exported import export as write

    estimator = _load(folder)
    check_writable(out)
    described = checked(lambda: write(estimator, out, format=format.value, batch=batch, rows=rows, queries=queries))
    typer.echo(f"written to {out}; how to call it is in {described}")


COMMANDS = (train, predict, evaluate, inspect, models, export)


# --- parts ----------------------------------------------------------------------------------------------------


def _fit(estimator: Any, frame: Any, checkpoint: Path, quiet: bool) -> bool:
    """Train, with a checkpoint after every epoch, or a folder of them; whether it was to the end."""
    from ..train import Bar, CheckpointMismatch, Lines, Quiet

    def train(progress: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no model (beats|was trained)|the budget of")  # the summary says so first
            return estimator.fit(frame, checkpoint=checkpoint, progress=progress)

    search = estimator.model == "auto"
    shown = Quiet() if quiet else Lines() if search else Bar(estimator.model)
    try:
        _, stopped = checked(lambda: interruptible(train, shown, STOPPING_SEARCH if search else STOPPING))
    except CheckpointMismatch:
        fail(
            f"{checkpoint} is what an interrupted training with other data or settings left. Resume that one, or "
            "delete it, or choose another --out."
        )
    if search:
        if stopped:
            typer.echo("stopped before the budget was spent; the best so far is kept.", err=True)
        return not stopped
    done, all_epochs = estimator.summary_.epochs, estimator.settings_.epochs
    if not stopped or done == all_epochs:
        return True
    typer.echo(f"stopped after epoch {done} of {all_epochs}; the best so far is kept.", err=True)
    return False


def _remove(checkpoint: Path) -> None:
    """A file, or what a search put into its folder, and the folder if nothing else is in it."""
    from ..estimators.auto import OWNER

    if not checkpoint.is_dir():
        checkpoint.unlink(missing_ok=True)
        return
    for file in (*checkpoint.glob("*.safetensors"), *checkpoint.glob(".*.part"), checkpoint / OWNER):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        checkpoint.rmdir()


def read(path: Path, **given: Any) -> Any:
    from .read import read_table

    return checked(lambda: read_table(path, **given))


def _wide(
    frame: Any,
    id: str,
    time: str,
    variable: str,
    value: list[str] | None,
    others: list[str],
    text: Collection[str] = (),
) -> Any:
    """A table with a column for each variable, of one with a row for each value."""
    from .read import pivoted

    if value is None or len(value) != 1:
        fail("--variable says that the table is long: name its column of values with --value, once.")
    return checked(lambda: pivoted(frame, id, time, variable, value[0], others, text))


def _wide_for(estimator: Any, frame: Any, variable: str, value: str | None) -> Any:
    """A long table as a fitted model takes it; a variable that it has and the table lacks is blank."""
    import polars as pl

    from ..series.categories import collapsed

    roles, words = estimator.columns_, estimator.categories_
    labels = [name for name in roles.labels if name in frame.columns]
    others = [*labels, *collapsed((*roles.static, *roles.future), words)]
    given = None if value is None else [value]
    wide = _wide(frame, roles.id, roles.time, variable, given, others, set(map(str, words)))
    absent = [str(name) for name in collapsed(roles.values, words) if name not in wide.columns]
    return wide.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)


def _load(folder: Path) -> Any:
    from ..estimators import load

    return checked(lambda: load(folder))


def check_writable(out: Path) -> None:
    """Find out now, not after hours of training."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        probe = out.parent / f".{out.name}-probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        fail(f"cannot write to {out.parent}: {error.strerror or error}. Choose another place with --out.")


def _times(at: list[str], estimator: Any) -> list[Any]:
    if estimator.clock_.kind == "datetime":
        return list(at)
    try:
        return [float(each) for each in at]
    except ValueError:
        fail(f"--at {' '.join(at)}: expected numbers, as the column {estimator.columns_.time!r} holds.")


def show_summary(estimator: Any, out: Path, as_json: bool) -> None:
    summary = asdict(estimator.summary_)
    if as_json:
        import narwhals as nw

        rows = nw.from_native(estimator.leaderboard_, eager_only=True).rows(named=True)
        rows = [{name: None if value != value else value for name, value in row.items()} for row in rows]
        settings = asdict(estimator.settings_)
        reading = None if estimator.reading_ is None else asdict(estimator.reading_)
        said = {"model": str(out), "summary": summary, "reading": reading, "settings": settings, "leaderboard": rows}
        json.dump(said, sys.stdout)
        typer.echo()
        return
    from rich.console import Console
    from rich.table import Table

    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    if estimator.reading_ is not None:
        typer.echo(f"note: {estimator.reading_}")
    if len(estimator.leaderboard_) > 1:
        Console(width=max(Console().width, 132)).print(_leaderboard(estimator))  # a terminal scrolls
    grid = Table(title=f"{type(estimator).__name__} with {estimator.members_}", show_header=False)
    for name, value in summary.items():
        if name != "notes":
            grid.add_row(
                name.replace("_", " "),
                f"{value:,.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value),
            )
    Console().print(grid)
    typer.echo(f"saved to {out}")


def _leaderboard(estimator: Any) -> Any:
    """All candidates, the best first."""
    from rich.table import Table

    from ..estimators.card import leaderboard_rows

    names, rows = leaderboard_rows(estimator)
    grid = Table(title="candidates, on the validation series", title_justify="left")
    for name in names:
        grid.add_column(name, justify="left" if name in ("model", "note") else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
