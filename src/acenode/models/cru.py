"""CRU: continuous recurrent units, a Kalman filter in a latent space that follows a linear SDE between rows.

Schirmer et al., "Modeling Irregular Time Series with Continuous Recurrent Units", ICML 2022; the fast variant, f-CRU.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear
from ..series import Series
from .filter import Filter
from .trace import Trace

_LEAST_VARIANCE = 1e-4
_LARGEST_EXPONENT = 3.0  # of growth over one gap
_FIRST_VARIANCE = 10.0
_NOISE = 0.1  # initial diffusion of the SDE


class Belief(NamedTuple):
    """A Gaussian over the latent state, whose covariance has four diagonal blocks `[[upper, side], [side, lower]]`."""

    mean: Float[Array, " latent"]
    upper: Float[Array, " half"]
    lower: Float[Array, " half"]
    side: Float[Array, " half"]


class HiddenLayers(eqx.Module):
    """Hidden layers, each linear, ReLU, layer normalisation."""

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]

    def __init__(self, inputs: int, width: int, layers: int, *, key: PRNGKeyArray):
        sizes = [inputs, *[width] * layers]
        keys = jax.random.split(key, layers)
        self.layers = tuple(Linear(size, width, key=k) for size, k in zip(sizes, keys, strict=False))
        self.norms = tuple(eqx.nn.LayerNorm(width) for _ in range(layers))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " width"]:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(jax.nn.relu(layer(x)))
        return x


class LatentObserver(eqx.Module):
    """From a row `[x, m]` to a latent observation and its variance, by hidden layers scaled to length 1."""

    hidden: HiddenLayers
    mean: Linear
    variance: Linear

    def __init__(self, variables: int, half: int, width: int, layers: int, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.hidden = HiddenLayers(2 * variables, width, layers, key=one)
        self.mean, self.variance = Linear(width, half, key=two), Linear(width, half, key=three)

    def __call__(self, values: Float[Array, " variables"], observed: Array) -> tuple[Array, Array]:
        hidden = self.hidden(jnp.concatenate([values, observed.astype(values.dtype)]))
        hidden = hidden / jnp.sqrt(jnp.sum(jnp.square(hidden)) + 1e-12)
        return self.mean(hidden), _positive(self.variance(hidden))


class LatentSDE(eqx.Module):
    """`dz = A z dt + dB` with `A = E diag(d) E^T`, E orthogonal, and diffusion `diag(noise)` of the Brownian motion B.

    `d = softmax(W mean + b) @ rates` is locally linear: the mean after the last row mixes the rows of `rates`. E is the
    Cayley transform of a skew-symmetric matrix.
    """

    skew: Float[Array, "latent latent"]  # minus its transpose
    rates: Float[Array, "bases latent"]
    coefficients: Linear
    noise: Float[Array, " latent"]  # before the activation

    def __init__(self, latent: int, bases: int, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.skew = 0.1 * jax.random.normal(one, (latent, latent))
        self.rates = 0.01 * jax.random.normal(two, (bases, latent))
        self.coefficients = Linear(latent, bases, key=three)
        self.noise = jnp.full(latent, np.log(_NOISE), float)

    def basis(self) -> Float[Array, "latent latent"]:
        """E."""
        skew, eye = self.skew - self.skew.T, jnp.eye(len(self.skew), dtype=self.skew.dtype)
        return jnp.linalg.solve(eye + skew, eye - skew)


class Kalman(eqx.Module):
    """The cell of `CRU`, with what is the same at every row computed once."""

    observer: LatentObserver
    sde: LatentSDE
    first: Belief
    basis: Float[Array, "latent latent"]
    noise: Float[Array, "latent latent"]  # of the SDE in the basis: E^T diag(noise) E
    time_scale: float = eqx.field(static=True)

    def start(self) -> Belief:
        return self.first

    def drift(self, state: Belief, gap: Float[Array, ""]) -> Belief:
        """The moments of the SDE after `gap`, in the basis in which A is diagonal (Equations 21 to 26).

        The covariance is cut back to its four diagonals.
        """
        mean, upper, lower, side = state
        time = gap / self.time_scale
        rate = jax.nn.softmax(self.sde.coefficients(mean)) @ self.sde.rates
        # Samples times the basis, never the basis times samples: `vmap` makes one large product of that.
        top, bottom = jnp.split(self.basis.T, 2, axis=1)
        projected = jnp.concatenate([top * upper + bottom * side, top * side + bottom * lower], axis=1)
        exponent = jnp.minimum((rate[:, None] + rate[None, :]) * time, 2 * _LARGEST_EXPONENT)
        inner = jnp.exp(exponent) * (projected @ self.basis) + time * _relative_growth(exponent) * self.noise
        grown = jnp.exp(jnp.minimum(rate * time, _LARGEST_EXPONENT))
        above, below = jnp.split(inner @ self.basis.T, 2, axis=1)
        return Belief(
            (grown * (mean @ self.basis)) @ self.basis.T,
            jnp.maximum(jnp.sum(above * top, axis=0), _LEAST_VARIANCE),
            jnp.maximum(jnp.sum(below * bottom, axis=0), _LEAST_VARIANCE),
            jnp.sum(above * bottom, axis=0),
        )

    def update(self, state: Belief, values, observed, key: PRNGKeyArray) -> Belief:
        """The Kalman update with an observation of the upper half of the state."""
        seen, variance = self.observer(values, observed)
        mean, upper, lower, side = state
        half = upper.shape[0]
        gain_upper, gain_lower = upper / (upper + variance), side / (upper + variance)
        error = seen - mean[:half]
        return Belief(
            mean + jnp.concatenate([gain_upper * error, gain_lower * error]),
            jnp.maximum((1 - gain_upper) * upper, _LEAST_VARIANCE),
            jnp.maximum(lower - gain_lower * side, _LEAST_VARIANCE),
            (1 - gain_upper) * side,
        )

    def read(self, state: Belief) -> Float[Array, " size"]:
        return jnp.concatenate(state)


class CRU(eqx.Module):
    """A belief over a latent state: predicted by a linear SDE between rows, updated by Kalman's rule at each of them.

    - `LatentObserver`: the row as an observation of the upper half of the state, with a variance;
    - `LatentSDE`: locally linear dynamics with `bases` sets of eigenvalues;
    - prediction: one network from the mean of the belief to the means, another from its covariance to the variances.

    `latent` is the size of the state, `width` and `layers` that of the hidden layers. A state for heads is the belief:
    its mean and the three diagonals, `size = 5 / 2 * latent` numbers. Times are divided by `time_scale`, best the span
    of a series.

    What differs from the paper: the encoder sees which values of a row are missing; eigenvalues start small and
    random, so that the bases differ; growth over one gap is limited to exp(3), and variances are at least 0.0001.

    Causal: a prediction sees the rows strictly before its time; with `including=True` also the row at that time, for
    labelling points.
    """

    causal: ClassVar[bool] = True

    observer: LatentObserver
    sde: LatentSDE
    first_variance: Float[Array, " latent"]  # before the activation
    mean_hidden: HiddenLayers
    mean: Linear
    variance_hidden: HiddenLayers
    variance: Linear
    time_scale: float = eqx.field(static=True)
    including: bool = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        latent: int = 32,
        bases: int = 10,
        width: int = 50,
        layers: int = 3,
        *,
        time_scale: float = 1.0,
        including: bool = False,
        key: PRNGKeyArray,
    ):
        if latent < 2 or latent % 2:
            raise ValueError(f"CRU(latent={latent}): must be even, as half of the state is observed.")
        if not time_scale > 0:
            raise ValueError(f"CRU(time_scale={time_scale}): must be positive.")
        half = latent // 2
        k = jax.random.split(key, 6)
        self.observer = LatentObserver(variables, half, width, layers, key=k[0])
        self.sde = LatentSDE(latent, bases, key=k[1])
        self.first_variance = jnp.full(latent, _FIRST_VARIANCE - 1.0, float)
        self.mean_hidden, self.mean = HiddenLayers(latent, width, layers, key=k[2]), Linear(width, variables, key=k[3])
        self.variance_hidden = HiddenLayers(3 * half, width, 1, key=k[4])
        self.variance = Linear(width, variables, key=k[5])
        self.time_scale = time_scale
        self.including = including

    @property
    def latent(self) -> int:
        return self.first_variance.shape[0]

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.latent + 3 * (self.latent // 2)

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        return Filter(self.cell(), self.including)(series, times, key, attention=attention)

    def cell(self) -> Kalman:
        """The cell for `Filter`."""
        basis = self.sde.basis()
        upper, lower = jnp.split(_positive(self.first_variance), 2)
        first = Belief(jnp.zeros_like(self.first_variance), upper, lower, jnp.zeros_like(upper))
        noise = basis.T @ (_positive(self.sde.noise)[:, None] * basis)
        return Kalman(self.observer, self.sde, first, basis, noise, self.time_scale)

    def emission(self, state: Float[Array, " size"]) -> tuple[Array, Array]:
        """Mean and log variance of every variable."""
        mean, covariance = jnp.split(state, [self.latent])
        return self.mean(self.mean_hidden(mean)), jnp.log(_positive(self.variance(self.variance_hidden(covariance))))


def _positive(x: Array) -> Array:
    """`elu(x) + 1`, at least the smallest variance."""
    return jax.nn.elu(x) + 1 + _LEAST_VARIANCE


def _relative_growth(x: Array) -> Array:
    """`(exp(x) - 1) / x`, and its slope, also where x is close to 0."""
    small = jnp.abs(x) < 0.1
    series = 1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5)))
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, jnp.expm1(safe) / safe)
