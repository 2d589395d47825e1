"""One label for a whole series, such as mortality."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import mlp
from ..models.trace import Trace
from ..series import Query
from .elbo import negative_elbo
from .heads import Headed
from .hidden import hidden
from .metrics import average_precision, calibration_error, roc_auc
from .task import Report

ReadFrom = Literal["start", "end"]


class Labelled(eqx.Module):
    """A question about each series, and its label (0 or 1)."""

    query: Query
    label: Float[Array | np.ndarray, " batch"]


class LabelHead(eqx.Module):
    """A decoder for the states and a network with two hidden layers for the label."""

    decoder: Callable
    classifier: eqx.nn.MLP

    def __init__(self, decoder: Callable, summary: int, width: int = 300, *, key: PRNGKeyArray):
        self.decoder = decoder
        self.classifier = mlp(summary, 1, width, 2, jax.nn.relu, key=key)


@dataclass(frozen=True)
class LabelSeries:
    """A binary label for each series, with the reconstruction loss of the Latent-ODE family beside it.

    Loss: `label_weight * cross entropy` plus the negative evidence lower bound (`elbo.negative_elbo`).

    `read` says where the label is read: `start` is z(0), as published, so the generative ODE is not on the way to the
    label; `end` is the state at the last asked time, which puts it there.

    `hide` is the part of the variables of each series that is hidden from the model while it trains, drawn anew at
    every step.

    Metrics: `auc` of the mean probability over the samples, `auprc`, `calibration`, `cross_entropy`.
    """

    read: ReadFrom = "start"
    label_weight: float = 100.0
    noise: float = 0.01
    kl_from: int = 10
    hide: float = 0.0
    monitor: str = "auc"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: Headed, batch: Labelled, key, epoch):
        trace = model.model(hidden(batch.query.context, self.hide, key), batch.query.times, key)
        solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
        bound = negative_elbo(model.head, batch.query, trace, epoch, self.noise, self.kl_from)
        logit = self._logits(model, trace)
        entropy = jax.nn.softplus(logit) - batch.label * logit
        entropy = jnp.sum(jnp.where(solved, entropy, 0.0)) / jnp.maximum(solved.sum(), 1)
        return self.label_weight * entropy + bound, Report.of(trace.stats)

    def first_states(self, model: Headed, batch: Labelled, key):
        trace = model.model(batch.query.context, batch.query.times, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def outputs(self, model: Headed, batch: Labelled, key):
        """The probability of the label, averaged over the samples of the model."""
        trace = model.model(batch.query.context, batch.query.times, key)
        trace = trace.mask_failed() if self.read == "end" else trace  # z(0) does not hang on the solve
        return jnp.mean(jax.nn.sigmoid(self._logits(model, trace)), axis=0)

    def metrics(self, outputs, batch: Labelled, weight) -> dict[str, Array]:
        p, y = outputs, jnp.asarray(batch.label)
        safe = jnp.clip(p, 1e-7, 1 - 1e-7)
        entropy = -(y * jnp.log(safe) + (1 - y) * jnp.log(1 - safe))
        return {
            "auc": roc_auc(p, y, weight),
            "auprc": average_precision(p, y, weight),
            "calibration": calibration_error(p, y, weight),
            "cross_entropy": jnp.sum(entropy * weight) / jnp.maximum(weight.sum(), 1),
        }

    def _logits(self, model: Headed, trace: Trace) -> Float[Array, "samples batch"]:
        features = trace.summary if self.read == "start" else trace.states[:, :, -1]
        return jax.vmap(jax.vmap(model.head.classifier))(features)[..., 0]
