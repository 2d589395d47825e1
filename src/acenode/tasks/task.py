"""`Task`: what a model is trained for."""

from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..models.trace import Trace
from ..ode import Stats


class Report(eqx.Module):
    """What one evaluation of the loss tells besides its value."""

    failed: Int[Array, ""]  # samples whose solve failed, left out of the loss
    evaluations: Float[Array, ""]  # calls of the vector field, mean over the samples
    vjp_evaluations: Float[Array, ""]  # those with a vector-Jacobian product, in the backward pass

    @classmethod
    def of(cls, stats: Stats) -> "Report":
        means = (jnp.mean(counts.astype(float)) for counts in (stats.evaluations, stats.vjp_evaluations))
        return cls(jnp.sum(stats.failed), *means)


@runtime_checkable
class Task(Protocol):
    """A loss to train on, metrics to evaluate by, and the one of them that selects.

    A batch is whatever arrays the task needs, with a leading sample axis on each.
    """

    @property
    def monitor(self) -> str:
        """The name of the validation metric that chooses the best parameters."""
        ...

    @property
    def better(self) -> Literal["lower", "higher"]: ...

    def loss(self, model: Any, batch: Any, key: PRNGKeyArray, epoch: Int[Array, ""]) -> tuple[Array, Report]:
        """The mini-batch loss L_h, without the samples whose solve failed."""
        ...

    def first_states(self, model: Any, batch: Any, key: PRNGKeyArray) -> tuple[Array, Array] | None:
        """h(0) and times of the model's ODE on this batch, for batch statistics; `None` without an ODE."""
        ...

    def outputs(self, model: Any, batch: Any, key: PRNGKeyArray) -> Any:
        """What `metrics` needs of every sample; a leading sample axis on each array."""
        ...

    def metrics(self, outputs: Any, batch: Any, weight: Float[Array, " samples"]) -> dict[str, Array]:
        """Metrics over all samples of weight 1; those of weight 0 are padding."""
        ...


@runtime_checkable
class AttentionTask(Protocol):
    """A task that can show the attention of a model, for its health."""

    def attention_path(self, model: Any, batch: Any, key: PRNGKeyArray) -> tuple[Array, Array]:
        """States and attention states at the query times: (batch, times, ...) each."""
        ...


def trace_attention(trace: Trace) -> tuple[Array, Array]:
    """States and attention states of a time-series model; of its first sample, if it draws several."""
    assert trace.attention is not None
    return trace.states[0], trace.attention[0]
