"""What some PhysioNet rows are given besides: the last value of every variable, and statistics of its history."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..layers import Linear
from ..models import Trace
from ..ode import Constant
from ..series import Series

BINS = 8  # of every statistic
NARROWEST = 1e-3  # width of a bin: many series may have the same number of values, and rounding is no difference


# --- last values ----------------------------------------------------------------------------------------------


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


# --- statistics -----------------------------------------------------------------------------------------------


def statistics(series: Series) -> tuple[Float[Array, "batch statistics variables"], Bool[Array, "batch variables"]]:
    """The last value, mean, standard deviation, trend, least, greatest and log(1 + number) of the values of a variable.

    The trend is how far a straight line through the values moves in one standard deviation of their times. Beside it
    which variables have a value at all; of the others all statistics are zero.
    """
    values, observed = jnp.asarray(series.values), jnp.asarray(series.observed)
    times = jnp.broadcast_to(jnp.asarray(series.times)[:, :, None], values.shape)
    number = observed.sum(axis=1)
    shared = jnp.maximum(number, 1)

    def mean(x):
        return jnp.sum(x, axis=1, where=observed) / shared

    last = jnp.take_along_axis(values, jnp.maximum(last_rows(series)[:, -1:], 0), axis=1)[:, 0]
    centre = mean(values)
    least = jnp.min(values, axis=1, where=observed, initial=jnp.inf)
    greatest = jnp.max(values, axis=1, where=observed, initial=-jnp.inf)
    # Values that are all the same have no spread, not one of rounding.
    aside = jnp.where((least < greatest)[:, None], values - centre[:, None], 0.0)
    later = times - mean(times)[:, None]
    spread = jnp.sqrt(mean(aside**2))
    duration = jnp.sqrt(mean(later**2))
    trend = mean(aside * later) / jnp.where(duration > 0, duration, 1.0)
    parts = (last, centre, spread, trend, least, greatest, jnp.log1p(number.astype(values.dtype)))
    known = number > 0
    return jnp.stack([jnp.where(known, part, 0.0) for part in parts], axis=1), known


def statistic_edges(series: Series, bins: int = BINS) -> Float[np.ndarray, "statistics variables edges"]:
    """The quantiles that divide each statistic of these series, those of the training, into bins of equal number."""
    found, known = (np.asarray(x) for x in statistics(series))
    edges = np.zeros((*found.shape[1:], bins + 1), np.float32)
    for variable in np.flatnonzero(known.any(axis=0)):
        of_one = found[known[:, variable], :, variable]
        edges[:, variable] = np.quantile(of_one, np.linspace(0, 1, bins + 1), axis=0).T
    return edges


class Statistics(eqx.Module):
    """An encoder: `statistics` of every variable, each as how far it has come through each of its bins (0 to 1).

    So no outlier is far away, and a network sees a range in the middle as easily as an extreme. All are moved by a
    half, and are 0 where the variable has no value, which is told besides. No parameters.
    """

    edges: Constant  # of `statistic_edges`

    @property
    def size(self) -> int:
        """How many numbers a series becomes."""
        each, variables, edges = self.edges.array.shape
        return variables * (each * (edges - 1) + 1)

    def __call__(self, series: Series) -> Float[Array, "batch size"]:
        found, known = statistics(series)
        lower, upper = self.edges.value[..., :-1], self.edges.value[..., 1:]
        come = jnp.clip((found[..., None] - lower) / jnp.maximum(upper - lower, NARROWEST), 0.0, 1.0)
        come = jnp.where(known[:, None, :, None], come - 0.5, 0.0)
        return jnp.concatenate([come.reshape(len(come), -1), known - 0.5], axis=1)
