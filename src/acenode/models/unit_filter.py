"""A filter of units that influence each other: oscillators, bodies, genes, regions.

The state has a row for each unit, its channels in the units of the data; h follows `dh_i/dt = b(h_i) + sum_j w_ij
m(h_i, h_j)` and is corrected by observations. How the weights w get their values is the whole difference between the
attentive model and its controls, which have the same parts otherwise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..ode import (
    CoEvolvingODE,
    Constant,
    LeastSquares,
    LeastSquaresField,
    LeastSquaresInitial,
    LeastSquaresUpdate,
    MessageField,
    Solver,
)
from ..ode.updates import Assimilation
from ..series import Series
from .first_attention import PairEncoder
from .gru_ode_bayes import GRUODEBayes

WEIGHTS = ("least squares", "additive", "frozen", "uniform", "none", "static graph", "oracle")


class UnitFirst(eqx.Module):
    """h(0): a learned row for each unit."""

    rows: Float[Array, "units channels"]

    def __call__(self, keep: Array | float = 1.0) -> Float[Array, "units channels"]:
        return self.rows


class UnitEmission(eqx.Module):
    """The mean is the state itself; its variance is that of the state and of the observation's noise, both scaled."""

    log_noise: Float[Array, " channels"]
    log_scale: Float[Array, ""]

    def __init__(self, channels: int, noise: float = 0.01):
        self.log_noise = jnp.full(channels, jnp.log(noise))
        self.log_scale = jnp.zeros(())

    def __call__(self, output: Float[Array, "units both"], keep: Array | float = 1.0) -> tuple[Array, Array]:
        h, log_variance = jnp.split(output, 2, axis=1)
        return jnp.ravel(h), jnp.ravel(jnp.logaddexp(log_variance + self.log_scale, self.log_noise))


class OracleUpdate(Assimilation):
    """Observations that come with the true weights, n x n numbers after the variables."""

    update: LeastSquaresUpdate

    def __call__(self, h, a, x, observed) -> tuple[Array, Array]:
        size = h.size
        h, a = self.update(h, a, x[:size], observed[:size])
        n = len(h)
        return h, a.at[:, :n].set(jnp.where(observed.any(), x[size:].reshape(n, n), a[:, :n]))


def unit_filter(
    units: int,
    channels: int,
    weights: str = "least squares",
    width: int = 32,
    solver: Solver = Solver("midpoint", step=0.25, max_steps=128),  # noqa: B008
    *,
    key: PRNGKeyArray,
) -> GRUODEBayes:
    """The filter, whose weights are

    - `least squares`: estimated from the motion and moved by observations;
    - `additive`: likewise, but added to the messages instead of multiplied with them;
    - `frozen`: learned numbers, the same for every series; `uniform`: all 1 / (units - 1); `none`: all 0;
    - `static graph`: read from the whole history of the series by a `PairEncoder`, constant in time;
    - `oracle`: the true ones, which come with every row.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"unit_filter(weights={weights!r}): choose from {', '.join(WEIGHTS)}.")
    one, two, three, four = jax.random.split(key, 4)
    adapts = weights in ("least squares", "additive")
    mean = jnp.zeros((units, units))
    if weights == "frozen":
        mean = 0.1 * jax.random.normal(three, (units, units))
    elif weights not in ("least squares", "additive", "static graph"):
        mean = Constant(jnp.full((units, units), 1 / (units - 1) if weights == "uniform" else 0.0))
    update = LeastSquaresUpdate(channels, adapts)
    ode = CoEvolvingODE(
        MessageField((units, channels), width, key=one),
        LeastSquaresField(channels, adapts),
        LeastSquares(channels, width, additive=weights == "additive", key=two),
        LeastSquaresInitial(mean, channels, adapts),
        solver,
        update=OracleUpdate(update) if weights == "oracle" else update,
    )
    history = PairEncoder(channels, key=four) if weights == "static graph" else None
    emission = UnitEmission(channels)
    return GRUODEBayes(UnitFirst(jnp.zeros((units, channels))), ode, None, emission, 0.0, 0.0, 0.0, history=history)


def influence(
    model: GRUODEBayes, context: Series, times: Float[Array, "batch moments"]
) -> Float[Array, "batch moments n n"]:
    """The weights of a filter at any times: entry (i, j) is the influence of unit j on unit i."""
    trace = model(context, times, jax.random.key(0), attention=True)
    assert trace.attention is not None and isinstance(model.ode, CoEvolvingODE)
    return model.ode.attention.weights(trace.attention[0])
