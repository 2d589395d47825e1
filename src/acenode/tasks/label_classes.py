"""One of several classes for a whole series, read from its summary."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..series import Series
from .heads import Headed
from .task import Report


class Classified(eqx.Module):
    """Series and the class of each, a number from 0."""

    series: Series
    label: Int[Array | np.ndarray, " batch"]


@dataclass(frozen=True)
class LabelClasses:
    """Cross entropy of the class, from the summary of the series, plus `penalty` times the model's own penalty.

    Metrics: `accuracy`, `cross_entropy`. A model that samples answers with the mean probability.
    """

    penalty: float = 0.01
    monitor: str = "cross_entropy"
    better: Literal["lower", "higher"] = "lower"

    def loss(self, model: Headed, batch: Classified, key, epoch):
        trace = self._trace(model, batch.series, key)
        solved = ~trace.stats.failed.reshape(trace.summary.shape[:2])
        each = -jnp.take_along_axis(self._logs(model, trace), jnp.asarray(batch.label)[None, :, None], axis=2)[..., 0]
        value = jnp.sum(jnp.where(solved, each, 0.0)) / jnp.maximum(solved.sum(), 1)
        return value + self.penalty * jnp.mean(trace.penalty), Report.of(trace.stats)

    def first_states(self, model: Headed, batch: Classified, key):
        trace = self._trace(model, batch.series, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def outputs(self, model: Headed, batch: Classified, key) -> Float[Array, "batch classes"]:
        """The probability of each class."""
        return jnp.mean(jnp.exp(self._logs(model, self._trace(model, batch.series, key).mask_failed())), axis=0)

    def metrics(self, outputs, batch: Classified, weight) -> dict[str, Array]:
        label = jnp.asarray(batch.label)
        right = jnp.argmax(outputs, axis=-1) == label
        chosen = jnp.take_along_axis(outputs, label[:, None], axis=1)[:, 0]
        entropy = -jnp.log(jnp.maximum(chosen, 1e-7))
        total = jnp.maximum(weight.sum(), 1)
        return {"accuracy": jnp.sum(right * weight) / total, "cross_entropy": jnp.sum(entropy * weight) / total}

    def _trace(self, model: Headed, series: Series, key):
        return model.model(series, jnp.asarray(series.times)[:, -1:], key)

    def _logs(self, model: Headed, trace) -> Float[Array, "samples batch classes"]:
        return jax.nn.log_softmax(jax.vmap(jax.vmap(model.head))(trace.summary), axis=-1)
