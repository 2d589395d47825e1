"""Models without a neural network: what any other has to beat. Their few numbers have closed forms."""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..ode import Constant, Stats
from ..series import Series
from .statistics import BINS, Statistics, last_rows
from .trace import Trace

Guess = Literal["last value", "mean", "linear", "interpolation"]


class PlainForecast(eqx.Module):
    """A guess of every variable at the query times, and a band that widens with the distance d to what it rests on.

    | guess | mean | d |
    |---|---|---|
    | last value | the last observed value, 0 before any | time since then |
    | mean | 0, the training mean of scaled values | 0 |
    | linear | `W [last values, last values * exp(-age), means so far] + b` | time since the last value |
    | interpolation | a straight line between the neighbours in time | time to the nearer one |

    The log variance is `level + growth * log(1 + d)`. Only rows strictly before a query count, except for the
    interpolation. `acenode.estimators.baselines` finds the numbers.
    """

    level: Float[Array, " variables"]
    growth: Float[Array, " variables"]
    weight: Float[Array, "features variables"]
    bias: Float[Array, " variables"]
    guess: Guess = eqx.field(static=True)

    def __init__(self, variables: int, guess: Guess):
        if guess not in get_args(Guess):
            raise ValueError(f"PlainForecast(guess={guess!r}): choose from {', '.join(get_args(Guess))}.")
        self.level = self.growth = self.bias = jnp.zeros(variables)
        self.weight = jnp.zeros((3 * variables if guess == "linear" else 0, variables))
        self.guess = guess

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        times = jnp.asarray(times)
        if self.guess == "interpolation":
            guess, distance = _between(series, times)
        else:
            features, distance = history(series, times)
            count = distance.shape[-1]
            if self.guess == "linear":
                guess = features @ self.weight + self.bias
            else:
                guess = features[..., :count] if self.guess == "last value" else jnp.zeros_like(distance)
            distance = jnp.zeros_like(distance) if self.guess == "mean" else distance
        states = jnp.stack([guess, distance], axis=-1)
        batch = len(times)
        nothing = jnp.zeros(batch, states.dtype)
        return Trace(states[None], nothing[None, :, None], nothing, None, Stats.none(batch), None, None)

    def emission(self, state: Float[Array, "variables 2"]) -> tuple[Array, Array]:
        """Mean and log variance of every variable."""
        return state[:, 0], self.level + self.growth * jnp.log1p(state[:, 1])


def history(series: Series, times: Float[Array, "batch queries"]) -> tuple[Array, Array]:
    """Features (batch, queries, 3 variables) of the rows before each query, and the age of the last values.

    The last value, the last value times exp(-age), and the mean so far of every variable; 0 before any is observed.
    """
    values, observed = jnp.asarray(series.values), jnp.asarray(series.observed)
    rows_at = jnp.asarray(series.times)
    ends = jnp.where(jnp.asarray(series.real), rows_at, jnp.inf)
    before = jax.vmap(lambda at, queries: jnp.searchsorted(at, queries, side="left"))(ends, times)

    def at_queries(of_rows, first):
        padded = jnp.concatenate([jnp.full_like(of_rows[:, :1], first), of_rows], axis=1)
        return jnp.take_along_axis(padded, before[:, :, None], axis=1)

    last = at_queries(last_rows(series), -1)
    row = jnp.maximum(last, 0)
    value = jnp.where(last >= 0, jnp.take_along_axis(values, row, axis=1), 0.0)
    since = jnp.where(last >= 0, jax.vmap(lambda at, row: at[row])(rows_at, row), rows_at[:, :1, None])
    age = jnp.maximum(times[:, :, None] - since, 0.0)
    number = jnp.maximum(at_queries(jnp.cumsum(observed, axis=1), 0), 1)
    mean = at_queries(jnp.cumsum(jnp.where(observed, values, 0.0), axis=1), 0.0) / number
    return jnp.concatenate([value, value * jnp.exp(-age), mean], axis=-1), age


def _between(series: Series, times: Float[Array, "batch queries"]) -> tuple[Array, Array]:
    """Straight lines between the observed values of a variable, beyond them the nearest; the time to the nearer one."""
    rows = series.times.shape[1]
    rows_at, values = jnp.asarray(series.times), jnp.asarray(series.values)
    ends = jnp.where(jnp.asarray(series.real), rows_at, jnp.inf)
    upto = jax.vmap(lambda at, queries: jnp.searchsorted(at, queries, side="right"))(ends, times)
    early = jnp.pad(last_rows(series), ((0, 0), (1, 0), (0, 0)), constant_values=-1)
    places = jnp.where(jnp.asarray(series.observed), jnp.arange(rows)[:, None], rows)
    late = jnp.pad(lax.cummin(places, axis=1, reverse=True), ((0, 0), (0, 1), (0, 0)), constant_values=rows)
    one, two = (jnp.take_along_axis(x, upto[:, :, None], axis=1) for x in (early, late))
    left, right = one >= 0, two < rows
    one, two = jnp.where(left, one, two), jnp.where(right, two, one)
    known = left | right
    one, two = jnp.clip(one, 0, rows - 1), jnp.clip(two, 0, rows - 1)
    t1, t2 = (jax.vmap(lambda at, row: at[row])(rows_at, row) for row in (one, two))
    v1, v2 = (jnp.take_along_axis(values, row, axis=1) for row in (one, two))
    at = times[:, :, None]
    part = jnp.where(t2 > t1, jnp.clip((at - t1) / jnp.where(t2 > t1, t2 - t1, 1.0), 0.0, 1.0), 0.0)
    guess = jnp.where(known, v1 + part * (v2 - v1), 0.0)
    return guess, jnp.where(known, jnp.minimum(jnp.abs(at - t1), jnp.abs(t2 - at)), 0.0)


class HistorySummary(eqx.Module):
    """The summary of a series is `Statistics` of it, for a head of labels; it has no states worth reading."""

    statistics: Statistics

    def __init__(self, variables: int):
        self.statistics = Statistics(Constant(jnp.zeros((7, variables, BINS + 1))))

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.statistics.size

    def __call__(self, series: Series, times, key: PRNGKeyArray, *, attention: bool = False) -> Trace:
        return _summarised(self.statistics(series), times)


class NoInput(eqx.Module):
    """A model that looks at nothing: with a bias in its head it says how frequent each label is."""

    scale: Float[Array, ""]

    def __init__(self):
        self.scale = jnp.zeros(())

    def __call__(self, series: Series, times, key: PRNGKeyArray, *, attention: bool = False) -> Trace:
        return _summarised(jnp.zeros((len(times), 1)) * self.scale, times)


def _summarised(summary: Float[Array, "batch size"], times) -> Trace:
    batch, nothing = len(times), jnp.zeros(len(times), summary.dtype)
    states = jnp.zeros((1, *jnp.shape(times), 1), summary.dtype)
    return Trace(states, summary[None], nothing, None, Stats.none(batch), None, None)
