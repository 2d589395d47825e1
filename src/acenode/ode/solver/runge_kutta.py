"""Explicit Runge-Kutta methods as data, and one step of a method for a batch.

Every sample of the batch has its own time and its own step size.
"""

import functools as ft
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree, Shaped


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau of one explicit Runge-Kutta method.

    `a[i]` and `c[i]` give stage `i + 1`; `b` the step; `b_error` the embedded error estimate, `None` where the method
    has none. `fsal` (first same as last) says that the last stage is the slope at the end of the step. `dense` names
    the interpolant between steps, and `b_middle` gives the state in the middle of the step to a quartic one.
    """

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    b_error: tuple[float, ...] | None = None
    fsal: bool = False
    dense: Literal["linear", "cubic", "quartic"] = "cubic"
    b_middle: tuple[float, ...] | None = None

    @property
    def adaptive(self) -> bool:
        return self.b_error is not None

    @property
    def evaluations_per_step(self) -> int:
        """Calls of the vector field for one more step, given the slope at its start."""
        return len(self.a) + (not self.fsal)


def _from_diffrax(table: diffrax.ButcherTableau, b_middle: Iterable[float]) -> Tableau:
    assert table.fsal
    return Tableau(
        order=5,
        a=tuple(tuple(map(float, row)) for row in table.a_lower),
        b=tuple(map(float, table.b_sol)),
        c=tuple(map(float, table.c)),
        b_error=tuple(map(float, table.b_error)),
        fsal=True,
        dense="quartic",
        b_middle=tuple(map(float, b_middle)),
    )


_DOPRI5_MIDDLE = diffrax.Dopri5.interpolation_cls.c_mid  # pyright: ignore[reportFunctionMemberAccess]
# Tsitouras' own interpolant at 1/2. Diffrax has it as polynomials inside a function, not as numbers.
_TSIT5_MIDDLE = (
    0.10741235230096871,
    0.01135625,
    0.39560903056045305,
    -0.34475214352593553,
    1.3161853649581645,
    -1.0170608542936508,
    0.031249999999999993,
)

METHODS: dict[str, Tableau] = {
    "euler": Tableau(order=1, a=(), b=(1.0,), c=(), dense="linear"),
    "midpoint": Tableau(order=2, a=((0.5,),), b=(0.0, 1.0), c=(0.5,)),
    "heun": Tableau(order=2, a=((1.0,),), b=(0.5, 0.5), c=(1.0,)),
    "rk4": Tableau(
        order=4,
        a=((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
        b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
        c=(0.5, 0.5, 1.0),
    ),
    "rk4_38": Tableau(
        order=4,
        a=((1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
        c=(1 / 3, 2 / 3, 1.0),
    ),
    "dopri5": _from_diffrax(diffrax.Dopri5.tableau, _DOPRI5_MIDDLE),
    "tsit5": _from_diffrax(diffrax.Tsit5.tableau, _TSIT5_MIDDLE),
}


def per_sample(scalars: Shaped[Array, " batch"], like: Array) -> Array:
    """One number a sample, in a shape that broadcasts with `like`."""
    return scalars.reshape(scalars.shape + (1,) * (like.ndim - 1))


def select(mask: Bool[Array, " batch"], yes: PyTree, no: PyTree) -> PyTree:
    """`yes` for the samples of `mask`, `no` for the others."""
    return jax.tree.map(lambda a, b: jnp.where(per_sample(mask, b), a, b), yes, no)


def all_finite(tree: PyTree) -> Bool[Array, " batch"]:
    """Whether all numbers of a sample are finite."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in jax.tree.leaves(tree)]
    return ft.reduce(jnp.logical_and, leaves)


def combine(y: PyTree | None, dt, weights, slopes) -> PyTree:
    """`y + dt * sum_i weights[i] * slopes[i]`, without the terms whose weight is zero; without `y` where it is None."""
    pairs = [(w, k) for w, k in zip(weights, slopes, strict=False) if w != 0.0]

    def leaf(first, *ks):
        total = sum(w * k for (w, _), k in zip(pairs, ks, strict=True))
        total = per_sample(dt, ks[0]) * total
        return total if y is None else first + total

    base = pairs[0][1] if y is None else y
    return jax.tree.map(leaf, base, *[k for _, k in pairs])


def stages(field, args, t, dt, y, slope, tableau: Tableau) -> tuple[list[PyTree], PyTree]:
    """All slopes of one step from `y`, the first being `slope`, and the new state. `field` takes a batch."""
    slopes = [slope]
    y_new = None
    for weights, c in zip(tableau.a, tableau.c, strict=True):
        y_new = combine(y, dt, weights, slopes)
        slopes.append(field(t + c * dt, y_new, args))
    if not tableau.fsal:
        y_new = combine(y, dt, tableau.b, slopes)
    return slopes, y_new
