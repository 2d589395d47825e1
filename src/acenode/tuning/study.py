"""`tune`: settings of a model by Optuna, whole generations of trials as one program."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..backend import backend
from ..compiled import compiled_quickly
from ..estimators.auto import CANDIDATES, Chosen, Work
from ..estimators.base import Estimator
from ..estimators.baselines import SOLVED
from ..estimators.budget import MINUTES, Budget
from ..estimators.inference import without_sampling
from ..estimators.members import Members, outputs_of
from ..estimators.registry import AUTO, Entry
from ..train import Fit, Lines, Member, Progress, Quiet, StopTraining, device_kind
from ..train.checkpoint import load_arrays, load_head, save_arrays
from ..train.layout import Devices
from .pool import Pool, Seat
from .space import Shape, Space, default_sizes
from .storage import Storage

EPOCHS = 64  # of a trial that is not dropped
_SHOWN = 20  # trials in the table of an estimator

Kind = TypeVar("Kind", bound=Estimator)


@dataclass(frozen=True)
class Tuned:
    """What `tune` found: the estimator, fitted with the best trial, its settings, and Optuna's study of all trials."""

    estimator: Any
    settings: dict[str, Any]
    score: float
    study: Any


def tune(
    estimator: Estimator,
    frame: Any,
    *,
    trials: int = 64,
    minutes: float | int = MINUTES,
    study: str | Path | None = None,
    hidden: Sequence[int] = (),
    learning_rate: tuple[float, float] = (3e-4, 3e-2),
    weight_decay: tuple[float, float] = (1e-6, 1e-2),
    penalty: tuple[float, float] = (1e-6, 1e-1),
    places: int | None = None,
    devices: Devices = None,
    progress: Progress | bool = False,
) -> Tuned:
    """Choose learning rate, weight decay, lambda and size of an estimator's model, and fit the estimator with the best.

    Optuna proposes the settings. Trials of one shape train as one ensemble; successive halving drops those that have no
    prospects after a rung of epochs, and new ones take their places. The best is that with the best validation score.

    **Arguments:**

    - `estimator`: not fitted yet; `model` names what is tuned, or several that are compared. `epochs` is what a trial
      that is never dropped trains for, 64 by default.
    - `frame`: as for `estimator.fit`.
    - `trials`, `minutes`: it ends when so many trials are done, or the time is over.
    - `study`: a file for Optuna's SQLite storage. The same call resumes from it, with `trials` as the number in all.
      The best model is kept beside it.
    - `hidden`: the sizes to try; by default half, once and twice what suits the data. Each is a program to compile.
    - `learning_rate`, `weight_decay`, `penalty`: ranges, searched on a logarithmic scale.
    - `places`: trials that train at a time; by default 8 on a CPU, 64 on an accelerator.
    - `devices`: as for `fit`.
    """
    ranges = {"learning_rate": learning_rate, "weight_decay": weight_decay, "penalty": penalty}
    _check(estimator, trials, hidden, ranges)
    budget = Budget(60 * minutes)
    shown = progress if not isinstance(progress, bool) else (Lines() if progress else Quiet())
    task, data, folds, series = estimator._prepare(frame)
    names = _names(estimator)
    epochs = EPOCHS if estimator.epochs is None else estimator.epochs  # pyright: ignore[reportAttributeAccessIssue]
    estimator.settings_ = settings = replace(estimator.settings_, epochs=epochs, patience=epochs)
    sizes = tuple(hidden) or default_sizes(settings.hidden, names)
    space = Space(names, sizes, **ranges, seed=settings.seed)
    work = estimator._work(task, data, folds)
    path = None if study is None else Path(study)
    count = places or (8 if backend() == "cpu" else 64)
    storage = Storage(work, space, path)
    search = _Search(work, storage, estimator, min(count, trials), devices, budget, shown, path)
    search.run(trials)
    best = search.best
    if best is None:
        raise ValueError(
            "tune: no trial had a finite validation score. Lower the learning rates, or give more minutes."
        )
    best_settings = {**best.shape.given(), **best.seat.member.given()}
    member = best.seat.member
    estimator.settings_ = replace(
        settings, hidden=best.shape.hidden, learning_rate=member.learning_rate, penalty=member.penalty
    )
    estimator._keep(_chosen(search, best), work, series, budget.spent)
    return Tuned(estimator, best_settings, best.seat.best_score, search.storage.study)


@dataclass
class Best:
    """The best trial so far and its parameters."""

    shape: Shape
    seat: Seat
    arrays: Any

    def save(self, path: Path) -> None:
        seat = self.seat
        head = {"shape": asdict(self.shape), "member": asdict(seat.member), "history": seat.history}
        head |= {"trial": seat.trial, "best_epoch": seat.best_epoch, "best_score": seat.best_score}
        save_arrays(path, self.arrays, head)

    @classmethod
    def load(cls, path: Path, build: Callable[[Shape], Callable]) -> "Best":
        head = load_head(path)
        shape = Shape(**head["shape"])
        like, _ = eqx.partition(_stacked(build(shape)), eqx.is_array)
        seat = Seat(head["trial"], Member(**head["member"]), head["history"], head["best_epoch"], head["best_score"])
        return cls(shape, seat, load_arrays(path, like))


class _Search:
    """Asks for trials, lets their pools train in turns, and keeps the best."""

    def __init__(self, work: Work, storage: Storage, estimator, places, devices, budget, shown, path):
        self.work, self.storage, self.estimator = work, storage, estimator
        self.places, self.devices, self.budget, self.shown = places, devices, budget, shown
        self.pools: dict[Shape, Pool] = {}
        self.path = None if path is None else path.with_suffix(".best.safetensors")
        self.best: Best | None = None
        if self.path is not None and self.path.exists() and storage.told:
            self.best = Best.load(self.path, self.build)
        self.dropped = self.epochs = 0

    def build(self, shape: Shape) -> Callable:
        """What makes a model of this shape from a key."""
        own = copy.copy(self.estimator)
        own.settings_ = replace(own.settings_, hidden=shape.hidden)
        return lambda key: own._build(key, own._entry(shape.model))

    def run(self, trials: int) -> None:
        """Until so many trials are done, or the time is over."""
        self.shown.start(self.work.recipe, [Member(self.work.seed)], self.work.task, 0)
        self.last = 0.0  # seconds of the last epoch
        try:
            while (pool := self._fill(trials)) is not None and self._turn(pool, trials):
                pass
        except StopTraining:
            pass
        finally:
            self._stop()
            self.shown.stop()

    def _left(self, trials: int) -> int:
        busy = sum(len(pool.live) + len(pool.waiting) for pool in self.pools.values())
        return trials - self.storage.told - busy

    def _fill(self, trials: int) -> Pool | None:
        """The pool whose turn it is, its free places given to new trials."""
        left = self._left(trials)
        if left <= 0:
            busy = [pool for pool in self.pools.values() if pool.live or pool.waiting]
            return busy[0] if busy else None
        # A trial may choose its shape, unless there is no time left to compile another.
        compiling = max((pool.compiling for pool in self.pools.values()), default=0.0)
        known = [shape for shape, pool in self.pools.items() if pool.free]
        pool = self._ask(known[0] if known and self.budget.left() < 3 * compiling else None)
        for _ in range(min(left - 1, pool.free)):
            self._ask(pool.shape)
        return pool

    def _ask(self, shape: Shape | None) -> Pool:
        trial, shape, member = self.storage.ask(shape)
        if shape not in self.pools:
            self.pools[shape] = Pool(self.work, shape, self.build(shape), self.places, self.devices)
        self.pools[shape].waiting.append((trial, member))
        return self.pools[shape]

    def _turn(self, pool: Pool, trials: int) -> bool:
        """Train until a place is free for another trial; whether there is time for more."""
        pool.seat()
        while pool.live:
            if self.last and 1.2 * self.last > self.budget.left():
                return False
            begun, compiled = self.budget.spent, pool.compiling
            record = pool.epoch()
            self.last = self.budget.spent - begun if compiled else 0.0
            self.epochs += 1
            self.shown.epoch(self.epochs - 1, record, pool.samples)
            ended = [seat for seat in pool.live if self._ended(pool, seat)]
            if self.budget.left() <= 0:
                return False
            if ended and (pool.waiting or self._left(trials) > 0):
                return True
        return True

    def _ended(self, pool: Pool, seat: Seat) -> bool:
        """Whether a trial is over: after its last epoch, or without prospects."""
        finished = seat.epochs >= self.work.recipe.epochs or seat.stopped
        if not finished and not self.storage.hopeless(seat):
            return False
        self.dropped += not finished
        self._end(pool, seat, finished)
        return True

    def _end(self, pool: Pool, seat: Seat, finished: bool) -> None:
        if self.work.better(seat.best_score, math.nan if self.best is None else self.best.seat.best_score):
            kept = replace(seat, trial=seat.trial.number)
            self.best = Best(pool.shape, kept, pool.best_of(seat))
            if self.path is not None:
                self.best.save(self.path)
            self._say(seat, pool.shape)
        pool.leave(seat)
        self.storage.tell(seat, finished)

    def _stop(self) -> None:
        """End what still trains; what waits is tried by the next call."""
        for pool in self.pools.values():
            for seat in pool.live:
                if seat.epochs:
                    self._end(pool, seat, False)
                else:
                    self.storage.postpone(seat.trial)
            for trial, _ in pool.waiting:
                self.storage.postpone(trial)
            pool.waiting.clear()

    def _say(self, seat: Seat, shape: Shape) -> None:
        say = getattr(self.shown, "say", None)
        if say is not None:
            said = ", ".join(f"{n}={v:.3g}" for n, v in seat.member.given().items() if n not in ("seed", "fold"))
            say(
                f"trial {seat.trial.number}: validation {self.work.task.monitor} {seat.best_score:.4f} after "
                f"{seat.epochs} epochs, the best so far ({shape.model}, hidden={shape.hidden}, {said}); "
                f"{self.storage.told} trials done, {self.dropped} dropped early, {self.budget.spent:.0f} s"
            )


def _names(estimator: Estimator) -> tuple[str, ...]:
    if estimator.model == AUTO:
        return CANDIDATES[estimator.task]
    return (estimator.model,) if isinstance(estimator.model, str) else tuple(estimator.model)  # pyright: ignore


def _check(estimator: Estimator, trials: int, hidden: Sequence[int], ranges: dict[str, tuple[float, float]]) -> None:
    if isinstance(estimator.model, Entry):
        raise ValueError("tune(estimator=...): name a model; an Entry of your own has no name to write into a study.")
    if estimator.model in SOLVED:
        raise ValueError(f"tune(estimator=...): {estimator.model} is solved in closed form, and has nothing to tune.")
    if trials < 1:
        raise ValueError(f"tune(trials={trials}): at least 1.")
    if any(size < 1 for size in hidden):
        raise ValueError(f"tune(hidden={tuple(hidden)}): sizes are at least 1.")
    for name, (low, high) in ranges.items():
        if not 0 < low <= high < math.inf:
            raise ValueError(f"tune({name}=({low}, {high})): expected two positive numbers, the smaller first.")


def _stacked(build: Callable) -> Any:
    """A model with an ensemble axis of one."""
    model = compiled_quickly(lambda: eqx.nn.inference_mode(build(jax.random.key(0)), False))()
    return jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, model)


def _chosen(search: _Search, best: Best) -> Chosen:
    """What an estimator keeps of the best trial."""
    work, seat = search.work, best.seat
    _, static = eqx.partition(_stacked(search.build(best.shape)), eqx.is_array)
    models = eqx.nn.inference_mode(eqx.combine(jax.tree.map(jnp.asarray, best.arrays), static))
    history = {name: np.asarray([[record[name]] for record in seat.history]) for name in seat.history[0]}
    scored = (np.asarray([seat.best_epoch]), np.asarray([seat.best_score]))
    told = (history, *scored, search.budget.spent)
    fit = Fit(models, (seat.member,), work.recipe, *told, ((),), (device_kind(),))
    model = without_sampling(fit.model())
    outputs = outputs_of(model, work.rows(work.validation))
    heads = [name for name in history if name.startswith("validation_")]
    metrics = {name.removeprefix("validation_"): float(history[name][seat.best_epoch, 0]) for name in heads}
    members = Members((best.shape.model,), (1.0,), (model,))
    return Chosen(members, _leaderboard(search, best), fit, 0, metrics, outputs, ())


def _leaderboard(search: _Search, best: Best) -> list[dict[str, Any]]:
    """The best trials, and what each tried."""
    monitor, sign = search.work.task.monitor, 1 if search.work.task.better == "lower" else -1

    def score(trial) -> float:
        values = [trial.value] if trial.value is not None else list(trial.intermediate_values.values())
        finite = [value for value in values if math.isfinite(value)]
        return finite[-1] if finite else math.nan

    trials = [t for t in search.storage.study.get_trials(deepcopy=False) if t.state.name in ("COMPLETE", "PRUNED")]
    ranked = sorted((t for t in trials if math.isfinite(score(t))), key=lambda t: sign * score(t))
    return [
        {
            "model": trial.params["model"],
            monitor: score(trial),
            "weight": float(trial.number == best.seat.trial),
            "epochs": trial.user_attrs.get("epochs", 0),
            "note": ", ".join(
                [f"trial {trial.number}", *(f"{n}={v:.3g}" for n, v in trial.params.items() if n != "model")]
                + (["dropped early"] if trial.state.name == "PRUNED" else [])
            ),
        }
        for trial in ranked[:_SHOWN]
    ]
