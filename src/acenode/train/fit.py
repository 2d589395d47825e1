"""`fit`: Algorithm 1 over an ensemble, resumable at any moment."""

import hashlib
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ..tasks.task import Task
from .algorithm import Rates
from .cache import enable_compilation_cache
from .checkpoint import CheckpointMismatch, load_arrays, load_head, save_arrays
from .evaluate import check_rows, padded, take
from .groups import belongs
from .health import INACTIVE
from .layout import Devices, Layout
from .program import Program, Rows, State
from .progress import Progress, Quiet, StopTraining
from .recipe import Member, Recipe
from .stream import Streamed


@dataclass(frozen=True)
class Fit:
    """A trained ensemble: the best parameters of every member by its validation score, and how it went.

    `models` has a leading ensemble axis on every array and is in inference mode; `model(k)` is member k alone.
    `history` holds one array (epochs, members) a quantity. `devices` are the kinds on which epochs were trained.
    """

    models: PyTree
    members: tuple[Member, ...]
    recipe: Recipe
    history: dict[str, np.ndarray]
    best_epoch: np.ndarray
    best_score: np.ndarray
    seconds: float
    member_notes: tuple[tuple[str, ...], ...] = field(default=())
    devices: tuple[str, ...] = field(default=())

    @property
    def inactive(self) -> np.ndarray:
        """Which members have an attention that does nothing (`acenode.train.health`)."""
        return _inactive(self.history, self.best_epoch)

    def warn_of_inactive(self, stacklevel: int = 3) -> None:
        """Warn of each member with such an attention."""
        for member in np.flatnonzero(self.inactive):
            note = _inactive_note(self.history, self.members, self.best_epoch, int(member))
            warnings.warn(note, stacklevel=stacklevel)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must be told, of all members."""
        return tuple(note for each in self.member_notes for note in each)

    def model(self, member: int = 0) -> PyTree:
        return take(self.models, member)


def fit(
    build: Callable[[Array], PyTree],
    task: Task,
    data: PyTree,
    splits,
    recipe: Recipe = Recipe(),  # noqa: B008
    members: Sequence[Member] = (Member(),),
    *,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    devices: Devices = None,
    batch_devices: int = 1,
    at_once: int | None = None,
    stream: int | None = None,
) -> Fit:
    """Train every member of an ensemble at once and return the best parameters of each.

    - `build(key)` makes one model; it is called once a member, mapped over their seeds.
    - `data`: arrays with a leading sample axis, whatever `task` takes as a batch.
    - `splits`: a `Split` (train, validation, test indices), or one a fold; `Member.fold` picks. Test indices
      are not looked at.
    - `checkpoint`: a file that is written after every epoch. Where it exists, the run resumes from it: the same call
      after a kill ends with the same numbers as one that was never stopped.
    - `devices`: how many, or which of `jax.devices()`, the members are spread over; all of them by default. They do not
      exchange anything, and a checkpoint can be resumed on another number of devices.
    - `at_once`: members that a device computes at once, one such block after another; all that it has by default. It
      bounds memory. With the same `at_once` a member ends in the same bits on any number of devices from two on. One
      device differs by rounding, as the compiler takes another way for it; so do blocks of other sizes.
    - `batch_devices`: so many devices share each mini-batch of a member, with one sum of gradients a step. The loss is
      then the mean of those of their parts.
    - `stream`: mini-batches that are on a device at a time; the data stay in host memory, and may be larger than that
      of the device (numpy arrays, or memory maps of files). Validation samples are on the device all the time.
    """
    progress = progress or Quiet()
    given = {"checkpoint": checkpoint, "devices": devices, "batch_devices": batch_devices, "at_once": at_once}
    run = Run(build, task, data, splits, recipe, members, **given, stream=stream)
    progress.start(recipe, run.members, task, run.epochs)
    try:
        while not run.finished:
            record = run.epoch()
            progress.epoch(run.epochs - 1, record, run.samples)
    except StopTraining:
        pass
    finally:
        progress.stop()
    done = run.result()
    done.warn_of_inactive()
    return done


class Run:
    """A training that is taken epoch by epoch, as `fit` does; the arguments are those of `fit`.

        run = Run(build, task, data, split)
        while not run.finished:
            record = run.epoch()
        best = run.result()

    `epochs` counts those done, `seconds` is the time spent in them and in the preparation.
    """

    def __init__(
        self,
        build: Callable[[Array], PyTree],
        task: Task,
        data: PyTree,
        splits,
        recipe: Recipe = Recipe(),  # noqa: B008
        members: Sequence[Member] = (Member(),),
        *,
        checkpoint: str | Path | None = None,
        devices: Devices = None,
        batch_devices: int = 1,
        at_once: int | None = None,
        stream: int | None = None,
    ):
        enable_compilation_cache()
        began = time.perf_counter()
        folds = [splits] if hasattr(splits, "train") else list(splits)
        _check_kinds(build, task, folds, members)
        self.members, self.recipe, self.task = tuple(members), recipe, task
        _check(task, data, folds, recipe, self.members)
        self._layout = layout = Layout.of(len(self.members), devices, batch_devices, at_once)
        rows = _rows(folds, self.members)
        seeds = jnp.asarray([m.seed for m in self.members], jnp.int32)
        rates = Rates.of(recipe, self.members)
        if stream is None:
            self._program = Program(build, task, recipe, rows.train.shape[1], layout)
            here = whole = jax.tree.map(jnp.asarray, data)
        else:
            if stream < 1 or batch_devices > 1:
                raise ValueError(f"fit(stream={stream}, batch_devices={batch_devices}): at least 1, and 1 device.")
            self._program = Streamed(build, task, recipe, rows, layout, data, stream)
            here, whole, rows = self._program.resident, self._program.data, self._program.resident_rows
        if self._program.batch % batch_devices:
            raise ValueError(
                f"fit(batch_devices={batch_devices}): does not divide the batch of {self._program.batch} samples. "
                "Choose another batch_size."
            )
        state, self._static = self._program.start(seeds, rows, rates, here)
        self._data = layout.share(here)
        self._state, self._seeds, self._rows, self._rates = map(layout.put, (state, seeds, rows, rates))
        self.history: dict[str, list] = {}
        self.epochs, self.seconds = 0, 0.0
        self._devices: list[str] = []
        self._path = None if checkpoint is None else Path(checkpoint)
        if self._path is not None:
            self._numbers = _numbers(state.model, recipe)
            self._fingerprint = _fingerprint(task, recipe, self.members, state, self._static, whole, folds)
            self._resume(self._path, state)
        if self.epochs < recipe.epochs:
            self._program.check_monitor(self._state, self._static, self._seeds, self._rows, self._data)
        self.seconds += time.perf_counter() - began

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or every member has stopped early."""
        return self.epochs >= self.recipe.epochs or bool(np.all(self._layout.get(self._state.stopped)))

    @property
    def samples(self) -> int:
        """How many an epoch takes, of all members together."""
        return self._program.steps * self._program.batch * len(self.members)

    @property
    def steps(self) -> int:
        """The mini-batches of a whole epoch."""
        return self._program.steps

    def epoch(self, steps: int | None = None) -> dict[str, np.ndarray]:
        """Train one more epoch, or so many steps of one, validate, write the checkpoint; the record of it."""
        began = time.perf_counter()
        had = np.full(len(self.members), self.epochs)
        self._state, record = self._program.epoch(
            self._state, self._static, self._seeds, self._rows, self._rates, self._data, had, steps
        )
        self.epochs += 1
        self._devices = list(dict.fromkeys([*self._devices, device_kind()]))
        for name, value in record.items():
            self.history.setdefault(name, []).append(value.tolist())
        self.seconds += time.perf_counter() - began
        if self._path is not None:
            head = {
                "fingerprint": self._fingerprint,
                "numbers": self._numbers,
                "epochs": self.epochs,
                "seconds": self.seconds,
            }
            whole = self._layout.get(self._state)
            if jax.process_index() == 0:  # of several hosts, one writes
                save_arrays(self._path, whole, {**head, "history": self.history, "devices": self._devices})
        return record

    def result(self) -> Fit:
        """The best parameters so far of every member, and how it went."""
        best, best_epoch, best_score = self._state.best, self._state.best_epoch, self._state.best_score
        if self._layout.mesh is not None:  # what follows is for one device
            best = jax.tree.map(jnp.asarray, self._layout.get(best))
        best_epoch, best_score = self._layout.get((best_epoch, best_score))
        best = eqx.nn.inference_mode(eqx.combine(best, self._static))
        history = {name: np.asarray(values) for name, values in self.history.items()}
        notes = _notes(history, self.members, best_epoch)
        told = (self.members, self.recipe, history, best_epoch, best_score, self.seconds)
        return Fit(best, *told, notes, tuple(self._devices))

    def _resume(self, path: Path, like: State) -> None:
        if not path.exists():
            return
        head = load_head(path)
        if head["fingerprint"] != self._fingerprint or not _alike(head.get("numbers", self._numbers), self._numbers):
            raise CheckpointMismatch(
                f"{path} belongs to another run (other data, model, recipe or members) or version of acenode. Move it "
                "away, or give this run another checkpoint file."
            )
        self._state = self._layout.put(load_arrays(path, like))
        self.history, self.epochs, self.seconds = head["history"], head["epochs"], head["seconds"]
        self._devices = head.get("devices", ["unknown"] if self.epochs else [])


def device_kind() -> str:
    """Such as cpu, or the name of an accelerator."""
    return str(jax.devices()[0].device_kind)


# --- rows, checks, words --------------------------------------------------------------------------------------


def _rows(folds, members: Sequence[Member]) -> Rows:
    train = padded([np.asarray(folds[m.fold].train) for m in members])
    validation = padded([np.asarray(folds[m.fold].validation) for m in members])
    return Rows(*train, *validation)


def _check_kinds(build, task, folds, members) -> None:
    """Refuse what is not the kind of thing that an argument takes."""
    if isinstance(build, eqx.Module) or not callable(build):
        raise ValueError(
            "fit(build=...): give a function from a key to a model; for one that there is, lambda key: it."
        )
    absent = [name for name in ("monitor", "better", "loss", "outputs", "metrics") if not hasattr(task, name)]
    if absent:
        raise ValueError(f"fit(task=...): a {type(task).__name__} has no {absent[0]}; give a task of acenode.tasks.")
    if not all(hasattr(fold, "train") and hasattr(fold, "validation") for fold in folds):
        raise ValueError(
            "fit(splits=...): give Split(train, validation, test) of acenode.datasets.split, or one a fold."
        )
    if isinstance(members, Member):
        raise ValueError("fit(members=...): give a list of members, [Member(...)].")


def _check(task: Task, data, folds, recipe: Recipe, members: Sequence[Member]) -> None:
    if task.better not in ("lower", "higher"):
        raise ValueError(f"fit(task=...): better is {task.better!r}; choose from lower, higher.")
    leaves = [np.asarray(x) for x in jax.tree.leaves(data)]
    if not all(x.ndim for x in leaves):
        raise ValueError("fit(data=...): there is a single number; expected arrays with a leading sample axis.")
    sizes = {x.shape[0] for x in leaves}
    if len(sizes) != 1:
        raise ValueError(f"fit(data=...): the arrays have {sorted(sizes)} samples; expected the same number in all.")
    count = sizes.pop()
    if count == 0:
        raise ValueError("fit(data=...): there are no samples.")
    for leaf in leaves:
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
            raise ValueError(
                f"fit(data=...): an array of shape {leaf.shape} holds NaN or infinite values. Mark missing values in "
                "the mask and store 0 there."
            )
    if not members:
        raise ValueError("fit(members=...): there is no member to train.")
    if recipe.own_optimisers and len({m.learning_rate for m in members}) > 1:
        raise ValueError(
            "fit(members=...): the members have several learning rates, and an optax optimiser has its own. Name the "
            "optimiser, e.g. Recipe(optimiser='adam'), or give one rate."
        )
    for m in members:
        if not 0 <= m.fold < len(folds):
            raise ValueError(f"fit(members=...): member ({m}) asks for fold {m.fold}; splits has {len(folds)}.")
    for k, fold in enumerate(folds):
        for part in ("train", "validation"):
            check_rows(f"fit(splits=...): the {part} part of fold {k}", np.asarray(getattr(fold, part)), count)
        if np.intersect1d(fold.train, fold.validation).size:
            raise ValueError(f"fit(splits=...): fold {k} has samples in both train and validation.")
    sizes = [len(folds[m.fold].train) for m in members]
    if min(sizes) < min(max(sizes), recipe.batch_size):
        raise ValueError(
            f"fit(splits=...): the members train on {min(sizes)} to {max(sizes)} samples, so that a batch of "
            f"{recipe.batch_size} does not fit into each. Give Recipe a batch_size of at most {min(sizes)}."
        )


def _fingerprint(task: Task, recipe: Recipe, members, state, static, data, folds) -> str:
    """What must be equal for one run to resume from another's checkpoint."""
    digest = hashlib.sha256()
    # More epochs may follow later, unless the schedule depends on them; functions have no name that another process
    # would know them by.
    fields = ("optimiser", "attention_optimiser", "initial_optimiser")
    named = {n: v if isinstance(v := getattr(recipe, n), str | type(None)) else "adam" for n in fields}
    plain = replace(recipe, epochs=1, schedule=None, self_check="auto", **named)
    digest.update(repr((asdict(plain), [m.given() for m in members])).encode())
    # Neither have the functions that a task or a model may hold; an address would be another in every process.
    settings = [repr(leaf) for leaf in jax.tree.leaves(static)]
    described = (
        f"{type(task)} {getattr(task, '__dict__', {})}" if type(task).__repr__ is object.__repr__ else repr(task)
    )
    for words in (described, str(jax.tree.structure(tuple(state))), *settings):
        digest.update(re.sub(" at 0x[0-9a-f]+", "", words).encode())
    measured = eqx.filter(task, eqx.is_array)
    for leaf in jax.tree.leaves((data, [(np.asarray(f.train), np.asarray(f.validation)) for f in folds], measured)):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    for leaf in jax.tree.leaves(state):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
    return digest.hexdigest()


def _numbers(model: PyTree, recipe: Recipe) -> list[list[float]]:
    """What tells another run too, but for rounding, which differs between devices: some of the first weights of each
    array, and what the functions of a recipe do, a schedule and an optimiser."""
    trained = jax.tree.leaves(eqx.filter(model, belongs(model, "main", "attention", "initial")))
    found: list[Array | np.ndarray] = [
        np.ravel(leaf)[np.linspace(0, leaf.size - 1, 8).astype(int)] for leaf in trained if leaf.size
    ]
    if recipe.schedule is not None:
        found.append(jax.vmap(recipe.schedule)(jnp.asarray([*range(100), *range(100, 100_000, 50)])))
    found += map(_steps, recipe.own_optimisers)
    with np.errstate(over="ignore"):  # a factor may grow past single precision this far on
        return [[float(f"{x:.6g}") for x in np.clip(np.asarray(each, np.float32), -1e30, 1e30)] for each in found]


def _steps(transformation: optax.GradientTransformation) -> Array:
    """A hundred steps of an optimiser; nothing of one that takes the parameters of one model only."""
    parameters, gradient = jnp.asarray([1.0, -2.0, 3.0]), jnp.asarray([0.5, 1.0, -4.0])

    def step(state, _):
        update, state = transformation.update(gradient, state, parameters)
        return state, update

    try:
        _, moved = jax.lax.scan(step, transformation.init(parameters), length=100)
        return jnp.ravel(jnp.asarray(moved))
    except Exception:  # whatever it asks for
        return jnp.zeros(0)


def _alike(one: list[list[float]], other: list[list[float]]) -> bool:
    """Whether numbers are the same but for rounding."""
    return len(one) == len(other) and all(
        len(a) == len(b) and np.allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs([0.0, *b]).max())
        for a, b in zip(one, other, strict=True)
    )


def _notes(history: dict[str, np.ndarray], members, best_epoch: np.ndarray) -> tuple[tuple[str, ...], ...]:
    """What a reader must be told of each member at the end."""
    every, inactive = [], _inactive(history, best_epoch)
    for k, member in enumerate(members):
        notes = []
        skipped = int(history["skipped"][:, k].sum()) if "skipped" in history else 0
        failed = int(history["failed"][:, k].sum()) if "failed" in history else 0
        if best_epoch[k] < 0:
            notes.append(
                f"member ({member}): no epoch had a finite validation score (one failed solve in validation is enough "
                "to lose it); its parameters are untrained."
            )
        if skipped:
            notes.append(
                f"member ({member}): {skipped} updates were skipped because the loss or its gradient was not "
                "finite; a lower learning rate or clip=1.0 helps."
            )
        if inactive[k]:
            notes.append(_inactive_note(history, members, best_epoch, k))
        if failed:
            notes.append(
                f"member ({member}): {failed} solves failed and their samples were left out of the step; loosen "
                "the tolerances or raise max_steps."
            )
        every.append(tuple(notes))
    return tuple(every)


def _inactive(history: dict[str, np.ndarray], best_epoch: np.ndarray) -> np.ndarray:
    """Of each member, whether no weight of its attention changes along the solve, in its best epoch."""
    if "attention_change" not in history:
        return np.zeros(len(best_epoch), bool)
    change = history["attention_change"][best_epoch, np.arange(len(best_epoch))]
    return (best_epoch >= 0) & (change < INACTIVE)


def _inactive_note(history: dict[str, np.ndarray], members, best_epoch: np.ndarray, k: int) -> str:
    names = ("attention_change", "attention_gradient", "penalty_gradient", "attention_norm")
    change, task, penalty, norm = (history[name][best_epoch[k], k] for name in names)
    return (
        f"member ({members[k]}): attention inactive, no weight changes by more than {change:.2g} along the solve "
        f"(norm of theta_g {norm:.2g}; gradient of the task on it {task:.2g}, of the penalty {penalty:.2g}). The run "
        "is no evidence for or against it; a smaller penalty, no decay of theta_g or a larger attention_rate may help."
    )


__all__ = ["Fit", "Run", "fit"]
