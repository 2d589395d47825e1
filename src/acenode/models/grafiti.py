"""GraFITi: a series as a bipartite graph of times and channels, whose edges are its observations and the queries.

Yalavarthi et al., "GraFITi: Graphs for Forecasting Irregularly Sampled Time Series", AAAI 2024.
"""

from typing import ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..layers import Linear
from ..ode import Stats
from ..series import Series
from .trace import Trace


class NodeAttention(eqx.Module):
    """A node attends to its edges; an edge is seen as [node at its other end, edge], e and n for short.

    `q = W_q node`, `k = W_k [n, e]`, `v = W_v [n, e]`, `o = q + softmax(q . k / sqrt(size)) v` in each head, and the
    new node is `o + relu(W_o o)`. A node without edges keeps `o = q`.
    """

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, size: int, heads: int, *, key: PRNGKeyArray):
        k = jax.random.split(key, 4)
        self.query, self.out = Linear(size, size, key=k[0]), Linear(size, size, key=k[3])
        self.key = Linear(2 * size, size, use_bias=False, key=k[1])  # the softmax would not see a bias
        self.value = Linear(2 * size, size, key=k[2])
        self.heads = heads

    def __call__(
        self,
        nodes: Float[Array, "nodes size"],
        others: Float[Array, "others size"],
        edges: Float[Array, "nodes others size"],
        mask: Bool[Array, "nodes others"],
    ) -> Float[Array, "nodes size"]:
        def split(x):
            return x.reshape(*x.shape[:-1], self.heads, -1)

        query = jax.vmap(self.query)(nodes)
        keys, values = (split(_pairs(layer, others, edges)) for layer in (self.key, self.value))
        logits = jnp.einsum("nhs,nohs->nho", split(query), keys) / nodes.shape[1] ** 0.5
        weights = _masked_softmax(logits, mask[:, None, :])
        out = query + jnp.einsum("nho,nohs->nhs", weights, values).reshape(query.shape)
        return out + jax.nn.relu(jax.vmap(self.out)(out))


class GraphLayer(eqx.Module):
    """New channels, times and edges, each from the old ones: `edge <- relu(edge + W [edge, time, channel] + b)`."""

    channels: NodeAttention
    times: NodeAttention
    edges: Linear

    def __init__(self, size: int, heads: int, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.channels, self.times = NodeAttention(size, heads, key=one), NodeAttention(size, heads, key=two)
        self.edges = Linear(3 * size, size, key=three)

    def __call__(
        self,
        channels: Float[Array, "channels size"],
        times: Float[Array, "times size"],
        edges: Float[Array, "times channels size"],
        observed: Bool[Array, "times channels"],
        exists: Bool[Array, "times channels"],
    ) -> tuple[Array, Array, Array]:
        new_channels = self.channels(channels, times, edges.swapaxes(0, 1), observed.T)
        new_times = self.times(times, channels, edges, exists)
        own, of_time, of_channel = jnp.split(self.edges.weight.T, 3)
        change = edges @ own + (times @ of_time)[:, None] + (channels @ of_channel + cast(Array, self.edges.bias))
        new_edges = jnp.where(exists[..., None], jax.nn.relu(edges + change), 0.0)
        return new_channels, new_times, new_edges


class GraFITi(eqx.Module):
    """Attention on the graph of a series, `layers` times; a query is an edge between its time and each channel.

    - edges start as `relu(W [x, is query] + b)`, times as `sin(W t + b)`, channels as `relu(W one_hot + b)`;
    - prediction: a linear map of `[edge, time, channel]` of each channel at the query.

    The state of a query has a row for each variable, of `size = 3 * dim` numbers; `tasks.RowHead(size)` and the
    emission read it. The summary is the mean of the channels. Times are divided by `time_scale`, best the span of a
    series. The graph is dense: edges that do not exist are masked.

    What differs from the paper: channels attend to observations only, not to queries. A prediction then does not
    depend on which other times are queried. The log variance is ours; the paper predicts means alone.

    Not causal: a prediction sees all of the context, also what comes after its time. Train it on forecasts whose
    context ends before the queries.
    """

    causal: ClassVar[bool] = False

    edge: Linear
    time: Linear
    channel: Linear
    layers: GraphLayer  # with a leading axis
    out: Linear
    time_scale: float = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        dim: int = 64,
        heads: int = 2,
        layers: int = 2,
        *,
        time_scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        if heads < 1 or dim % heads:
            raise ValueError(f"GraFITi(dim={dim}, heads={heads}): dim must be a multiple of heads.")
        if layers < 1:
            raise ValueError(f"GraFITi(layers={layers}): must be at least 1.")
        if not time_scale > 0:
            raise ValueError(f"GraFITi(time_scale={time_scale}): must be positive.")
        k = jax.random.split(key, 5)
        self.edge, self.time = Linear(2, dim, key=k[0]), Linear(1, dim, key=k[1])
        self.channel = Linear(variables, dim, key=k[2])
        self.layers = eqx.filter_vmap(lambda key: GraphLayer(dim, heads, key=key))(jax.random.split(k[3], layers))
        self.out = Linear(3 * dim, 2, key=k[4])
        self.time_scale = time_scale

    @property
    def size(self) -> int:
        """How many numbers heads see of each variable."""
        return self.out.weight.shape[1]

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

    def emission(self, state: Float[Array, "variables size"]) -> tuple[Array, Array]:
        """Mean and log variance of every variable."""
        both = jax.vmap(self.out)(state)
        return both[:, 0], both[:, 1]

    def _one(self, series: Series, queries: Float[Array, " queries"]) -> tuple[Array, Array]:
        """The states at the queries, and the summary, of one series."""
        rows, variables = series.values.shape
        dtype = self.edge.weight.dtype
        seen = jnp.asarray(series.observed) & jnp.asarray(series.real)[:, None]
        queried = jnp.ones((queries.shape[0], variables), bool)
        observed = jnp.concatenate([seen, ~queried])
        exists = jnp.concatenate([seen, queried])
        values = jnp.where(seen, jnp.asarray(series.values), 0.0).astype(dtype)
        values = jnp.concatenate([values, jnp.zeros(queried.shape, dtype)])
        moments = jnp.concatenate([jnp.asarray(series.times, dtype), queries.astype(dtype)]) / self.time_scale

        features = jnp.stack([values, (exists & ~observed).astype(dtype)], axis=-1)
        edges = jnp.where(exists[..., None], jax.nn.relu(jax.vmap(jax.vmap(self.edge))(features)), 0.0)
        times = jnp.sin(jax.vmap(self.time)(moments[:, None]))
        channels = jax.nn.relu(jax.vmap(self.channel)(jnp.eye(variables, dtype=dtype)))

        arrays, rest = eqx.partition(self.layers, eqx.is_array)

        def step(graph, arrays):
            return eqx.combine(arrays, rest)(*graph, observed, exists), None

        (channels, times, edges), _ = lax.scan(step, (channels, times, edges), arrays)
        shape = (queries.shape[0], variables, times.shape[1])
        ends = [jnp.broadcast_to(times[rows:, None], shape), jnp.broadcast_to(channels, shape)]
        return jnp.concatenate([edges[rows:], *ends], axis=-1), jnp.mean(channels, axis=0)


def _pairs(
    layer: Linear, others: Float[Array, "others size"], edges: Float[Array, "nodes others size"]
) -> Float[Array, "nodes others size"]:
    """`W [other, edge]`, plus a bias if there is one, with the part of `other` computed once for all nodes."""
    of_other, of_edge = jnp.split(layer.weight.T, 2)
    of_others = others @ of_other
    return edges @ of_edge + (of_others if layer.bias is None else of_others + layer.bias)


def _masked_softmax(logits: Array, mask: Array) -> Array:
    """Softmax over the last axis where `mask` is set; zeros where it nowhere is."""
    hidden = jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
    return jnp.where(mask, jax.nn.softmax(hidden, axis=-1), 0.0)
