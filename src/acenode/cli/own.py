"""Commands for one's own data: train, predict, evaluate, inspect, models, export."""

import json
import math
import sys
import warnings
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .say import fail

File = Annotated[Path, typer.Argument(help="A .csv, .csv.gz or .parquet file: one row for each id and time.")]
Folder = Annotated[Path, typer.Argument(help="A folder made by `acenode train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


class Task(StrEnum):
    forecast = "forecast"
    classify = "classify"
    impute = "impute"


def train(
    data: File,
    id: Annotated[str, typer.Option("--id", help="The column that says whose row it is.")],
    time: Annotated[str, typer.Option("--time", help="The column of times: numbers or dates.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    task: Annotated[Task, typer.Option(help="What to learn.")] = Task.forecast,
    label: Annotated[str | None, typer.Option(help="The column of the label, for classify.")] = None,
    values: Annotated[list[str] | None, typer.Option("--value", help="A column of values; all others if none.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")] = None,
    missing: Annotated[
        list[float] | None,
        typer.Option(
            "--missing",
            help="A number that stands for a missing value, such as -999; may be repeated. The model remembers it.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A name from `acenode models`.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many epochs.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Size of the hidden state.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the model and of the split.")] = 0,
    report: Annotated[bool, typer.Option(help="Write a page with pictures into the folder.")] = True,
    as_json: AsJson = False,
) -> None:
    """Train a model on a table of irregular measurements. Ctrl-C keeps the best so far; the same command goes on."""
    from ..estimators import Classifier, Forecaster, Imputer
    from ..estimators.saved import check_target

    kinds: dict[Task, Any] = {Task.forecast: Forecaster, Task.classify: Classifier, Task.impute: Imputer}
    given: dict[str, Any] = {"epochs": epochs, "hidden": hidden, "learning_rate": learning_rate, "seed": seed}
    given |= {"id": id, "time": time, "values": values, "missing": missing}
    if model is not None:
        given["model"] = model
    if task is Task.classify:
        if label is None:
            fail("classify needs a label: give its column with --label.")
        given["label"] = label
    elif label is not None:
        fail(f"--label is for --task classify, not for {task.value}.")
    estimator = kinds[task](**given)
    place = out.resolve()
    checkpoint = place.with_name(f".{place.name}-training.safetensors")
    _checked(lambda: check_target(out))
    _check_writable(place)
    frame = _read(data, id=id, label=label)
    for name in drop or ():
        if name not in frame.column_names:
            fail(f"--drop {name}: there is no such column; there are {', '.join(frame.column_names)}.")
        if name in (id, time, label, *(values or ())):
            fail(f"--drop {name}: the column is asked for by another option too.")
    frame = frame.drop_columns(list(dict.fromkeys(drop or ())))
    estimator, finished = _fit(estimator, frame, checkpoint, quiet=as_json)
    if not math.isfinite(estimator.summary_.validation):
        checkpoint.unlink(missing_ok=True)
        fail("the training diverged: no epoch had a finite score, and nothing is saved. Try a lower --learning-rate.")
    _checked(lambda: estimator.save(place))
    if finished:
        checkpoint.unlink(missing_ok=True)
    _show_summary(estimator, out, as_json)
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
    out: Annotated[Path, typer.Option(help="File for the answer, .csv or .parquet.")],
    at: Annotated[
        list[str] | None, typer.Option("--at", help="A time to forecast, in the table's zone; may be repeated.")
    ] = None,
    at_file: Annotated[Path | None, typer.Option(help="A table of ids and times to forecast.")] = None,
) -> None:
    """Forecasts, probabilities or filled blanks for the series of a table."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        fail(f"--out {out}: an answer is written as .csv or .parquet.")
    estimator = _load(folder)
    id = estimator.columns_.id
    frame = _read(data, id=id)
    _check_writable(out)
    if estimator.task == "forecast":
        if (at is None) == (at_file is None):
            fail("say at which times: --at TIME (repeated), or --at-file with a table of ids and times.")
        queried = _checked(lambda: _read(at_file, id=id, like=frame)) if at_file else _times(at or [], estimator)
        answer = _checked(lambda: estimator.predict(frame, at=queried))
    elif estimator.task == "classify":
        answer = _checked(lambda: estimator.predict_proba(frame))
    else:
        answer = _checked(lambda: estimator.transform(frame))
    from .read import write_table

    _checked(lambda: write_table(answer, out))
    typer.echo(f"{len(answer):,} rows written to {out}")


def evaluate(folder: Folder, data: File, as_json: AsJson = False) -> None:
    """How good a model is on a table that it has not seen."""
    estimator = _load(folder)
    roles = estimator.columns_
    # Of classes named by text some may look like numbers, and be alone in this table.
    worded = {roles.label} if any(isinstance(each, str) for each in getattr(estimator, "classes_", ())) else ()
    frame = _read(data, id=roles.id, label=roles.label, text=worded)
    metrics = _checked(lambda: estimator.evaluate(frame))
    if as_json:
        typer.echo(json.dumps({name: value if math.isfinite(value) else None for name, value in metrics.items()}))
    else:
        for name, value in metrics.items():
            typer.echo(f"{name:14s} {value:.4f}")


def inspect(folder: Folder, as_json: AsJson = False) -> None:
    """What a saved model is, how it was trained and on what."""
    from ..estimators.saved import read_head

    head = _checked(lambda: read_head(folder))
    head.pop("history")
    if as_json:
        typer.echo(json.dumps(head, indent=1))
        return
    for part in ("estimator", "columns", "classes", "settings", "summary", "versions"):
        value = head[part]
        typer.echo(f"{part}:" if isinstance(value, dict) else f"{part}: {value}")
        for name, each in value.items() if isinstance(value, dict) else ():
            typer.echo(f"  {name}: {each}")


def models(as_json: AsJson = False) -> None:
    """The models that `acenode train --model` knows."""
    from ..estimators.registry import MODELS

    if as_json:
        typer.echo(json.dumps({name: {"says": e.says, "attends": e.attends} for name, e in MODELS.items()}, indent=1))
        return
    width = max(map(len, MODELS))
    for name, each in MODELS.items():
        typer.echo(f"{name:{width}s}  {each.says}")


def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="File for the program, e.g. model.stablehlo.")],
    batch: Annotated[int, typer.Option(min=1, help="Series at a time.")] = 1,
    rows: Annotated[int, typer.Option(min=1, help="Most rows of a series.")] = 128,
    queries: Annotated[int, typer.Option(min=1, help="Asked times a series (forecast).")] = 8,
) -> None:
    """A program in StableHLO that predicts without this library, and a JSON file that says how to call it."""
    from ..estimators.exported import export as write

    estimator = _load(folder)
    _check_writable(out)
    described = _checked(lambda: write(estimator, out, batch=batch, rows=rows, queries=queries))
    typer.echo(f"written to {out}; how to call it is in {described}")


COMMANDS = (train, predict, evaluate, inspect, models, export)


# --- parts ----------------------------------------------------------------------------------------------------


def _fit(estimator: Any, frame: Any, checkpoint: Path, quiet: bool) -> tuple[Any, bool]:
    """The fitted estimator, and whether it was trained to the end."""
    from ..train import CheckpointMismatch

    try:
        return _checked(lambda: estimator.fit(frame, checkpoint=checkpoint, progress=not quiet)), True
    except CheckpointMismatch:
        fail(
            f"{checkpoint} is what an interrupted training with other data or settings left. Go on with that one, or "
            "delete the file, or choose another --out."
        )
    except KeyboardInterrupt:
        if not checkpoint.exists():
            fail("stopped before the first epoch was over; nothing was kept.")
        from ..train.checkpoint import load_head

        done = load_head(checkpoint)["epochs"]
        typer.echo(f"\nstopped after epoch {done}; the best so far is kept. The same command goes on.", err=True)
        return estimator.set_params(epochs=done).fit(frame, checkpoint=checkpoint), False


def _checked(call: Any) -> Any:
    """What `call` gives; a fault of the user's becomes one sentence, a warning a line."""
    from ..train import CheckpointMismatch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            answer = call()
        except CheckpointMismatch:
            raise
        except OSError as error:
            fail(f"{error.filename or 'a file'}: {error.strerror or error}. Choose another place, or make room.")
        except ValueError as error:
            fail(str(error))
    for each in caught:
        if issubclass(each.category, UserWarning):
            typer.echo(f"acenode: {each.message}", err=True)
    return answer


def _read(path: Path, **told: Any) -> Any:
    from .read import read_table

    return _checked(lambda: read_table(path, **told))


def _load(folder: Path) -> Any:
    from ..estimators import load

    return _checked(lambda: load(folder))


def _check_writable(out: Path) -> None:
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


def _show_summary(estimator: Any, out: Path, as_json: bool) -> None:
    summary = asdict(estimator.summary_)
    if as_json:
        json.dump({"model": str(out), "summary": summary, "settings": asdict(estimator.settings_)}, sys.stdout)
        typer.echo()
        return
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=f"{type(estimator).__name__} with {estimator.settings_.model}", show_header=False)
    for name, value in summary.items():
        if name != "notes":
            grid.add_row(
                name.replace("_", " "),
                f"{value:,.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value),
            )
    Console().print(grid)
    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(f"saved to {out}")
