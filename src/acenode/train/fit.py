"""`fit`: Algorithm 1 over an ensemble, one compiled program an epoch, resumable at any moment."""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PyTree
from safetensors import safe_open

from ..compiled import compiled
from ..tasks.task import Task
from .cache import enable_compilation_cache
from .checkpoint import CheckpointMismatch, load_arrays, load_head, save_arrays
from .evaluate import check_rows, metrics_of, one_by_one, padded, score_note, take, take_rows
from .groups import belongs, remember, remembers
from .progress import Progress, Quiet
from .recipe import Member, Recipe
from .step import Clock, Optimisers, Rates, Tally, attention_step, choose, main_step, start, stepped_groups

RECHECKED = 8  # of a large ensemble, the members that are evaluated once more on an accelerator


class _State(NamedTuple):
    """All that a run is, at the end of an epoch. Each array has a leading ensemble axis outside the program."""

    model: PyTree
    optimisers: Optimisers
    averaged: PyTree | None  # the parameters averaged over iterations, if the recipe wants that
    best: PyTree
    best_score: Float[Array, ""]
    best_epoch: Int[Array, ""]
    iteration: Int[Array, ""]
    stopped: Array


class _Rows(NamedTuple):
    """Which samples a member trains and validates on; rows of weight 0 fill up shorter folds."""

    train: Int[Array, " train"]
    train_weight: Float[Array, " train"]
    validation: Int[Array, " validation"]
    validation_weight: Float[Array, " validation"]


@dataclass(frozen=True)
class Fit:
    """A trained ensemble: the best parameters of every member by its validation score, and how it went.

    `models` has a leading ensemble axis on every array and is in inference mode; `model(k)` is member k alone.
    `history` holds one array (epochs, members) a quantity.
    """

    models: PyTree
    members: tuple[Member, ...]
    recipe: Recipe
    history: dict[str, np.ndarray]
    best_epoch: np.ndarray
    best_score: np.ndarray
    seconds: float
    notes: tuple[str, ...] = field(default=())

    def model(self, member: int = 0) -> PyTree:
        return take(self.models, member)


def load_best(checkpoint: str | Path, build: Callable[[Array], PyTree], seeds: Sequence[int]) -> PyTree:
    """The best parameters of a run, from its checkpoint file alone: what `Fit.models` was, without data or recipe.

    `build` and `seeds` are those of the run. The file holds numbers and no names: their shapes are checked, and how
    many members there are, not which seeds these had.
    """
    path = Path(checkpoint)
    made = eqx.filter_eval_shape(eqx.filter_vmap(lambda seed: build(jax.random.key(seed))), jnp.asarray(seeds))
    if remembers(made):
        raise ValueError(
            "load_best(build=...): this model measures batch statistics of training data, which `build` does not know. "
            "Call fit with the arguments of the run and its checkpoint: where no epoch is left it answers at once."
        )
    shapes, rest = eqx.partition(made, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    expected, structure = jax.tree.flatten(shapes)
    after = len(_State._fields) - 1 - _State._fields.index("best")  # one array for each field behind it
    with safe_open(path, framework="numpy") as file:
        names = sorted(file.keys())
        first = len(names) - after - len(expected)
        if first < len(expected):  # the last parameters, of the same number, come before the best ones
            raise CheckpointMismatch(
                f"{path} holds {len(names)} arrays; the model of `build` alone has {len(expected)}."
            )
        loaded = [file.get_tensor(name) for name in names[first : first + len(expected)]]
    for new, like in zip(loaded, expected, strict=True):
        if new.shape != like.shape or new.dtype != like.dtype:
            raise CheckpointMismatch(
                f"{path}: a best parameter is {new.dtype}{new.shape}; {len(seeds)} models of `build` have "
                f"{like.dtype}{like.shape} there. Give the `build`, the seeds and the precision of the run."
            )
    arrays = jax.tree.unflatten(structure, [jnp.asarray(x) for x in loaded])
    return eqx.nn.inference_mode(eqx.combine(arrays, rest))


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
) -> Fit:
    """Train every member of an ensemble at once and return the best parameters of each.

    - `build(key)` makes one model; it is called once a member, mapped over their seeds.
    - `data`: arrays with a leading sample axis, whatever `task` takes as a batch.
    - `splits`: a `Split` (train, validation, test indices), or one a fold; `Member.fold` picks. Test indices
      are not looked at.
    - `checkpoint`: a file that is written after every epoch and gone on from where it exists. The same call
      after a kill ends with the same numbers as one that was never stopped.
    """
    enable_compilation_cache()
    progress = progress or Quiet()
    members = tuple(members)
    folds = [splits] if hasattr(splits, "train") else list(splits)
    _check(task, data, folds, recipe, members)
    began = time.perf_counter()

    data = jax.tree.map(jnp.asarray, data)
    rows = _rows(folds, members)
    rates = Rates(*(jnp.asarray([getattr(m, n) for m in members], float) for n in Rates._fields))
    seeds = jnp.asarray([m.seed for m in members], jnp.int32)
    program = _Program(build, task, recipe, rows.train.shape[1])
    state, static = program.start(seeds, rows, data)

    fingerprint = _fingerprint(recipe, members, state, data, folds)
    history: dict[str, list] = {}
    first, spent = 0, 0.0
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        head = load_head(path)
        if head["fingerprint"] != fingerprint:
            raise CheckpointMismatch(
                f"{path} belongs to another run (other data, model, recipe or members). Move it away, or give "
                "this run another checkpoint file."
            )
        state = load_arrays(path, state)
        history, first, spent = head["history"], head["epochs"], head["seconds"]

    progress.start(recipe, members, task, first)
    try:
        for epoch in range(first, recipe.epochs):
            if bool(np.all(state.stopped)):
                break
            state, record = program.epoch(state, static, seeds, rows, rates, data, jnp.asarray(epoch))
            record = {name: np.asarray(value) for name, value in record.items()}
            for name, value in record.items():
                history.setdefault(name, []).append(value.tolist())
            seconds = spent + time.perf_counter() - began
            if path is not None:
                head = {"fingerprint": fingerprint, "epochs": epoch + 1, "seconds": seconds, "history": history}
                save_arrays(path, state, head)
            progress.epoch(epoch, record, program.steps * program.batch * len(members))
    finally:
        progress.stop()

    best = eqx.nn.inference_mode(eqx.combine(state.best, static))
    best_epoch, best_score = np.asarray(state.best_epoch), np.asarray(state.best_score)
    arrays = {name: np.asarray(values) for name, values in history.items()}
    notes = _notes(arrays, members, best_epoch)
    if jax.default_backend() != "cpu":
        notes += _rechecked(best, task, recipe, data, rows, members, best_epoch, best_score)
    seconds = spent + time.perf_counter() - began
    return Fit(best, members, recipe, arrays, best_epoch, best_score, seconds, notes)


class _Program:
    """The compiled parts of a run: making the members, and one epoch of all of them."""

    def __init__(self, build, task: Task, recipe: Recipe, train_rows: int):
        self.build, self.task, self.recipe = build, task, recipe
        self.batch = min(recipe.batch_size, train_rows)
        self.steps = train_rows // self.batch

    def start(self, seeds, rows: _Rows, data) -> tuple[_State, PyTree]:
        def one(seed, rows):
            model = _strong(self.build(jax.random.key(seed)))
            model = _measure(self.recipe, self.task, model, rows, data, jax.random.key(seed))
            optimisers = start(self.recipe, model)
            # With a type of its own: a weak one would change after the first epoch and compile everything twice.
            worst = jnp.asarray(jnp.inf if self.task.better == "lower" else -jnp.inf, float)
            zero = jnp.zeros((), jnp.int32)
            averaged = model if self.recipe.average else None
            return _State(model, optimisers, averaged, model, worst, zero - 1, zero, jnp.asarray(False))

        state = compiled(eqx.filter_vmap(one))(seeds, rows)
        arrays, static = eqx.partition(state, eqx.is_array)
        return arrays, static.model

    def epoch(self, state: _State, static, seeds, rows, rates, data, epoch):
        return _epoch(self.task, self.recipe, self.batch, self.steps, static, state, seeds, rows, rates, data, epoch)


def _strong(model: PyTree) -> PyTree:
    """The same arrays without weak types, which would change in the first epoch and compile everything twice."""
    return jax.tree.map(lambda x: lax.convert_element_type(x, x.dtype) if eqx.is_inexact_array(x) else x, model)


def _measure(recipe: Recipe, task: Task, model, rows: _Rows, data, key):
    """Measure the batch statistics that evaluation uses, on the first training samples."""
    if not remembers(model):
        return model
    sample = rows.train[: recipe.reference]
    first = task.first_states(model, take_rows(data, sample), key)
    if first is None:
        return model
    h0, times = first
    return remember(model, lax.stop_gradient(h0), times)


def _keys(seed, epoch) -> Array:
    """Of the shuffle, the steps and the measurements of an epoch of a member."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), epoch), 3)


@compiled
def _epoch(task, recipe, batch, steps, static, state, seeds, rows, rates, data, epoch):
    def one(state, seed, rows, rates):
        return _member_epoch(task, recipe, batch, steps, static, state, seed, rows, rates, data, epoch)

    if seeds.shape[0] == 1:  # an axis of one would make every product a batch of one, half as quick on a CPU
        return jax.tree.map(lambda x: x[None], one(*jax.tree.map(lambda x: x[0], (state, seeds, rows, rates))))
    return jax.vmap(one)(state, seeds, rows, rates)


def _member_epoch(task: Task, recipe: Recipe, batch, steps, static, state: _State, seed, rows, rates, data, epoch):
    """One epoch of one member: shuffle, alternate, measure, validate, keep the best."""
    shuffle_key, step_key, measure_key = _keys(seed, epoch)
    model = eqx.combine(state.model, static)
    _, second = stepped_groups(recipe, model)
    own_steps = jnp.sum(rows.train_weight > 0) // batch  # fewer than `steps` where other folds are larger

    def shuffled(key):
        order = jax.random.uniform(key, rows.train.shape)
        order = jnp.argsort(jnp.where(rows.train_weight > 0, order, 2.0))
        return rows.train[order[: steps * batch]].reshape(steps, batch)

    def scan(step_functions, carry, key):
        def body(carry, x):
            arrays, optimisers, iteration, tally, averaged = carry
            samples, step = x
            model, clock = eqx.combine(arrays, static), Clock(epoch, iteration)
            keys = jax.random.split(jax.random.fold_in(step_key, step), 2)
            for take_step, one_key in zip(step_functions, keys, strict=False):
                model, optimisers, tally = take_step(
                    recipe, task, model, optimisers, take_rows(data, samples), one_key, rates, clock, tally
                )
            arrays = eqx.filter(model, eqx.is_array)
            averaged = _averaged(recipe, averaged, arrays, iteration)
            after = (arrays, optimisers, iteration + 1, tally, averaged)
            return choose(step < own_steps, after, carry), None

        xs = (shuffled(key), jnp.arange(steps))
        return lax.scan(body, carry, xs)[0]

    carry = (state.model, state.optimisers, state.iteration, Tally.zero(), state.averaged)
    if not second:
        carry = scan([main_step], carry, shuffle_key)
    elif recipe.unit == "batch":
        carry = scan([main_step, attention_step], carry, shuffle_key)
    else:
        arrays, optimisers, iteration, tally, averaged = scan([main_step], carry, shuffle_key)
        again = (arrays, optimisers, state.iteration, tally, averaged)
        carry = scan([attention_step], again, jax.random.fold_in(shuffle_key, 1))
    arrays, optimisers, iteration, tally, averaged = carry

    kept = arrays if averaged is None else averaged
    model = _measure(recipe, task, eqx.combine(kept, static), rows, data, measure_key)
    rested = eqx.nn.inference_mode(model)
    metrics = metrics_of(rested, task, recipe.eval_batch, rows.validation, rows.validation_weight, data, measure_key)
    if task.monitor not in metrics:
        raise ValueError(f"fit(task=...): monitor is {task.monitor!r}; choose from {', '.join(metrics)}.")
    score = metrics[task.monitor].astype(state.best_score.dtype)
    better = (score < state.best_score) if task.better == "lower" else (score > state.best_score)
    better = better & ~state.stopped
    measured = eqx.filter(model, eqx.is_array)
    best_epoch = jnp.where(better, epoch, state.best_epoch)
    stopped = state.stopped
    if recipe.patience is not None:
        stopped = stopped | (epoch - best_epoch >= recipe.patience)
    new = _State(
        measured if averaged is None else arrays,
        optimisers,
        averaged,
        choose(better, measured, state.best),
        jnp.where(better, score, state.best_score),
        best_epoch,
        iteration,
        stopped,
    )
    # A member that has stopped stays as it is; the others go on.
    frozen = state._replace(best_epoch=best_epoch, stopped=stopped)
    new = choose(state.stopped, frozen, new)
    counted = jnp.maximum(tally.counted, 1)
    record = {
        "loss": tally.loss / counted,
        "attention_loss": tally.attention_loss / jnp.maximum(tally.attention_counted, 1),
        "nfe": tally.evaluations / counted,
        "nfe_backward": tally.pullbacks / counted,
        "skipped": tally.skipped,
        "failed": tally.failed,
        **{f"validation_{name}": value for name, value in metrics.items()},
    }
    # Nor does it tell of steps that are not kept.
    nothing = {n: jnp.full_like(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0) for n, x in record.items()}
    return new, choose(state.stopped, nothing, record)


def _averaged(recipe: Recipe, averaged: PyTree | None, arrays: PyTree, iteration) -> PyTree | None:
    """The average moved towards the new parameters; over few iterations at first, when there are few."""
    if averaged is None:
        return None
    keep = jnp.minimum(recipe.average, (1 + iteration) / (10 + iteration))
    trained = belongs(arrays, "main", "attention", "initial")
    new, old = (eqx.filter(tree, trained) for tree in (arrays, averaged))
    return eqx.combine(optax.incremental_update(new, old, 1 - keep), arrays)


# --- rows, checks, words --------------------------------------------------------------------------------------


def _rows(folds, members: Sequence[Member]) -> _Rows:
    train = padded([np.asarray(folds[m.fold].train) for m in members])
    validation = padded([np.asarray(folds[m.fold].validation) for m in members])
    return _Rows(*train, *validation)


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


def _fingerprint(recipe: Recipe, members, state, data, folds) -> str:
    """What must be equal for one run to go on from another's checkpoint."""
    digest = hashlib.sha256()
    # More epochs may be asked for later; functions have no name that another process would know them by.
    named = recipe.optimiser if isinstance(recipe.optimiser, str) else "adam"
    plain = replace(recipe, epochs=1, schedule=None, optimiser=named)
    digest.update(repr((asdict(plain), [asdict(m) for m in members])).encode())
    if recipe.schedule is not None:
        probed = jax.vmap(recipe.schedule)(jnp.arange(0, 100_000, 50))
        with np.errstate(over="ignore"):  # a factor may grow past single precision this far on
            digest.update(np.asarray(probed, np.float32).round(5).tobytes())
    # Neither have the functions that a model may hold; an address would be another in every process.
    digest.update(re.sub(" at 0x[0-9a-f]+", "", str(jax.tree.structure(state))).encode())
    for leaf in jax.tree.leaves((data, [(np.asarray(f.train), np.asarray(f.validation)) for f in folds])):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    for leaf in jax.tree.leaves(state):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
    return digest.hexdigest()


def _rechecked(best, task: Task, recipe: Recipe, data, rows: _Rows, members, best_epoch, best_score) -> tuple[str, ...]:
    """The best score of some members computed once more, alone, and what to tell where it is another.

    A GPU was seen to evaluate five members of 400 samples each with a tenth of the samples wrong in four of them, by
    a program that is right for 320.
    """
    some = np.unique(np.linspace(0, len(members) - 1, RECHECKED).astype(int))
    drawn = np.maximum(best_epoch, 0)  # without any finite score there is nothing to compare with
    keys = [_keys(jnp.int32(members[k].seed), jnp.int32(drawn[k]))[2] for k in some]
    chosen = take(best, some)
    validated = (rows.validation[some], rows.validation_weight[some])
    alone = one_by_one(chosen, task, data, *validated, keys, recipe.eval_batch)[task.monitor]
    notes = (score_note(members[k], best_score[k], score) for k, score in zip(some, alone, strict=True))
    return tuple(note for note in notes if note)


def _notes(history: dict[str, np.ndarray], members, best_epoch: np.ndarray) -> tuple[str, ...]:
    """What a reader must be told at the end."""
    notes = []
    for k, member in enumerate(members):
        skipped = int(history["skipped"][:, k].sum()) if "skipped" in history else 0
        failed = int(history["failed"][:, k].sum()) if "failed" in history else 0
        if best_epoch[k] < 0:
            notes.append(f"member ({member}): no epoch had a finite validation score; its parameters are untrained.")
        if skipped:
            notes.append(
                f"member ({member}): {skipped} updates were skipped because the loss or its gradient was not "
                "finite; a lower learning rate or clip=1.0 helps."
            )
        if failed:
            notes.append(
                f"member ({member}): {failed} solves failed and their samples were left out of the step; loosen "
                "the tolerances or raise max_steps."
            )
    return tuple(notes)


__all__ = ["Fit", "fit", "load_best"]
