"""Baselines with a random latent state and no ODE: `SequentialVAE`, one state a row; `RNNVAE`, one a series."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import GRUCell, mlp
from ..ode import Stats
from ..series import Series
from .encoders import GRUEncoder
from .posterior import Posterior
from .trace import Trace

_LEAST_SD = 1e-3  # a prior narrower than this would make the divergence from it meaningless


class Belief(NamedTuple):
    """What `SequentialVAE` carries along: the latent state, the rows so far, and what the ELBO owes."""

    latent: Float[Array, " latent"]
    rows: Float[Array, " hidden"]
    gap: Float[Array, ""]  # time since the last row
    divergence: Float[Array, ""]  # sum over the rows so far
    observations: Float[Array, ""]  # so far


class SequentialVAE(eqx.Module):
    """Sequential VAE, a deep Kalman filter; a cell for `Filter`.

    - prior: `p(z_i | z_{i-1}, gap) = N(mu_p, s_p^2)`, `(u, v) = MLP([z_{i-1}, gap])`,
      `mu_p = z_{i-1} + (1 - exp(-gap)) (u - z_{i-1})`, `s_p = softplus(v)`: no time, no move, and whatever was added
      in hundreds of rows fades; `z_0 = 0`;
    - rows so far: `r_i = GRU([x_i, m_i, gap], r_{i-1})`, x being 0 where missing: nothing is seen ahead of its time;
    - posterior: `q(z_i | z_{i-1}, r_i) = N(mu_q, s_q^2)`, `(w, y) = MLP([mu_p, r_i])`, `mu_q = mu_p + w`,
      `s_q = softplus(y)`.

    All standard deviations have 0.001 added to them. While training z_i is drawn from q; in inference mode
    (`equinox.nn.inference_mode`) it is the mean, so that a prediction is not a matter of chance.

    Heads see the prior at the time they ask about: its mean and its standard deviation, `size = 2 * latent` numbers.
    The penalty is the sum of `KL(q_i || p_i)` over the rows divided by the number of observed values: a loss per
    value plus this penalty is an ELBO per value, however long the series. With a weight of 1 from the start, training
    may settle on a posterior that ignores the rows; a smaller `Forecast(penalty=...)` prevents that.
    """

    prior: eqx.nn.MLP
    posterior: eqx.nn.MLP
    unit: GRUCell
    latent: int = eqx.field(static=True)
    inference: bool

    def __init__(
        self, variables: int, latent: int, hidden: int, width: int = 50, *, inference: bool = False, key: PRNGKeyArray
    ):
        one, two, three = jax.random.split(key, 3)
        self.prior = mlp(latent + 1, 2 * latent, width, 1, key=one)
        self.posterior = mlp(latent + hidden, 2 * latent, width, 1, key=two)
        self.unit = GRUCell(2 * variables + 1, hidden, key=three)
        self.latent = latent
        self.inference = inference

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return 2 * self.latent

    def start(self) -> Belief:
        dtype = self.unit.weight_hh.dtype
        zero = jnp.zeros((), dtype)
        return Belief(jnp.zeros(self.latent, dtype), jnp.zeros(self.unit.hidden_size, dtype), zero, zero, zero)

    def drift(self, state: Belief, gap: Float[Array, ""]) -> Belief:
        return state._replace(gap=state.gap + gap)

    def update(self, state: Belief, values, observed, key: PRNGKeyArray) -> Belief:
        prior_mean, prior_sd = self._prior(state)
        row = jnp.concatenate([values, observed.astype(values.dtype), state.gap[None]])
        rows = self.unit(row, state.rows)
        move, spread = jnp.split(self.posterior(jnp.concatenate([prior_mean, rows])), 2)
        mean, sd = prior_mean + move, _positive(spread)
        divergence = jnp.log(prior_sd / sd) + (sd**2 + move**2) / (2 * prior_sd**2) - 0.5
        latent = mean if self.inference else mean + sd * jax.random.normal(key, mean.shape, mean.dtype)
        return Belief(
            latent,
            rows,
            jnp.zeros_like(state.gap),
            state.divergence + jnp.sum(divergence),
            state.observations + jnp.sum(observed),
        )

    def read(self, state: Belief) -> Float[Array, " size"]:
        return jnp.concatenate(self._prior(state))

    def penalty(self, state: Belief) -> Float[Array, ""]:
        return state.divergence / jnp.maximum(state.observations, 1)

    def _prior(self, state: Belief) -> tuple[Array, Array]:
        goal, spread = jnp.split(self.prior(jnp.append(state.latent, state.gap)), 2)
        return state.latent - jnp.expm1(-state.gap) * (goal - state.latent), _positive(spread)


def _positive(x: Array) -> Array:
    return jax.nn.softplus(x) + _LEAST_SD


class RNNVAE(eqx.Module):
    """RNN-VAE: a gated recurrent unit reads a series backwards in time into `z0 ~ N(mean, sd^2)`, another tells it.

    `h_0 = z0` at time `start`, `h_j = GRU([decode(h_{j-1}), 1, t_j - t_{j-1}], h_{j-1})` over the query times in
    order, where 1 is a mask of ones. A time that is queried again has the same answer; but an answer does depend on
    which times are queried before it, since each of them is a step.

    `samples` is how many z0 are drawn for each series; 0 takes the mean and has no KL penalty. The summary is the mean
    of z0, the penalty `KL(q || N(0, 1))`, mean over its dimensions.
    """

    encoder: GRUEncoder
    to_latent: eqx.nn.MLP
    unit: GRUCell
    decode: eqx.nn.MLP
    samples: int = eqx.field(static=True)
    start: float = eqx.field(static=True)

    def __init__(
        self,
        variables: int,
        latent: int,
        hidden: int,
        width: int = 50,
        samples: int = 3,
        start: float = 0.0,
        *,
        key: PRNGKeyArray,
    ):
        one, two, three, four = jax.random.split(key, 4)
        self.encoder = GRUEncoder(variables, hidden, key=one)
        self.to_latent = mlp(hidden, 2 * latent, width, 1, key=two)
        self.unit = GRUCell(2 * variables + 1, latent, key=three)
        self.decode = mlp(latent, variables, width, 1, key=four)
        self.samples = samples
        self.start = start

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        posterior = self.posterior(series)
        z0, penalty = posterior.draw(self.samples, key)
        states = jax.vmap(jax.vmap(self._tell), in_axes=(0, None))(z0, jnp.asarray(times))
        summary = jnp.broadcast_to(posterior.mean, z0.shape)
        return Trace(states, summary, penalty, None, Stats.none(z0.shape[0] * z0.shape[1]), None, None)

    def posterior(self, series: Series) -> Posterior:
        return Posterior.of(self.encoder(series), self.to_latent)

    def _tell(self, z0: Float[Array, " latent"], times: Float[Array, " queries"]) -> Float[Array, "queries latent"]:
        order = jnp.argsort(times)
        ordered = times[order]
        gaps = jnp.diff(ordered, prepend=jnp.asarray(self.start, times.dtype)).astype(z0.dtype)

        def step(h, gap):
            said = self.decode(h)
            new = self.unit(jnp.concatenate([said, jnp.ones_like(said), gap[None]]), h)
            h = jnp.where(gap == 0, h, new)
            return h, h

        told = lax.scan(step, z0, gaps)[1]
        return jnp.zeros_like(told).at[order].set(told)
