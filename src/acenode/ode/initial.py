"""The first attention a(0) = q(h(0)).

Every q takes the first states of a whole batch, because one of them, `Correlation`, is a statistic of the batch.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear
from .constant import Constant
from .conv.layers import Conv, ConvPrecision, GroupNorm

_FLAT = 1e-6  # a dimension with a smaller standard deviation counts as constant


def correlation(h: Float[Array, "batch h *rest"]) -> Float[Array, "h h"]:
    """Pearson correlation between the dimensions of h, the samples being the observations.

    A state of shape (H, C) gives the correlation between its H rows, channels counting as further observations.
    A constant dimension is uncorrelated with all others and has 1 on the diagonal; so a batch of one gives the
    identity. No gradient flows through it.
    """
    h = jax.lax.stop_gradient(h)
    x = jnp.moveaxis(h, 1, -1).reshape(-1, h.shape[1])
    x = x - x[:1]  # a constant dimension becomes exactly zero, which its mean, being rounded, would not give
    x = x - x.mean(axis=0)
    sd = jnp.sqrt(jnp.mean(jnp.square(x), axis=0))
    varies = sd > _FLAT
    z = jnp.where(varies, x / jnp.where(varies, sd, 1.0), 0.0)
    c = jnp.clip(z.T @ z / x.shape[0], -1.0, 1.0)
    return jnp.fill_diagonal(c, 1.0, inplace=False)


class Correlation(eqx.Module):
    """The correlation matrix of h(0): the paper's choice for time series.

    While training, over the mini-batch. In inference mode (`equinox.nn.inference_mode`) a stored `reference`,
    measured on training data by `fit_reference_statistics`, so that the attention never depends on the rest of a
    batch. `fit` does that; before, predictions are NaN.
    """

    reference: Constant
    inference: bool

    def __init__(self, size: int, inference: bool = False, *, reference: Float[Array, "h h"] | None = None):
        self.reference = Constant(jnp.full((size, size), jnp.nan) if reference is None else reference)
        self.inference = inference

    def __call__(self, h0: Float[Array, "batch h *rest"]) -> Float[Array, "batch h h"]:
        matrix = self.reference.value if self.inference else correlation(h0)
        size = self.reference.value.shape[-1]
        if h0.shape[1] != size:
            raise ValueError(f"Correlation({size}): h0 has shape {h0.shape}; give Correlation({h0.shape[1]}).")
        return jnp.broadcast_to(matrix, (h0.shape[0], *matrix.shape)).astype(h0.dtype)

    def fit_reference_statistics(self, h0: Float[Array, "batch h *rest"]) -> "Correlation":
        """The same q with the correlation of these first states as its reference."""
        return eqx.tree_at(lambda q: q.reference, self, Constant(correlation(h0)))


class Dense(eqx.Module):
    """A fully connected layer from h(0) to a(0), without bias: the paper's "FC" ablation."""

    linear: Linear
    size: int = eqx.field(static=True)

    def __init__(self, size: int, *, key: PRNGKeyArray):
        self.linear = Linear(size, size * size, use_bias=False, key=key)
        self.size = size

    def __call__(self, h0: Float[Array, "batch h"]) -> Float[Array, "batch h h"]:
        return jax.vmap(self.linear)(h0).reshape(-1, self.size, self.size)


class ConvInitial(eqx.Module):
    """Convolutions from a feature map h(0), channels last, to a(0): GN, ReLU, Conv, GN, ReLU, [Conv,] GN.

    `precision` is that of the convolutions (`Conv`).
    """

    norms: tuple[GroupNorm, ...]
    convs: tuple[Conv, ...]

    def __init__(self, channels: int, convs: int = 2, *, precision: ConvPrecision | None = None, key: PRNGKeyArray):
        if convs not in (1, 2):
            raise ValueError(f"ConvInitial(convs={convs}): 1 or 2.")
        self.norms = tuple(GroupNorm(channels) for _ in range(3))
        keys = jax.random.split(key, convs)
        self.convs = tuple(Conv(channels, channels, precision=precision, key=k) for k in keys)

    def __call__(self, h0: Float[Array, "batch y x channels"]) -> Float[Array, "batch y x channels"]:
        return jax.vmap(self._one)(h0)

    def _one(self, h):
        h = self.convs[0](jax.nn.relu(self.norms[0](h)))
        h = jax.nn.relu(self.norms[1](h))
        if len(self.convs) == 2:
            h = self.convs[1](h)
        return self.norms[2](h)


class Zeros(eqx.Module):
    """An attention that begins as zeros of the given shape."""

    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, h0: Float[Array, "batch h *rest"]) -> Float[Array, "batch ..."]:
        return jnp.zeros((h0.shape[0], *self.shape), h0.dtype)


class Learned(eqx.Module):
    """An attention that begins as learned numbers, the same for every sample."""

    value: Float[Array, "..."]

    def __call__(self, h0: Float[Array, "batch h *rest"]) -> Float[Array, "batch ..."]:
        return jnp.broadcast_to(self.value, (h0.shape[0], *self.value.shape)).astype(h0.dtype)


class Identity(eqx.Module):
    """Every dimension attends to itself: a(0) = `logit` times the identity matrix.

    Under `Pairwise` the default logit makes the softmax exactly the identity; 0 makes it uniform.
    """

    logit: float = eqx.field(static=True, default=1e3)

    def __call__(self, h0: Float[Array, "batch h *rest"]) -> Float[Array, "batch h h"]:
        eye = self.logit * jnp.eye(h0.shape[1], dtype=h0.dtype)
        return jnp.broadcast_to(eye, (h0.shape[0], *eye.shape))
