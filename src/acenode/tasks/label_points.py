"""A class for every point of a series, such as what a person is doing."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..series import Series
from .heads import Headed
from .metrics import roc_auc
from .task import Report


class PointLabels(eqx.Module):
    """Series, the class of each of their rows, and which rows have one."""

    series: Series
    label: Int[Array | np.ndarray, "batch rows"]
    labelled: Bool[Array | np.ndarray, "batch rows"]


@dataclass(frozen=True)
class LabelPoints:
    """Cross entropy of the class of each labelled row, read from the state at its time.

    Metrics over the labelled rows: `accuracy`; `auc`, the mean over the classes of the area under the curve of one
    against the rest; `cross_entropy`. A model that samples answers with the mean probability. `penalty` is the weight
    of the model's own penalty; the published runs leave it out.
    """

    penalty: float = 0.0
    monitor: str = "accuracy"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: Headed, batch: PointLabels, key, epoch):
        trace = self._trace(model, batch, key)
        solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
        label = jnp.broadcast_to(jnp.asarray(batch.label), trace.states.shape[:3])
        each = -jnp.take_along_axis(self._logs(model, trace), label[..., None], axis=-1)[..., 0]
        counts = solved[..., None] & jnp.asarray(batch.labelled)
        value = jnp.sum(jnp.where(counts, each, 0.0)) / jnp.maximum(counts.sum(), 1)
        return value + self.penalty * jnp.mean(trace.penalty), Report.of(trace.stats)

    def first_states(self, model: Headed, batch: PointLabels, key):
        trace = self._trace(model, batch, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def outputs(self, model: Headed, batch: PointLabels, key) -> Float[Array, "batch rows classes"]:
        """The probability of each class at each row."""
        return jnp.mean(jnp.exp(self._logs(model, self._trace(model, batch, key).mask_failed())), axis=0)

    def metrics(self, outputs, batch: PointLabels, weight) -> dict[str, Array]:
        classes = outputs.shape[-1]
        counts = (jnp.asarray(batch.labelled) * weight[:, None]).reshape(-1)
        label, p = jnp.asarray(batch.label).reshape(-1), outputs.reshape(-1, classes)
        right = jnp.argmax(p, axis=-1) == label
        entropy = -jnp.log(jnp.maximum(jnp.take_along_axis(p, label[:, None], axis=1)[:, 0], 1e-7))
        one_hot = jax.nn.one_hot(label, classes)
        areas = jax.vmap(roc_auc, in_axes=(1, 1, None))(p, one_hot, counts)
        present = jnp.sum(one_hot * counts[:, None], axis=0) > 0
        total = jnp.maximum(counts.sum(), 1)
        return {
            "accuracy": jnp.sum(right * counts) / total,
            "auc": jnp.sum(areas * present) / jnp.maximum(present.sum(), 1),
            "cross_entropy": jnp.sum(entropy * counts) / total,
        }

    def _trace(self, model: Headed, batch: PointLabels, key):
        return model.model(batch.series, jnp.asarray(batch.series.times), key)

    def _logs(self, model: Headed, trace) -> Float[Array, "samples batch rows classes"]:
        return jax.nn.log_softmax(jax.vmap(jax.vmap(jax.vmap(model.head)))(trace.states), axis=-1)
