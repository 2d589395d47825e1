"""Encoders: every series of a batch to one vector."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..series import Series
from .last_value import last_rows


class GRUEncoder(eqx.Module):
    """A gated recurrent unit over the rows [gap, values, observed], from the last row to the first.

    Rows with nothing observed, such as padding, leave the state alone. `masked=False` leaves `observed` out of the
    input: a missing value then looks like a zero.
    """

    cell: eqx.nn.GRUCell
    size: int = eqx.field(static=True)
    masked: bool = eqx.field(static=True)

    def __init__(self, variables: int, size: int, *, masked: bool = True, key: PRNGKeyArray):
        self.cell = eqx.nn.GRUCell((2 if masked else 1) * variables + 1, size, key=key)
        self.size = size
        self.masked = masked

    def __call__(self, series: Series) -> Float[Array, "batch size"]:
        return jax.vmap(self._one)(series)

    def _one(self, series: Series) -> Float[Array, " size"]:
        gap = jnp.diff(series.times, append=series.times[-1:])
        rows = [gap[:, None], series.values, series.observed.astype(gap.dtype)]
        rows = jnp.concatenate(rows if self.masked else rows[:2], axis=1)

        def step(state, x):
            row, real = x
            return jnp.where(real, self.cell(row, state), state), None

        start = jnp.zeros(self.size, jnp.result_type(rows, self.cell.weight_hh))
        return lax.scan(step, start, (rows, jnp.any(series.observed, axis=1)), reverse=True)[0]


class Statistics(eqx.Module):
    """Of every variable the last value, the mean, the least, the greatest and log(1 + number of values).

    Zeros where it was never observed. No parameters.
    """

    each: ClassVar[int] = 5  # numbers a variable

    def __call__(self, series: Series) -> Float[Array, "batch statistics"]:
        values, observed = jnp.asarray(series.values), jnp.asarray(series.observed)
        count = observed.sum(axis=1)
        last = jnp.take_along_axis(values, jnp.maximum(last_rows(series)[:, -1:], 0), axis=1)[:, 0]
        mean = jnp.sum(values, axis=1, where=observed) / jnp.maximum(count, 1)
        least = jnp.min(values, axis=1, where=observed, initial=jnp.inf)
        greatest = jnp.max(values, axis=1, where=observed, initial=-jnp.inf)
        parts = [jnp.where(count > 0, part, 0.0) for part in (last, mean, least, greatest)]
        return jnp.concatenate([*parts, jnp.log1p(count.astype(values.dtype))], axis=1)


class Joined(eqx.Module):
    """What several encoders say, side by side."""

    encoders: tuple[Callable, ...]

    def __call__(self, series: Series) -> Float[Array, "batch size"]:
        return jnp.concatenate([encoder(series) for encoder in self.encoders], axis=1)
