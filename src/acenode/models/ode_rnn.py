"""The ODE-RNN: a recurrent unit whose hidden mean follows an ODE between observations.

As the encoder of Latent-ODE it runs backwards in time. Time is cut as the reference implementation cuts it: one Euler
step over a short gap, several over a gap of a fiftieth of the record's span or more. Both kinds of move, Euler steps
and updates, are laid out on one sequence for each record, so a batch needs no common time axis.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..layers import Init, Linear, normal_linear
from ..ode.fields import MLPField
from ..series import Series
from .masked_scan import masked_scan

_PARTS = 50  # a gap of a fiftieth of the span is cut into several Euler steps
_FIRST_GAP = 0.01  # the hop before the first row


class Moves(NamedTuple):
    """A record as one sequence: an Euler step of size `dt`, then an update with `row` where `update` is set.

    `last` says for each row, in the order in which they come, which move reaches it.
    """

    dt: Float[Array, " moves"]
    row: Int[Array, " moves"]
    update: Bool[Array, " moves"]
    last: Int[Array, " rows"]


def moves(times: Float[Array, " rows"], length: Int[Array, ""], backward: bool) -> Moves:
    """Lay out the Euler steps and updates of one record, in the order in which they happen."""
    rows = times.shape[0]
    order = jnp.arange(rows)
    if backward:
        order = jnp.maximum(length - 1 - order, 0)
    ordered = times[order]
    real = jnp.arange(rows) < length
    sign = -1.0 if backward else 1.0
    gap = sign * jnp.diff(ordered, prepend=ordered[:1] - sign * _FIRST_GAP)
    gap = jnp.where(real, gap, 0.0)
    last = times[jnp.maximum(length - 1, 0)]
    shortest = jnp.maximum((last - times[0]) / _PARTS, 1e-6)
    points = jnp.maximum(2, jnp.floor(gap / shortest).astype(jnp.int32))
    steps = jnp.where(real, jnp.where(gap < shortest, 1, points - 1), 0)
    steps = steps.at[:1].min(
        1
    )  # the hop before the first row is no gap of the record, and may be longer than all of it
    ends = jnp.cumsum(steps)
    place = jnp.arange(rows + _PARTS)
    which = jnp.minimum(jnp.searchsorted(ends, place, side="right"), rows - 1)
    inside = place < ends[-1]
    dt = jnp.where(inside, sign * gap[which] / jnp.maximum(steps[which], 1), 0.0)
    return Moves(dt, order[which], inside & (place == ends[which] - 1), jnp.maximum(ends - 1, 0))


class GatedUpdate(eqx.Module):
    """The Latent-ODE gated unit on a mean and a spread, given values and mask.

    `u, r` gates and candidates from networks with one hidden tanh layer; the candidate has no tanh on its output.
    What depends on the input row alone is computed for all rows at once by `project`.

    `memory` lets the update gates start with memories of 1 to so many rows (biases `log U(1, memory)`), where they
    otherwise start by forgetting half at every row: what was read first would hardly reach the end of a long record.
    """

    gates_in: Float[Array, "hidden2 inputs"]
    gates: Linear
    update_out: Linear
    reset_out: Linear
    candidate_in: Float[Array, "hidden inputs"]
    candidate: Linear
    candidate_out: Linear

    def __init__(self, inputs: int, size: int, width: int = 50, memory: float | None = None, *, key: PRNGKeyArray):
        k = iter(jax.random.split(key, 7))
        self.gates_in = 0.1 * jax.random.normal(next(k), (2 * width, inputs))
        self.candidate_in = 0.1 * jax.random.normal(next(k), (width, inputs))
        self.gates = normal_linear(2 * size, 2 * width, key=next(k))
        self.update_out = normal_linear(width, size, key=next(k))
        self.reset_out = normal_linear(width, size, key=next(k))
        self.candidate = normal_linear(2 * size, width, key=next(k))
        self.candidate_out = normal_linear(width, 2 * size, key=next(k))
        if memory is not None:
            biases = jnp.log(jax.random.uniform(jax.random.fold_in(key, 7), (size,), minval=1.0, maxval=memory))
            self.update_out = eqx.tree_at(lambda l: l.bias, self.update_out, biases)

    def project(self, x: Float[Array, "rows inputs"]) -> tuple[Array, Array]:
        return x @ self.gates_in.T, x @ self.candidate_in.T

    def __call__(self, mean: Array, spread: Array, projected: tuple[Array, Array]) -> tuple[Array, Array]:
        gates_x, candidate_x = projected
        hidden = jnp.tanh(self.gates(jnp.concatenate([mean, spread])) + gates_x)
        for_update, for_reset = jnp.split(hidden, 2)
        u = jax.nn.sigmoid(self.update_out(for_update))
        r = jax.nn.sigmoid(self.reset_out(for_reset))
        both = jnp.concatenate([mean * r, spread * r])
        new_mean, new_spread = jnp.split(self.candidate_out(jnp.tanh(self.candidate(both) + candidate_x)), 2)
        mean = (1 - u) * new_mean + u * mean
        spread = jnp.abs((1 - u) * jnp.abs(new_spread) + u * spread)
        return mean, spread


class Move(eqx.Module):
    """An Euler step of the mean, then the update with a row if there is one: the step of a `masked_scan`."""

    field: Callable
    unit: GatedUpdate

    def __call__(self, states: tuple[Array, Array], xs: tuple) -> tuple[Array, Array]:
        return jax.vmap(self._one)(states, xs)

    def _one(self, state: tuple[Array, Array], x: tuple) -> tuple[Array, Array]:
        mean, spread = state
        projected, dt, update = x
        mean = mean + dt * self.field(jnp.zeros(()), mean)
        new_mean, new_spread = self.unit(mean, spread, projected)
        return jnp.where(update, new_mean, mean), jnp.where(update, new_spread, spread)


class ODERNN(eqx.Module):
    """Mean and spread of a hidden state over records; `__call__` gives them after the last move, joined.

    `field(t, m)` moves the mean between observations.
    """

    field: Callable
    unit: GatedUpdate
    size: int = eqx.field(static=True)
    backward: bool = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        size: int = 40,
        width: int = 50,
        hidden: int = 4,
        *,
        gate_width: int = 50,
        memory: float | None = None,
        init: Init = "normal",
        backward: bool = True,
        key: PRNGKeyArray,
    ):
        one, two = jax.random.split(key)
        self.field = MLPField(size, width, hidden, init=init, key=one)
        self.unit = GatedUpdate(2 * variables, size, gate_width, memory, key=two)
        self.size = size
        self.backward = backward

    def __call__(self, series: Series) -> Float[Array, "batch both"]:
        (mean, spread), _ = self.run(series)
        return jnp.concatenate([mean, spread], axis=1)

    def run(self, series: Series) -> tuple[tuple[Array, Array], Float[Array, "batch rows size"]]:
        """The last state, and the mean after every row, in the order in which they come."""
        xs, last_moves = jax.vmap(self._laid_out, out_axes=(1, 0))(series)
        projected, dt, update = xs
        zero = jnp.zeros((dt.shape[1], self.size), projected[0].dtype)
        last, before = masked_scan(Move(self.field, self.unit), (zero, zero), xs, update | (dt != 0))
        means = jnp.concatenate([before[0][1:], last[0][None]])
        return last, jax.vmap(lambda means, at: means[at], in_axes=(1, 0))(means, last_moves)

    def _laid_out(self, series: Series) -> tuple[tuple, Int[Array, " rows"]]:
        """What the moves of one record need, and the move that reaches each row."""
        laid = moves(jnp.asarray(series.times), jnp.asarray(series.length), self.backward)
        x = jnp.concatenate([series.values, series.observed.astype(series.values.dtype)], axis=1)
        projected = tuple(each[laid.row] for each in self.unit.project(x))
        seen = jnp.any(series.observed, axis=1)
        return (projected, laid.dt, laid.update & seen[laid.row]), laid.last
