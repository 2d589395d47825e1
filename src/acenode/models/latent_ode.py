"""The Latent-ODE family: encode a series into a first latent state, let an ODE carry it on.

Which ODE is the whole difference between Latent-ODE, Augmented-Latent-ODE and ACE-Latent-ODE.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..series import Series
from .posterior import Posterior
from .trace import Trace


class LatentODE(eqx.Module):
    """`z(0) ~ N(mean, sd^2)` from the encoder, then `ode` from time `start` through the queried times.

    - `encoder(series) -> vectors`, for a batch of series;
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
        z0, penalty = self.posterior(series).draw(self.samples, key)
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

    def posterior(self, series: Series) -> Posterior:
        return Posterior.of(self.encoder(series), self.to_latent)
