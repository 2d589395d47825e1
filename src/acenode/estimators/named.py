"""Training of one named model, as an ensemble of seeds if wanted, under a budget if there is one."""

import warnings
from pathlib import Path

import jax
import numpy as np

from ..train import Member, Progress, Run, StopTraining
from .auto import Chosen, Trial, Work, best_member, models_of, solved_again
from .baselines import PLAIN, SOLVED
from .budget import Budget
from .members import Members, mix, outputs_of

_FIRST = 16  # steps of the first two epochs, which tell how long a whole one takes
_EPOCHS = 10  # that a budget should hold


def train_named(
    work: Work, name: str, size: int, budget: Budget, checkpoint: str | Path | None, progress: Progress
) -> Chosen:
    """Train `size` members of this model from different seeds, as one program."""
    if name in SOLVED:
        return _solve(work, name)
    members = [Member(work.seed + k, 0, work.learning_rate, work.penalty) for k in range(size)]
    data = work.training_data(name)
    if checkpoint is not None and Path(checkpoint).is_dir():
        raise ValueError(f"fit(checkpoint=...): {checkpoint} is a folder, as a search has; one model takes a file.")
    run = Run(work.build(name), work.task, data, work.split, work.recipe, members, checkpoint=checkpoint)
    progress.start(work.recipe, run.members, work.task, run.epochs)
    hurried: tuple[str, ...] = ()
    try:
        hurried = _epochs(run, budget, progress)
    except StopTraining:
        pass
    finally:
        progress.stop()
    for note in hurried:
        warnings.warn(note, stacklevel=4)
    trial = Trial(name, run=run, seconds=run.seconds, weight=1.0)
    trial.score(work)
    done, best = run.result(), best_member(run)
    done.warn_of_inactive(stacklevel=5)
    first = 0 if best is None else best
    models = models_of(run) or [done.model(0)]
    models.insert(0, models.pop(first if best is not None else 0))
    weights = (1 / len(models),) * len(models)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        together = mix([outputs_of(model, work.validation_rows) for model in models], weights)
    metrics = trial.metrics if len(models) == 1 else work.metrics(together)
    trial.metrics = metrics
    chosen = Members((name,) * len(models), weights, tuple(models))
    return Chosen(chosen, [trial.row(list(metrics))], done, first, metrics, together, (*hurried, *done.notes))


def _epochs(run: Run, budget: Budget, progress: Progress) -> tuple[str, ...]:
    """To the last epoch, or as many as fit into the budget; where few would, they are cut short.

    What is to be said where the budget was too short for one.
    """
    limit, last, compiled, taken, before = run.steps, 0.0, False, 0, run.epochs
    while not run.finished and 1.1 * last <= budget.left():
        steps = min(_FIRST, limit) if run.epochs < 2 else limit
        begun = run.seconds
        record = run.epoch(steps)
        taken += steps
        if compiled:  # the first one here was, which the next will not be
            last = run.seconds - begun
            limit = int(np.clip(budget.left() / _EPOCHS / (last / steps), 1, run.steps))
        compiled = True
        progress.epoch(run.epochs - 1, record, run.samples)
    if before or taken >= run.steps or run.finished:
        return ()
    return (
        f"the budget of {budget.seconds / 60:g} minutes ended after {taken} of the {run.steps} mini-batches of one "
        "epoch: the model has hardly learned. Give more minutes, or a quicker model.",
    )


def _solve(work: Work, name: str) -> Chosen:
    """A model in closed form."""
    fitting = PLAIN[work.kind]
    if name not in fitting:
        raise ValueError(
            f"model={name!r}: it does not {work.kind}; choose from {', '.join(fitting)}, or a trained one."
        )
    built = work.build(name)(jax.random.key(work.seed))
    model = SOLVED[name].solve(built, work.data, work.train, work.validation)
    outputs = outputs_of(model, work.validation_rows)
    trial = Trial(name, True, model, work.metrics(outputs), weight=1.0)
    members = Members((name,), (1.0,), (solved_again(work, name) or model,))
    return Chosen(members, [trial.row(list(trial.metrics))], None, 0, trial.metrics, outputs, ())
