"""Dense output: the state between the ends of a step, linear in a few terms (states and scaled slopes)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .runge_kutta import Tableau, combine, per_sample


def interpolant(tableau: Tableau, dt, y, y_new, slopes, slope_new) -> list[PyTree]:
    """The terms that `read_weights` weights: states and scaled slopes at the ends of the step."""
    terms = [y, y_new]
    if tableau.dense != "linear":
        terms += [jax.tree.map(lambda k: per_sample(dt, k) * k, s) for s in (slopes[0], slope_new)]
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
