"""The Latent-ODE family: encode a series into a first latent state, let an ODE carry it on.

Which ODE is the whole difference between Latent-ODE, Augmented-Latent-ODE and ACE-Latent-ODE.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..series import Series
from .encoders import encode
from .trace import Trace


class LatentODE(eqx.Module):
    """`z(0) ~ N(mean, sd^2)` from the encoder, then `ode` from time `start` through the queried times.

    - `encoder(series) -> vector`, for one series;
    - `to_latent(vector) -> 2 * latent numbers`: mean and (by its absolute value) standard deviation;
    - `ode`: any that answers `ode(h0, times) -> Path`;
    - `shape`: the shape of the latent state, e.g. `(20,)`, or `(regions, channels)`;
    - `samples`: how many z(0) are drawn for each series; 0 takes the mean and has no KL penalty.
    """

    encoder: Callable
    to_latent: Callable
    ode: Any
    shape: tuple[int, ...] = eqx.field(static=True)
    samples: int = eqx.field(static=True, default=3)
    start: float = eqx.field(static=True, default=0.0)

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        mean, sd = self.posterior(series)
        if self.samples == 0:
            z0, penalty = mean[None], jnp.zeros(mean.shape[0], mean.dtype)
        else:
            # Drawn for each place in the batch, so that the size of the batch does not change it.
            keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(mean.shape[0]))
            shape = (self.samples, mean.shape[1])
            noise = jax.vmap(lambda k: jax.random.normal(k, shape, mean.dtype), out_axes=1)(keys)
            z0 = mean + sd * noise
            penalty = jnp.mean(0.5 * (mean**2 + sd**2 - 1) - jnp.log(sd), axis=-1)
        count, batch = z0.shape[:2]
        h0 = z0.reshape(count * batch, *self.shape)
        begin = jnp.full((batch, 1), self.start, times.dtype)
        grid = jnp.tile(jnp.concatenate([begin, times], axis=1), (count, 1))
        path = self.ode(h0, grid, attention=attention)
        states = path.finite[:, 1:]
        return Trace(
            states.reshape(count, batch, *states.shape[1:]),
            z0,
            penalty,
            None if path.a is None else path.a[:, 1:].reshape(count, batch, times.shape[1], *path.a.shape[2:]),
            path.stats,
            h0,
            grid,
        )

    def posterior(self, series: Series) -> tuple[Float[Array, "batch latent"], Float[Array, "batch latent"]]:
        """Mean and standard deviation of z(0)."""
        both = jax.vmap(self.to_latent)(encode(self.encoder, series))
        mean, sd = jnp.split(both, 2, axis=-1)
        return mean, jnp.abs(sd) + 1e-6
