"""Values at query times, with their uncertainty: forecasting, reconstruction, imputation."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models.trace import Trace
from ..series import Query, Series
from .heads import Headed
from .task import Report, trace_attention

_LOG_2PI = 1.8378770664093453


def gaussian_negative_log_likelihood(values, mean, log_variance) -> Array:
    """`-log N(values; mean, exp(log_variance))`, element by element."""
    return 0.5 * (_LOG_2PI + log_variance + jnp.square(values - mean) * jnp.exp(-log_variance))


@dataclass(frozen=True)
class Forecast:
    """Gaussian predictions at the query times.

    Loss: negative log likelihood per observed value, plus `penalty` times the model's own penalty. Training alone has
    two augmentations: `cut=(early, late)` ends the context of each series at a random time between the two, so that
    every horizon is learned from every series; `hide` leaves out a random part of the values of the context.
    Metrics over the scored values: `mse`, `negll`, and `coverage` of the central 90 % interval.
    """

    penalty: float = 1.0
    cut: tuple[float, float] | None = None
    hide: float = 0.0
    monitor: str = "negll"
    better: Literal["lower", "higher"] = "lower"

    def loss(self, model: Headed, batch: Query, key, epoch):
        trace = model.model(self._augmented(batch.context, key), batch.times, key)
        mean, log_variance = predictions(model, trace)
        each = gaussian_negative_log_likelihood(batch.values, mean, log_variance)
        solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
        weight = batch.observed * solved[..., None, None]
        fit = jnp.sum(jnp.where(weight, each, 0.0)) / jnp.maximum(jnp.sum(weight), 1)
        value = fit + self.penalty * jnp.mean(trace.penalty) if self.penalty else fit
        return value, Report.of(trace.stats)

    def _augmented(self, context: Series, key) -> Series:
        """The context as training sees it."""
        if not self.hide and self.cut is None:
            return context
        one, two = jax.random.split(jax.random.fold_in(key, 1))
        observed = jnp.asarray(context.observed)
        if self.hide:
            observed = observed & jax.random.bernoulli(one, 1 - self.hide, observed.shape)
        if self.cut is not None:
            end = jax.random.uniform(two, (len(context), 1), minval=self.cut[0], maxval=self.cut[1])
            observed = observed & (context.times <= end)[..., None]
        return Series(context.times, jnp.where(observed, context.values, 0.0), observed, context.length)

    def first_states(self, model: Headed, batch: Query, key):
        trace = model.model(batch.context, batch.times, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def attention_path(self, model: Headed, batch: Query, key):
        return trace_attention(model.model(batch.context, batch.times, key, attention=True))

    def outputs(self, model: Headed, batch: Query, key):
        """Mean and log variance at the query times; several samples of a model become one Gaussian."""
        trace = model.model(batch.context, batch.times, key)
        return mixture(*predictions(model, trace.mask_failed()))

    def metrics(self, outputs, batch: Query, weight: Float[Array, " samples"]) -> dict[str, Array]:
        mean, log_variance = outputs
        counts = batch.scored * weight[:, None, None]
        total = jnp.maximum(jnp.sum(counts), 1)
        error = batch.values - mean
        inside = jnp.abs(error) <= 1.6448536 * jnp.exp(0.5 * log_variance)
        negll = gaussian_negative_log_likelihood(batch.values, mean, log_variance)

        def average(each):
            return jnp.sum(jnp.where(counts > 0, each, 0.0)) / total

        return {"mse": average(jnp.square(error)), "negll": average(negll), "coverage": average(inside)}


def predictions(model: Headed, trace: Trace) -> tuple[Array, Array]:
    """Mean and log variance at the query times; a model's own emission has the dropout of its trace."""
    if model.head is None and trace.keep is not None:
        of_series = jax.vmap(model.model.emission, in_axes=(0, None))
        return jax.vmap(jax.vmap(of_series), in_axes=(0, None))(trace.states, trace.keep)
    head = model.model.emission if model.head is None else model.head
    return jax.vmap(jax.vmap(jax.vmap(head)))(trace.states)


def mixture(mean: Float[Array, "samples ..."], log_variance: Float[Array, "samples ..."]) -> tuple[Array, Array]:
    """The Gaussian with the mean and variance of an even mixture."""
    centre = jnp.mean(mean, axis=0)
    variance = jnp.mean(jnp.exp(log_variance) + jnp.square(mean - centre), axis=0)
    return centre, jnp.log(jnp.maximum(variance, 1e-12))
