"""Least-squares attention: signed weights that are identified from the motion itself, by observations.

Between two observations the messages add up, `ds_ij/dt = m(h_i, h_j)`: so much would row i have moved more, had its
weight w_ij been larger by one. An observed value of row i is compared with what was predicted; the error e_i is
explained by the weights, `e_i = sum_j s_ij (w_ij* - w_ij)`, by the uncertainty v_i of h_i and by the noise of the
observation. The correction is that of recursive least squares, with a covariance P_i of the weights that observations
narrow and time widens:

    w_i <- w_i + P_i s_i e_i / c_i,    c_i = s_i^T P_i s_i + v_i + r,    dP_i/dt = -2 rho (P_i - p I)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .attention import Attention
from .coevolve import Assimilation
from .fields import VectorField
from .signed import Signed


class LeastSquares(Attention):
    """`Signed` messages whose weights come with what estimates them.

    `a` has a row for every row i of the state: w_i (rows), s_i (rows x channels), P_i (rows x rows), v_i (channels) and
    a surprise. The attended state has, for every row, the weighted sum of its messages, and then the messages
    themselves, which g adds up.
    """

    signed: Signed
    channels: int = eqx.field(static=True)

    def __init__(self, channels: int, width: int = 32, hidden: int = 1, *, key: PRNGKeyArray):
        self.signed = Signed(channels, 1, width, hidden, key=key)
        self.channels = channels

    def weights(self, a: Float[Array, "*batch n packed"]) -> Float[Array, "*batch n n"]:
        return self.signed.weights(a[..., : a.shape[-2]])

    def __call__(self, h: Float[Array, "n c"], a: Float[Array, "n packed"]) -> Float[Array, "n m c"]:
        messages = self.signed.messages(h) * (1 - jnp.eye(len(h), dtype=h.dtype))[..., None]
        total = jnp.einsum("ij,ijc->ic", a[:, : len(h)], messages)
        return jnp.concatenate([total[:, None], messages], axis=1)

    def shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        rows, channels = h_shape
        return (rows, rows + rows * channels + rows * rows + channels + 1)


def _unpack(a: Float[Array, "n packed"], channels: int) -> tuple[Array, Array, Array, Array, Array]:
    """w (n, n), s (n, n, c), P (n, n, n), v (n, c) and surprise (n,)."""
    n = len(a)
    ends = (n, n + n * channels, n + n * channels + n * n, n + n * channels + n * n + channels)
    w, s, p, v, surprise = jnp.split(a, ends, axis=1)
    return w, s.reshape(n, n, channels), p.reshape(n, n, n), v, surprise[:, 0]


def _pack(w, s, p, v, surprise) -> Float[Array, "n packed"]:
    n = len(w)
    return jnp.concatenate([w, s.reshape(n, -1), p.reshape(n, -1), v, surprise[:, None]], axis=1)


class LeastSquaresField(VectorField):
    """g: messages add up, uncertainty grows and forgets, the weights are kept."""

    log_noise: Float[Array, " c"]  # growth of v, variance a unit of time
    log_prior: Float[Array, ""]  # p, the variance of a weight of which nothing is known
    log_forgetting: Float[Array, ""]  # rho
    log_fading: Float[Array, ""]  # of the surprise
    takes = ("attended", "attention")

    def __init__(self, channels: int, noise: float = 0.01, prior: float = 1.0, forgetting: float = 0.1):
        self.log_noise = jnp.full(channels, jnp.log(noise))
        self.log_prior, self.log_forgetting, self.log_fading = jnp.log(jnp.asarray([prior, forgetting, 2.0]))

    def __call__(self, t, attended: Float[Array, "n m c"], a: Float[Array, "n packed"]) -> Float[Array, "n packed"]:
        w, s, p, v, surprise = _unpack(a, attended.shape[2])
        rate, prior = jnp.exp(self.log_forgetting), jnp.exp(self.log_prior)
        dp = -2 * rate * (p - prior * jnp.eye(len(a), dtype=a.dtype))
        dv = jnp.broadcast_to(jnp.exp(self.log_noise), v.shape)
        return _pack(jnp.zeros_like(w), attended[:, 1:], dp, dv, -jnp.exp(self.log_fading) * surprise)


class LeastSquaresInitial(eqx.Module):
    """a(0): the weights `mean`, of which nothing is known yet, the same for every sample."""

    mean: Float[Array, "n n"]
    log_state: Float[Array, " c"]  # v
    log_prior: Float[Array, ""]  # p

    def __init__(self, rows: int, channels: int, state: float = 1.0, prior: float = 1.0):
        self.mean = jnp.zeros((rows, rows))
        self.log_state = jnp.full(channels, jnp.log(state))
        self.log_prior = jnp.log(jnp.asarray(prior))

    def __call__(self, h0: Float[Array, "batch n c"]) -> Float[Array, "batch n packed"]:
        batch, n, channels = h0.shape
        p = jnp.broadcast_to(jnp.exp(self.log_prior) * jnp.eye(n), (n, n, n))
        v = jnp.broadcast_to(jnp.exp(self.log_state), (n, channels))
        a = _pack(self.mean, jnp.zeros((n, n, channels)), p, v, jnp.zeros(n))
        return jnp.broadcast_to(a, (batch, *a.shape)).astype(h0.dtype)


class LeastSquaresUpdate(Assimilation):
    """What observed values do to h and a, one channel after the other.

    Errors that are larger than expected for a while say that the influence has switched: P then grows by `prior`, and
    what comes next counts more.
    """

    log_noise: Float[Array, " c"]  # r
    log_prior: Float[Array, ""]
    gate: Float[Array, "2"]  # slope and threshold of the reaction to surprise

    def __init__(self, channels: int, noise: float = 0.01, prior: float = 1.0):
        self.log_noise = jnp.full(channels, jnp.log(noise))
        self.log_prior = jnp.log(jnp.asarray(prior))
        self.gate = jnp.asarray([1.0, 4.0])

    def __call__(
        self, h: Float[Array, "n c"], a: Float[Array, "n packed"], x: Float[Array, " nc"], observed: Bool[Array, " nc"]
    ) -> tuple[Array, Array]:
        channels = h.shape[1]
        w, s, p, v, surprise = _unpack(a, channels)
        seen = observed.reshape(h.shape).astype(h.dtype)
        error, noise = seen * (x.reshape(h.shape) - h), jnp.exp(self.log_noise)
        spread = jnp.einsum("ijc,ijk,ikc->ic", s, p, s) + v + noise
        unlikely = seen * (jnp.square(error) / spread - 1)
        any_seen = seen.max(axis=1)
        surprise = surprise + unlikely.sum(axis=1) / jnp.maximum(seen.sum(axis=1), 1)
        switched = any_seen * jax.nn.sigmoid(self.gate[0] * (surprise - self.gate[1]))
        p = p + jnp.exp(self.log_prior) * switched[:, None, None] * jnp.eye(len(a), dtype=a.dtype)
        for c in range(channels):
            ps = jnp.einsum("ijk,ik->ij", p, s[..., c])
            explained = (s[..., c] * ps).sum(axis=1)
            total = explained + v[:, c] + noise[c]
            gain = seen[:, c, None] * ps / total[:, None]
            own = seen[:, c] * (explained + v[:, c]) / total
            step = gain * error[:, c, None]
            w, p = w + step, p - gain[:, :, None] * ps[:, None, :]
            # What the weights have learned moves the other channels, and is no error of theirs any more.
            moved = jnp.einsum("ij,ijc->ic", step, s).at[:, c].set(own * error[:, c])
            h, error = h + moved, error - seen * moved
            v = v.at[:, c].multiply(1 - seen[:, c] * v[:, c] / total)
            s = s.at[..., c].multiply((1 - own)[:, None])
        return h, _pack(w, s, p, v, surprise)
