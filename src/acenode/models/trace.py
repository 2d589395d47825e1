"""`Trace`: what every time-series model answers."""

import equinox as eqx
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
    attention: Array | None  # logits at the queried times, where asked for
    stats: Stats  # of the solve, (samples * batch,)
    h0: Array | None  # first states of the ODE, for batch statistics
    times: Array | None
    keep: Float[Array, "batch width"] | None = None  # mask of dropout with which the model's own emission is asked
