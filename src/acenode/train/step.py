"""Algorithm 1: one step of theta_f and all others on L_h, one step of theta_g on L_a."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..tasks.task import Task
from .groups import Group, attention_norm, belongs, has_attention, hold_attention
from .recipe import Recipe


class Optimisers(NamedTuple):
    """One optimiser state for each group that is stepped on its own."""

    main: PyTree
    attention: PyTree


class Tally(NamedTuple):
    """Sums over the iterations of an epoch, for the history."""

    loss: Float[Array, ""]
    attention_loss: Float[Array, ""]
    evaluations: Float[Array, ""]
    vjp_evaluations: Float[Array, ""]
    counted: Int[Array, ""]
    attention_counted: Int[Array, ""]
    skipped: Int[Array, ""]
    failed: Int[Array, ""]

    @classmethod
    def zero(cls) -> "Tally":
        return cls(*(jnp.zeros(()) for _ in range(4)), *(jnp.zeros((), jnp.int32) for _ in range(4)))


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


def start(recipe: Recipe, model: PyTree) -> Optimisers:
    transformation = recipe.transformation()
    first, second = stepped_groups(recipe, model)
    return Optimisers(
        transformation.init(eqx.filter(model, belongs(model, *first))),
        transformation.init(eqx.filter(model, belongs(model, *second))) if second else (),
    )


def main_step(recipe: Recipe, task: Task, model, optimisers: Optimisers, batch, key, rates: Rates, clock, tally):
    """Train theta_f and theta_others with the gradient of L_h (Algorithm 1, line 4; Equation 7 with the paper's)."""
    first, second = stepped_groups(recipe, model)
    held = recipe.main_gradient == "paper" and bool(second)

    def loss(model):
        value, report = task.loss(hold_attention(model) if held else model, batch, key, clock.epoch)
        # A joint step trains theta_g as well, so its loss carries the penalty of Equation 6.
        penalty = 0.0 if second else rates.penalty * attention_norm(model, recipe.norm)
        return value + penalty, (value, report)

    model, state, ok, (value, report) = _step(recipe, loss, first, model, optimisers.main, rates, clock.iteration)
    tally = tally._replace(
        loss=tally.loss + jnp.where(ok, value, 0.0),
        evaluations=tally.evaluations + jnp.where(ok, report.evaluations, 0.0),
        vjp_evaluations=tally.vjp_evaluations + jnp.where(ok, report.vjp_evaluations, 0.0),
        counted=tally.counted + ok,
        skipped=tally.skipped + ~ok,
        failed=tally.failed + report.failed.astype(jnp.int32),
    )
    return model, optimisers._replace(main=state), tally


def attention_step(recipe: Recipe, task: Task, model, optimisers: Optimisers, batch, key, rates: Rates, clock, tally):
    """Train theta_g with the gradient of L_a = L_task + lambda ||theta_g|| (Algorithm 1, line 5; Equation 6).

    The gradient is exact, through h(t) and a(t) together; the paper's Equation 8 writes it as a product of two.
    """
    _, second = stepped_groups(recipe, model)

    def loss(model):
        value, report = task.loss(model, batch, key, clock.epoch)
        value = value + rates.penalty * attention_norm(model, recipe.norm)
        return value, (value, report)

    model, state, ok, (value, _) = _step(recipe, loss, second, model, optimisers.attention, rates, clock.iteration)
    tally = tally._replace(
        attention_loss=tally.attention_loss + jnp.where(ok, value, 0.0),
        attention_counted=tally.attention_counted + ok,
        skipped=tally.skipped + ~ok,
    )
    return model, optimisers._replace(attention=state), tally


class Clock(NamedTuple):
    epoch: Int[Array, ""]
    iteration: Int[Array, ""]


def _step(recipe: Recipe, loss, wanted, model, state, rates: Rates, iteration):
    """One optimiser step on the parameters of the wanted groups; nothing moves where the gradient is not finite."""
    moving, still = eqx.partition(model, belongs(model, *wanted))
    gradient, aux = jax.grad(lambda p: loss(eqx.combine(p, still)), has_aux=True)(moving)
    ok = jnp.isfinite(aux[0]) & _all_finite(gradient)
    gradient = jax.tree.map(lambda g: jnp.where(ok, g, 0.0), gradient)
    updates, new_state = recipe.transformation().update(gradient, state, moving)
    rate = rates.learning_rate
    if recipe.schedule is not None:
        rate = rate * recipe.schedule(iteration)
    moved = optax.apply_updates(moving, jax.tree.map(lambda u: rate * u, updates))
    return eqx.combine(choose(ok, moved, moving), still), choose(ok, new_state, state), ok, aux


def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.asarray([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)], bool).all()


def choose(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    """`yes` or `no`, array by array; what is not an array is the same in both."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)
