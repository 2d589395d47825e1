"""LinODENet: a latent linear ODE, solved in closed form, with a filter in observation space at every row.

Scholz et al., "Latent Linear ODEs with Neural Kalman Filtering for Irregular Time Series Forecasting", 2022.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..layers import Linear
from ..series import Series
from .filter import Filter
from .trace import Trace


class LinearODE(eqx.Module):
    """`dz/dt = A z` with `A = [[-D, -W], [W, -D]]`, D and W diagonal: damped rotations of the pairs (i, i + half).

    `expm(A t)` is closed form, `exp(-D t) [[cos W t, -sin W t], [sin W t, cos W t]]`. A linear map before the ODE and
    one after it make this as general as any stable A that is diagonalisable with eigenvalues in conjugate pairs.
    """

    frequency: Float[Array, " half"]
    damping: Float[Array, " half"]  # softplus of it is the diagonal of D

    def __init__(self, size: int, *, key: PRNGKeyArray):
        if size < 2 or size % 2:
            raise ValueError(f"LinearODE(size={size}): must be even, as units rotate in pairs.")
        self.frequency = jax.random.uniform(key, (size // 2,), maxval=2 * np.pi)
        self.damping = jnp.full(size // 2, -3.0, float)

    def __call__(self, z: Float[Array, " size"], time: Float[Array, ""]) -> Float[Array, " size"]:
        """`expm(A time) z`."""
        decay = jnp.exp(-jax.nn.softplus(self.damping) * time)
        cos, sin = decay * jnp.cos(self.frequency * time), decay * jnp.sin(self.frequency * time)
        first, second = jnp.split(z, 2)
        return jnp.concatenate([cos * first - sin * second, sin * first + cos * second])

    @property
    def kernel(self) -> Float[Array, "size size"]:
        """A."""
        damping, rotation = jnp.diag(-jax.nn.softplus(self.damping)), jnp.diag(self.frequency)
        return jnp.block([[damping, -rotation], [rotation, damping]])


class ReZeroBlock(eqx.Module):
    """`x + s W tanh(V x + b)`; s starts at 0 (ReZero)."""

    inner: Linear
    outer: Linear
    scale: Float[Array, ""]

    def __init__(self, size: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.inner, self.outer = Linear(size, size, key=one), Linear(size, size, use_bias=False, key=two)
        self.scale = jnp.zeros(())

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return x + self.scale * self.outer(jnp.tanh(self.inner(x)))


class NonlinearCell(eqx.Module):
    """`x + s W tanh(V r)` with r the masked residual; s starts at 0. Without biases, so that r = 0 changes nothing."""

    inner: Linear
    outer: Linear
    scale: Float[Array, ""]

    def __init__(self, variables: int, size: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.inner = Linear(variables, size, use_bias=False, key=one)
        self.outer = Linear(size, size, use_bias=False, key=two)
        self.scale = jnp.zeros(())

    def __call__(self, residual: Float[Array, " variables"]) -> Float[Array, " size"]:
        return self.scale * self.outer(jnp.tanh(self.inner(residual)))


class KalmanCell(eqx.Module):
    """From an estimate and a row to a better estimate, of which the first entries are those of the variables.

    With `r = m * (x - estimate)`: `estimate + P^T (gain * k) + B k`, `k = m * (r + A r)`, where P cuts out the
    variables; then the `NonlinearCell`s in turn, each on the residual that is left. An estimate that agrees with the
    row stays what it is.
    """

    gain: Float[Array, " variables"]
    mix: Float[Array, "variables variables"]  # A
    spread: Linear  # B
    cells: tuple[NonlinearCell, ...]

    def __init__(self, variables: int, size: int, layers: int, *, key: PRNGKeyArray):
        one, *rest = jax.random.split(key, layers + 1)
        self.gain = jnp.full(variables, 0.5, float)
        self.mix = jnp.zeros((variables, variables))
        spread = Linear(variables, size, use_bias=False, key=one)
        self.spread = eqx.tree_at(lambda l: l.weight, spread, jnp.zeros_like(spread.weight))
        self.cells = tuple(NonlinearCell(variables, size, key=k) for k in rest)

    def __call__(
        self, estimate: Float[Array, " size"], values: Float[Array, " variables"], observed: Bool[Array, " variables"]
    ) -> Float[Array, " size"]:
        def residual(x):
            return jnp.where(observed, values - x[: values.shape[0]], 0.0)

        first = residual(estimate)
        mixed = jnp.where(observed, first + self.mix @ first, 0.0)
        better = estimate.at[: values.shape[0]].add(self.gain * mixed) + self.spread(mixed)
        for cell in self.cells:
            better = better + cell(residual(better))
        return better


class LinODENet(eqx.Module):
    """A latent z that follows a linear ODE between rows and is filtered in observation space at each of them.

    - between rows: `z <- expm(A gap) z`;
    - at a row: `estimate = decode(z)`, `better = KalmanCell(estimate, x, m)`,
      `z <- z + W (encode(better) - encode(estimate))`;
    - prediction: the first entries of `decode(z)` are the means, a linear map of it the log variances.

    `hidden` is the size of the estimate: the variables, and what else the filter carries. A state for heads is the
    estimate, `size = hidden` numbers. Times are divided by `time_scale`, best the span of a series.

    What differs from the paper: there encode and decode are invertible ResNets and `z <- encode(better)`. Here both
    are residual networks with a linear map to and from the latent space, and the innovation is added. The two agree
    where encode inverts decode, and a row that says nothing new leaves z alone in both. A is stable and diagonal in
    the basis that the linear maps learn. The log variance is ours; the paper predicts means alone.

    Causal: a prediction sees the rows strictly before its time; with `including=True` also the row at that time, for
    labelling points.
    """

    causal: ClassVar[bool] = True

    system: LinearODE
    encoder: tuple[ReZeroBlock, ...]
    embed: Linear
    project: Linear
    decoder: tuple[ReZeroBlock, ...]
    filter: KalmanCell
    first: Float[Array, " latent"]
    log_variance: Linear
    variables: int = eqx.field(static=True)
    time_scale: float = eqx.field(static=True)
    including: bool = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        hidden: int = 64,
        latent: int = 64,
        layers: int = 2,
        *,
        time_scale: float = 1.0,
        including: bool = False,
        key: PRNGKeyArray,
    ):
        if hidden < variables:
            raise ValueError(f"LinODENet(hidden={hidden}): must hold all {variables} variables; raise hidden.")
        if not time_scale > 0:
            raise ValueError(f"LinODENet(time_scale={time_scale}): must be positive.")
        k = jax.random.split(key, 7)
        self.system = LinearODE(latent, key=k[0])
        self.encoder = tuple(ReZeroBlock(hidden, key=one) for one in jax.random.split(k[1], layers))
        # At first one map is the other's transpose, with singular values of 1: no row moves z away from what it says.
        embed, project = Linear(hidden, latent, use_bias=False, key=k[2]), Linear(latent, hidden, key=k[3])
        weight = jax.nn.initializers.orthogonal()(k[3], (hidden, latent), float)
        self.embed = eqx.tree_at(lambda l: l.weight, embed, weight.T)
        self.project = eqx.tree_at(lambda l: l.weight, project, weight)
        self.decoder = tuple(ReZeroBlock(hidden, key=one) for one in jax.random.split(k[4], layers))
        self.filter = KalmanCell(variables, hidden, layers, key=k[5])
        self.first = jnp.zeros(latent)
        self.log_variance = Linear(hidden, variables, key=k[6])
        self.variables = variables
        self.time_scale = time_scale
        self.including = including

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.project.weight.shape[0]

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        return Filter(self, self.including)(series, times, key, attention=attention)

    def emission(self, state: Float[Array, " size"]) -> tuple[Array, Array]:
        """Mean and log variance of every variable."""
        return state[: self.variables], self.log_variance(state)

    # --- the cell ---------------------------------------------------------------------------------------------

    def start(self) -> Float[Array, " latent"]:
        return self.first

    def drift(self, state: Float[Array, " latent"], gap: Float[Array, ""]) -> Float[Array, " latent"]:
        return self.system(state, gap / self.time_scale)

    def update(self, state: Float[Array, " latent"], values, observed, key: PRNGKeyArray) -> Float[Array, " latent"]:
        estimate = self.read(state)
        better = self.filter(estimate, values, observed)
        return state + self.embed(_through(self.encoder, better) - _through(self.encoder, estimate))

    def read(self, state: Float[Array, " latent"]) -> Float[Array, " size"]:
        return _through(self.decoder, self.project(state))


def _through(blocks: tuple[ReZeroBlock, ...], x: Array) -> Array:
    for block in blocks:  # a loop of the compiler in every row would take longer than the few blocks
        x = block(x)
    return x
