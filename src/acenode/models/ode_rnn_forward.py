"""The ODE-RNN as a model of its own: it runs forward in time and can be asked at any moment."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..ode import Stats
from ..series import Series
from .ode_rnn import ODERNN
from .trace import Trace


class ForwardODERNN(eqx.Module):
    """Known rows and asked times on one time axis, a record at a time; the state at an asked time is the mean.

    `including=False` lets an answer see only the rows strictly before its time, `True` also the row at that time. The
    summary is the mean after the last known row.
    """

    unit: ODERNN
    including: bool = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        size: int = 20,
        width: int = 50,
        hidden: int = 4,
        *,
        gate_width: int = 50,
        including: bool = False,
        key: PRNGKeyArray,
    ):
        self.unit = ODERNN(variables, size, width, hidden, gate_width=gate_width, backward=False, key=key)
        self.including = including

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.unit.size

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        states, summary = jax.vmap(self._one)(series, jnp.asarray(times))
        batch = times.shape[0]
        return Trace(states[None], summary[None], jnp.zeros(batch), None, Stats.none(batch), None, None)

    def _one(self, series: Series, queries: Float[Array, " queries"]) -> tuple[Array, Array]:
        known = jnp.asarray(series.times)
        rows, asked = known.shape[0], queries.shape[0]
        queries = jnp.asarray(queries, known.dtype)
        together = jnp.concatenate([jnp.where(series.real, known, jnp.inf), queries])
        is_query = jnp.arange(rows + asked) >= rows
        order = jnp.lexsort((is_query if self.including else ~is_query, together))
        last = jnp.max(jnp.where(jnp.isfinite(together), together, -jnp.inf))
        merged = Series(
            jnp.minimum(together[order], last),
            jnp.concatenate([series.values, jnp.zeros((asked, series.values.shape[1]), series.values.dtype)])[order],
            jnp.concatenate([series.observed, jnp.zeros((asked, series.observed.shape[1]), bool)])[order],
            series.length + asked,
        )
        _, (means, laid) = self.unit.run(merged)
        place = jnp.zeros(rows + asked, int).at[order].set(jnp.arange(rows + asked))  # of each row in the merged order
        after = means[laid.last]
        nothing = jnp.zeros_like(after[0])
        summary = jnp.where(series.length > 0, after[place[jnp.maximum(series.length - 1, 0)]], nothing)
        return after[place[rows:]], summary
