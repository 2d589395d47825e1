"""A first latent state for each series: its mean and deviation from what an encoder says, and samples of it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

_LEAST_SD = 1e-6


class Posterior(NamedTuple):
    """`z(0) ~ N(mean, sd^2)`."""

    mean: Float[Array, "batch latent"]
    sd: Float[Array, "batch latent"]

    @classmethod
    def of(cls, encoded: Float[Array, "batch size"], to_latent: Callable) -> "Posterior":
        """`to_latent(vector)` gives mean and, by its absolute value, standard deviation."""
        mean, sd = jnp.split(jax.vmap(to_latent)(encoded), 2, axis=-1)
        return cls(mean, jnp.abs(sd) + _LEAST_SD)

    def draw(self, samples: int, key: PRNGKeyArray) -> tuple[Float[Array, "samples batch latent"], Array]:
        """Samples of z(0), and `KL(q || N(0, 1))` of each series, mean over its dimensions.

        0 samples stand for the mean, which has no penalty.
        """
        mean, sd = self
        if samples == 0:
            return mean[None], jnp.zeros(mean.shape[0], mean.dtype)
        # Drawn for each place in the batch, so that the size of the batch does not change it.
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(mean.shape[0]))
        shape = (samples, mean.shape[1])
        noise = jax.vmap(lambda k: jax.random.normal(k, shape, mean.dtype), out_axes=1)(keys)
        return mean + sd * noise, jnp.mean(0.5 * (mean**2 + sd**2 - 1) - jnp.log(sd), axis=-1)
