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
from .constant import Constant
from .fields import VectorField
from .signed import Signed
from .updates import Assimilation


class LeastSquares(Attention):
    """`Signed` messages whose weights come with what estimates them.

    `a` has a row for every row i of the state: w_i (rows), s_i (rows x channels), P_i (rows x rows), v_i (channels) and
    a surprise. The attended state has, for every row, the weighted sum of its messages, and then the messages
    themselves, which g adds up.

    `additive` is a control that has the same parts: weights are added to the messages, not multiplied by them.
    """

    signed: Signed
    additive: bool = eqx.field(static=True)

    def __init__(self, channels: int, width: int = 32, hidden: int = 1, additive: bool = False, *, key: PRNGKeyArray):
        self.signed = Signed(channels, 1, width, hidden, key=key)
        self.additive = additive

    def weights(self, a: Float[Array, "*batch n packed"]) -> Float[Array, "*batch n n"]:
        return self.signed.weights(a[..., : a.shape[-2]])

    def __call__(self, h: Float[Array, "n c"], a: Float[Array, "n packed"]) -> Float[Array, "n m c"]:
        others = (1 - jnp.eye(len(h), dtype=h.dtype))[..., None]
        messages, weights = self.signed.messages(h), a[:, : len(h), None]
        total = (others * (weights + messages if self.additive else weights * messages)).sum(axis=1)
        sensitivity = others * (jnp.ones_like(messages) if self.additive else messages)
        return jnp.concatenate([total[:, None], sensitivity], axis=1)

    def output(self, h: Float[Array, "n c"], a: Float[Array, "n packed"]) -> Float[Array, "n 2*c"]:
        """h, and the logarithm of its variance, `v_i + s_i^T P_i s_i`."""
        _, s, p, v, _ = _unpack(a, h.shape[1])
        ps = (p[..., None] * s[:, None]).sum(axis=2)
        return jnp.concatenate([h, jnp.log(jnp.maximum(v + (s * ps).sum(axis=1), 1e-6))], axis=1)

    def of_weights(self, a: Float[Array, "n packed"], given: Float[Array, "n n"]) -> Float[Array, "n packed"]:
        return jnp.concatenate([given, a[:, len(a) :]], axis=1)

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
    adapts: bool = eqx.field(static=True)
    takes = ("attended", "attention")

    def __init__(
        self, channels: int, adapts: bool = True, *, noise: float = 0.01, prior: float = 1.0, forgetting: float = 0.1
    ):
        self.adapts = adapts
        self.log_noise = jnp.full(channels, jnp.log(noise))
        self.log_prior, self.log_forgetting, self.log_fading = jnp.log(jnp.asarray([prior, forgetting, 2.0]))

    @property
    def keeps_weights(self) -> bool:
        return not self.adapts

    def __call__(self, t, attended: Float[Array, "n m c"], a: Float[Array, "n packed"]) -> Float[Array, "n packed"]:
        w, _, p, v, surprise = _unpack(a, attended.shape[2])
        rate, prior = jnp.exp(self.log_forgetting), jnp.exp(self.log_prior)
        dp = -2 * rate * (p - self.adapts * prior * jnp.eye(len(a), dtype=a.dtype))
        dv = jnp.broadcast_to(jnp.exp(self.log_noise), v.shape)
        return _pack(jnp.zeros_like(w), attended[:, 1:], dp, dv, -jnp.exp(self.log_fading) * surprise)


class LeastSquaresInitial(eqx.Module):
    """a(0): the weights `mean`, of which nothing is known yet, the same for every sample.

    Without `adapts` they count as known for certain, so that no observation moves them.
    """

    mean: Array | Constant
    log_state: Float[Array, " c"]  # v
    log_prior: Float[Array, ""]  # p
    adapts: bool = eqx.field(static=True)

    def __init__(
        self, mean: Array | Constant, channels: int, adapts: bool = True, *, state: float = 1.0, prior: float = 1.0
    ):
        self.mean = mean
        self.log_state = jnp.full(channels, jnp.log(state))
        self.log_prior = jnp.log(jnp.asarray(prior))
        self.adapts = adapts

    def __call__(self, h0: Float[Array, "batch n c"]) -> Float[Array, "batch n packed"]:
        batch, n, channels = h0.shape
        p = jnp.broadcast_to(self.adapts * jnp.exp(self.log_prior) * jnp.eye(n), (n, n, n))
        v = jnp.broadcast_to(jnp.exp(self.log_state), (n, channels))
        mean = self.mean.value if isinstance(self.mean, Constant) else self.mean
        a = _pack(mean, jnp.zeros((n, n, channels)), p, v, jnp.zeros(n))
        return jnp.broadcast_to(a, (batch, *a.shape)).astype(h0.dtype)


class LeastSquaresUpdate(Assimilation):
    """What observed values do to h and a, one channel after the other.

    Errors that are larger than expected for a while say that the influence has switched: P then grows by `prior`, and
    what comes next counts more.
    """

    log_noise: Float[Array, " c"]  # r
    log_prior: Float[Array, ""]
    gate: Float[Array, "2"]  # slope and threshold of the reaction to surprise
    adapts: bool = eqx.field(static=True)

    def __init__(self, channels: int, adapts: bool = True, *, noise: float = 0.01, prior: float = 1.0):
        self.adapts = adapts
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
        # Sums of products, not products of matrices: on a CPU many small ones of those are slow.
        ps = (p[..., None] * s[:, None]).sum(axis=2)
        spread = (s * ps).sum(axis=1) + v + noise
        unlikely = seen * (jnp.square(error) / spread - 1)
        any_seen = seen.max(axis=1)
        surprise = surprise + unlikely.sum(axis=1) / jnp.maximum(seen.sum(axis=1), 1)
        switched = any_seen * jax.nn.sigmoid(self.gate[0] * (surprise - self.gate[1]))
        more = self.adapts * jnp.exp(self.log_prior) * switched
        p = p + more[:, None, None] * jnp.eye(len(a), dtype=a.dtype)
        for c in range(channels):
            ps = (p * s[:, None, :, c]).sum(axis=2)
            explained = (s[..., c] * ps).sum(axis=1)
            total = explained + v[:, c] + noise[c]
            gain = seen[:, c, None] * ps / total[:, None]
            own = seen[:, c] * (explained + v[:, c]) / total
            step = gain * error[:, c, None]
            w, p = w + step, p - gain[:, :, None] * ps[:, None, :]
            # What the weights have learned moves the other channels, and is no error of theirs any more.
            this = jnp.arange(channels) == c
            moved = jnp.where(this, (own * error[:, c])[:, None], (step[..., None] * s).sum(axis=1))
            h, error = h + moved, error - seen * moved
            v = jnp.where(this, v * (1 - seen * v / total[:, None]), v)
            s = jnp.where(this, s * (1 - own)[:, None, None], s)
        return h, _pack(w, s, p, v, surprise)
