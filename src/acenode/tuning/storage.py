"""The Optuna study behind a tuning: opened or resumed, asked for trials, told of scores."""

import hashlib
import math
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..estimators.auto import Work
from ..train import Member
from .pool import Seat
from .space import Shape, Space

FACTOR = 4  # of the trials at a rung, one in so many trains on
RUNGS = 3  # with the last epoch


def optuna() -> Any:
    """The package, or a sentence that says how to get it."""
    try:
        import optuna as package  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("tune needs Optuna; install it with: pip install 'acenode[tune]'") from error
    package.logging.set_verbosity(package.logging.WARNING)
    return package


class Storage:
    """Trials of a study, in memory or in Optuna's own SQLite file; one process at a time works on it.

    Optuna's pruner for successive halving drops trials at rungs of epochs: the last is `epochs`, each one before a
    `FACTOR`-th of the next.
    """

    def __init__(self, work: Work, space: Space, path: Path | None):
        self.package = optuna()
        self.work, self.space = work, space
        epochs = work.recipe.epochs
        self.rungs = sorted({max(1, epochs // FACTOR**k) for k in range(1, RUNGS)})
        direction = "minimize" if work.task.better == "lower" else "maximize"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.package.exceptions.ExperimentalWarning)
            sampler = self.package.samplers.TPESampler(seed=work.seed, constant_liar=True)
        pruner = self.package.pruners.SuccessiveHalvingPruner(min_resource=self.rungs[0], reduction_factor=FACTOR)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.study = self.package.create_study(
            storage=None if path is None else f"sqlite:///{path.resolve()}",
            study_name="acenode",
            sampler=sampler,
            pruner=pruner,
            direction=direction,
            load_if_exists=True,
        )
        self._check_same(path)
        self._retry_interrupted()

    @property
    def told(self) -> int:
        """Trials that ended, in earlier calls too."""
        return len([t for t in self.study.get_trials(deepcopy=False) if t.state.name in ("COMPLETE", "PRUNED")])

    def ask(self, shape: Shape | None = None) -> tuple[Any, Shape, Member]:
        """Another trial; of this shape, unless an interrupted one is to be tried again."""
        if shape is not None:
            self.study.enqueue_trial(shape.given())
        trial = self.study.ask()
        return trial, *self.space.suggest(trial)

    def hopeless(self, seat: Seat) -> bool:
        """Whether a trial at a rung is to be dropped."""
        if seat.epochs not in self.rungs:
            return False
        seat.trial.report(_number(seat), seat.epochs)
        return seat.trial.should_prune()

    def tell(self, seat: Seat, finished: bool) -> None:
        """How a trial ended: with all its epochs (or its patience), or dropped, or out of time."""
        seat.trial.set_user_attr("epochs", seat.epochs)
        seat.trial.set_user_attr("best_epoch", seat.best_epoch + 1)
        if finished and math.isfinite(seat.best_score):
            self.study.tell(seat.trial, seat.best_score)
            return
        if seat.epochs not in self.rungs:  # where it was reported
            seat.trial.report(_number(seat), seat.epochs)
        self.study.tell(seat.trial, state=self.package.trial.TrialState.PRUNED)

    def postpone(self, trial: Any) -> None:
        """Try the same settings again in the next call."""
        self.study.tell(trial, state=self.package.trial.TrialState.FAIL)
        self.study.enqueue_trial(trial.params)

    def _check_same(self, path: Path | None) -> None:
        """Refuse a file that tells of other data: its scores could not be compared."""
        mark = _fingerprint(self.work, self.space)
        found = self.study.user_attrs.get("fingerprint")
        if found is None:
            self.study.set_user_attr("fingerprint", mark)
        elif found != mark:
            raise ValueError(
                f"{path} is a study of other data, another task or another space. Move it away, or name another file."
            )

    def _retry_interrupted(self) -> None:
        """What a killed process was training is tried again."""
        state = self.package.trial.TrialState
        for trial in self.study.get_trials(states=(state.RUNNING,)):
            self.study.tell(trial.number, state=state.FAIL)
            if trial.params:
                self.study.enqueue_trial(trial.params)


def _number(seat: Seat) -> float:
    return seat.best_score if math.isfinite(seat.best_score) else math.nan


def _fingerprint(work: Work, space: Space) -> str:
    digest = hashlib.sha256(repr((type(work.task).__name__, work.recipe.epochs, space)).encode())
    for leaf in (*jax.tree.leaves(work.data), work.train, work.validation):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
