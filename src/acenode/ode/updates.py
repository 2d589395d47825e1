"""What an observation does to the attention: the kinds of updates, and those of attentions between rows.

An update belongs to theta_g. Those of fast weights, of the least-squares attention and of a covariance are beside these
forms.
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import mlp
from .attention import Attention
from .signed import Signed


class AttentionUpdate(eqx.Module):
    """An `update` of a `CoEvolvingODE` that is given its attention too, for one sample."""

    @abstractmethod
    def __call__(
        self, attention: Attention, a: Float[Array, "..."], before: Float[Array, "..."], after: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """a after an observation that changed h from `before` to `after`."""


class Assimilation(eqx.Module):
    """An `update` that takes observed values and changes hidden state and attention together, for one sample."""

    @abstractmethod
    def __call__(
        self, h: Float[Array, "..."], a: Float[Array, "..."], x: Float[Array, " variables"], observed: Array
    ) -> tuple[Array, Array]:
        """h and a after a row of values, of which those `observed` count."""


class Correction(eqx.Module):
    """An `update` that changes hidden state and attention by how far observed values are from those that the model
    reads from h, before the model's own jump, for one sample."""

    @abstractmethod
    def __call__(
        self,
        h: Float[Array, "..."],
        a: Float[Array, "..."],
        x: Float[Array, " variables"],
        observed: Array,
        read: Callable,
    ) -> tuple[Array, Array]:
        """h and a after a row of values, of which those `observed` count; `read(h)` are the values expected."""


class MessageDeltaRule(AttentionUpdate):
    """The delta rule for `Signed`: where an observation moves row i by e_i, the weights of messages that would have
    moved it the same way grow,

        a_kij <- a_kij + eta <e_i, m_kij> / (eps + sum over j and heads k of |m_kij|^2),

    with a learned rate eta. With eta = 1 and messages that act for a unit of time, the step explains e_i.
    """

    log_rate: Float[Array, ""]

    def __init__(self, rate: float = 0.1):
        self.log_rate = jnp.log(jnp.asarray(rate, float))

    def __call__(
        self, attention: Attention, a: Float[Array, "*k n n"], before: Float[Array, "n c"], after: Float[Array, "n c"]
    ) -> Float[Array, "*k n n"]:
        if not isinstance(attention, Signed):
            raise ValueError(f"MessageDeltaRule: the attention is {type(attention).__name__}; give Signed.")
        rows, channels = before.shape
        messages = attention.messages(before).reshape(rows, rows, attention.heads, channels)
        messages = messages * (1 - jnp.eye(rows, dtype=a.dtype))[:, :, None, None]  # none from a row to itself
        same_way = jnp.einsum("ic,ijkc->kij", after - before, messages)
        size = jnp.einsum("ijkc,ijkc->i", messages, messages)
        return a + (jnp.exp(self.log_rate) * same_way / (1e-6 + size[:, None])).reshape(a.shape)


class PairUpdate(eqx.Module):
    """A learned jump of an attention between rows (`Pairwise`, `Signed` with one head):

        a_ij <- a_ij + z_ij (c_ij - a_ij)

    Gate z and candidate c are read by one network for all pairs from rows i and j before the observation, and from what
    it changed in them. The gate is nearly closed at first. A state without channels has rows of one number.
    """

    network: eqx.nn.MLP

    def __init__(self, channels: int = 1, width: int = 16, *, key: PRNGKeyArray):
        self.network = mlp(4 * channels, 2, width, 1, key=key)

    def __call__(
        self, a: Float[Array, "n n"], before: Float[Array, "n *c"], after: Float[Array, "n *c"]
    ) -> Float[Array, "n n"]:
        rows = jnp.concatenate([x.reshape(len(a), -1) for x in (before, after - before)], axis=1)
        shape = (len(a), *rows.shape)
        pairs = [jnp.broadcast_to(x, shape) for x in (rows[:, None], rows[None])]
        gate, candidate = jnp.moveaxis(jax.vmap(jax.vmap(self.network))(jnp.concatenate(pairs, axis=-1)), -1, 0)
        return a + jax.nn.sigmoid(gate - 3.0) * (candidate - a)
