"""How an attention state acts on a hidden state: Equations 4 and 5, and the interface of all forms."""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Attention(eqx.Module):
    """What a `CoEvolvingODE` asks of a form of attention, written for one sample. A form is one class with these three.

    Its parameters, if it has any, are trained with theta_f.
    """

    # True: the attended state follows from h and a number by number, so what evaluates fields for a whole batch may
    # inline it. A subclass says so again; one with arrays of its own is evaluated sample by sample.
    elementwise: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, h: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
        """The attended state, from a hidden state and an attention state."""

    @abstractmethod
    def weights(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        """The attention itself, to be shown and compared; `a` may have leading axes."""

    @abstractmethod
    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of `a` for a state of shape `h_shape`."""

    def output(self, h: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
        """What a model reads out of both: h itself, unless the attention knows more of it."""
        return h

    def of_weights(self, a: Float[Array, "..."], given: Float[Array, "..."]) -> Float[Array, "..."]:
        """The attention state `a` with the numbers `given` in the place of those that `weights` shows."""
        return given


class Pairwise(Attention):
    """Attention between the dimensions of h, Equation 4: `h' = h softmax(a)^T`.

    `a` is H x H for each sample; row i of `weights(a)` says how dimension i attends to all dimensions and adds
    up to one. A state of shape (H, C), such as H regions with C numbers each, is attended over its first axis.

    `temperature` divides the logits before the softmax. The paper has 1; correlations lie in [-1, 1], so their
    softmax is nearly uniform, and a lower temperature concentrates it.
    """

    temperature: float = eqx.field(static=True, default=1.0)

    def weights(self, a: Float[Array, "*batch h h"]) -> Float[Array, "*batch h h"]:
        return jax.nn.softmax(a / self.temperature, axis=-1)

    def __call__(self, h: Float[Array, "h *rest"], a: Float[Array, "h h"]) -> Float[Array, "h *rest"]:
        return jnp.tensordot(self.weights(a), h, axes=1)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (h_shape[0], h_shape[0])


class Elementwise(Attention):
    """Attention on every element of h, Equation 5: `h'' = h * sigmoid(a)`. `a` has the shape of h."""

    elementwise: ClassVar[bool] = True

    def weights(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.sigmoid(a)

    def __call__(self, h: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
        return h * self.weights(a)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        return h_shape


class Residual(Attention):
    """Any attention, mixed in by a learned amount: `h + gamma * (attention(h, a) - h)`, gamma being 0 at first.

    With gamma 0 it is the ODE without attention, to the bit, so that it can be worse by its training only.
    """

    attention: Attention
    gamma: Float[Array, ""]

    def __init__(self, attention: Attention):
        self.attention = attention
        self.gamma = jnp.zeros(())

    def weights(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.attention.weights(a)

    def __call__(self, h: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
        return h + self.gamma * (self.attention(h, a) - h)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.attention.shape(h_shape)
