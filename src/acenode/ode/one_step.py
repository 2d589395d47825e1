"""One step of an explicit Runge-Kutta method for a batch, every sample with its own time and step size."""

import functools as ft

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from .tableau import Tableau


def per_sample(scalars: Shaped[Array, " batch"], like: Array) -> Array:
    return scalars.reshape(scalars.shape + (1,) * (like.ndim - 1))


def select(mask, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(per_sample(mask, b), a, b), yes, no)


def all_finite(tree: PyTree) -> Bool[Array, " batch"]:
    """Whether all numbers of a sample are finite."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in jax.tree.leaves(tree)]
    return ft.reduce(jnp.logical_and, leaves)


def combine(y: PyTree | None, dt, weights, slopes) -> PyTree:
    """`y + dt * sum_i weights[i] * slopes[i]`, without the terms whose weight is zero."""
    pairs = [(w, k) for w, k in zip(weights, slopes, strict=False) if w != 0.0]

    def leaf(first, *ks):
        total = sum(w * k for (w, _), k in zip(pairs, ks, strict=True))
        total = per_sample(dt, ks[0]) * total
        return total if y is None else first + total

    base = pairs[0][1] if y is None else y
    return jax.tree.map(leaf, base, *[k for _, k in pairs])


def stages(field, args, t, dt, y, slope, tableau: Tableau):
    """All slopes of one step from `y`, the first being `slope`, and the new state."""
    slopes = [slope]
    y_new = None
    for weights, c in zip(tableau.a, tableau.c, strict=True):
        y_new = combine(y, dt, weights, slopes)
        slopes.append(field(t + c * dt, y_new, args))
    if not tableau.fsal:
        y_new = combine(y, dt, tableau.b, slopes)
    return slopes, y_new


def interpolant(tableau: Tableau, dt, y, y_new, slopes, slope_new) -> list[PyTree]:
    """The terms that `read_weights` weights: states and scaled slopes at the ends of the step."""
    terms = [y, y_new]
    if tableau.dense != "linear":
        scaled = [jax.tree.map(lambda k: per_sample(dt, k) * k, s) for s in (slopes[0], slope_new)]
        terms += scaled
    if tableau.dense == "quartic":
        terms.append(combine(y, dt, tableau.b_middle, slopes))
    return terms


def read_weights(tableau: Tableau, t, end, times) -> Float[Array, "batch times terms"]:
    """Weights that read the interpolant at `times`; zero for times outside `(t, end]`."""
    x = (times - t[:, None]) / jnp.where(end > t, end - t, 1.0)[:, None]
    inside = (times > t[:, None]) & (times <= end[:, None])
    # The end of the step is read exactly, whatever rounding does to x there.
    x = jnp.where(times == end[:, None], 1.0, x)
    x2, x3 = x * x, x * x * x
    if tableau.dense == "linear":
        weights = [1 - x, x]
    elif tableau.dense == "cubic":
        weights = [1 - 3 * x2 + 2 * x3, 3 * x2 - 2 * x3, x - 2 * x2 + x3, x3 - x2]
    else:
        x4 = x2 * x2
        weights = [
            1 - 11 * x2 + 18 * x3 - 8 * x4,
            -5 * x2 + 14 * x3 - 8 * x4,
            x - 4 * x2 + 5 * x3 - 2 * x4,
            x2 - 3 * x3 + 2 * x4,
            16 * x2 - 32 * x3 + 16 * x4,
        ]
    return jnp.where(inside[..., None], jnp.stack(weights, axis=-1), 0.0)


def read(weights, terms: list[PyTree]) -> PyTree:
    """The interpolant at the times of `weights`. Plain sums: quicker here than small matrix products."""

    def leaf(*parts):
        by_term = jnp.moveaxis(weights, -1, 0)
        return sum(w.reshape(w.shape + (1,) * (p.ndim - 1)) * p[:, None] for w, p in zip(by_term, parts, strict=True))

    return jax.tree.map(leaf, *terms)


def read_transposed(weights, grad: PyTree) -> list[PyTree]:
    """The gradient of every term from the gradient of what was read."""

    def term(k):
        return jax.tree.map(
            lambda g: jnp.sum(weights[:, :, k].reshape(weights.shape[:2] + (1,) * (g.ndim - 2)) * g, axis=1), grad
        )

    return [term(k) for k in range(weights.shape[-1])]
