"""`Trace`: what every time-series model answers."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..ode import Stats


class Trace(eqx.Module):
    """The answer of `model(series, query_times, key)` for a batch.

    Models that sample their latent state answer with several samples; the others with one. Heads and losses belong
    to the task, so every model serves every task.
    """

    states: Float[Array, "samples batch queries ..."]  # at the queried times
    summary: Float[Array, "samples batch summary"]  # one vector a series
    penalty: Float[Array, " batch"]  # the model's own term of the loss, such as a KL divergence
    attention: Array | None  # logits at the query times, if requested
    stats: Stats  # of the solve, (samples * batch,)
    h0: Array | None  # first states of the ODE, for batch statistics
    times: Array | None
    keep: Float[Array, "batch width"] | None = None  # mask of dropout with which the model's own emission is evaluated

    def mask_failed(self) -> "Trace":
        """The same, with NaN where the solve failed: the zeros that training leaves out are no answer to be scored."""
        failed = self.stats.failed.reshape(self.states.shape[:2])
        given = (self.states, self.summary)
        lost = (jnp.where(failed.reshape(*failed.shape, *(1,) * (x.ndim - 2)), jnp.nan, x) for x in given)
        return eqx.tree_at(lambda t: (t.states, t.summary), self, tuple(lost))
