"""`Filter`: a recurrent pass over the rows of a series, with predictions at any query time."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from ..ode import Stats
from ..series import Series
from .masked_scan import masked_scan
from .trace import Trace


@runtime_checkable
class Cell(Protocol):
    """The recurrent cell of a `Filter`, written for one series.

    A state is any pytree of floating-point arrays whose shapes and types `drift` and `update` keep. A cell is only
    called with rows that hold at least one observation; values that were not observed are 0.
    """

    def start(self) -> Any:
        """The state before anything is known."""
        ...

    def drift(self, state: Any, gap: Float[Array, ""]) -> Any:
        """The state after a time `gap >= 0` in which nothing arrived."""
        ...

    def update(
        self, state: Any, values: Float[Array, " variables"], observed: Bool[Array, " variables"], key: PRNGKeyArray
    ) -> Any:
        """The state after a row arrived."""
        ...

    def read(self, state: Any) -> Float[Array, " size"]:
        """What heads see of a state that has drifted to the moment they ask about."""
        ...


@runtime_checkable
class Penalised(Cell, Protocol):
    """A cell that has a term of the loss to itself."""

    def penalty(self, state: Any) -> Float[Array, ""]:
        """The term, from the state after the last row."""
        ...


class Filter(eqx.Module):
    """A recurrent model of irregular series: `state <- update(drift(state, gap), row)` over the known rows in time
    order; the answer at time t is `read(drift(state, t - s))`, with s the time of the last row that counts.

    - `cell`: a `Cell`;
    - `including`: `False` lets an answer see only the rows strictly before its time, which makes the answers at known
      rows forecasts too; `True` also the row at that time, for labelling points.

    Rows where nothing was observed, and padding, leave the state alone. Before the first observation the state is
    `start()`, drifted by the time since the first known row; by 0 for a query before that row, and in a series
    without rows. Queries may come in any order and more than once: each is answered by itself. The summary of a
    series is `read` of the state just after its last row. All is computed in the precision of the cell's state.
    """

    cell: Cell
    including: bool = eqx.field(static=True, default=False)

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        first = self.cell.start()
        dtype = jnp.result_type(*(x.dtype for x in jax.tree.leaves(first) if eqx.is_inexact_array(x)))
        batch, rows = series.values.shape[:2]
        moments = jnp.asarray(series.times)
        counts = jnp.asarray(series.real) & jnp.asarray(series.observed).any(axis=2)
        values = jnp.where(series.observed, series.values, 0.0).astype(dtype)
        keys = jax.random.key_data(jax.vmap(lambda k: _numbered_keys(k, rows))(_numbered_keys(key, batch)))
        by_row = (moments, values, jnp.asarray(series.observed), counts, keys)
        by_row = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), by_row)
        # With the time of the last row that counts.
        start = (jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), first), moments[:, 0])
        last, before = masked_scan(_RowStep(self.cell, jax.random.key_impl(key)), start, by_row, by_row[3])

        # In the precision of the rows: a query at the time of a row must not miss it by a rounding.
        queries = jnp.asarray(times, moments.dtype)
        ends = jnp.where(series.real, moments, jnp.inf)
        side = "right" if self.including else "left"
        seen = jax.vmap(lambda ends, queries: jnp.searchsorted(ends, queries, side=side))(ends, queries)
        path = jax.tree.map(lambda b, l: jnp.concatenate([b, l[None]]), before, last)
        state, since = jax.tree.map(lambda x: jax.vmap(lambda one, at: one[at], in_axes=(1, 0))(x, seen), path)
        known = (jnp.asarray(series.length) > 0)[:, None]
        gap = jnp.where(known, jnp.maximum(queries - since, 0.0), 0.0).astype(dtype)
        states = jax.vmap(jax.vmap(lambda s, g: self.cell.read(self.cell.drift(s, g))))(state, gap)
        last, _ = last
        penalty = jax.vmap(self.cell.penalty)(last) if isinstance(self.cell, Penalised) else jnp.zeros(batch, dtype)
        summary = jax.vmap(self.cell.read)(last)
        return Trace(states[None], summary[None], penalty, None, Stats.none(batch), None, None)


class _RowStep(eqx.Module):
    """The step of the scan: drift to a row, then take it in."""

    cell: Cell
    kind: Any = eqx.field(static=True)  # of keys

    def __call__(self, carry, row):
        def one(carry, row):
            state, time = carry
            now, values, observed, counts, key = row
            # Not simply since the row before: many small drifts need not be one large one.
            gap = jnp.where(counts, now - time, 0.0).astype(values.dtype)
            key = jax.random.wrap_key_data(key, impl=self.kind)
            new = self.cell.update(self.cell.drift(state, gap), values, observed, key)
            return jax.tree.map(lambda n, o: jnp.where(counts, n, o), (new, now), carry)

        return jax.vmap(one)(carry, row)


def _numbered_keys(key: PRNGKeyArray, count: int) -> Key[Array, " count"]:
    """Keys for series or rows. Unlike those of `jax.random.split`, they do not depend on how many there are."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count))
