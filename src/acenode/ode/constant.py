"""Arrays that belong to a model but are measured, not trained."""

import equinox as eqx
import jax
from jaxtyping import Array


class Constant(eqx.Module):
    """An array that training leaves alone: no gradient, no weight decay, no penalty."""

    array: Array

    @property
    def value(self) -> Array:
        return jax.lax.stop_gradient(self.array)
