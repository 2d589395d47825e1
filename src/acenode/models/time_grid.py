"""A series laid out on a time grid of its own: which small steps a model takes, and which rows it meets."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class TimeGrid(NamedTuple):
    """The grid of one series: step k moves time by `dt[k]`, then meets row `row[k]` of the series (-1 for none).

    `query` is the step at whose end each queried time lies. `enough` is whether all of it fits.
    """

    time: Float[Array, " steps"]  # at the start of the step
    dt: Float[Array, " steps"]
    row: Int[Array, " steps"]
    query: Int[Array, " queries"]
    used: Int[Array, ""]
    enough: Bool[Array, ""]


def time_grid(
    rows: Float[Array, " rows"],
    real: Bool[Array, " rows"],
    queries: Float[Array, " queries"],
    start: float,
    step: float,
    count: int,
) -> TimeGrid:
    """Lay out one series: every gap between two moments is cut into equal steps of at most `step`.

    Moments are the times of the real rows and the queried times. A query before `start` is one at it; of rows before
    `start` only the last is met. The first step has no length, so that a row at the very start has a step of its own.
    """
    moments = jnp.sort(jnp.maximum(jnp.concatenate([jnp.where(real, rows, start), queries]), start))
    gap = jnp.diff(moments, prepend=jnp.asarray([start], moments.dtype))
    # A gap that is a whole number of steps up to rounding is not cut once more.
    steps = jnp.ceil(gap / step - 1e-3).astype(jnp.int32)
    steps = jnp.where((gap > 0) & (steps == 0), 1, steps)
    ends = 1 + jnp.cumsum(steps)

    def last_step(times):
        moment = jnp.searchsorted(moments, jnp.maximum(times, start), side="right") - 1
        return ends[jnp.maximum(moment, 0)] - 1

    place = jnp.arange(count)
    which = jnp.minimum(jnp.searchsorted(ends, place, side="right"), moments.size - 1)
    inside = (place > 0) & (place < ends[-1])
    size = gap[which] / jnp.maximum(steps[which], 1)
    dt = jnp.where(inside, size, 0.0)
    before = place - (ends[which] - steps[which])
    time = jnp.where(inside, moments[which] - gap[which] + before * size, start)
    row = jnp.full(count, -1, jnp.int32)
    row = row.at[jnp.where(real, last_step(rows), count)].set(jnp.arange(rows.size, dtype=jnp.int32), mode="drop")
    return TimeGrid(time, dt, row, jnp.minimum(last_step(queries), count - 1), ends[-1], ends[-1] <= count)
