"""Metrics of trained models on chosen samples."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

from ..backend import backend
from ..compiled import compiled
from ..precision import Precision, check_precision, products_in
from ..tasks.task import Task
from .layout import Layout
from .self_check import Parts, SelfCheck, agreed_parts, check_self_check, is_wanted

AT_ONCE = 2048  # samples of all members together in one call of validation
AT_ONCE_ACCELERATED = 8192  # the same on accelerators


def take(models: PyTree, member: int) -> PyTree:
    """One member of a stacked ensemble."""
    arrays, static = eqx.partition(models, eqx.is_array)
    count = jax.tree.leaves(arrays)[0].shape[0]
    if not -count <= member < count:
        raise IndexError(f"an ensemble of {count} has no member {member}.")
    return eqx.combine(_take(arrays, member), static)


@jax.jit
def _take(arrays: PyTree, member) -> PyTree:
    return jax.tree.map(lambda x: x[member], arrays)


def evaluate(
    models: PyTree,
    task: Task,
    data: PyTree,
    indices,
    *,
    ensemble: bool = True,
    eval_batch: int = 256,
    seed: int = 0,
    precision: Precision = "float32",
    self_check: SelfCheck = "auto",
) -> dict:
    """Metrics of every member of an ensemble on the samples `indices`: one array for all, or one a member.

    In inference mode, each member alone: its score does not depend on the others. Metrics of series are NaN where a
    solve failed that the prediction depends on; `ImageClassification` counts such images. With `ensemble=False`,
    `models` is one model, as `Fit.model` gives it, and a metric is one number. `precision` and `self_check` are as in
    `Recipe`.
    """
    check_precision("evaluate", precision, optional=False)
    check_self_check("evaluate", self_check)
    if not ensemble:
        models = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, models)
    models = eqx.nn.inference_mode(models)
    count = next(x.shape[0] for x in jax.tree.leaves(models) if eqx.is_array(x))
    shared = len(indices) == 0 or np.ndim(indices[0]) == 0
    indices = [np.asarray(indices)] * count if shared else [np.asarray(i) for i in indices]
    if len(indices) != count:
        raise ValueError(f"evaluate(indices=...): {len(indices)} arrays of indices for {count} members.")
    samples = jax.tree.leaves(data)[0].shape[0]
    for each in indices:
        check_rows("evaluate(indices=...)", each, samples)
    keys = jnp.stack([jax.random.key(seed)] * count)
    with products_in(precision):
        metrics = each_member(models, task, data, *padded(indices), keys, eval_batch, self_check)
    return metrics if ensemble else {name: value[0] for name, value in metrics.items()}


def each_member(
    models: PyTree,
    task: Task,
    data: PyTree,
    rows,
    weight,
    keys: Array,
    eval_batch: int,
    self_check: SelfCheck = "auto",
    layout: Layout | None = None,
) -> dict[str, np.ndarray]:
    """Metrics of every member, each on rows and with a key of its own; all members as one program.

    Several members are computed at once, as many as `AT_ONCE` allows. XLA of jax 0.11.2 was seen to compile
    stacked members wrongly on a GPU, right in parts of 320 samples and wrong in parts of 400, or 250 with
    another model (`benchmarks/compiler_fault.py`). So the first use of a program is checked there against one that
    takes the members one after the other, in smaller parts.
    """
    data = jax.tree.map(jnp.asarray, data)
    arrays, static = eqx.partition(models, eqx.is_array)
    layout = layout or Layout(rows.shape[0])

    def metrics(parts: Parts, weight) -> dict[str, np.ndarray]:
        return layout.get(_metrics_of_each(layout, (arrays, rows, weight, keys), static, task, parts, data))

    parts = _parts(layout, rows, eval_batch)
    if is_wanted(self_check):
        parts = agreed_parts(metrics, (models, task, rows, data), parts, weight)
    return metrics(parts, weight)


def names_of_metrics(
    models: PyTree, task: Task, data: PyTree, rows, weight, keys: Any, eval_batch: int, layout: Layout
) -> list[str]:
    """The names that `each_member` gives, from shapes alone; it reuses this trace."""
    arrays, static = eqx.partition(models, eqx.is_array)
    told = (layout, (arrays, rows, weight, keys), static, task, _parts(layout, rows, eval_batch), data)
    return list(eqx.filter_eval_shape(_metrics_of_each, *told))


@compiled
def _metrics_of_each(layout: Layout, members, static, task, parts: Parts, data):
    measured, described = eqx.partition(task, eqx.is_array)

    def on_a_device(members, shared):
        data, measured = shared

        def one(arrays, rows, weight, key):
            whole = eqx.combine(measured, described)
            return metrics_of(eqx.combine(arrays, static), whole, parts.samples, rows, weight, data, key)

        return layout.each(one, *members, at_once=parts.members)

    return layout.sharded(on_a_device)(members, (data, measured))


def _parts(layout: Layout, rows: Array, eval_batch: int) -> Parts:
    """As many members as are computed at once, a divisor of those of a device or of `at_once`, and samples of each."""
    count, samples = layout.at_once or rows.shape[0] // layout.groups, min(eval_batch, rows.shape[1])
    most = (AT_ONCE if backend() == "cpu" else AT_ONCE_ACCELERATED) // samples
    return Parts(max(k for k in range(1, count + 1) if count % k == 0 and k <= max(most, 1)), samples)


def metrics_of(model, task: Task, eval_batch: int, rows, weight, data, key: PRNGKeyArray) -> dict[str, Array]:
    """Metrics on some rows of the data, a part of them at a time; NaN if one of them has no answer."""
    size = min(eval_batch, rows.shape[0])
    parts = -(-rows.shape[0] // size)
    fill = parts * size - rows.shape[0]
    all_rows = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], (fill,))])

    def part(rows):
        return task.outputs(model, take_rows(data, rows), key)

    outputs = lax.map(part, all_rows.reshape(parts, size))
    outputs = jax.tree.map(lambda x: x.reshape(parts * size, *x.shape[2:])[: rows.shape[0]], outputs)
    metrics = task.metrics(outputs, take_rows(data, rows), weight)
    lost = _unanswered(outputs, weight)
    return {name: jnp.where(lost, jnp.nan, value) for name, value in metrics.items()}


def _unanswered(outputs: PyTree, weight) -> Array:
    """Whether a sample that counts has a NaN among its outputs, of which a ranking, say, would make a number."""
    floating = [x for x in jax.tree.leaves(outputs) if jnp.issubdtype(x.dtype, jnp.floating)]
    lost = [jnp.isnan(x).reshape(x.shape[0], -1).any(axis=1) for x in floating]
    return jnp.any(jnp.stack(lost) & (weight > 0)) if lost else jnp.asarray(False)


def take_rows(data: PyTree, rows) -> PyTree:
    return jax.tree.map(lambda x: x[rows], data)


def padded(indices: Sequence[np.ndarray]) -> tuple[Array, Array]:
    """Rows of members, one array of them, and weights: 0 where a shorter one is filled up."""
    longest = max(len(i) for i in indices)
    rows = np.stack([np.resize(i, longest) for i in indices])
    weight = np.stack([np.arange(longest) < len(i) for i in indices])
    return jnp.asarray(rows, jnp.int32), jnp.asarray(weight, jnp.float32)


def check_rows(what: str, rows: np.ndarray, count: int) -> None:
    """Refuse what JAX would quietly take for other samples."""
    if rows.size == 0:
        raise ValueError(f"{what} is empty.")
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"{what} has dtype {rows.dtype} and shape {rows.shape}; expected positions (samples,).")
    if rows.min() < 0 or rows.max() >= count:
        worst = rows.min() if rows.min() < 0 else rows.max()
        raise ValueError(f"{what} points to sample {worst}; there are {count}.")
