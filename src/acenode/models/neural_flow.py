"""Neural flows: a network that is the solution of an ODE takes the place of its solver in GRU-ODE-Bayes.

Bilos et al., "Neural Flows: Efficient Alternative to Neural ODEs", NeurIPS 2021.
"""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear, mlp
from ..series import Series
from .filter import Filter
from .gru_ode_bayes import Emission, FirstState, Jump
from .trace import Trace

KINDS = ("gru", "resnet", "coupling")

_POSTERIOR_SD = 0.01  # standard deviation to which the state after a jump is drawn around the observed value
_LIPSCHITZ = 0.97  # of the network of a ResNet flow
_UPDATE, _RESET = 2 / 5, 4 / 5  # bounds of the gates that make a GRU flow invertible (Theorem 1)


# --- flows: F(h, t), invertible in h, with F(h, 0) = h ----------------------------------------------------------


class TimeGate(eqx.Module):
    """`phi(t) = tanh(a t)` for every unit: 0 at time 0, between -1 and 1 after it."""

    rate: Float[Array, " size"]

    def __init__(self, size: int, *, key: PRNGKeyArray):
        self.rate = jnp.exp(jax.random.uniform(key, (size,), minval=np.log(0.1), maxval=np.log(10.0)))

    def __call__(self, time: Float[Array, ""]) -> Float[Array, " size"]:
        return jnp.tanh(self.rate * time)


class CouplingLayer(eqx.Module):
    """`[x, y] -> [x, y exp(u phi_u(t)) + v phi_v(t)]` with `(u, v) = MLP([x, t])`; `swapped` changes the other half."""

    net: eqx.nn.MLP
    scale_gate: TimeGate
    shift_gate: TimeGate
    swapped: bool = eqx.field(static=True)

    def __init__(self, size: int, swapped: bool, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        first = size // 2
        kept, changed = (size - first, first) if swapped else (first, size - first)
        self.net = mlp(kept + 1, 2 * changed, size, 1, key=one)
        self.scale_gate, self.shift_gate = TimeGate(changed, key=two), TimeGate(changed, key=three)
        self.swapped = swapped

    def __call__(self, h: Float[Array, " size"], time: Float[Array, ""]) -> Float[Array, " size"]:
        first, second = jnp.split(h, [h.shape[0] // 2])
        kept, changed = (second, first) if self.swapped else (first, second)
        scale, shift = jnp.split(self.net(jnp.append(kept, time)), 2)
        changed = changed * jnp.exp(scale * self.scale_gate(time)) + shift * self.shift_gate(time)
        return jnp.concatenate([changed, kept] if self.swapped else [kept, changed])

    def normalised(self) -> "CouplingLayer":
        """The layer itself: it is invertible whatever its weights."""
        return self


class ResNetLayer(eqx.Module):
    """`h + phi(t) MLP([h, t])`, with one tanh layer and matrices so small that the step contracts."""

    inner: Linear
    outer: Linear
    gate: TimeGate

    def __init__(self, size: int, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.inner, self.outer = Linear(size + 1, size, key=one), Linear(size, size, key=two)
        self.gate = TimeGate(size, key=three)

    def __call__(self, h: Float[Array, " size"], time: Float[Array, ""]) -> Float[Array, " size"]:
        return h + self.gate(time) * self.outer(jnp.tanh(self.inner(jnp.append(h, time))))

    def normalised(self) -> "ResNetLayer":
        """The layer whose matrices have no singular value above the square root of the Lipschitz constant."""
        smaller = [_contract(self.inner, _LIPSCHITZ**0.5), _contract(self.outer, _LIPSCHITZ**0.5)]
        return eqx.tree_at(lambda f: [f.inner, f.outer], self, smaller)


class GRULayer(eqx.Module):
    """`h + phi(t) z (c - h)`, with `z = 2/5 sigmoid(W_z [h, t])`, `r = 4/5 sigmoid(W_r [h, t])` and
    `c = tanh(W_c [r h, t])`; biases included. The matrices have no singular value above 1."""

    update: Linear
    reset: Linear
    candidate: Linear
    gate: TimeGate

    def __init__(self, size: int, *, key: PRNGKeyArray):
        one, two, three, four = jax.random.split(key, 4)
        self.update, self.reset = Linear(size + 1, size, key=one), Linear(size + 1, size, key=two)
        self.candidate = Linear(size + 1, size, key=three)
        self.gate = TimeGate(size, key=four)

    def __call__(self, h: Float[Array, " size"], time: Float[Array, ""]) -> Float[Array, " size"]:
        both = jnp.append(h, time)
        update, reset = _UPDATE * jax.nn.sigmoid(self.update(both)), _RESET * jax.nn.sigmoid(self.reset(both))
        candidate = jnp.tanh(self.candidate(jnp.append(reset * h, time)))
        return h + self.gate(time) * update * (candidate - h)

    def normalised(self) -> "GRULayer":
        """The layer whose matrices have no singular value above 1."""
        where = lambda f: [f.update, f.reset, f.candidate]  # noqa: E731
        return eqx.tree_at(where, self, [_contract(layer) for layer in where(self)])


class Flow(eqx.Module):
    """Layers of one kind in turn, `normalised` before use."""

    layers: tuple[CouplingLayer | ResNetLayer | GRULayer, ...]

    def __init__(self, size: int, layers: int, kind: str, *, key: PRNGKeyArray):
        if kind not in KINDS:
            raise ValueError(f"Flow(kind={kind!r}): choose from {', '.join(KINDS)}.")
        if kind == "coupling" and (size < 2 or layers < 2):
            raise ValueError(f"Flow(size={size}, layers={layers}): a coupling flow needs at least 2 of each.")
        keys = jax.random.split(key, layers)
        if kind == "coupling":
            self.layers = tuple(CouplingLayer(size, bool(i % 2), key=k) for i, k in enumerate(keys))
        else:
            layer = GRULayer if kind == "gru" else ResNetLayer
            self.layers = tuple(layer(size, key=k) for k in keys)

    def __call__(self, h: Float[Array, " size"], time: Float[Array, ""]) -> Float[Array, " size"]:
        for layer in self.layers:  # a loop of the compiler in every row would take longer than the few layers
            h = layer(h, time)
        return h

    def normalised(self) -> "Flow":
        """The flow whose layers are invertible."""
        return eqx.tree_at(lambda f: f.layers, self, tuple(layer.normalised() for layer in self.layers))


def _contract(layer: Linear, limit: float = 1.0) -> Linear:
    """The layer with a matrix whose singular values are at most `limit`; a smaller one stays what it is."""
    weight = layer.weight / jnp.maximum(spectral_bound(layer.weight) / limit, 1.0)
    return eqx.tree_at(lambda l: l.weight, layer, weight)


def spectral_bound(weight: Float[Array, "rows columns"], doublings: int = 5) -> Float[Array, ""]:
    """An upper bound of the largest singular value: the Frobenius norm of `(W W^T)^p` to the power 1 / (2 p), with p
    2 to the power of `doublings`. It is too large by a factor of at most `rows^(1 / (4 p))`: 3 % for 64 rows.

    Power iteration needs a state to be accurate, and may come out below the largest singular value.
    """

    def norm(x):
        return jnp.sqrt(jnp.sum(jnp.square(x)) + jnp.finfo(x.dtype).tiny)

    def double(carry, _):
        power, log_scale = carry
        size = norm(power)  # taken out, as powers leave the range of single precision
        return ((power / size) @ (power / size), 2 * (log_scale + jnp.log(size))), None

    start = (weight @ weight.T, jnp.zeros((), weight.dtype))
    (power, log_scale), _ = lax.scan(double, start, length=doublings)
    return jnp.exp((log_scale + jnp.log(norm(power))) / 2 ** (doublings + 1))


# --- the filter -------------------------------------------------------------------------------------------------


class Carried(NamedTuple):
    """The hidden state, and what the penalty needs."""

    hidden: Float[Array, " hidden"]
    divergence: Float[Array, ""]  # sum over the observed values so far
    observations: Float[Array, ""]  # so far


class FlowCell(eqx.Module):
    """The cell of `NeuralFlow`, with a normalised flow."""

    first: FirstState
    flow: Flow
    jump: Jump
    emission: Callable
    time_scale: float = eqx.field(static=True)
    mixing: float = eqx.field(static=True)

    def start(self) -> Carried:
        zero = jnp.zeros((), self.jump.weight.dtype)
        return Carried(self.first().astype(zero.dtype), zero, zero)

    def drift(self, state: Carried, gap: Float[Array, ""]) -> Carried:
        return state._replace(hidden=self.flow(state.hidden, gap / self.time_scale))

    def update(self, state: Carried, values, observed, key: PRNGKeyArray) -> Carried:
        hidden = self.jump(state.hidden, values, observed, *self.emission(state.hidden))
        mean, log_variance = self.emission(hidden)
        far = (jnp.exp(log_variance) + jnp.square(mean - values)) / (2 * _POSTERIOR_SD**2)
        each = math.log(_POSTERIOR_SD) - 0.5 * log_variance + far - 0.5
        return Carried(
            hidden,
            state.divergence + jnp.sum(jnp.where(observed, each, 0.0)),
            state.observations + jnp.sum(observed),
        )

    def read(self, state: Carried) -> Float[Array, " hidden"]:
        return state.hidden

    def penalty(self, state: Carried) -> Float[Array, ""]:
        return self.mixing * state.divergence / jnp.maximum(state.observations, 1)


class NeuralFlow(eqx.Module):
    """GRU-ODE-Bayes with a flow in place of its ODE: `h <- F(h, gap)` between rows, `h <- jump(h, x)` at each of them.

    - `kind`: `gru` (the default, Section 3.3), `resnet` or `coupling`;
    - `hidden`, `layers`: the size of h, and how many layers the flow has;
    - `prepared`, `width`, `mixing`: those of `gru_ode_bayes`, as are the first state, jump, emission and penalty.

    A state for heads is h, `size = hidden` numbers; the emission reads the same. Times are divided by `time_scale`,
    best the span of a series.

    What differs from the paper: networks have tanh layers, which stay bounded far ahead in time; all time embeddings
    are tanh; singular values are bounded exactly, not by power iteration; no dropout.

    Causal: a prediction sees the rows strictly before its time; with `including=True` also the row at that time, for
    labelling points.
    """

    causal: ClassVar[bool] = True

    first: FirstState
    flow: Flow
    jump: Jump
    emission: Emission
    time_scale: float = eqx.field(static=True)
    mixing: float = eqx.field(static=True)
    including: bool = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        hidden: int = 64,
        layers: int = 2,
        kind: str = "gru",
        *,
        prepared: int = 10,
        width: int = 25,
        time_scale: float = 1.0,
        mixing: float = 1e-4,
        including: bool = False,
        key: PRNGKeyArray,
    ):
        if not time_scale > 0:
            raise ValueError(f"NeuralFlow(time_scale={time_scale}): must be positive.")
        one, two, three, four = jax.random.split(key, 4)
        self.first = FirstState(hidden, key=one)
        self.flow = Flow(hidden, layers, kind, key=two)
        self.jump = Jump(hidden, variables, prepared, key=three)
        self.emission = Emission(hidden, variables, width, key=four)
        self.time_scale = time_scale
        self.mixing = mixing
        self.including = including

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.first.width

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        return Filter(self.cell(), self.including)(series, times, key, attention=attention)

    def cell(self) -> FlowCell:
        """The cell for `Filter`."""
        return FlowCell(self.first, self.flow.normalised(), self.jump, self.emission, self.time_scale, self.mixing)
