"""Step size control: the error norm of a sample, the next step and the first one."""

import functools as ft
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from .runge_kutta import Tableau, combine

Norm = Literal["per_part", "joint"]
Compact = bool | Literal["auto"]

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0


class Control(NamedTuple):
    """How steps are chosen: by `rtol`, `atol` and `norm` where `step` is `None`, all of size `step` otherwise."""

    rtol: float
    atol: float
    step: float | None
    norm: Norm
    max_steps: int
    checkpoints: int
    kept_steps: int
    compact: Compact


def rms(scaled: PyTree[Float[Array, "batch ..."]], norm: Norm) -> Float[Array, "parts batch"]:
    """Root mean square over the numbers of a sample: of every leaf (`per_part`) or of all together (`joint`)."""
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(scaled) if leaf.size]
    totals, sizes = [jnp.sum(jnp.square(leaf), axis=1) for leaf in leaves], [leaf.shape[1] for leaf in leaves]
    if norm == "joint":
        totals, sizes = [sum(totals)], [sum(sizes)]
    return jnp.sqrt(jnp.stack([total / size for total, size in zip(totals, sizes, strict=True)]))


def _scaled(values: PyTree, control: Control, *states: PyTree) -> Float[Array, "parts batch"]:
    """The norms of `values`, each divided by `atol + rtol * |y|`, y being the larger of `states`."""

    def leaf(value, *ys):
        return value / (control.atol + control.rtol * ft.reduce(jnp.maximum, [jnp.abs(y) for y in ys]))

    return rms(jax.tree.map(leaf, values, *states), control.norm)


def next_step(
    dt, y, y_new, error, tableau: Tableau, control: Control
) -> tuple[Bool[Array, " batch"], Float[Array, " batch"]]:
    """Whether the step from `y` to `y_new` is accepted, and the size of the next one (or of another try)."""
    error = _scaled(error, control, y, y_new).max(axis=0)
    accepted = error <= 1
    factor = _SAFETY * jnp.maximum(error, 1e-10) ** (-1 / tableau.order)
    factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, _SHRINK, _GROW), _SHRINK)
    factor = jnp.where(accepted, jnp.maximum(factor, 1.0), factor)
    return accepted, lax.stop_gradient(dt * factor)  # step sizes are constants, in second derivatives too


def first_step(field, args, t, y, slope, span, tableau: Tableau, control: Control) -> Float[Array, " batch"]:
    """Hairer, Norsett and Wanner's starting step (Solving ODEs I, II.4), the smallest over the parts of the norm."""
    size, speed = _scaled(y, control, y), _scaled(slope, control, y)
    guess = jnp.where(size < 1e-5, 1e-6, 0.01 * size / jnp.maximum(speed, 1e-12))
    guess = jnp.where(speed < 1e-5, jnp.inf, guess).min(axis=0)  # a constant part does not limit the step
    guess = jnp.minimum(jnp.where(jnp.isinf(guess), 1e-6, guess), span)
    ahead = field(t + guess, combine(y, guess, (1.0,), [slope]), args)
    bend = _scaled(jax.tree.map(jnp.subtract, ahead, slope), control, y).max(axis=0) / jnp.maximum(guess, 1e-30)
    steepest = jnp.maximum(speed.max(axis=0), bend)
    step = jnp.where(
        steepest <= 1e-15,
        jnp.maximum(1e-6, guess * 1e-3),
        (0.01 / jnp.maximum(steepest, 1e-30)) ** (1 / tableau.order),
    )
    # Where the field is not finite even at the guess, only a far smaller step can be right.
    step = jnp.where(jnp.isfinite(bend), jnp.minimum(100 * guess, step), 1e-3 * guess)
    # Far from time zero a step can be too small to change t.
    return jnp.maximum(step, 16 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t + span)))
