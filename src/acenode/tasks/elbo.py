"""The evidence lower bound of the Latent-ODE family: how well states explain the values, less a KL divergence."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..models.trace import Trace
from ..series import Query


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
    observations, weighted by `event_weight`: of all rows asked for but the first, from which on the intensity is
    integrated. Variables that are not observed count too: nothing came of their intensity.
    """
    solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
    error = jnp.square((query.values - decoded(head, trace)) / noise)
    fit = mean_by_variable(-0.5 * (error + jnp.log(2 * jnp.pi * noise**2)), query.observed)
    c = jnp.where(epoch < kl_from, 0.0, 1 - 0.99 ** (epoch - kl_from).astype(fit.dtype))
    # A sample all of whose solves failed says nothing; a 0 in its place would outdo the others.
    told = solved.any(axis=1) | ~solved.any()
    bound = jax.nn.logsumexp(jnp.where(told, _mean_solved(fit, solved), -jnp.inf) - c * jnp.mean(trace.penalty))
    if hasattr(head, "events"):
        log_rate, integral = jax.vmap(jax.vmap(jax.vmap(head.events)))(trace.states)
        at_points = jnp.sum(jnp.where(query.observed, log_rate, 0.0)[:, :, 1:], axis=2)
        likely = at_points - (integral[:, :, -1] - integral[:, :, 0])
        bound = bound + event_weight * jnp.mean(_mean_solved(likely.mean(axis=-1), solved))
    return -bound


def _mean_solved(each: Float[Array, "samples batch"], solved: Bool[Array, "samples batch"]) -> Float[Array, " samples"]:
    return jnp.sum(jnp.where(solved, each, 0.0), axis=1) / jnp.maximum(solved.sum(axis=1), 1)
