"""How the solve of each sample ended, and what it took."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


class Status(eqx.Enumeration):
    """How the solve of a sample ended: a sentence that names the fix."""

    solved = "solved"
    max_steps_reached = (
        "the solver used up its max_steps: raise max_steps, loosen rtol and atol or enlarge the step, or shrink the "
        "vector field"
    )
    step_too_small = (
        "the step size shrank to nothing: the vector field is stiff or blows up; loosen rtol and atol, use a fixed "
        "step, or lower the learning rate"
    )
    not_finite = (
        "the state became infinite or not a number: lower the learning rate or the step, check the inputs, or, if the "
        "attention starts from a correlation, call ode.fit_reference_statistics before predicting"
    )
    bad_times = (
        "the times are not finite, not sorted, or before the start: sort those of each sample, and repeat the last one "
        "where it has fewer than others"
    )


def status_where(pred: Bool[Array, "..."], yes: Status, no: Status) -> Status:
    """`Status.where`, per sample."""
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), yes, no)


class Stats(eqx.Module):
    """What the solver did for each sample.

    `status` holds a `Status` per sample: compare it with one (`stats.status == Status.solved`), or read the sentence of
    one sample (`stats.message(0)`). `evaluations` counts calls of the vector field (NFE, forward), `vjp_evaluations`
    the vector-Jacobian products that a gradient takes (NFE, backward); -1 where the method does not count them.
    """

    accepted: Int[Array, " batch"]
    rejected: Int[Array, " batch"]
    evaluations: Int[Array, " batch"]
    vjp_evaluations: Int[Array, " batch"]
    status: Status

    @property
    def failed(self) -> Array:
        return self.status != Status.solved

    def message(self, sample: int) -> str:
        """The status of one sample in words, with the fix."""
        return Status[jax.tree.map(lambda code: code[sample], self.status)]

    @classmethod
    def none(cls, batch: int) -> "Stats":
        """Of a batch that took no steps."""
        zero = jnp.zeros(batch, jnp.int32)
        return cls(zero, zero, zero, zero, status_where(zero == 0, Status.solved, Status.solved))
