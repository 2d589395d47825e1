"""A real number for each series, read from its summary."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..series import Series
from .heads import Headed
from .task import Report, trace_attention


class SeriesTarget(eqx.Module):
    """Series and the target of each."""

    series: Series
    target: Float[Array | np.ndarray, " batch"]


@dataclass(frozen=True)
class Regression:
    """Mean squared error of the target, from the summary of the series, plus `penalty` times the model's own penalty.

    The head is a network from the summary to one number. Metrics: `mse`; `mae`, the mean absolute error; `r2`, the
    coefficient of determination, NaN where all targets are equal. A model that samples answers with the mean.
    """

    penalty: float = 0.01
    monitor: str = "mse"
    better: Literal["lower", "higher"] = "lower"

    def loss(self, model: Headed, batch: SeriesTarget, key, epoch):
        trace = self._trace(model, batch, key)
        solved = ~trace.stats.failed.reshape(trace.summary.shape[:2])
        error = jnp.where(solved, self._read(model, trace) - batch.target, 0.0)
        fit = jnp.sum(jnp.square(error)) / jnp.maximum(solved.sum(), 1)
        return fit + self.penalty * jnp.mean(trace.penalty), Report.of(trace.stats)

    def first_states(self, model: Headed, batch: SeriesTarget, key):
        trace = self._trace(model, batch, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def attention_path(self, model: Headed, batch: SeriesTarget, key):
        return trace_attention(model.model(batch.series, jnp.asarray(batch.series.times), key, attention=True))

    def outputs(self, model: Headed, batch: SeriesTarget, key) -> Float[Array, " batch"]:
        """The predicted target."""
        return jnp.mean(self._read(model, self._trace(model, batch, key).mask_failed()), axis=0)

    def metrics(self, outputs, batch: SeriesTarget, weight: Float[Array, " samples"]) -> dict[str, Array]:
        target = jnp.asarray(batch.target)
        total = jnp.maximum(weight.sum(), 1)
        mse = jnp.sum(jnp.square(outputs - target) * weight) / total
        centre = jnp.sum(target * weight) / total
        variance = jnp.sum(jnp.square(target - centre) * weight) / total
        return {
            "mse": mse,
            "mae": jnp.sum(jnp.abs(outputs - target) * weight) / total,
            "r2": jnp.where(variance > 0, 1 - mse / jnp.where(variance > 0, variance, 1.0), jnp.nan),
        }

    def _trace(self, model: Headed, batch: SeriesTarget, key):
        return model.model(batch.series, jnp.asarray(batch.series.times)[:, -1:], key)

    def _read(self, model: Headed, trace) -> Float[Array, "samples batch"]:
        return jax.vmap(jax.vmap(model.head))(trace.summary)[..., 0]
