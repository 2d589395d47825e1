"""Statistics of the history of every variable, as an encoder: no parameters, and hard to beat for labels of series."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..ode import Constant
from ..series import Series

BINS = 8  # of every statistic
NARROWEST = 1e-3  # width of a bin: many series may have the same number of values, and rounding is no difference


def last_rows(series: Series) -> Int[Array, "batch rows variables"]:
    """For every row and variable, the latest row so far in which it was observed; -1 without any."""
    observed = jnp.asarray(series.observed)
    rows = jnp.arange(observed.shape[1])[:, None]
    return lax.cummax(jnp.where(observed, rows, -1), axis=1)


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
