"""The steps of Algorithm 1: one of theta_f and all others on L_h, one of theta_g on L_a."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..tasks.task import Report, Task
from .groups import Group, attention_norm, belongs, has_attention, hold_attention, length
from .layout import BATCH
from .recipe import Member, Recipe

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


class Clock(NamedTuple):
    """When a step is taken, and how many devices share its mini-batch."""

    epoch: Int[Array, ""]
    iteration: Int[Array, ""]
    batch_devices: int = 1


class Rates(NamedTuple):
    """What differs between members, as numbers inside the program."""

    learning_rate: Float[Array, ""]
    penalty: Float[Array, ""]
    weight_decay: Float[Array, ""] | None = None  # where that of the recipe is not meant

    @classmethod
    def of(cls, recipe: Recipe, members: Sequence[Member]) -> "Rates":
        """Those of all members, as arrays over them."""
        rates, penalties = (np.asarray([getattr(m, name) for m in members], float) for name in cls._fields[:2])
        decays = None
        if any(m.weight_decay is not None for m in members):
            each = [recipe.weight_decay if m.weight_decay is None else m.weight_decay for m in members]
            decays = jnp.asarray(each, float)
        return cls(jnp.asarray(rates, float), jnp.asarray(penalties, float), decays)


def stepped_groups(recipe: Recipe, model: PyTree) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """The groups of the first and of the second step; the second is empty for joint training or without a g."""
    if recipe.algorithm == "joint" or not has_attention(model):
        return ("main", "initial", "attention"), ()
    if recipe.initial_with == "attention":
        return ("main",), ("attention", "initial")
    return ("main", "initial"), ("attention",)


def optimisers_of(recipe: Recipe, model: PyTree, rates: Rates | None = None) -> Optimisers:
    """The first states of the optimisers, one for each group that has parameters."""
    first, second = stepped_groups(recipe, model)
    present = [group for group in (*first, *second) if any(jax.tree.leaves(belongs(model, group)))]
    decay = None if rates is None else rates.weight_decay
    return {g: recipe.transformation(g, 1.0, decay).init(eqx.filter(model, belongs(model, g))) for g in present}


def main_step(recipe: Recipe, task: Task, model, optimisers: Optimisers, batch, key, rates: Rates, clock, tally):
    """Train theta_f and theta_others with the gradient of L_h (Algorithm 1, line 4; Equation 7 with the paper's)."""
    first, second = stepped_groups(recipe, model)
    held = recipe.main_gradient == "paper" and bool(second)

    def loss(model):
        value, report = task.loss(hold_attention(model) if held else model, batch, key, clock.epoch)
        # A joint step trains theta_g as well, so its loss carries the penalty of Equation 6.
        penalty = 0.0 if second else rates.penalty * attention_norm(model, recipe.norm)
        return value + penalty, (value, report)

    stepped = _step(recipe, loss, first, model, optimisers, rates, clock)
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

    stepped = _step(recipe, loss, second, model, optimisers, rates, clock)
    moved, optimisers, ok, (value, _), gradient = stepped
    tally = _tally_attention(recipe, model, gradient, rates, ok, tally)
    tally = tally._replace(
        attention_loss=tally.attention_loss + jnp.where(ok, value, 0.0),
        attention_counted=tally.attention_counted + ok,
        skipped=tally.skipped + ~ok,
    )
    return moved, optimisers, tally


def _over_the_batch(gradient: PyTree, aux: tuple[Array, Report], devices: int) -> tuple[PyTree, tuple[Array, Report]]:
    """The mean over the devices that share a mini-batch, of the gradient and of what is told of it: one `psum`."""
    flat, unravel = ravel_pytree((gradient, jax.tree.map(lambda x: x.astype(float), aux)))
    gradient, (value, report) = unravel(lax.psum(flat, BATCH) / devices)
    failed = jnp.round(report.failed * devices).astype(jnp.int32)
    return gradient, (value, eqx.tree_at(lambda r: r.failed, report, failed))


def _step(recipe: Recipe, loss, wanted, model, optimisers: Optimisers, rates: Rates, clock: Clock):
    """One optimiser step on the parameters of the wanted groups; nothing moves where the gradient is not finite."""
    moving, still = eqx.partition(model, belongs(model, *wanted))
    gradient, aux = jax.grad(lambda p: loss(eqx.combine(p, still)), has_aux=True)(moving)
    if clock.batch_devices > 1:
        gradient, aux = _over_the_batch(gradient, aux, clock.batch_devices)
    flat, unravel = ravel_pytree(gradient)
    ok = jnp.isfinite(aux[0]) & jnp.isfinite(flat).all()
    gradient = unravel(jnp.where(ok, flat, 0.0))
    rate = rates.learning_rate
    if recipe.schedule is not None:
        rate = rate * recipe.schedule(clock.iteration)
    moved, states = model, dict(optimisers)
    for group in (g for g in wanted if g in optimisers):
        own = belongs(model, group)
        parameters = eqx.filter(model, own)
        updates, states[group] = recipe.transformation(group, rate, rates.weight_decay).update(
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
        attention_gradient=tally.attention_gradient + jnp.where(ok, length(task), 0.0),
        penalty_gradient=tally.penalty_gradient + jnp.where(ok, length(penalty), 0.0),
    )


def choose(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    """`yes` or `no`, array by array; what is not an array is the same in both."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)
