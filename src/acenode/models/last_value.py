"""The last known value of every variable: told to an encoder at every row, or to a head beside the states."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..ode import Constant
from ..series import Series
from .trace import Trace


def last_rows(series: Series) -> Int[Array, "batch rows variables"]:
    """For every row and variable, the latest row so far in which it was observed; -1 without any."""
    observed = jnp.asarray(series.observed)
    rows = jnp.arange(observed.shape[1])[:, None]
    return lax.cummax(jnp.where(observed, rows, -1), axis=1)


class CarriedForward(eqx.Module):
    """An encoder that sees the last value of a variable where it was not observed, 0 where it never was.

    Which values are new it sees as before.
    """

    encoder: Callable

    def __call__(self, series: Series) -> Float[Array, "batch size"]:
        last = last_rows(series)
        values = jnp.take_along_axis(jnp.asarray(series.values), jnp.maximum(last, 0), axis=1)
        carried = jnp.where(last >= 0, values, 0.0)
        return self.encoder(eqx.tree_at(lambda s: s.values, series, carried))


class WithLastValue(eqx.Module):
    """A model whose states are followed by the last known value of every variable, and by how long ago that was.

    For questions about what comes after all that is known. A variable that was never observed has its training mean,
    of time 0. `tasks.LeaningDecoder` reads such states.
    """

    model: Any
    mean: Constant  # of each variable

    @property
    def ode(self) -> Any:
        return self.model.ode

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        trace = self.model(series, times, key, attention=attention)
        last = last_rows(series)[:, -1]
        row = jnp.maximum(last, 0)
        values = jnp.take_along_axis(jnp.asarray(series.values), row[:, None], axis=1)[:, 0]
        values = jnp.where(last >= 0, values, self.mean.value)
        since = jnp.where(last >= 0, jnp.take_along_axis(jnp.asarray(series.times), row, axis=1), 0.0)
        age = times[:, :, None] - since[:, None]
        shape = (*trace.states.shape[:3], values.shape[-1])
        both = [jnp.broadcast_to(part, shape) for part in (values[:, None], age)]
        return eqx.tree_at(lambda t: t.states, trace, jnp.concatenate([trace.states, *both], axis=-1))
