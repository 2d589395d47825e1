"""How large a step may be: the error estimate of a sample, and the first step."""

import functools as ft
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .one_step import combine
from .tableau import Tableau


class Control(NamedTuple):
    """How steps are chosen: by `rtol` and `atol` where `step` is `None`, all of size `step` otherwise."""

    rtol: float
    atol: float
    step: float | None
    max_steps: int
    checkpoints: int


def rms(values: PyTree, scale: PyTree) -> Float[Array, " batch"]:
    """Root mean square of `values / scale` over everything one sample carries."""
    leaves = jax.tree.leaves(jax.tree.map(lambda v, s: jnp.square(v / s), values, scale))
    total = sum(jnp.sum(leaf.reshape(leaf.shape[0], -1), axis=1) for leaf in leaves)
    size = sum(leaf[0].size for leaf in leaves)
    return jnp.sqrt(total / size)


def error_scale(control: Control, *states: PyTree) -> PyTree:
    def leaf(*ys):
        return control.atol + control.rtol * ft.reduce(jnp.maximum, [jnp.abs(y) for y in ys])

    return jax.tree.map(leaf, *states)


def first_step(field, args, t, y, slope, span, tableau: Tableau, control: Control):
    """Hairer, Norsett and Wanner's starting step (Solving ODEs I, II.4)."""
    scale = error_scale(control, y)
    size, speed = rms(y, scale), rms(slope, scale)
    guess = jnp.where((size < 1e-5) | (speed < 1e-5), 1e-6, 0.01 * size / jnp.maximum(speed, 1e-12))
    guess = jnp.minimum(guess, span)
    ahead = field(t + guess, combine(y, guess, (1.0,), [slope]), args)
    bend = rms(jax.tree.map(jnp.subtract, ahead, slope), scale) / jnp.maximum(guess, 1e-30)
    steepest = jnp.maximum(speed, bend)
    step = jnp.where(
        steepest <= 1e-15,
        jnp.maximum(1e-6, guess * 1e-3),
        (0.01 / jnp.maximum(steepest, 1e-30)) ** (1 / tableau.order),
    )
    # Where the field is not finite even at the guess, only a far smaller step can be right.
    step = jnp.where(jnp.isfinite(bend), jnp.minimum(100 * guess, step), 1e-3 * guess)
    # Late on the clock a step can be too small to move it.
    return jnp.maximum(step, 16 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t + span)))
