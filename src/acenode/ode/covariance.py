"""Covariance attention: how uncertain h is, in which directions, and so which dimension corrects which.

The attention between the dimensions of h is a covariance of low rank, `P = a a^T`, with an a of n x r numbers, stored
column by column (r, n). Its ODE is the tangent of that of h, as an error of h grows and turns in the way nearby
solutions do; what is forgotten returns to b:

    da/dt = (df/dh) a + rho (b - a)

A row of observed values x with noise R, of which the model expects m(h), corrects h by what P says of its error, and
narrows P. This is the extended Kalman filter of low rank, with a learned gamma on its step:

    h <- h + gamma a z,     (I + B) z = S^T R^-1 (x - m(h)),     S = (dm/dh) a,     B = S^T R^-1 S
    a <- a (I - B / (q (q + 1))),     q^2 = 1 + trace B

Both are exact where one value is observed. For several, z is found by conjugate gradients, which need one step for
each, and a is narrowed by less than the exact `a (I + B)^(-1/2)` would.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .attention import Attention
from .coevolve import CoEvolvingODE
from .fields import VectorField
from .initial import Learned
from .solver import Solver
from .updates import Correction

_CONJUGATE_STEPS = 3


def directional(function: Callable, h: Float[Array, " n"], a: Float[Array, "r n"]) -> tuple[Array, Array]:
    """The value of a function at h, and its derivatives along the r columns of a: one behind the other, as a is."""
    value, linear = jax.linearize(function, h)
    return value, jax.vmap(linear)(a)


class Covariance(Attention):
    """A covariance of h of low rank, which f does not see and which corrections of h by observations are read from."""

    rank: int = eqx.field(static=True, default=8)

    def __call__(self, h: Float[Array, " n"], a: Float[Array, "r n"]) -> Float[Array, " n"]:
        return h

    def weights(self, a: Float[Array, "*batch r n"]) -> Float[Array, "*batch n n"]:
        return a.mT @ a

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.rank, *h_shape)

    def output(self, h: Float[Array, " n"], a: Float[Array, "r n"]) -> Float[Array, " both"]:
        """h, and a behind it, for an emission that adds the variance of h to its own (`CovarianceEmission`)."""
        return jnp.concatenate([h, a.ravel()])


class TangentField(VectorField):
    """g: errors of h follow the linearised flow of f, `da/dt = (df/dh) a + rho (b - a)`."""

    rest: Float[Array, "r n"]  # b
    log_rate: Float[Array, ""]  # of forgetting, rho
    takes = ("state", "attention", "flow")

    def __init__(self, rest: Float[Array, "r n"], rate: float = 0.1):
        self.rest, self.log_rate = rest, jnp.log(jnp.asarray(rate, float))

    def __call__(self, t, h: Float[Array, " n"], a: Float[Array, "r n"], flow: Callable) -> Float[Array, "r n"]:
        return directional(flow, h, a)[1] + jnp.exp(self.log_rate) * (self.rest - a)


class KalmanUpdate(Correction):
    """What observed values do to h and a, with a learned noise for each variable.

    `narrows=False` is a control: observations leave the covariance as it is.
    """

    log_noise: Float[Array, " variables"]  # R
    gamma: Float[Array, " n"]
    narrows: bool = eqx.field(static=True)

    def __init__(self, variables: int, size: int, noise: float = 0.05, narrows: bool = True):
        self.log_noise = jnp.full(variables, jnp.log(noise))
        self.gamma = jnp.ones(size)
        self.narrows = narrows

    def __call__(
        self,
        h: Float[Array, " n"],
        a: Float[Array, "r n"],
        x: Float[Array, " variables"],
        observed: Bool[Array, " variables"],
        read: Callable,
    ) -> tuple[Array, Array]:
        mean, seen = directional(read, h, a)  # S^T
        weighted = observed * jnp.exp(-self.log_noise) * seen  # S^T R^-1
        z = _conjugate(lambda v: v + weighted @ (v @ seen), weighted @ (x - mean))
        if self.narrows:
            q = jnp.sqrt(1 + jnp.sum(seen * weighted))
            return h + self.gamma * (z @ a), a - weighted @ (seen.T @ a) / (q * (q + 1))
        return h + self.gamma * (z @ a), a


def _conjugate(matrix: Callable, right: Float[Array, " r"]) -> Float[Array, " r"]:
    """The solution of `matrix(z) = right` by a few steps of conjugate gradients; zero where `right` is."""
    z, rest, way, size = jnp.zeros_like(right), right, right, right @ right
    for _ in range(_CONJUGATE_STEPS):
        image = matrix(way)
        step = size / (way @ image + 1e-12)
        z, rest = z + step * way, rest - step * image
        size, before = rest @ rest, size
        way = rest + size / (before + 1e-12) * way
    return z


def covariance_attention(
    f: Callable,
    size: int,
    variables: int,
    rank: int = 8,
    scale: float = 0.3,
    solver: Solver = Solver("euler", step=0.1),  # noqa: B008
    *,
    evolves: bool = True,
    key: PRNGKeyArray,
) -> CoEvolvingODE:
    """An ODE of h with f, and a covariance attention beside it, for models such as `gru_ode_bayes`.

    `scale` is the standard deviation of a dimension of h at first. Without `evolves` the covariance is learned numbers
    that neither time nor observations change: a control.
    """
    start = scale * jax.random.normal(key, (size, rank)).T / jnp.sqrt(rank)
    return CoEvolvingODE(
        f,
        TangentField(start) if evolves else None,
        Covariance(rank),
        Learned(start),
        solver,
        "evolved" if evolves else "frozen",
        update=KalmanUpdate(variables, size, narrows=evolves),
    )
