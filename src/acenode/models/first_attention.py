"""First attentions of the sample itself, read from its own history: the `history` of a `GRUODEBayes`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import GRUCell, Linear
from ..series import Series

_ROWS = 3  # that two variables must have in common


class OwnCorrelation(eqx.Module):
    """a(0) between variables: the correlation of each two over the rows in which both were observed, times `scale`.

    It is 0 where these are fewer than three, or where one of the two does not vary in them; 1 on the diagonal. For
    an attention whose rows are the variables, such as that of `ace-variables`.
    """

    scale: float = eqx.field(static=True, default=1.0)

    def __call__(self, series: Series) -> Float[Array, "batch variables variables"]:
        """Of a batch of series."""
        values, observed = jnp.asarray(series.values), jnp.asarray(series.observed)
        real = jnp.arange(values.shape[1]) < jnp.asarray(series.length)[:, None]
        return self.scale * jax.vmap(_pairwise_complete)(values, observed & real[..., None])


def _pairwise_complete(x: Float[Array, "rows v"], observed: Array) -> Float[Array, "v v"]:
    seen = observed.astype(x.dtype)
    centre = jnp.where(observed, x, 0.0).sum(axis=0) / jnp.maximum(seen.sum(axis=0), 1)
    x = jnp.where(observed, x - centre, 0.0)  # differences of large numbers lose digits
    count = seen.T @ seen
    both = jnp.maximum(count, 1)
    mean = (x.T @ seen) / both  # of variable i over the rows that it shares with j
    variance = (jnp.square(x).T @ seen) / both - jnp.square(mean)
    covariance = (x.T @ x) / both - mean * mean.T
    product = variance * variance.T
    known = (count >= _ROWS) & (product > np.finfo(x.dtype).eps)
    found = jnp.where(known, covariance / jnp.sqrt(jnp.where(known, product, 1.0)), 0.0)
    return jnp.fill_diagonal(jnp.clip(found, -1.0, 1.0), 1.0, inplace=False)


class PairEncoder(eqx.Module):
    """Weights between units from the history of each pair: a GRU over its rows, one for all pairs, and a linear map."""

    cell: GRUCell
    readout: Linear
    channels: int = eqx.field(static=True)

    def __init__(self, channels: int, size: int = 16, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.cell = GRUCell(4 * channels + 1, size, key=one)
        self.readout = Linear(size, 1, key=two)
        self.channels = channels

    def __call__(self, series: Series) -> Float[Array, "batch units units"]:
        """Of a batch of series."""
        values, observed = jnp.asarray(series.values), jnp.asarray(series.observed)
        batch, rows, variables = values.shape
        units = variables // self.channels
        seen = jnp.concatenate([jnp.where(observed, values, 0.0), observed.astype(values.dtype)], axis=-1)
        seen = seen.reshape(batch, rows, 2, units, self.channels).swapaxes(2, 3).reshape(batch, rows, units, -1)
        shape = (batch, rows, units, units, seen.shape[-1])
        pairs = [jnp.broadcast_to(seen[:, :, :, None], shape), jnp.broadcast_to(seen[:, :, None], shape)]
        gap = jnp.diff(jnp.asarray(series.times, values.dtype), axis=1, prepend=0.0)
        pairs.append(jnp.broadcast_to(gap[:, :, None, None, None], (*shape[:-1], 1)))
        given = jnp.moveaxis(jnp.concatenate(pairs, axis=-1), 1, 0).reshape(rows, batch * units * units, -1)
        counts = observed.any(axis=2).T[:, :, None, None]
        counts = jnp.broadcast_to(counts, (rows, batch, units, units)).reshape(rows, -1, 1)

        def step(state, row):
            x, counts = row
            return jnp.where(counts, jax.vmap(self.cell)(x, state), state), None

        start = jnp.zeros((batch * units * units, self.cell.hidden_size), self.cell.weight_hh.dtype)
        last, _ = jax.lax.scan(step, start, (given, counts))
        return jax.vmap(self.readout)(last).reshape(batch, units, units)
