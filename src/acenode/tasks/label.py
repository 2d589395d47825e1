"""One label for a whole series, such as mortality."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models.trace import Trace
from ..ode.fields import mlp
from ..series import Question
from .heads import Headed
from .metrics import average_precision, calibration_error, roc_auc
from .task import Report

ReadFrom = Literal["start", "end"]


class Labelled(eqx.Module):
    """A question about each series, and its label (0 or 1)."""

    question: Question
    label: Float[Array | np.ndarray, " batch"]


class LabelHead(eqx.Module):
    """A linear decoder for the states and a network with two hidden layers for the label."""

    decoder: eqx.nn.Linear
    classifier: eqx.nn.MLP

    def __init__(self, state: int, summary: int, variables: int, width: int = 300, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.decoder = eqx.nn.Linear(state, variables, key=one)
        self.classifier = mlp(summary, 1, width, 2, jax.nn.relu, key=two)


@dataclass(frozen=True)
class LabelSeries:
    """A binary label for each series, with the reconstruction loss of the Latent-ODE family beside it.

    Loss: `-logsumexp_k(R_k - c KL) + label_weight * cross entropy`, where R_k is the log likelihood of sample k under
    N(decoded, noise^2): mean over a variable's observed points, then over variables and records; c grows from 0 after
    `kl_from` epochs as 1 - 0.99^n.

    `read` says where the label is read: `start` is z(0), as published, so the generative ODE is not on the way to the
    label; `end` is the state at the last asked time, which puts it there.

    Metrics: `auc` of the mean probability over the samples, `auprc`, `calibration`, `cross_entropy`.
    """

    read: ReadFrom = "start"
    label_weight: float = 100.0
    noise: float = 0.01
    kl_from: int = 10
    monitor: str = "auc"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: Headed, batch: Labelled, key, epoch):
        trace = model.model(batch.question.known, batch.question.times, key)
        solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
        fit = self._log_likelihood(model, batch.question, trace, solved)
        c = jnp.where(epoch < self.kl_from, 0.0, 1 - 0.99 ** (epoch - self.kl_from).astype(fit.dtype))
        elbo = jax.nn.logsumexp(fit - c * jnp.mean(trace.penalty))
        logit = self._logits(model, trace)
        entropy = jax.nn.softplus(logit) - batch.label * logit
        entropy = jnp.sum(jnp.where(solved, entropy, 0.0)) / jnp.maximum(solved.sum(), 1)
        value = self.label_weight * entropy - elbo
        return value, Report.of(trace.stats)

    def first_states(self, model: Headed, batch: Labelled, key):
        trace = model.model(batch.question.known, batch.question.times, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def outputs(self, model: Headed, batch: Labelled, key):
        """The probability of the label, averaged over the samples of the model."""
        trace = model.model(batch.question.known, batch.question.times, key)
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

    def _log_likelihood(self, model: Headed, question: Question, trace: Trace, solved) -> Float[Array, " samples"]:
        decoded = jax.vmap(jax.vmap(jax.vmap(model.head.decoder)))(trace.states)
        error = jnp.square((question.values - decoded) / self.noise)
        each = -0.5 * (error + jnp.log(2 * jnp.pi * self.noise**2))
        seen = question.observed
        points = jnp.maximum(seen.sum(axis=1), 1)
        by_variable = jnp.sum(jnp.where(seen, each, 0.0), axis=2) / points
        by_record = jnp.where(solved, by_variable.mean(axis=-1), 0.0)
        return by_record.sum(axis=1) / jnp.maximum(solved.sum(axis=1), 1)
