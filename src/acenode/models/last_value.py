"""The last known value of every variable: told to an encoder at every row, or to a head beside the states."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
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

    Which values are new it sees as before; it must not take the others for zeros.
    """

    encoder: Callable

    def __call__(self, series: Series) -> Float[Array, "batch size"]:
        last = last_rows(series)
        values = jnp.take_along_axis(jnp.asarray(series.values), jnp.maximum(last, 0), axis=1)
        carried = jnp.where(last >= 0, values, 0.0)
        return self.encoder(eqx.tree_at(lambda s: s.values, series, carried))


class WithLastValue(eqx.Module):
    """A model whose states, vectors, are followed by the last value of every variable that is known by then, and by
    how long ago that was.

    A variable that was not observed yet has its training mean, of time 0. `tasks.ResidualDecoder` reads such states. At
    the time of a known value that value is the last one: for questions about what is not known.
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
        known = jnp.asarray(series.times)
        by_then = jax.vmap(lambda known, queried: jnp.searchsorted(known, queried, side="right"))(known, times)
        rows = jnp.pad(last_rows(series), ((0, 0), (1, 0), (0, 0)), constant_values=-1)  # before the first: none
        last = jnp.take_along_axis(rows, by_then[:, :, None], axis=1)
        row = jnp.maximum(last, 0)
        values = jnp.take_along_axis(jnp.asarray(series.values), row, axis=1)
        values = jnp.where(last >= 0, values, self.mean.value)
        since = jnp.where(last >= 0, jax.vmap(lambda known, row: known[row])(known, row), 0.0)
        age = times[:, :, None] - since
        both = [jnp.broadcast_to(part, (len(trace.states), *part.shape)) for part in (values, age)]
        return eqx.tree_at(lambda t: t.states, trace, jnp.concatenate([trace.states, *both], axis=-1))
