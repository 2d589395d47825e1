"""Latent-ODE + Poisson: the latent state also tells when values are observed.

One half of the state is decoded into values, the other into the log intensity of an inhomogeneous Poisson process for
each variable. The integrals of the intensities, which the likelihood of the observation times needs, are solved for
beside the state.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import mlp
from ..ode import AugmentedODE, Solver
from ..series import Series
from .latent_ode import LatentODE
from .trace import Trace

_UNIT = 100.0  # integrals are solved for in this unit, so that their size does not govern the solver's steps


class PoissonField(eqx.Module):
    """`d(z, Lambda)/dt = (f(t, z), exp(log lambda(z)))`, with lambda read from the second half of z."""

    f: Callable
    log_intensity: Callable
    variables: int = eqx.field(static=True)

    def __call__(self, t: Float[Array, ""], state: Float[Array, " both"]) -> Float[Array, " both"]:
        z = state[: -self.variables]
        return jnp.concatenate([self.f(t, z), jnp.exp(self.log_rate(z) - jnp.log(_UNIT))])

    def log_rate(self, z: Float[Array, " latent"]) -> Float[Array, " variables"]:
        return self.log_intensity(z[z.shape[0] // 2 :])


class LatentPoisson(eqx.Module):
    """A Latent-ODE of an even latent size whose states are `[z for values, z for times, log lambda, Lambda]`.

    `f` moves both halves of z; `encoder` and `to_latent` are those of `LatentODE`, for both halves.
    """

    latent: LatentODE

    def __init__(
        self,
        encoder: Callable,
        to_latent: Callable,
        f: Callable,
        size: int,
        variables: int,
        width: int = 50,
        solver: Solver = Solver(),  # noqa: B008
        samples: int = 3,
        *,
        key: PRNGKeyArray,
    ):
        if size % 2:
            raise ValueError(f"LatentPoisson(size=...): {size} is odd; one half is for values, the other for times.")
        field = PoissonField(f, mlp(size // 2, variables, width, 2, key=key), variables)
        self.latent = LatentODE(encoder, to_latent, AugmentedODE(field, variables, solver), (size,), samples)

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        trace = self.latent(series, times, key)
        field = self.latent.ode.f
        z, integral = jnp.split(trace.states, [trace.states.shape[-1] - field.variables], axis=-1)
        log_rate = jax.vmap(jax.vmap(jax.vmap(field.log_rate)))(z)
        states = jnp.concatenate([z, log_rate, _UNIT * integral], axis=-1)
        return eqx.tree_at(lambda t: t.states, trace, states)
