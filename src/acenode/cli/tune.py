"""`acenode tune`: settings by Optuna, many trials as one program."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .own import AsJson, Chosen, File, Id, Label, Task, Time, Values, check_writable, read, show_summary
from .terminal import checked, fail, interruptible

STOPPING = "Stopping after this epoch with the best model so far; Ctrl-C again stops at once. The same command resumes."


def tune(
    data: File,
    id: Id,
    time: Time,
    out: Annotated[Path, typer.Option(help="Folder for the best model.")],
    task: Chosen = Task.forecast,
    label: Label = None,
    values: Values = None,
    missing: Annotated[
        list[float] | None,
        typer.Option("--missing", help="A number that stands for a missing value, such as -999; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A name from `acenode models`; repeat it to compare several. [default: gru-ode-bayes]"),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try, those of earlier calls included.")] = 64,
    minutes: Annotated[float, typer.Option(min=0.0, help="Time in minutes; the best model so far is kept.")] = 5.0,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a full trial, one that is not stopped early.")] = 64,
    hidden: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="A size of the hidden state to try; may be repeated. [default: half, once, twice what fits]"
        ),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="File for Optuna's study, which its dashboard reads. [default: OUT.db]")
    ] = None,
    places: Annotated[
        int | None,
        typer.Option(min=1, help="Trials in parallel, as one program. [default: 8, or 64 on an accelerator]"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the models, of the split and of the search.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Choose learning rate, decay, lambda and size of a model, and train it; the same command resumes."""
    from ..estimators import Classifier, Forecaster, Imputer, Regressor
    from ..estimators.saved import check_target
    from ..train import Lines, Quiet
    from ..tuning import tune as search

    kinds: dict[Task, Any] = {Task.forecast: Forecaster, Task.classify: Classifier, Task.impute: Imputer}
    kinds[Task.regress] = Regressor
    names = model or ["gru-ode-bayes"]
    given: dict[str, Any] = {"id": id, "time": time, "values": values, "missing": missing, "epochs": epochs}
    given |= {"model": names[0] if len(names) == 1 else names, "seed": seed}
    if task in (Task.classify, Task.regress):
        if not label:
            fail(f"{task.value} needs a label: give its column with --label.")
        if task is Task.regress and len(label) > 1:
            fail("--label: regress takes one target; tune a model for each.")
        given["label"] = label[0] if len(label) == 1 else label
    elif label:
        fail(f"--label is for --task classify or regress, not for {task.value}.")
    estimator = kinds[task](**given)
    place = out.resolve()
    checked(lambda: check_target(out))
    check_writable(place)
    frame = read(data, id=id, labels=label or () if task is Task.classify else ())
    file = study or place.with_name(f"{place.name}.db")
    options: dict[str, Any] = {"trials": trials, "minutes": minutes, "study": file, "places": places}

    def train(progress: Any) -> Any:
        return search(estimator, frame, **options, hidden=tuple(hidden or ()), progress=progress)

    found, stopped = checked(lambda: interruptible(train, Quiet() if as_json else Lines(), STOPPING))
    checked(lambda: estimator.save(place))
    if stopped:
        typer.echo("stopped before all trials were done; the best so far is kept.", err=True)
    if as_json:
        told = {"model": str(out), "study": str(file), "settings": found.settings, "validation": found.score}
        typer.echo(json.dumps({**told, "trials": len(found.study.trials)}))
        return
    show_summary(estimator, out, False)
    typer.echo(f"all trials are in {file}; see them with: optuna-dashboard sqlite:///{file}")
