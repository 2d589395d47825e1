"""How an attention state acts on a hidden state: Equations 4 and 5."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Pairwise(eqx.Module):
    """Attention between the dimensions of h, Equation 4: `h' = h softmax(a)^T`.

    `a` is H x H for each sample; row i of `weights(a)` says how dimension i attends to all dimensions and adds
    up to one. A state of shape (H, C), such as H regions with C numbers each, is attended over its first axis.

    `temperature` divides the logits before the softmax. The paper has 1; correlations lie in [-1, 1], so their
    softmax is nearly uniform, and a lower temperature concentrates it.
    """

    temperature: float = eqx.field(static=True, default=1.0)

    def weights(self, a: Float[Array, "*batch h h"]) -> Float[Array, "*batch h h"]:
        """The attention itself."""
        return jax.nn.softmax(a / self.temperature, axis=-1)

    def __call__(self, h: Float[Array, "h *rest"], a: Float[Array, "h h"]) -> Float[Array, "h *rest"]:
        return jnp.tensordot(self.weights(a), h, axes=1)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of `a` for a state of shape `h_shape`."""
        return (h_shape[0], h_shape[0])


class Elementwise(eqx.Module):
    """Attention on every element of h, Equation 5: `h'' = h * sigmoid(a)`. `a` has the shape of h."""

    def weights(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        """The attention itself."""
        return jax.nn.sigmoid(a)

    def __call__(self, h: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
        return h * self.weights(a)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of `a` for a state of shape `h_shape`."""
        return h_shape
