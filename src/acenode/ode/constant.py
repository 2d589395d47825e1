"""Arrays that belong to a model but are measured, not trained."""

import equinox as eqx
import jax
from jaxtyping import Array


class Constant(eqx.Module):
    """An array without a gradient, which `fit` leaves alone: no weight decay, no penalty.

    Training of one's own has to leave it alone too: `acenode.train.groups` names every array's group.
    """

    array: Array

    @property
    def value(self) -> Array:
        return jax.lax.stop_gradient(self.array)
