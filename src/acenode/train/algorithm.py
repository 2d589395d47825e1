"""Algorithm 1 over an ensemble: one step of theta_f and all others on L_h, one step of theta_g on L_a, validation.

All members train as one program; each keeps its best parameters by its own validation score.
"""

import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..compiled import compiled, compiled_quickly, loops
from ..precision import products_in
from ..series import Series
from ..tasks.task import Task
from .closures import check_closures
from .evaluate import each_member, names_of_metrics, take_rows
from .groups import (
    Group,
    attention_norm,
    belongs,
    fit_reference_statistics,
    has_attention,
    hold_attention,
    needs_reference_statistics,
)
from .health import NAMES, has_health, health_of_members
from .recipe import Recipe
from .self_check import is_wanted, may_stack

_GROUP = 8  # batches that are sorted by length together

Optimisers = dict[str, PyTree]  # the state of the optimiser of each group


class Tally(NamedTuple):
    """Sums over the iterations of an epoch, for the history."""

    loss: Float[Array, ""]
    attention_loss: Float[Array, ""]
    attention_gradient: Float[Array, ""]  # norm of the task's gradient on theta_g
    penalty_gradient: Float[Array, ""]  # norm of the gradient of lambda ||theta_g||
    evaluations: Float[Array, ""]
    vjp_evaluations: Float[Array, ""]
    counted: Int[Array, ""]
    attention_counted: Int[Array, ""]
    skipped: Int[Array, ""]
    failed: Int[Array, ""]

    @classmethod
    def zero(cls) -> "Tally":
        return cls(*(jnp.zeros(()) for _ in range(6)), *(jnp.zeros((), jnp.int32) for _ in range(4)))


class Rates(NamedTuple):
    """What differs between members, as numbers inside the program."""

    learning_rate: Float[Array, ""]
    penalty: Float[Array, ""]


def stepped_groups(recipe: Recipe, model: PyTree) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """The groups of the first and of the second step; the second is empty for joint training or without a g."""
    if recipe.algorithm == "joint" or not has_attention(model):
        return ("main", "initial", "attention"), ()
    if recipe.initial_with == "attention":
        return ("main",), ("attention", "initial")
    return ("main", "initial"), ("attention",)


def optimisers_of(recipe: Recipe, model: PyTree) -> Optimisers:
    """The first states of the optimisers, one for each group that has parameters."""
    first, second = stepped_groups(recipe, model)
    present = [group for group in (*first, *second) if any(jax.tree.leaves(belongs(model, group)))]
    return {g: recipe.transformation(g, 1.0).init(eqx.filter(model, belongs(model, g))) for g in present}


def main_step(recipe: Recipe, task: Task, model, optimisers: Optimisers, batch, key, rates: Rates, clock, tally):
    """Train theta_f and theta_others with the gradient of L_h (Algorithm 1, line 4; Equation 7 with the paper's)."""
    first, second = stepped_groups(recipe, model)
    held = recipe.main_gradient == "paper" and bool(second)

    def loss(model):
        value, report = task.loss(hold_attention(model) if held else model, batch, key, clock.epoch)
        # A joint step trains theta_g as well, so its loss carries the penalty of Equation 6.
        penalty = 0.0 if second else rates.penalty * attention_norm(model, recipe.norm)
        return value + penalty, (value, report)

    stepped = _step(recipe, loss, first, model, optimisers, rates, clock.iteration)
    moved, optimisers, ok, (value, report), gradient = stepped
    if "attention" in first:
        tally = _tally_attention(recipe, model, gradient, rates, ok, tally)
    tally = tally._replace(
        loss=tally.loss + jnp.where(ok, value, 0.0),
        evaluations=tally.evaluations + jnp.where(ok, report.evaluations, 0.0),
        vjp_evaluations=tally.vjp_evaluations + jnp.where(ok, report.vjp_evaluations, 0.0),
        counted=tally.counted + ok,
        skipped=tally.skipped + ~ok,
        failed=tally.failed + report.failed.astype(jnp.int32),
    )
    return moved, optimisers, tally


def attention_step(recipe: Recipe, task: Task, model, optimisers: Optimisers, batch, key, rates: Rates, clock, tally):
    """Train theta_g with the gradient of L_a = L_task + lambda ||theta_g|| (Algorithm 1, line 5; Equation 6).

    The gradient is exact, through h(t) and a(t) together; the paper's Equation 8 writes it as a product of two.
    """
    _, second = stepped_groups(recipe, model)

    def loss(model):
        value, report = task.loss(model, batch, key, clock.epoch)
        value = value + rates.penalty * attention_norm(model, recipe.norm)
        return value, (value, report)

    stepped = _step(recipe, loss, second, model, optimisers, rates, clock.iteration)
    moved, optimisers, ok, (value, _), gradient = stepped
    tally = _tally_attention(recipe, model, gradient, rates, ok, tally)
    tally = tally._replace(
        attention_loss=tally.attention_loss + jnp.where(ok, value, 0.0),
        attention_counted=tally.attention_counted + ok,
        skipped=tally.skipped + ~ok,
    )
    return moved, optimisers, tally


class Clock(NamedTuple):
    epoch: Int[Array, ""]
    iteration: Int[Array, ""]


def _step(recipe: Recipe, loss, wanted, model, optimisers: Optimisers, rates: Rates, iteration):
    """One optimiser step on the parameters of the wanted groups; nothing moves where the gradient is not finite."""
    moving, still = eqx.partition(model, belongs(model, *wanted))
    gradient, aux = jax.grad(lambda p: loss(eqx.combine(p, still)), has_aux=True)(moving)
    flat, unravel = ravel_pytree(gradient)
    ok = jnp.isfinite(aux[0]) & jnp.isfinite(flat).all()
    gradient = unravel(jnp.where(ok, flat, 0.0))
    rate = rates.learning_rate
    if recipe.schedule is not None:
        rate = rate * recipe.schedule(iteration)
    moved, states = model, dict(optimisers)
    for group in (g for g in wanted if g in optimisers):
        own = belongs(model, group)
        parameters = eqx.filter(model, own)
        updates, states[group] = recipe.transformation(group, rate).update(
            eqx.filter(gradient, own), optimisers[group], parameters
        )
        moved = eqx.combine(optax.apply_updates(parameters, updates), moved)
    return choose(ok, moved, model), choose(ok, states, optimisers), ok, aux, gradient


def _tally_attention(recipe: Recipe, model, gradient, rates: Rates, ok, tally: Tally) -> Tally:
    """The gradient on theta_g, taken apart into that of the task and that of the penalty."""
    own = belongs(model, "attention")
    theta, rest = eqx.partition(model, own)
    penalty = jax.grad(lambda p: rates.penalty * attention_norm(eqx.combine(p, rest), recipe.norm))(theta)
    task = jax.tree.map(jnp.subtract, eqx.filter(gradient, own), penalty)
    return tally._replace(
        attention_gradient=tally.attention_gradient + jnp.where(ok, _length(task), 0.0),
        penalty_gradient=tally.penalty_gradient + jnp.where(ok, _length(penalty), 0.0),
    )


def _length(tree: PyTree) -> Float[Array, ""]:
    return jnp.sqrt(sum((jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)), jnp.zeros(())))


def choose(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    """`yes` or `no`, array by array; what is not an array is the same in both."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)


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

    def __init__(self, build, task: Task, recipe: Recipe, train_rows: int):
        self.build, self.task, self.recipe = build, task, recipe
        self.batch = min(recipe.batch_size, train_rows)
        self.steps = train_rows // self.batch

    @_in_precision
    def start(self, seeds, rows: Rows, data) -> tuple[State, PyTree]:
        def make(seed):
            """A model ready for training: one that was trained before comes in inference mode."""
            model = self.build(jax.random.key(seed))
            check_closures(model)
            return _strong(eqx.nn.inference_mode(model, False))

        models = (compiled if loops(make, seeds[0]) else compiled_quickly)(eqx.filter_vmap(make))(seeds)

        def one(model, seed, rows):
            model = _measure(self.recipe, self.task, model, rows, data, jax.random.key(seed))
            optimisers = optimisers_of(self.recipe, model)
            # With a type of its own: a weak one would change after the first epoch and compile everything twice.
            worst = jnp.asarray(jnp.inf if self.task.better == "lower" else -jnp.inf, float)
            zero = jnp.zeros((), jnp.int32)
            averaged = model if self.recipe.average else None
            return State(model, optimisers, averaged, model, worst, zero - 1, zero, jnp.asarray(False))

        begin = compiled if needs_reference_statistics(models) else compiled_quickly
        state = begin(eqx.filter_vmap(one))(models, seeds, rows)
        arrays, static = eqx.partition(state, eqx.is_array)
        return arrays, static.model

    @_in_precision
    def check_monitor(self, state: State, static, seeds, rows: Rows, data) -> None:
        """Refuse a task that is to be validated by a metric it does not have, before an epoch is spent on it."""
        evaluated = eqx.nn.inference_mode(eqx.combine(state.model, static))
        validated = (rows.validation, rows.validation_weight)
        keys = jax.vmap(jax.random.key)(seeds)
        self.names = names_of_metrics(evaluated, self.task, data, *validated, keys, self.recipe.eval_batch)
        if self.task.monitor not in self.names:
            raise ValueError(f"fit(task=...): monitor is {self.task.monitor!r}; choose from {', '.join(self.names)}.")

    @_in_precision
    def epoch(
        self, state: State, static, seeds, rows: Rows, rates, data, epoch: int, steps: int | None = None
    ) -> tuple[State, dict[str, np.ndarray]]:
        """The state after one more epoch, and its record: an array over the members for each quantity.

        `steps` ends it after so many mini-batches; their number is then no part of the compiled program.
        """
        number = jnp.asarray(epoch)
        limit = None if steps is None else jnp.asarray(min(steps, self.steps))
        taken = (self.batch, self.steps)
        run = (static, state, seeds, rows, rates, data, number, limit)
        trained = _train(self.task, self.recipe, *taken, self._may_stack(static, state, seeds, rows, data), *run)
        evaluated = eqx.nn.inference_mode(eqx.combine(trained.measured, static))
        absent = np.full(len(seeds), np.nan)
        if (epoch + 1) % self.recipe.validate_every and epoch + 1 < self.recipe.epochs:
            metrics, health = dict.fromkeys(self.names, absent), dict.fromkeys(NAMES, absent)
        else:
            validated = (rows.validation, rows.validation_weight)
            how = (self.recipe.eval_batch, self.recipe.self_check)
            metrics = each_member(evaluated, self.task, data, *validated, trained.key, *how)
            health = health_of_members(evaluated, self.task, data, rows.validation, trained.key)
        state, record = _keep(self.task, self.recipe, state, trained, metrics, number)
        if has_health(evaluated, self.task):
            record |= health
        return state, {name: np.asarray(value) for name, value in record.items()}

    def _may_stack(self, static, state: State, seeds, rows: Rows, data) -> bool:
        """Whether the members are trained as one program; not where its check fails."""
        if len(seeds) == 1 or not is_wanted(self.recipe.self_check):
            return True

        def step(member, data):
            arrays, seed, rows = member
            model = eqx.combine(arrays, static)
            moving, still = eqx.partition(model, belongs(model, "main", "attention", "initial"))
            batch = take_rows(data, rows.train[: self.batch])
            return jax.value_and_grad(
                lambda moving: self.task.loss(eqx.combine(moving, still), batch, jax.random.key(seed), jnp.asarray(0))[
                    0
                ]
            )(moving)

        return may_stack(step, (state.model, seeds, rows), data, (static, self.task, self.batch))


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
def _train(task, recipe, batch, steps, stacked, static, state, seeds, rows, rates, data, epoch, limit) -> Trained:
    def one(state, seed, rows, rates):
        return _train_one(task, recipe, batch, steps, static, state, seed, rows, rates, data, epoch, limit)

    if seeds.shape[0] == 1:  # an axis of one would make every product a batch of one, half as quick on a CPU
        return jax.tree.map(lambda x: x[None], one(*jax.tree.map(lambda x: x[0], (state, seeds, rows, rates))))
    if not stacked:
        return lax.map(lambda member: one(*member), (state, seeds, rows, rates))
    return jax.vmap(one)(state, seeds, rows, rates)


def _train_one(task: Task, recipe: Recipe, batch, steps, static, state: State, seed, rows, rates, data, epoch, limit):
    """The steps of one epoch of one member: shuffle, alternate, measure."""
    shuffle_key, step_key, measure_key = _keys(seed, epoch)
    model = eqx.combine(state.model, static)
    _, second = stepped_groups(recipe, model)
    own_steps = jnp.sum(rows.train_weight > 0) // batch  # fewer than `steps` where other folds are larger

    lengths = _lengths(data) if recipe.bucket else None

    def shuffled(key):
        order = jax.random.uniform(key, rows.train.shape)
        order = jnp.argsort(jnp.where(rows.train_weight > 0, order, 2.0))
        batches = rows.train[order[: steps * batch]].reshape(steps, batch)
        return batches if lengths is None else _bucketed(batches, lengths, own_steps, jax.random.fold_in(key, 1))

    def scan(step_functions, carry, key):
        batches = shuffled(key)

        def body(step, carry):
            arrays, optimisers, iteration, tally, averaged = carry
            samples = batches[step]
            model, clock = eqx.combine(arrays, static), Clock(epoch, iteration)
            keys = jax.random.split(jax.random.fold_in(step_key, step), 2)
            for take_step, one_key in zip(step_functions, keys, strict=False):
                model, optimisers, tally = take_step(
                    recipe, task, model, optimisers, take_rows(data, samples), one_key, rates, clock, tally
                )
            arrays = eqx.filter(model, eqx.is_array)
            averaged = _averaged(recipe, averaged, arrays, iteration)
            return arrays, optimisers, iteration + 1, tally, averaged

        if limit is not None:
            return lax.fori_loop(0, jnp.minimum(limit, own_steps), body, carry)
        # An accelerator is quicker where it knows how often a loop turns.
        return lax.fori_loop(0, steps, lambda k, old: choose(k < own_steps, body(k, old), old), carry)

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
    return Trained(new, measured, measure_key, record)


def _lengths(data: PyTree) -> Array | None:
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
    """The norms that tell whether theta_g is trained by the task or only shrunk by the penalty."""
    counted = jnp.maximum(jnp.where(recipe.algorithm == "joint", tally.counted, tally.attention_counted), 1)
    return {
        "attention_gradient": tally.attention_gradient / counted,
        "penalty_gradient": tally.penalty_gradient / counted,
        "attention_norm": attention_norm(model, "l2"),
    }


@compiled
def _keep(task, recipe, before: State, trained: Trained, metrics, epoch) -> tuple[State, dict]:
    def one(before, trained, metrics):
        return _keep_one(task, recipe, before, trained, metrics, epoch)

    return jax.vmap(one)(before, trained, metrics)


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
