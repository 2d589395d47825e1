"""`model="auto"`: candidates trained under one budget, the best of them kept, several together where that is better."""

import functools as ft
import hashlib
import math
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np

from ..backend import backend
from ..datasets.split import Split
from ..series import Query
from ..series.frames import default_backend
from ..tasks import Headed, Task
from ..train import CheckpointMismatch, Fit, Member, Progress, Recipe, Run, StopTraining
from ..train.checkpoint import write_atomically
from .baselines import PLAIN, SOLVED
from .budget import Budget, Pace
from .inference import without_sampling
from .members import Members, mix, outputs_of

# From what compiles quickly to what does not.
CANDIDATES: dict[str, tuple[str, ...]] = {
    "forecast": ("gru-d", "gru-ode-bayes", "mtan", "grafiti", "latent-ode", "ace-variables"),
    "classify": ("gru-d", "gru-simple", "mtan", "gru-ode-bayes", "grafiti", "latent-ode", "ace-variables"),
    "regress": ("gru-d", "gru-simple", "mtan", "gru-ode-bayes", "grafiti", "latent-ode", "ace-variables"),
    "impute": ("mtan", "grafiti", "latent-ode", "gru-d", "ace-latent-ode"),
}
SELECTION = 0.6  # the part of the budget in which candidates are compared; the rest is for an ensemble of the best
COMPILING = 0.7  # the part of the selection within which candidates are compiled
_AGAIN = 0.3  # of the time to compile, for the same kind from another seed, or for its predictions
_COMPILING = 10.0  # seconds that a first candidate takes before its first epoch, at least
_FINALISTS = 3  # kinds that may join the ensemble
OWNER = "search.sha256"  # the file in a folder of checkpoints that says what it is of
_PICKS = 4  # of the greedy selection, for each model that the ensemble may have


@dataclass(frozen=True)
class Work:
    """What candidates are trained on: `build(name)` gives what makes a model of that name from a key."""

    task: Task
    data: Any
    train: np.ndarray
    validation: np.ndarray
    kind: str
    build: Callable[[str], Callable[..., Headed]]
    recipe: Recipe
    learning_rate: float
    penalty: float
    seed: int
    causal: Callable[[str], bool] = lambda name: True  # whether a model of that name sees only what came before

    def better(self, one: float, two: float) -> bool:
        if not math.isfinite(two):
            return math.isfinite(one)
        return one < two if self.task.better == "lower" else one > two

    def training_data(self, name: str) -> Any:
        """The data of a model; one that sees all of the context learns from what is not in it alone."""
        data = self.data
        if not isinstance(data, Query) or self.causal(name):
            return data
        return Query(data.context, data.times, data.values, data.scored, data.scored)

    def metrics(self, outputs: Any) -> dict[str, float]:
        """On the validation series."""
        given = jax.tree.map(jnp.asarray, outputs)
        found = self.task.metrics(given, self.validation_rows, jnp.ones(len(self.validation)))
        return {name: float(value) for name, value in found.items()}

    @ft.cached_property
    def validation_rows(self) -> Any:
        return self.rows(self.validation)

    @property
    def split(self) -> Split:
        return Split(self.train, self.validation, self.validation[:0])

    def rows(self, places: np.ndarray) -> Any:
        return jax.tree.map(lambda x: np.asarray(x)[places], self.data)


@dataclass
class Trial:
    """A candidate: what it has reached so far, and why it was dropped if it was."""

    name: str
    plain: bool = False
    solved: Headed | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    run: Run | None = None
    seed: int = 0
    steps: int = 2  # of its next epoch
    compiling: float = 0.0
    seconds: float = 0.0
    note: str = ""
    weight: float = 0.0

    def score(self, work: Work) -> float:
        """By the metric that selects, of the best epoch."""
        if self.run is not None:
            self.metrics = _at_best(self.run)
        return self.metrics.get(work.task.monitor, math.nan)

    @property
    def epochs(self) -> int:
        return 0 if self.run is None else self.run.epochs

    def models(self) -> list[Headed]:
        """All that it has trained, or the one that was solved for."""
        if self.solved is not None:
            return [self.solved]
        return [] if self.run is None else models_of(self.run)

    def row(self, names: Sequence[str]) -> dict[str, Any]:
        """Of the table of candidates."""
        return {
            "model": self.name,
            **{name: self.metrics.get(name, math.nan) for name in names},
            "weight": round(self.weight, 3),
            "epochs": self.epochs,
            "seconds": round(self.seconds, 1),
            "note": self.note or ("plain baseline" if self.plain else ""),
        }


@dataclass(frozen=True)
class Chosen:
    """What a search ends with: the models, the table of all candidates, and the training of the best."""

    members: Members
    leaderboard: list[dict[str, Any]]
    best: Fit | None  # none where a solved model is the best
    member: int  # of it
    metrics: dict[str, float]  # of all members together, on validation
    outputs: Any
    notes: tuple[str, ...]


class Search:
    """Successive halving: all candidates for a share of the time, then the better half for longer, and so on.

    `together` trains the further seeds of a kind as one program, and candidates one after the other; without
    it seeds are trained one by one, on two cores where there are. Each seed sees the same steps either way. `auto` does
    so on accelerators, where five members cost hardly more than one; on a CPU they cost five times as much.

    `checkpoint` is a folder with a file for each candidate, for this search alone. The same search resumes from it,
    with its whole budget.
    """

    def __init__(
        self,
        work: Work,
        budget: Budget,
        progress: Progress,
        names: Sequence[str] = (),
        ensemble: int = 5,
        together: bool | Literal["auto"] = "auto",
        checkpoint: str | Path | None = None,
    ):
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        if self.checkpoint is not None and self.checkpoint.exists() and not self.checkpoint.is_dir():
            raise ValueError(f"fit(checkpoint=...): {self.checkpoint} is a file; a search among models takes a folder.")
        self.work, self.budget, self.progress, self.ensemble = work, budget, progress, ensemble
        self.names = tuple(names) or CANDIDATES[work.kind]
        self.stopped = threading.Event()
        self.trials: list[Trial] = []
        self._lock = threading.Lock()
        self.together = backend() != "cpu" if together == "auto" else together
        apart = not self.together and hasattr(os, "sched_getaffinity")
        self.workers = min(2, len(os.sched_getaffinity(0))) if apart else 1

    def choose(self) -> Chosen:
        """Train, compare, and keep the best."""
        if self.checkpoint is not None:
            self._claim(self.checkpoint)
        self.progress.start(self.work.recipe, [Member(self.work.seed)], self.work.task, 0)
        try:
            self._solve()
            live = [Trial(name, seed=self.work.seed) for name in self.names]
            self.trials += live
            while live and not self.stopped.is_set():
                self._rung(live)
                ranked = self._ranked([t for t in live if not t.note and math.isfinite(t.score(self.work))])
                live = ranked[: len(ranked) // 2]
                if self.budget.left(SELECTION) <= 0 or all(t.run is None or t.run.finished for t in live):
                    break
            more = self._more_seeds()
        finally:
            self.progress.stop()
        return self._put_together(more)

    # --- the parts ------------------------------------------------------------------------------------------------

    def _claim(self, folder: Path) -> None:
        """Say in the folder whose it is, or refuse one of other data or settings before anything in it changes."""
        work, digest = self.work, hashlib.sha256()
        digest.update(repr((work.kind, work.seed, work.learning_rate, work.penalty)).encode())
        for leaf in jax.tree.leaves((work.data, work.train, work.validation)):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        note = folder / OWNER
        if note.exists() and note.read_text() != digest.hexdigest():
            raise CheckpointMismatch(
                f"{folder} belongs to another search (other data or settings). Move it away, or give this one another."
            )
        write_atomically(note, digest.hexdigest().encode())

    def _solve(self) -> None:
        work = self.work
        self.trials += [Trial(name, plain=True) for name in PLAIN[work.kind]]

        def solve(trial: Trial) -> None:
            built = work.build(trial.name)(jax.random.key(work.seed))
            trial.solved = SOLVED[trial.name].solve(built, work.data, work.train, work.validation)
            trial.metrics = work.metrics(outputs_of(trial.solved, work.validation_rows))

        self._each(self.trials, solve)

    def _rung(self, live: list[Trial]) -> None:
        """Compile all of these, then train each for an even share of the selection's time, a part of what is left."""
        self._each(live, lambda trial: self._prepare(trial, COMPILING * SELECTION))
        ready = [trial for trial in live if trial.run is not None and not trial.note]
        if not ready:
            return
        left = self.budget.left(SELECTION) * (1.0 if len(ready) == 1 else 0.6)
        share = max(left, 0.0) * self.workers / len(ready)
        self._each(ready, lambda trial: self._advance(trial, share, SELECTION))

    def _each(self, trials: Sequence[Trial], call: Callable[[Trial], None]) -> None:
        """Call for every trial, on as many cores as there are."""

        def timed(trial: Trial) -> None:
            begun = self.budget.spent
            try:
                call(trial)
            except StopTraining:
                self.stopped.set()
            except (CheckpointMismatch, OSError):  # another search's folder, or a full disk
                raise
            except Exception as error:  # a candidate that fails must not cost the others
                trial.note = f"failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            finally:
                trial.seconds += self.budget.spent - begun
            if trial.epochs != 1 or trial.note:  # one epoch of one step says nothing yet
                self._say(trial)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(timed, trials))

    def _prepare(self, trial: Trial, part: float, members: Sequence[Member] = ()) -> None:
        """Compile, with one step, where there is time for that as far as the others tell."""
        if trial.run is not None:
            return
        known = [t.compiling for t in self.trials if t.compiling]
        again = [t.compiling for t in self.trials if t.compiling and t.name == trial.name]
        expected = _AGAIN * again[0] if again else 1.2 * max(known, default=_COMPILING)
        if self.stopped.is_set() or self.budget.left(part) < expected:
            trial.note = "not tried: the budget was spent on others; give more minutes"
            return
        work, begun = self.work, self.budget.spent
        data = work.training_data(trial.name)
        members = members or [Member(trial.seed, 0, work.learning_rate, work.penalty)]
        seeds = f"{trial.seed}" if len(members) == 1 else f"{trial.seed}x{len(members)}"
        file = None if self.checkpoint is None else self.checkpoint / f"{trial.name}-{seeds}.safetensors"
        trial.run = Run(work.build(trial.name), work.task, data, work.split, work.recipe, members, checkpoint=file)
        if trial.run.finished:
            return
        record = trial.run.epoch(1)
        trial.compiling = self.budget.spent - begun
        self._tell(trial.run, record)

    def _advance(self, trial: Trial, share: float, part: float) -> None:
        """Train one for its share of the time, in epochs of as many steps as fit into it."""
        run = trial.run
        if run is None or trial.note:
            return
        end = self.budget.spent + share
        pace = Pace(share, trial.steps)
        while not run.finished and not self.stopped.is_set():
            if pace.last and not pace.fits(min(end - self.budget.spent, self.budget.left(part))):
                break
            begun = self.budget.spent
            if begun > end or self.budget.left(part) <= 0:
                break
            record = run.epoch(pace.steps)
            pace.after(self.budget.spent - begun, run.steps)
            trial.steps = pace.steps
            self._tell(run, record)

    def _tell(self, run: Run, record: dict[str, np.ndarray]) -> None:
        with self._lock:
            self.progress.epoch(run.epochs - 1, record, run.samples)

    def _more_seeds(self) -> list[Trial]:
        """The best kinds again from other seeds, one kind after the other, as many as there is time for."""
        kinds = [t for t in self._ranked(self.trials) if t.run is not None and not t.note]
        return [trial for best in kinds[:_FINALISTS] for trial in self._again(best)]

    def _again(self, best: Trial) -> list[Trial]:
        """What a kind that has been trained gives from other seeds."""
        if self.ensemble < 2 or self.stopped.is_set():
            return []
        work = self.work
        assert best.run is not None
        reached = (1 + int(np.max(best.run.result().best_epoch))) / max(best.epochs, 1)
        need = 0.7 * reached * (best.seconds - best.compiling) + _AGAIN * best.compiling
        count = min(self.ensemble - 1, int(self.budget.left() * self.workers / max(need, 1.0)))
        seeds = [work.seed + 1 + k for k in range(count)]
        members = [Member(seed, 0, work.learning_rate, work.penalty) for seed in seeds]
        if count < 1:
            return []
        groups = [members] if self.together else [[member] for member in members]
        more = [Trial(best.name, seed=group[0].seed, steps=best.steps) for group in groups]
        share = self.budget.left() * self.workers / len(groups)

        def train(trial: Trial) -> None:
            begun = self.budget.spent
            self._prepare(trial, 1.0, groups[more.index(trial)])
            self._advance(trial, share - (self.budget.spent - begun), 1.0)

        self._each(more, train)
        return [t for t in more if t.run is not None and not t.note]

    def _put_together(self, more: list[Trial]) -> Chosen:
        """The best models, by greedy selection of those whose mixture is best on validation."""
        work = self.work
        ranked = self._ranked(self.trials)
        pool: list[tuple[Trial, Headed]] = []
        for trial in [*self._finalists(ranked), *more, *(t for t in ranked if t.solved is not None)]:
            pool += [(trial, model) for model in trial.models()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a model without a prediction is not chosen
            outputs = [outputs_of(model, work.validation_rows) for _, model in pool]
        picked = self._greedy(outputs)
        weights = {k: picked.count(k) / len(picked) for k in dict.fromkeys(picked)}
        together = mix([outputs[k] for k in weights], list(weights.values()))
        metrics = work.metrics(together)
        for k, weight in weights.items():
            owner = next(t for t in self.trials if t.name == pool[k][0].name)
            owner.weight += weight
        names, models = zip(*((pool[k][0].name, pool[k][1]) for k in weights), strict=True)
        final = [solved_again(work, name) or model for name, model in zip(names, models, strict=True)]
        members = Members(names, tuple(weights.values()), tuple(final))
        first = pool[picked[0]][0]
        fit = None if first.run is None else first.run.result()
        member = 0 if first.run is None else best_member(first.run) or 0
        table, notes = self._leaderboard(members, metrics), self._notes(members)
        return Chosen(members, table, fit, member, metrics, together, notes)

    def _finalists(self, ranked: list[Trial]) -> list[Trial]:
        """The best kinds, as many as there is time for: each has a program for predictions to compile."""
        kept: list[Trial] = []
        left = self.budget.seconds - self.budget.spent
        for trial in [t for t in ranked if t.run is not None][:_FINALISTS]:
            left -= _AGAIN * trial.compiling
            if not kept or left > 0:
                kept.append(trial)
        return kept

    def _greedy(self, outputs: list[Any]) -> list[int]:
        """Places of the models, with repetition, whose even mixture scores best; at most `ensemble` different ones.

        One after the other is added, the one that helps most or hurts least; the best mixture on that way is kept.
        """
        work, most = self.work, max(self.ensemble, 1)
        picked: list[int] = []
        total, best, length = None, math.nan, 0
        for count in range(1, _PICKS * most + 1 if most > 1 else 2):
            open_to = set(picked) if len(set(picked)) == most else range(len(outputs))
            scores = {}
            for k in open_to:
                mixed = outputs[k] if total is None else mix([total, outputs[k]], [1 - 1 / count, 1 / count])
                score = work.metrics(mixed)[work.task.monitor]
                if math.isfinite(score):
                    scores[k] = score
            if not scores:
                break
            k = (min if work.task.better == "lower" else max)(scores, key=lambda k: scores[k])
            total = outputs[k] if total is None else mix([total, outputs[k]], [1 - 1 / count, 1 / count])
            picked.append(k)
            if work.better(scores[k], best):
                best, length = scores[k], count
        return picked[:length] or [len(outputs) - 1]

    def _ranked(self, trials: Sequence[Trial]) -> list[Trial]:
        finite = [t for t in trials if math.isfinite(t.score(self.work))]
        sign = 1 if self.work.task.better == "lower" else -1
        return sorted(finite, key=lambda t: sign * t.score(self.work))

    def _leaderboard(self, members: Members, metrics: dict[str, float]) -> list[dict[str, Any]]:
        ranked = self._ranked(self.trials)
        lost = [t for t in self.trials if t not in ranked]
        names = list(metrics)
        rows = [t.row(names) for t in (*ranked, *lost)]
        if len(members) > 1:
            rows.insert(0, Trial("ensemble", metrics=metrics, weight=1.0, seconds=self.budget.spent).row(names))
        return rows

    def _notes(self, members: Members) -> tuple[str, ...]:
        """What a reader must be told first."""
        plain = [t for t in self._ranked(self.trials) if t.plain]
        if not plain or not all(name in PLAIN[self.work.kind] for name in members.names):
            return ()
        others = [t for t in self._ranked(self.trials) if not t.plain]
        monitor = self.work.task.monitor
        reached = f"{plain[0].name} has {monitor} {plain[0].metrics[monitor]:.4f}"
        if not others:
            return (f"no model was trained within the budget: {reached} and is kept. Give more minutes.",)
        return (
            f"no model beats the plain baselines on validation: {reached}; the best of them, {others[0].name}, has "
            f"{others[0].metrics[monitor]:.4f}. The baseline is kept; more series or minutes may change that.",
        )

    def _say(self, trial: Trial) -> None:
        say = getattr(self.progress, "say", None)
        if say is None:
            return
        monitor = self.work.task.monitor
        score = trial.score(self.work)
        reached = trial.note or f"validation {monitor} {score:.4f}"
        epochs = f" after {trial.epochs} epochs" if trial.epochs else ""
        with self._lock:
            say(f"{trial.name}: {reached}{epochs}, {trial.seconds:.0f} s")


def solved_again(work: Work, name: str) -> Headed | None:
    """A chosen model in closed form with the validation series among those it knows; none where it has no such form."""
    solve_again = SOLVED[name].solve_again if name in SOLVED else None
    if solve_again is None:
        return None
    return solve_again(work.build(name)(jax.random.key(work.seed)), work.data, work.train, work.validation)


def best_member(run: Run) -> int | None:
    """Of an ensemble, the one with the best score; none without a finite one."""
    done = run.result()
    scores = np.where(done.best_epoch >= 0, done.best_score, np.nan)
    if not np.isfinite(scores).any():
        return None
    return int(np.nanargmin(scores) if run.task.better == "lower" else np.nanargmax(scores))


def models_of(run: Run) -> list[Headed]:
    """The members that have a best epoch, each alone."""
    done = run.result()
    return [without_sampling(done.model(k)) for k in range(len(done.members)) if done.best_epoch[k] >= 0]


def _at_best(run: Run) -> dict[str, float]:
    """The validation metrics of the best epoch of the best member."""
    k = best_member(run)
    if k is None:
        return {}
    done = run.result()
    named = {name.removeprefix("validation_"): v for name, v in done.history.items() if name.startswith("validation_")}
    return {name: float(v[done.best_epoch[k], k]) for name, v in named.items()}


def leaderboard_frame(rows: list[dict[str, Any]]) -> Any:
    """The table of all candidates as a frame."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return nw.from_dict(columns, backend=default_backend()).to_native()  # pyright: ignore[reportArgumentType]
