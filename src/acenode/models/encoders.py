"""Encoders: every series of a batch to one vector."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import GRUCell
from ..series import Series


class GRUEncoder(eqx.Module):
    """A gated recurrent unit over the rows [gap, values, observed], from the last row to the first.

    Rows with nothing observed, such as padding, leave the state alone. `masked=False` leaves `observed` out of the
    input: a missing value then looks like a zero.
    """

    cell: GRUCell
    size: int = eqx.field(static=True)
    masked: bool = eqx.field(static=True)

    def __init__(self, variables: int, size: int, *, masked: bool = True, key: PRNGKeyArray):
        self.cell = GRUCell((2 if masked else 1) * variables + 1, size, key=key)
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


class Joined(eqx.Module):
    """What several encoders say, side by side."""

    encoders: tuple[Callable, ...]

    def __call__(self, series: Series) -> Float[Array, "batch size"]:
        return jnp.concatenate([encoder(series) for encoder in self.encoders], axis=1)
