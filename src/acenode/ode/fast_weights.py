"""Fast weights: an attention of low rank that is written by the delta rule and read by queries.

Head k holds a d x d matrix A_k, its attention state, which maps normalised queries to what is attended. Between
observations it follows an ODE of its own, and an observation writes into it once more.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear
from .attention import Attention
from .fields import VectorField


def _normalised(x: Float[Array, " kd"], heads: int) -> Float[Array, "k d"]:
    """phi: SiLU, then length 1 in every head."""
    x = jax.nn.silu(x).reshape(heads, -1)
    return x / jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + 1e-6)


class FastWeights(Attention):
    """What the heads answer to queries of the state: `h' = [A_1 phi(q_1), ..., A_K phi(q_K)]`, `q = W h`.

    The attended state has K d numbers, for an f that is conditioned on it, such as `ConditionedGRUField`.
    """

    query: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, size: int, heads: int = 4, width: int = 16, *, key: PRNGKeyArray):
        self.query = Linear(size, heads * width, use_bias=False, key=key)
        self.heads = heads

    def weights(self, a: Float[Array, "*batch k d d"]) -> Float[Array, "*batch k d d"]:
        return a

    def __call__(self, h: Float[Array, " h"], a: Float[Array, "k d d"]) -> Float[Array, " kd"]:
        return jnp.einsum("kij,kj->ki", a, _normalised(self.query(h), self.heads)).ravel()

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        width = self.query.weight.shape[0] // self.heads
        return (self.heads, width, width)


class DeltaRule(VectorField):
    """g of fast weights: `dA/dt = beta (v - A phi(k)) phi(k)^T - rho A`.

    Keys, values and the rate of writing beta are read from h; the rate of forgetting rho of each head is learned.
    """

    keys: Linear
    values: Linear
    rate: Linear
    log_forgetting: Float[Array, " k"]
    takes = ("state", "attention")

    def __init__(self, size: int, heads: int = 4, width: int = 16, forgetting: float = 0.1, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.keys = Linear(size, heads * width, use_bias=False, key=one)
        self.values = Linear(size, heads * width, use_bias=False, key=two)
        self.rate = Linear(size, heads, key=three)
        self.log_forgetting = jnp.full(heads, jnp.log(forgetting))

    def __call__(self, t, h: Float[Array, " h"], a: Float[Array, "k d d"]) -> Float[Array, "k d d"]:
        beta = jax.nn.sigmoid(self.rate(h))[:, None, None]
        key, value = _normalised(self.keys(h), len(a)), self.values(h).reshape(len(a), -1)
        return beta * _correction(a, key, value) - jnp.exp(self.log_forgetting)[:, None, None] * a


class DeltaRuleUpdate(eqx.Module):
    """What an observation writes into fast weights: `A <- A + beta (v - A phi(k)) phi(k)^T`.

    The key is read from h before the observation, value and beta from how the observation changed it.
    """

    keys: Linear
    values: Linear
    rate: Linear

    def __init__(self, size: int, heads: int = 4, width: int = 16, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.keys = Linear(size, heads * width, use_bias=False, key=one)
        self.values = Linear(size, heads * width, use_bias=False, key=two)
        self.rate = Linear(size, heads, key=three)

    def __call__(
        self, a: Float[Array, "k d d"], before: Float[Array, " h"], after: Float[Array, " h"]
    ) -> Float[Array, "k d d"]:
        beta = jax.nn.sigmoid(self.rate(after - before))[:, None, None]
        key, value = _normalised(self.keys(before), len(a)), self.values(after - before).reshape(len(a), -1)
        return a + beta * _correction(a, key, value)


def _correction(a, key, value) -> Float[Array, "k d d"]:
    error = value - jnp.einsum("kij,kj->ki", a, key)
    return error[:, :, None] * key[:, None, :]
