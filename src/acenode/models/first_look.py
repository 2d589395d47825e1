"""Start from what is seen first: the state is the first row of the series, with room for what cannot be seen."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..series import Series
from .trace import Trace


class FirstLook(eqx.Module):
    """`h(0)` has one row a variable: its first value (0 if missing) and `channels - 1` hidden numbers, zero at first.

    Rows are variables, so `Pairwise` attention is between the variables themselves.
    """

    ode: Callable
    channels: int = eqx.field(static=True, default=2)

    def __call__(
        self, series: Series, times: Float[Array, "batch queries"], key: PRNGKeyArray, *, attention: bool = False
    ) -> Trace:
        first = jnp.asarray(series.values[:, 0])
        h0 = jnp.zeros((*first.shape, self.channels), first.dtype).at[..., 0].set(first)
        grid = jnp.concatenate([series.times[:, :1], times], axis=1)
        path = self.ode(h0, grid, attention=attention)
        return Trace(
            path.finite[None, :, 1:],
            first[None],
            jnp.zeros(len(first), first.dtype),
            None if path.a is None else path.a[None, :, 1:],
            path.stats,
            h0,
            grid,
        )
