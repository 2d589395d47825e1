"""The ODE-RNN as a model of its own: it runs forward in time and answers at any query time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Init
from ..ode import Stats
from ..series import Series
from .ode_rnn import ODERNN
from .trace import Trace

_STEPS = 10  # Euler steps from the last row before a query time to that time


class ForwardODERNN(eqx.Module):
    """An `ODERNN` over the known rows; an answer is the mean of the last row before its time, moved on to that time.

    Each answer is made by itself, so that other query times do not matter. `including=False` lets it see only the rows
    strictly before its time, `True` also the row at that time. The summary is the mean after the last known row.
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
        memory: float | None = None,
        init: Init = "normal",
        including: bool = False,
        key: PRNGKeyArray,
    ):
        starts = {"gate_width": gate_width, "memory": memory, "init": init}
        self.unit = ODERNN(variables, size, width, hidden, **starts, backward=False, key=key)
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
        (summary, _), means = self.unit.run(series)
        states = jax.vmap(self._answers)(series, means, jnp.asarray(times))
        batch = times.shape[0]
        return Trace(states[None], summary[None], jnp.zeros(batch), None, Stats.none(batch), None, None)

    def _answers(
        self, series: Series, means: Float[Array, "rows size"], queries: Float[Array, " queries"]
    ) -> Float[Array, "queries size"]:
        """From the means after the rows of one record."""
        known = jnp.asarray(series.times)
        ends = jnp.where(series.real, known, jnp.inf)
        side = "right" if self.including else "left"
        before = jnp.searchsorted(ends, jnp.asarray(queries, known.dtype), side=side)
        after = jnp.concatenate([jnp.zeros_like(means[:1]), means])[before]
        since = jnp.concatenate([known[:1], known])[before]
        gap = jnp.where(series.length > 0, jnp.maximum(queries - since, 0.0), 0.0).astype(means.dtype)

        def step(mean, _):
            return mean + gap[:, None] / _STEPS * jax.vmap(self.unit.field, (None, 0))(jnp.zeros(()), mean), None

        return lax.scan(step, after, length=_STEPS)[0]
