"""mTAN: multi-time attention, from irregular rows to regular reference points, and from these to any time.

Shukla and Marlin, "Multi-Time Attention Networks for Irregularly Sampled Time Series", ICLR 2021.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..layers import GRUCell, Linear
from ..ode import Stats
from ..series import Series
from .gru_ode_bayes import Emission
from .trace import Trace


class TimeEmbedding(eqx.Module):
    """`[w_0 t + b_0, sin(w_1 t + b_1), sin(w_2 t + b_2), ...]`; frequencies start between 1 and `fastest`."""

    weight: Float[Array, " dim"]
    bias: Float[Array, " dim"]

    def __init__(self, dim: int, fastest: float, *, key: PRNGKeyArray):
        self.weight = jnp.append(1.0, jnp.geomspace(1.0, fastest, dim - 1))
        self.bias = jax.random.uniform(key, (dim,), maxval=2 * np.pi)

    def __call__(self, times: Float[Array, " times"]) -> Float[Array, "times dim"]:
        angle = times[:, None] * self.weight + self.bias
        return jnp.concatenate([angle[:, :1], jnp.sin(angle[:, 1:])], axis=1)


class TimeAttention(eqx.Module):
    """Logits `(W_q e(t) + b_q) . (W_k e(s)) / sqrt(dim / heads)` of times t for times s, e the embedding."""

    embedding: TimeEmbedding
    query: Linear
    key: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, dim: int, heads: int, fastest: float, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.embedding = TimeEmbedding(dim, fastest, key=one)
        self.query = Linear(dim, dim, key=two)
        self.key = Linear(dim, dim, use_bias=False, key=three)  # the softmax would not see a bias
        self.heads = heads

    def __call__(
        self, queries: Float[Array, " queries"], keys: Float[Array, " keys"]
    ) -> Float[Array, "heads queries keys"]:
        def split(layer, times):
            both = jax.vmap(layer)(self.embedding(times))
            return both.reshape(times.shape[0], self.heads, -1)

        query, key = split(self.query, queries), split(self.key, keys)
        return jnp.einsum("qhs,khs->hqk", query, key) / query.shape[-1] ** 0.5


class MTAN(eqx.Module):
    """The deterministic encoder and decoder of mTAN.

    - encoder: every variable is interpolated at `references` points by attention over the rows in which it was
      observed; a linear map of these values, in each head, and of which variables were observed at all; a GRU in both
      directions over the points;
    - decoder: a queried time attends to the points; a linear map of what it gets, in each head, is the state.

    The points lie evenly from time 0 to `time_scale`, which should hold the context and the queries. A state for heads
    has `size = dim` numbers; the emission reads it with one hidden layer of `width`. The summary, for classification,
    is the last state of the GRU in each direction.

    What differs from the paper: no variational latent state and no second GRU in the decoder; frequencies of the
    embedding start spread out up to one that tells neighbouring points apart.

    Not causal: a prediction sees all of the context, also what comes after its time. Train it on forecasts whose
    context ends before the queries.
    """

    causal: ClassVar[bool] = False

    encoder: TimeAttention
    mix: Linear
    units: GRUCell  # forward and backward, with a leading axis
    decoder: TimeAttention
    out: Linear
    emission: Emission
    references: int = eqx.field(static=True)
    time_scale: float = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        dim: int = 64,
        references: int = 32,
        heads: int = 1,
        *,
        width: int = 50,
        time_scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        if heads < 1 or dim % heads or dim < 2:
            raise ValueError(f"MTAN(dim={dim}, heads={heads}): dim must be a multiple of heads, and at least 2.")
        if references < 2:
            raise ValueError(f"MTAN(references={references}): must be at least 2.")
        if not time_scale > 0:
            raise ValueError(f"MTAN(time_scale={time_scale}): must be positive.")
        k = jax.random.split(key, 6)
        fastest = np.pi * references
        self.encoder = TimeAttention(dim, heads, fastest, key=k[0])
        self.mix = Linear((heads + 1) * variables, dim, key=k[1])
        self.units = eqx.filter_vmap(lambda key: GRUCell(dim, dim, key=key))(jax.random.split(k[2], 2))
        self.decoder = TimeAttention(dim, heads, fastest, key=k[3])
        self.out = Linear(heads * 2 * dim, dim, key=k[4])
        self.emission = Emission(dim, variables, width, key=k[5])
        self.references = references
        self.time_scale = time_scale

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.out.weight.shape[0]

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        batch = times.shape[0]
        states, summary = jax.vmap(self._one)(series, jnp.asarray(times))
        penalty = jnp.zeros(batch, states.dtype)
        return Trace(states[None], summary[None], penalty, None, Stats.none(batch), None, None)

    def _one(self, series: Series, queries: Float[Array, " queries"]) -> tuple[Array, Array]:
        """The states at the queries, and the summary, of one series."""
        dtype = self.mix.weight.dtype
        points = jnp.linspace(0.0, 1.0, self.references, dtype=dtype)
        rows = jnp.asarray(series.times, dtype) / self.time_scale
        seen = jnp.asarray(series.observed) & jnp.asarray(series.real)[:, None]
        values = jnp.where(seen, jnp.asarray(series.values), 0.0).astype(dtype)
        read = interpolate(self.encoder(points, rows), values, seen)
        ever = jnp.broadcast_to(jnp.any(seen, axis=0).astype(dtype), (self.references, seen.shape[1]))
        mixed = jax.vmap(self.mix)(jnp.concatenate([_join_heads(read), ever], axis=1))
        memory, summary = self._both_ways(mixed)
        weights = jax.nn.softmax(self.decoder(queries.astype(dtype) / self.time_scale, points), axis=-1)
        return jax.vmap(self.out)(_join_heads(weights @ memory)), summary

    def _both_ways(self, points: Float[Array, "points dim"]) -> tuple[Array, Array]:
        """The states of the GRU in both directions at every point, and the last of each."""
        arrays, rest = eqx.partition(self.units, eqx.is_array)

        def run(arrays, inputs):
            unit = eqx.combine(arrays, rest)
            step = lambda h, x: (unit(x, h),) * 2  # noqa: E731
            return lax.scan(step, jnp.zeros_like(inputs[0]), inputs)

        last, states = jax.vmap(run)(arrays, jnp.stack([points, points[::-1]]))
        return jnp.concatenate([states[0], states[1, ::-1]], axis=1), last.reshape(-1)


def interpolate(
    logits: Float[Array, "heads queries rows"],
    values: Float[Array, "rows variables"],
    observed: Bool[Array, "rows variables"],
) -> Float[Array, "heads queries variables"]:
    """Every variable by attention over the rows in which it was observed; 0 where it never was."""
    hidden = jnp.where(observed, logits[..., None], jnp.finfo(logits.dtype).min)
    weights = jnp.where(observed, jax.nn.softmax(hidden, axis=2), 0.0)
    return jnp.sum(weights * values, axis=2)


def _join_heads(x: Float[Array, "heads points size"]) -> Float[Array, "points all"]:
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)
