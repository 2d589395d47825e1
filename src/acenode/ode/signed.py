"""Signed messages between rows: who pulls and who pushes whom."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import mlp
from .attention import Attention
from .fields import RowField, VectorField


class Signed(Attention):
    """Messages between the rows of a (rows, channels) state, weighted without a softmax:

        h'_i = sum over j != i and heads k of a_kij m_k(h_i, h_j)

    Every m_k is one network for all pairs of rows; a weight may be negative, and there is none from a row to itself.
    `a` has the shape (rows, rows), with several heads (heads, rows, rows).
    """

    message: eqx.nn.MLP
    heads: int = eqx.field(static=True)

    def __init__(self, channels: int, heads: int = 1, width: int = 32, hidden: int = 1, *, key: PRNGKeyArray):
        self.message = mlp(2 * channels, heads * channels, width, hidden, key=key)
        self.heads = heads

    def messages(self, h: Float[Array, "n c"]) -> Float[Array, "n n kc"]:
        """m(h_i, h_j) for all pairs, those of all heads side by side."""
        count, channels = h.shape
        to, from_ = (jnp.broadcast_to(x, (count, count, channels)) for x in (h[:, None], h[None]))
        return jax.vmap(jax.vmap(self.message))(jnp.concatenate([to, from_], axis=-1))

    def weights(self, a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
        return a * (1 - jnp.eye(a.shape[-1], dtype=a.dtype))

    def __call__(self, h: Float[Array, "n c"], a: Float[Array, "*k n n"]) -> Float[Array, "n c"]:
        messages = self.messages(h).reshape(len(h), len(h), self.heads, h.shape[1])
        return jnp.einsum("kij,ijkc->ic", self.weights(a).reshape(self.heads, len(h), len(h)), messages)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        square = (h_shape[0], h_shape[0])
        return square if self.heads == 1 else (self.heads, *square)


class MessageField(VectorField):
    """f of rows that move by themselves and by messages: `dh_i/dt = L_i h_i + b(h_i, e_i) + h'_i`.

    L_i is a matrix of each row, 0 at first; b is one network for all rows and e_i a learned place that tells them apart
    (`RowField`).
    """

    linear: Float[Array, "n c c"]
    own: RowField
    takes = ("attended", "state")

    def __init__(self, shape: tuple[int, int], width: int = 32, hidden: int = 1, rank: int = 2, *, key: PRNGKeyArray):
        rows, channels = shape
        self.linear = jnp.zeros((rows, channels, channels))
        self.own = RowField(shape, width, hidden, rank, key=key)

    def __call__(self, t, attended: Float[Array, "n *m c"], h: Float[Array, "n c"]) -> Float[Array, "n c"]:
        # A least-squares attention has the messages themselves after their sum.
        influence = attended if attended.ndim == 2 else attended[:, 0]
        return (self.linear * h[:, None]).sum(axis=2) + self.own(t, h) + influence
