"""Forms of g' for pairwise attention: from the attended state to the H x H derivative of the attention.

The paper says only "the same architecture as f'", which gives H numbers where H x H are needed.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Init, Linear, mlp, scale_last
from .fields import GRUField, MLPField, VectorField, evaluate_field


class GRULinear(eqx.Module):
    """A continuous GRU on h', then a bias-free linear map to H x H: g' for the GRU-ODE family."""

    cell: GRUField
    linear: Linear

    def __init__(self, size: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.cell = GRUField(size, key=one)
        self.linear = Linear(size, size * size, use_bias=False, key=two)

    def __call__(self, t, h: Float[Array, " h"]) -> Float[Array, "h h"]:
        return self.spread(self.cell(t, h))

    def spread(self, c: Float[Array, " h"]) -> Float[Array, "h h"]:
        """The linear map."""
        return self.linear(c).reshape(c.size, c.size)


class GRURows(VectorField):
    """Every row of a is the hidden state of one continuous GRU that is given h'; |a| <= 1 is kept."""

    hidden: Linear
    inputs: Linear
    candidate: Linear
    takes = ("attended", "attention")

    def __init__(self, size: int, *, key: PRNGKeyArray):
        k1, k2, k3 = jax.random.split(key, 3)
        self.inputs = Linear(size, 3 * size, use_bias=False, key=k1)
        self.hidden = Linear(size, 2 * size, use_bias=False, key=k2)
        self.candidate = Linear(size, size, use_bias=False, key=k3)

    def __call__(self, t, h: Float[Array, " h"], a: Float[Array, "h h"]) -> Float[Array, "h h"]:
        x_reset, x_update, x_candidate = jnp.split(self.inputs(h), 3)
        a_reset, a_update = jnp.split(jax.vmap(self.hidden)(a), 2, axis=-1)
        r = jax.nn.sigmoid(x_reset + a_reset)
        z = jax.nn.sigmoid(x_update + a_update)
        u = jnp.tanh(x_candidate + jax.vmap(self.candidate)(r * a))
        return (1 - z) * (u - a)


class QueryKey(VectorField):
    """One small network for all rows: `da_ij/dt = q(i) . k(j) / sqrt(rank) - decay * a_ij`.

    Every dimension i has a learned place e_i; q and k are networks of (e_i, h'_i, t), shared by all dimensions, so
    the number of parameters grows with H, not with H^2. The decay keeps the logits bounded; it is learned and
    positive. At first g is nearly zero, so training starts from a frozen attention, not from a random one.
    """

    places: Float[Array, "h rank"]
    queries: eqx.nn.MLP
    keys: eqx.nn.MLP
    log_decay: Float[Array, ""]
    timed: bool = eqx.field(static=True)
    takes = ("attended", "attention")

    def __init__(
        self,
        shape: int | tuple[int, ...],
        rank: int = 8,
        width: int = 32,
        hidden: int = 1,
        *,
        timed: bool = False,
        key: PRNGKeyArray,
    ):
        size, *rest = (shape,) if isinstance(shape, int) else shape
        channels = rest[0] if rest else 1
        k1, k2, k3 = jax.random.split(key, 3)
        self.places = jax.random.normal(k1, (size, rank)) / jnp.sqrt(rank)
        self.queries = scale_last(mlp(rank + channels + timed, rank, width, hidden, key=k2), 0.1)
        self.keys = mlp(rank + channels + timed, rank, width, hidden, key=k3)
        self.log_decay = jnp.log(jnp.asarray(0.1))
        self.timed = timed

    def __call__(self, t, h: Float[Array, "h *c"], a: Float[Array, "h h"]) -> Float[Array, "h h"]:
        rows = [self.places, h.reshape(h.shape[0], -1)]
        if self.timed:
            rows.append(jnp.full((h.shape[0], 1), t, h.dtype))
        x = jnp.concatenate(rows, axis=1)
        q, k = jax.vmap(self.queries)(x), jax.vmap(self.keys)(x)
        return q @ k.T / jnp.sqrt(q.shape[1]) - jnp.exp(self.log_decay) * a


class SelfDecay(VectorField):
    """A g of the attended state, and perhaps of a, with a decay of its own: `da/dt = g(t, h') - rate * a`. The rate is
    learned and positive.

    A logit that only adds up diverges, its softmax saturates and its gradient vanishes; the decay forgets.
    """

    g: Callable
    log_rate: Float[Array, ""]
    takes = ("attended", "attention")

    def __init__(self, g: Callable, rate: float = 1.0):
        self.g = g
        self.log_rate = jnp.log(jnp.asarray(rate))

    def __call__(self, t, h: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
        return evaluate_field(self.g, t, h, None, a) - jnp.exp(self.log_rate) * a


def pairwise_field(
    form: str,
    size: int,
    width: int = 50,
    hidden: int = 3,
    *,
    timed: bool = False,
    init: Init = "uniform",
    key: PRNGKeyArray,
):
    """g' by name, for a state of `size` dimensions.

    - `linear_h2`: the hidden layers of f' and a last layer of width H^2 (the default reading of the paper);
    - `gru_linear`: a continuous GRU and a linear map to H^2;
    - `gru_rows`: each row of a is the state of a continuous GRU;
    - `query_key`: shared over rows, its size does not grow with H^2.
    """
    if form == "linear_h2":
        return MLPField(size, width, hidden, out=(size, size), timed=timed, init=init, key=key)
    if form == "gru_linear":
        return GRULinear(size, key=key)
    if form == "gru_rows":
        return GRURows(size, key=key)
    if form == "query_key":
        return QueryKey(size, width=width, timed=timed, key=key)
    raise ValueError(f"pairwise_field({form!r}): choose from linear_h2, gru_linear, gru_rows, query_key.")
