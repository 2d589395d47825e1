"""Values at asked times with a fixed noise, as the Latent-ODE family is trained and judged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..series import Query
from .elbo import decoded, mean_by_variable, negative_elbo
from .heads import Headed
from .task import Report


class ValueHead(eqx.Module):
    """A decoder from a state to the value of every variable."""

    decoder: Callable


class PoissonHead(eqx.Module):
    """What a task reads from the states of `LatentPoisson`: values, the times of observations, and maybe a label."""

    values: Callable  # from the half of the state that is for values
    classifier: Callable | None
    size: int = eqx.field(static=True)  # of that half
    variables: int = eqx.field(static=True)

    def decoder(self, state: Float[Array, " state"]) -> Float[Array, " variables"]:
        return self.values(state[: self.size])

    def events(self, state: Float[Array, " state"]) -> tuple[Array, Array]:
        """The log intensity of observations of each variable, and its integral so far."""
        log_rate, integral = jnp.split(state[2 * self.size :], 2)
        return log_rate, integral


@dataclass(frozen=True)
class Reconstruct:
    """Values under N(decoded, noise^2): the evidence lower bound alone (`elbo.negative_elbo`).

    Metrics over the scored values: `mse` is the published one, over a variable's points, then over all variables and
    records, whether observed or not, each sample of the model by itself; `mse_per_value` is that of the mean over the
    samples, over all scored values alike.
    """

    noise: float = 0.01
    kl_from: int = 10
    monitor: str = "mse"
    better: Literal["lower", "higher"] = "lower"

    def loss(self, model: Headed, batch: Query, key, epoch):
        trace = model.model(batch.context, batch.times, key)
        return negative_elbo(model.head, batch, trace, epoch, self.noise, self.kl_from), Report.of(trace.stats)

    def first_states(self, model: Headed, batch: Query, key):
        trace = model.model(batch.context, batch.times, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def outputs(self, model: Headed, batch: Query, key) -> tuple[Array, Array]:
        """Mean and variance of the decoded values over the samples of the model."""
        values = decoded(model.head, model.model(batch.context, batch.times, key).mask_failed())
        return values.mean(axis=0), values.var(axis=0)

    def metrics(self, outputs, batch: Query, weight: Float[Array, " samples"]) -> dict[str, Array]:
        mean, variance = outputs
        error = jnp.square(batch.values - mean)
        scored = jnp.asarray(batch.scored)
        by_record = mean_by_variable(error + variance, scored)
        counts = scored * weight[:, None, None]
        return {
            "mse": jnp.sum(by_record * weight) / jnp.maximum(weight.sum(), 1),
            "mse_per_value": jnp.sum(error * counts) / jnp.maximum(counts.sum(), 1),
        }
