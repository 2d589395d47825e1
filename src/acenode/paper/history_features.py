"""What some PhysioNet rows are given besides: the last value of every variable, and statistics of its history."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear
from ..models import Trace
from ..models.statistics import (
    BINS as BINS,
    NARROWEST as NARROWEST,
    Statistics as Statistics,
    last_rows as last_rows,
    statistic_edges as statistic_edges,
    statistics as statistics,
)
from ..ode import Constant
from ..series import Series


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
    """A model whose states, vectors, are followed by the last value of every variable by then, and by how long
    ago that was.

    A variable that was not observed yet has its training mean, of time 0. `ResidualDecoder` reads such states. At the
    time of a context value that value is the last one: for queries that the context does not hold.
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
        rows_at = jnp.asarray(series.times)
        by_then = jax.vmap(lambda at, queried: jnp.searchsorted(at, queried, side="right"))(rows_at, times)
        rows = jnp.pad(last_rows(series), ((0, 0), (1, 0), (0, 0)), constant_values=-1)  # before the first: none
        last = jnp.take_along_axis(rows, by_then[:, :, None], axis=1)
        row = jnp.maximum(last, 0)
        values = jnp.take_along_axis(jnp.asarray(series.values), row, axis=1)
        values = jnp.where(last >= 0, values, self.mean.value)
        since = jnp.where(last >= 0, jax.vmap(lambda at, row: at[row])(rows_at, row), 0.0)
        age = times[:, :, None] - since
        both = [jnp.broadcast_to(part, (len(trace.states), *part.shape)) for part in (values, age)]
        return eqx.tree_at(lambda t: t.states, trace, jnp.concatenate([trace.states, *both], axis=-1))


class ResidualDecoder(eqx.Module):
    """From a state of `WithLastValue` to values: a residual to the last ones, which count less with age.

    `value = guess + trust * (last - guess)` with `trust = sigmoid(logit - rate * age)`; guess and logit are linear in
    the model's state, and every variable has a rate of its own. Begins with most of its trust in the last value.
    """

    net: Linear
    fading: Float[Array, " variables"]  # softplus of it is the rate

    def __init__(self, size: int, variables: int, *, key: PRNGKeyArray):
        net = Linear(size, 2 * variables, key=key)
        assert net.bias is not None
        self.net = eqx.tree_at(lambda n: n.bias, net, net.bias.at[variables:].set(2.0))
        self.fading = jnp.zeros(variables)

    def __call__(self, state: Float[Array, " state"]) -> Float[Array, " variables"]:
        variables = self.fading.shape[0]
        own, last, age = jnp.split(state, [state.shape[0] - 2 * variables, state.shape[0] - variables])
        guess, logit = jnp.split(self.net(own), 2)
        trust = jax.nn.sigmoid(logit - jax.nn.softplus(self.fading) * age)
        return guess + trust * (last - guess)
