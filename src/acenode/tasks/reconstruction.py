"""Values at query times with a fixed noise, as the Latent-ODE family is trained and evaluated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..models.trace import Trace
from ..series import Query
from .heads import Headed
from .task import Report, trace_attention


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
class Reconstruction:
    """Values under N(decoded, noise^2): the evidence lower bound alone (`negative_elbo`).

    Metrics over the scored values: `mse` is the published one, over a variable's points, then over all variables and
    records, whether observed or not, each sample of the model by itself; `mse_per_value` is that of the mean over the
    samples, over all scored values.
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

    def attention_path(self, model: Headed, batch: Query, key):
        return trace_attention(model.model(batch.context, batch.times, key, attention=True))

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


# --- the evidence lower bound ---------------------------------------------------------------------------------


def mean_by_variable(
    each: Float[Array, "*batch queries variables"], counts: Bool[Array | np.ndarray, "*some queries variables"]
) -> Float[Array, " *batch"]:
    """The published mean over a record: over a variable's counted points (0 without any), then over the variables."""
    points = jnp.maximum(counts.sum(axis=-2), 1)
    return jnp.mean(jnp.sum(jnp.where(counts, each, 0.0), axis=-2) / points, axis=-1)


def decoded(head, trace: Trace) -> Float[Array, "samples batch queries variables"]:
    """The values that the head reads from the states."""
    return jax.vmap(jax.vmap(jax.vmap(head.decoder)))(trace.states)


def negative_elbo(
    head, query: Query, trace: Trace, epoch: Int[Array, ""], noise: float, kl_from: int, event_weight: float = 0.1
) -> Float[Array, ""]:
    """`-logsumexp_k(R_k - c KL)` over the samples k of the model.

    R_k is the log likelihood under N(decoded, noise^2), by `mean_by_variable`, mean over the records whose solve did
    not fail; the KL divergence, which needs no solve, is the mean over all. c is 0 for `kl_from` epochs, then
    1 - 0.99^n.

    A head that has `events` (log intensity and its integral so far) adds the log likelihood of the times of the
    observations, weighted by `event_weight`: of all query rows but the first, from which on the intensity is
    integrated. Variables that are not observed count too: their intensity led to no event.
    """
    solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
    error = jnp.square((query.values - decoded(head, trace)) / noise)
    fit = mean_by_variable(-0.5 * (error + jnp.log(2 * jnp.pi * noise**2)), query.observed)
    c = jnp.where(epoch < kl_from, 0.0, 1 - 0.99 ** (epoch - kl_from).astype(fit.dtype))
    # A sample all of whose solves failed has no likelihood; a 0 in its place would exceed the others.
    usable = solved.any(axis=1) | ~solved.any()
    bound = jax.nn.logsumexp(jnp.where(usable, _mean_solved(fit, solved), -jnp.inf) - c * jnp.mean(trace.penalty))
    if hasattr(head, "events"):
        log_rate, integral = jax.vmap(jax.vmap(jax.vmap(head.events)))(trace.states)
        at_points = jnp.sum(jnp.where(query.observed, log_rate, 0.0)[:, :, 1:], axis=2)
        likely = at_points - (integral[:, :, -1] - integral[:, :, 0])
        bound = bound + event_weight * jnp.mean(_mean_solved(likely.mean(axis=-1), solved))
    return -bound


def _mean_solved(each: Float[Array, "samples batch"], solved: Bool[Array, "samples batch"]) -> Float[Array, " samples"]:
    return jnp.sum(jnp.where(solved, each, 0.0), axis=1) / jnp.maximum(solved.sum(axis=1), 1)
