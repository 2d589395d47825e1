"""Algorithm 1 over an ensemble, as programs: making the members, an epoch of all of them, validation.

Each member keeps its best parameters by its own validation score.
"""

import functools as ft
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ..compiled import compiled, compiled_quickly, in_parallel, loops
from ..precision import products_in
from ..series import Series
from ..tasks.task import Task
from .algorithm import Clock, Optimisers, Rates, Tally, attention_step, choose, main_step, optimisers_of, stepped_groups
from .closures import check_closures
from .evaluate import each_member, names_of_metrics, take_rows
from .groups import belongs, fit_reference_statistics, has_attention, length, needs_reference_statistics
from .health import NAMES, has_health, health_of_members
from .layout import BATCH, Layout
from .recipe import Recipe
from .self_check import WrongProgram, is_wanted, stacking_fault

_GROUP = 8  # batches that are sorted by length together


class State(NamedTuple):
    """All that a run is, at the end of an epoch. Each array has a leading ensemble axis outside the program."""

    model: PyTree
    optimisers: Optimisers
    averaged: PyTree | None  # the parameters averaged over iterations, if the recipe wants that
    best: PyTree
    best_score: Float[Array, ""]
    best_epoch: Int[Array, ""]
    iteration: Int[Array, ""]
    stopped: Array


class Rows(NamedTuple):
    """Which samples a member trains and validates on; rows of weight 0 fill up shorter folds."""

    train: Int[Array, " train"]
    train_weight: Float[Array, " train"]
    validation: Int[Array, " validation"]
    validation_weight: Float[Array, " validation"]


class Trained(NamedTuple):
    """A member after the steps of an epoch, before it is validated."""

    state: State  # the best of it is still what it was
    measured: PyTree  # the parameters that are validated
    key: Array  # of the validation
    record: dict[str, Array]


def _in_precision(method: Callable) -> Callable:
    """The precision of the recipe for all that a method of `Program` compiles and runs."""

    @ft.wraps(method)
    def within(self: "Program", *args, **kwargs):
        with products_in(self.recipe.precision):
            return method(self, *args, **kwargs)

    return within


class Program:
    """The compiled parts of a run: making the members, and one epoch of all of them."""

    def __init__(self, build, task: Task, recipe: Recipe, train_rows: int, layout: Layout):
        self.build, self.task, self.recipe, self.layout = build, task, recipe, layout
        self.batch = min(recipe.batch_size, train_rows)
        self.steps = train_rows // self.batch

        self._make: Any = None
        self._begin: Any = None
        self._fault: str | None = None  # of members that are stacked; not known before the first epoch

    @_in_precision
    def start(self, seeds, rows: Rows, rates: Rates, data) -> tuple[State, PyTree]:
        """The first state of these members, not yet on the devices that train them."""

        def make(seed):
            """A model ready for training: one that was trained before comes in inference mode."""
            model = self.build(jax.random.key(seed))
            check_closures(model)
            return _strong(eqx.nn.inference_mode(model, False))

        if self._make is None:
            self._make = (compiled if loops(make, seeds[0]) else compiled_quickly)(eqx.filter_vmap(make))
        models = self._make(seeds)
        measured = needs_reference_statistics(models)
        if self.layout.batch_devices > 1 and measured:
            raise ValueError(
                "fit(batch_devices=...): the attention of this model is a statistic of the whole mini-batch, which no "
                "device would have. Leave batch_devices at 1."
            )

        def one(model, seed, rows, rates, data):
            model = _measure(self.recipe, self.task, model, rows, data, jax.random.key(seed))
            optimisers = optimisers_of(self.recipe, model, rates)
            # With a type of its own: a weak one would change after the first epoch and compile everything twice.
            worst = jnp.asarray(jnp.inf if self.task.better == "lower" else -jnp.inf, float)
            zero = jnp.zeros((), jnp.int32)
            averaged = model if self.recipe.average else None
            return State(model, optimisers, averaged, model, worst, zero - 1, zero, jnp.asarray(False))

        def every(models, seeds, rows, rates, data):
            return eqx.filter_vmap(lambda m, seed, rows, rates: one(m, seed, rows, rates, data))(
                models, seeds, rows, rates
            )

        if self._begin is None:
            self._begin = (compiled if measured else compiled_quickly)(every)
        state = self._begin(models, seeds, rows, rates, data)
        arrays, static = eqx.partition(state, eqx.is_array)
        return arrays, static.model

    @_in_precision
    def check_monitor(self, state: State, static, seeds, rows: Rows, data) -> None:
        """Refuse a task that is to be validated by a metric it does not have, before an epoch is spent on it."""
        evaluated = eqx.nn.inference_mode(eqx.combine(state.model, static))
        validated = (rows.validation, rows.validation_weight)
        keys = jax.vmap(jax.random.key)(seeds)
        told = (evaluated, self.task, data, *validated, keys, self.recipe.eval_batch, self.layout)
        self.names = names_of_metrics(*told)
        if self.task.monitor not in self.names:
            raise ValueError(f"fit(task=...): monitor is {self.task.monitor!r}; choose from {', '.join(self.names)}.")

    def train(
        self, layout: Layout, state: State, static, seeds, rows: Rows, rates, data, numbers, steps: int | None
    ) -> Trained:
        """The steps of an epoch."""
        limit = None if steps is None else np.asarray(min(steps, self.steps))
        told = (self.batch, self.steps, static, state, seeds, rows, rates, data, numbers, limit)
        return _train(layout, self.task, self.recipe, *told)

    @_in_precision
    def epoch(
        self, state: State, static, seeds, rows: Rows, rates, data, epochs: np.ndarray, steps: int | None = None
    ) -> tuple[State, dict[str, np.ndarray]]:
        """The state after one more epoch, and its record: an array over the members for each quantity.

        `epochs` is how many each member has had. `steps` ends the epoch after so many mini-batches; their number is
        then no part of the compiled program.
        """
        numbers = self.layout.put(np.asarray(epochs, np.int32))
        trained = self._train_checked(state, static, seeds, rows, rates, data, numbers, steps)
        evaluated = eqx.nn.inference_mode(eqx.combine(trained.measured, static))
        due = (epochs + 1) % self.recipe.validate_every == 0
        if not np.any(due | (epochs + 1 >= self.recipe.epochs)):
            absent = np.full(self.layout.padded, np.nan)
            metrics, health = dict.fromkeys(self.names, absent), dict.fromkeys(NAMES, absent)
        else:
            validated = (rows.validation, rows.validation_weight)
            how = (self.recipe.eval_batch, self.recipe.self_check, self.layout)
            metrics = self.layout.put(each_member(evaluated, self.task, data, *validated, trained.key, *how))
            health = health_of_members(evaluated, self.task, data, rows.validation, trained.key, self.layout)
        state, record = _keep(self.layout, self.task, self.recipe, state, trained, metrics, numbers)
        if has_health(evaluated, self.task):
            record |= health
        return state, self.layout.get(record)

    def _train_checked(self, state: State, static, seeds, rows: Rows, rates, data, numbers, steps) -> Trained:
        """`train` of all members of a device as one program; of one after the other, where the check of it fails."""
        told = (state, static, seeds, rows, rates, data, numbers, steps)
        if len(seeds) == 1 or not is_wanted(self.recipe.self_check):
            return self.train(self.layout, *told)
        if self._fault is None:
            check = lambda: self._stacking_fault(static, state, seeds, rows, data)  # noqa: E731
            trained, self._fault = in_parallel(lambda: self.train(self.layout, *told), check)
            if not self._fault:
                return trained
            warnings.warn(self._fault, WrongProgram, stacklevel=4)
        return self.train(replace(self.layout, at_once=1) if self._fault else self.layout, *told)

    def _stacking_fault(self, static, state: State, seeds, rows: Rows, data) -> str:
        members = (state.model, seeds, rows)
        if self.layout.mesh is not None:  # those of one device, on one
            count = self.layout.padded // self.layout.groups
            members = jax.tree.map(lambda x: jnp.asarray(x[:count]), self.layout.get(members))
            data = jax.tree.map(lambda x: jnp.asarray(np.asarray(x.addressable_data(0))), data)

        def step(member, data):
            arrays, seed, rows = member
            model = eqx.combine(arrays, static)
            moving, still = eqx.partition(model, belongs(model, "main", "attention", "initial"))
            batch = take_rows(data, rows.train[: self.batch])

            def loss(moving):
                return self.task.loss(eqx.combine(moving, still), batch, jax.random.key(seed), jnp.asarray(0))[0]

            return jax.value_and_grad(loss)(moving)

        return stacking_fault(step, members, data, (static, self.task, self.batch))


def _strong(model: PyTree) -> PyTree:
    """The same arrays without weak types, which would change in the first epoch and compile everything twice."""
    return jax.tree.map(lambda x: lax.convert_element_type(x, x.dtype) if eqx.is_inexact_array(x) else x, model)


def _measure(recipe: Recipe, task: Task, model, rows: Rows, data, key):
    """Measure the batch statistics that evaluation uses, on the first training samples."""
    if not needs_reference_statistics(model):
        return model
    sample = rows.train[: recipe.reference]
    first = task.first_states(model, take_rows(data, sample), key)
    if first is None:
        raise ValueError(
            "fit(task=...): the attention of this model begins as a statistic of training states, and first_states "
            "gave none. A model has to give h0 and times in its Trace."
        )
    h0, times = first
    return fit_reference_statistics(model, lax.stop_gradient(h0), times)


def _keys(seed, epoch) -> Array:
    """Of the shuffle, the steps and the measurements of an epoch of a member."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), epoch), 3)


@compiled
def _train(layout: Layout, task, recipe, batch, steps, static, state, seeds, rows, rates, data, epochs, limit):
    measured, described = eqx.partition(task, eqx.is_array)

    def on_a_device(own, shared):
        data, limit, measured = shared
        whole = eqx.combine(measured, described)

        def one(state, seed, rows, rates, epoch):
            told = (static, state, seed, rows, rates, data, epoch, limit)
            return _train_one(whole, recipe, batch, steps, layout.batch_devices, *told)

        return layout.each(one, *own)

    return layout.sharded(on_a_device)((state, seeds, rows, rates, epochs), (data, limit, measured))


def _train_one(
    task: Task, recipe: Recipe, batch, steps, devices, static, state: State, seed, rows, rates, data, epoch, limit
) -> Trained:
    """The steps of one epoch of one member: shuffle, alternate, measure."""
    lengths = lengths_of(data) if recipe.bucket else None
    own_steps = steps_of(rows, batch)
    carry = first_carry(state)
    for k, kinds in enumerate(passes(recipe, eqx.combine(state.model, static))):
        batches = shuffled(recipe, batch, steps, rows, lengths, seed, epoch, k)

        def body(step, carry, kinds=kinds, batches=batches):
            samples = batches[step]
            if devices > 1:  # this device's part of the mini-batch
                samples = samples.reshape(devices, -1)[lax.axis_index(BATCH)]
            told = (static, carry, take_rows(data, samples), seed, rates, epoch, step)
            return one_step(task, recipe, devices, kinds, *told)

        carry = carry._replace(iteration=state.iteration)
        if limit is not None:
            carry = lax.fori_loop(0, jnp.minimum(limit, own_steps), body, carry)
        else:  # an accelerator is quicker where it knows how often a loop turns
            carry = lax.fori_loop(0, steps, lambda k, old, body=body: choose(k < own_steps, body(k, old), old), carry)
    return finished(task, recipe, static, state, carry, seed, rows, data, epoch)


class Carry(NamedTuple):
    """What a step changes."""

    model: PyTree
    optimisers: Optimisers
    iteration: Int[Array, ""]
    tally: Tally
    averaged: PyTree | None


def first_carry(state: State) -> Carry:
    """That of an epoch."""
    return Carry(state.model, state.optimisers, state.iteration, Tally.zero(), state.averaged)


def steps_of(rows: Rows, batch: int) -> Int[Array, ""]:
    """The mini-batches of a member; fewer than those of the program where other folds are larger."""
    return jnp.sum(rows.train_weight > 0) // batch


def passes(recipe: Recipe, model: PyTree) -> tuple[tuple[Any, ...], ...]:
    """The steps that are taken on each mini-batch, in every pass through the data; an epoch has one or two of these."""
    _, second = stepped_groups(recipe, model)
    if not second:
        return ((main_step,),)
    return ((main_step, attention_step),) if recipe.unit == "batch" else ((main_step,), (attention_step,))


def shuffled(recipe: Recipe, batch: int, steps: int, rows: Rows, lengths, seed, epoch, number: int) -> Array:
    """The mini-batches of a pass through the data: positions of samples (steps, batch)."""
    key, _, _ = _keys(seed, epoch)
    key = jax.random.fold_in(key, number) if number else key
    order = jax.random.uniform(key, rows.train.shape)
    order = jnp.argsort(jnp.where(rows.train_weight > 0, order, 2.0))
    batches = rows.train[order[: steps * batch]].reshape(steps, batch)
    if lengths is None:
        return batches
    return _bucketed(batches, lengths, steps_of(rows, batch), jax.random.fold_in(key, 1))


def one_step(task, recipe: Recipe, devices: int, kinds, static, carry: Carry, batch, seed, rates, epoch, step) -> Carry:
    """The steps of Algorithm 1 on one mini-batch, or on this device's part of it."""
    _, key, _ = _keys(seed, epoch)
    key = jax.random.fold_in(key, step)
    if devices > 1:
        key = jax.random.fold_in(key, lax.axis_index(BATCH))
    model, optimisers, tally = eqx.combine(carry.model, static), carry.optimisers, carry.tally
    clock = Clock(epoch, carry.iteration, devices)
    for take_step, one_key in zip(kinds, jax.random.split(key, 2), strict=False):
        model, optimisers, tally = take_step(recipe, task, model, optimisers, batch, one_key, rates, clock, tally)
    arrays = eqx.filter(model, eqx.is_array)
    averaged = _averaged(recipe, carry.averaged, arrays, carry.iteration)
    return Carry(arrays, optimisers, carry.iteration + 1, tally, averaged)


def finished(task, recipe: Recipe, static, state: State, carry: Carry, seed, rows: Rows, data, epoch) -> Trained:
    """A member after the last step of an epoch; `rows` and `data` are those that statistics are measured on."""
    _, _, key = _keys(seed, epoch)
    arrays, optimisers, iteration, tally, averaged = carry
    kept = arrays if averaged is None else averaged
    model = _measure(recipe, task, eqx.combine(kept, static), rows, data, key)
    measured = eqx.filter(model, eqx.is_array)
    counted = jnp.maximum(tally.counted, 1)
    record = {
        "loss": tally.loss / counted,
        "attention_loss": tally.attention_loss / jnp.maximum(tally.attention_counted, 1),
        **(_attention_record(recipe, tally, model) if has_attention(model) else {}),
        "nfe": tally.evaluations / counted,
        "nfe_backward": tally.vjp_evaluations / counted,
        "skipped": tally.skipped,
        "failed": tally.failed,
    }
    new = state._replace(
        model=measured if averaged is None else arrays, optimisers=optimisers, averaged=averaged, iteration=iteration
    )
    return Trained(new, measured, key, record)


def lengths_of(data: PyTree) -> Array | None:
    """Of the series among the data, how many rows each has."""
    nodes = jax.tree.leaves(data, is_leaf=lambda x: isinstance(x, Series))
    return next((jnp.asarray(node.length) for node in nodes if isinstance(node, Series)), None)


def _bucketed(batches: Int[Array, "steps batch"], lengths: Array, own_steps, key) -> Int[Array, "steps batch"]:
    """Batches of the same samples, each of similar length, in random order.

    Samples are sorted within groups of a few batches, so that who meets whom still changes from epoch to epoch.
    """
    steps, batch = batches.shape
    group = jnp.arange(steps * batch) // (_GROUP * batch)
    filled = jnp.arange(steps * batch) < own_steps * batch
    flat = batches.reshape(-1)
    order = jnp.lexsort((lengths[flat], group, ~filled))
    place = jnp.where(jnp.arange(steps) < own_steps, jax.random.uniform(key, (steps,)), 2.0)
    return flat[order].reshape(steps, batch)[jnp.argsort(place)]


def _attention_record(recipe: Recipe, tally: Tally, model) -> dict[str, Array]:
    """Norms of both gradients on theta_g and of theta_g, rates and biases included: does the task train it, or does the
    penalty only shrink it?"""
    counted = jnp.maximum(jnp.where(recipe.algorithm == "joint", tally.counted, tally.attention_counted), 1)
    return {
        "attention_gradient": tally.attention_gradient / counted,
        "penalty_gradient": tally.penalty_gradient / counted,
        "attention_norm": length(eqx.filter(model, belongs(model, "attention"))),
    }


@compiled
def _keep(layout: Layout, task, recipe, before: State, trained: Trained, metrics, epochs) -> tuple[State, dict]:
    def on_a_device(own, shared):
        return jax.vmap(lambda *own: _keep_one(task, recipe, *own))(*own)

    return layout.sharded(on_a_device)((before, trained, metrics, epochs), ())


def _keep_one(task: Task, recipe: Recipe, before: State, trained: Trained, metrics, epoch):
    """The new state of a member, with its parameters as the best if their score is (Algorithm 1, line 6).

    Once an epoch: the paper validates after each of its iterations, whose length it leaves open.
    """
    score = metrics[task.monitor].astype(before.best_score.dtype)
    better = (score < before.best_score) if task.better == "lower" else (score > before.best_score)
    better = better & ~before.stopped
    best_epoch = jnp.where(better, epoch, before.best_epoch)
    stopped = before.stopped
    if recipe.patience is not None:
        stopped = stopped | (epoch - best_epoch >= recipe.patience)
    new = trained.state._replace(
        best=choose(better, trained.measured, before.best),
        best_score=jnp.where(better, score, before.best_score),
        best_epoch=best_epoch,
        stopped=stopped,
    )
    # A member that has stopped stays as it is.
    frozen = before._replace(best_epoch=best_epoch, stopped=stopped)
    record = {**trained.record, **{f"validation_{name}": value for name, value in metrics.items()}}
    # Nor are steps recorded that are not kept.
    nothing = {n: jnp.full_like(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0) for n, x in record.items()}
    return choose(before.stopped, frozen, new), choose(before.stopped, nothing, record)


def _averaged(recipe: Recipe, averaged: PyTree | None, arrays: PyTree, iteration) -> PyTree | None:
    """The average moved towards the new parameters; over few iterations at first, when there are few."""
    if averaged is None:
        return None
    keep = jnp.minimum(recipe.average, (1 + iteration) / (10 + iteration))
    trained = belongs(arrays, "main", "attention", "initial")
    new, old = (eqx.filter(tree, trained) for tree in (arrays, averaged))
    return eqx.combine(optax.incremental_update(new, old, 1 - keep), arrays)
