"""Slope matching: the equations of a unit filter from the slopes between rows, before any ODE is solved.

Halfway between two rows, dt apart, a series of noise sigma has the slope

    (x(t + dt) - x(t)) / dt = b(h_i) + sum_j w_ij m(h_i, h_j) + e_i,    e_i ~ N(0, 2 sigma^2 / dt^2),

with h the mean of the two. In a window of consecutive rows the weights are taken as constant. They are not known but
Gaussian, `w_i ~ N(0, I)`, so they are integrated out: what is maximised is the marginal likelihood of the slopes, over
b, m and sigma. That costs no solve, so it takes seconds where training through the filter takes hours, and gives the
filter a start from which it learns the rest.

It goes in three phases. Units alone, with weights of 0. Then messages from several first weights, of which the best is
kept, for some end in a local optimum; in this phase each window also has a linear motion of its own for every row, so
that messages do not learn what a row does by itself (the sum of its weights would then tell that, instead of
influence). At last without it. The sign of messages and weights together is arbitrary: it is chosen so that a positive
weight draws a row towards the other.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import mlp
from ..ode import CoEvolvingODE, LeastSquares, LeastSquaresUpdate
from ..series import Series
from .gru_ode_bayes import GRUODEBayes
from .unit_filter import OracleUpdate


class Slopes(NamedTuple):
    """Between consecutive rows; those of weight 0 do not count."""

    middle: Float[Array, "samples gaps units channels"]
    slope: Float[Array, "samples gaps units channels"]
    weight: Float[Array, "samples gaps"]  # dt, or 0


def slopes(series: Series, channels: int, longest: float = jnp.inf) -> Slopes:
    """Of complete rows that are at most `longest` apart."""
    values, times = jnp.asarray(series.values), jnp.asarray(series.times)
    complete = jnp.asarray(series.observed).all(axis=2)
    gap = jnp.diff(times, axis=1)
    counts = complete[:, 1:] & complete[:, :-1] & (gap > 0) & (gap <= longest)
    split = (*values.shape[:1], values.shape[1] - 1, -1, channels)
    slope = jnp.diff(values, axis=1) / jnp.where(counts, gap, 1.0)[..., None]
    middle = (values[:, 1:] + values[:, :-1]) / 2
    return Slopes(middle.reshape(split), slope.reshape(split), jnp.where(counts, gap, 0.0))


def negative_log_likelihood(
    ode: CoEvolvingODE,
    log_sigma: Float[Array, " channels"],
    given: Slopes,
    influence: float = 1.0,
    own_motion: bool = False,
) -> Float[Array, ""]:
    """Marginal, a slope, of windows (the samples of `given`) in each of which the weights are constant.

    With `influence` 0 units are alone. With `own_motion` each window has a linear motion of its own, integrated out
    like the weights.
    """
    windows, rows, units, channels = given.middle.shape
    flat = given.middle.reshape(-1, units, channels)

    def terms(h):
        """What moves a row if all weights are 0, and what each of its weights adds."""
        attended = influence * ode.attention(h, jnp.zeros(ode.attention.shape(h.shape), h.dtype))
        return ode.f(jnp.zeros((), h.dtype), attended, h), attended[:, 1:]

    constant, sensitivity = jax.vmap(terms)(flat)
    # Each equation divided by the deviation of its noise; (windows, units, equations) from here on.
    precision = given.weight[:, :, None] / (jnp.sqrt(2.0) * jnp.exp(log_sigma))
    error = (given.slope - constant.reshape(given.slope.shape)) * precision[:, :, None]
    y = jnp.moveaxis(error, 2, 1).reshape(windows, units, -1)
    x = sensitivity.reshape(windows, rows, units, units, channels) * precision[:, :, None, None]
    x = jnp.transpose(x, (0, 2, 1, 4, 3)).reshape(windows, units, rows * channels, units)
    if own_motion:  # entry (k, l) adds h_l to the slope of channel k
        own = precision[:, :, None, :, None, None] * jnp.eye(channels)[:, :, None] * given.middle[..., None, None, :]
        own = jnp.moveaxis(own, 2, 1).reshape(windows, units, rows * channels, channels**2)
        x = jnp.concatenate([x, own], axis=-1)
    normal = jnp.einsum("wiea,wieb->wiab", x, x) + jnp.eye(x.shape[-1], dtype=x.dtype)
    projected = jnp.einsum("wiea,wie->wia", x, y)
    factor = jnp.linalg.cholesky(normal)
    solved = lax.linalg.triangular_solve(factor, projected[..., None], left_side=True, lower=True)[..., 0]
    log_determinant = 2 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum()
    counts = (given.weight > 0).sum()
    total = jnp.square(y).sum() - jnp.square(solved).sum() + log_determinant + 2 * units * counts * log_sigma.sum()
    return 0.5 * total / jnp.maximum(counts * units * channels, 1)


class Phase(NamedTuple):
    """So many steps at this rate, with these settings of `negative_log_likelihood`."""

    steps: int
    learning_rate: float
    influence: float
    own_motion: bool


def match_slopes(
    model: GRUODEBayes,
    series: Series,
    *,
    steps: tuple[int, int, int] = (100, 40, 200),
    starts: int = 8,
    batch: int = 16,
    window: int = 20,
    longest: float = jnp.inf,
    learning_rate: float = 1e-2,
    key: PRNGKeyArray,
) -> GRUODEBayes:
    """A filter of `unit_filter` whose f and messages match the slopes of the series.

    **Arguments:**

    - `steps`: of Adam, in each of the three phases.
    - `starts`: how many first messages are tried.
    - `batch`, `window`: series a step, and rows (at most) in which the weights count as constant.
    - `longest`: rows further apart say nothing of a slope.
    """
    emission: Any = model.emission
    channels = len(emission.log_noise)
    if series.values.shape[1] < 2:
        raise ValueError("match_slopes(series=...): the series have one row; a slope needs two.")
    window = min(window, series.values.shape[1] - 1)
    given = slopes(series, channels, longest)
    batch = min(batch, len(given.weight))
    alone, several, last = (
        Phase(steps[0], 3 * learning_rate, 0.0, False),
        Phase(steps[1], learning_rate, 1.0, True),
        Phase(steps[2], learning_rate, 1.0, False),
    )
    keys = jax.random.split(key, 3 + starts)
    ode, log_sigma, _ = _matched(model.ode, jnp.full(channels, jnp.log(0.1)), given, alone, batch, window, keys[0])
    shape = ode.attention.signed.message
    sizes = (shape.in_size, shape.out_size, shape.width_size, shape.depth)

    def started(key):
        one, two = jax.random.split(key)
        fresh = eqx.tree_at(lambda o: o.attention.signed.message, ode, mlp(*sizes, key=one))
        matched, sigma, loss = _matched(fresh, log_sigma, given, several, batch, window, two)
        return eqx.filter(matched, eqx.is_array), sigma, loss

    # One after the other: side by side they take as long on a CPU, and more memory.
    _, static = eqx.partition(ode, eqx.is_array)
    arrays, log_sigmas, losses = lax.map(started, keys[3:])
    best = jnp.argmin(losses)
    ode, log_sigma = jax.tree.map(lambda x: x[best], (arrays, log_sigmas))
    ode = eqx.combine(ode, static)
    ode, log_sigma, _ = _matched(ode, log_sigma, given, last, batch, window, keys[1])
    ode = eqx.tree_at(lambda o: o.attention, ode, _towards(ode.attention, given))
    ode = eqx.tree_at(lambda o: _update(o).log_noise, ode, 2 * log_sigma)
    return eqx.tree_at(lambda m: (m.ode, m.emission.log_noise), model, (ode, 2 * log_sigma))


def _matched(ode: CoEvolvingODE, log_sigma, given: Slopes, phase: Phase, batch: int, window: int, key: PRNGKeyArray):
    """The ODE and sigma after a phase, and the mean loss of its last fifth."""
    parameters, rest = eqx.partition((ode.f, ode.attention), eqx.is_inexact_array)
    series, gaps = given.weight.shape
    count = gaps // window

    def loss(parameters, piece: Slopes):
        f, attention = eqx.combine(parameters[0], rest)
        moved = eqx.tree_at(lambda o: (o.f, o.attention), ode, (f, attention))
        return negative_log_likelihood(moved, parameters[1], piece, phase.influence, phase.own_motion)

    rate = optax.warmup_cosine_decay_schedule(0.0, phase.learning_rate, phase.steps // 10, phase.steps, 0.0)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))

    def step(state, key):
        parameters, moments = state
        one, two = jax.random.split(key)
        which = jax.random.permutation(one, series)[:batch]
        start = jax.random.randint(two, (), 0, gaps - count * window + 1)
        cut = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x[which], start, count * window, 1), given)
        piece = jax.tree.map(lambda x: x.reshape(batch * count, window, *x.shape[2:]), cut)
        value, gradient = jax.value_and_grad(loss)(parameters, piece)
        update, moments = optimiser.update(gradient, moments, parameters)
        moved: Any = optax.apply_updates(parameters, update)
        return (moved, moments), value

    start: Any = ((parameters, log_sigma), optimiser.init((parameters, log_sigma)))
    ((parameters, log_sigma), _), losses = lax.scan(step, start, jax.random.split(key, phase.steps))
    f, attention = eqx.combine(parameters, rest)
    moved = eqx.tree_at(lambda o: (o.f, o.attention), ode, (f, attention))
    return moved, log_sigma, losses[-max(1, phase.steps // 5) :].mean()


def _towards(attention: LeastSquares, given: Slopes) -> LeastSquares:
    """Messages that, with a positive weight, draw a row towards the other; both signs match the slopes as well."""

    def pull(h):
        towards = h[None] - h[:, None]
        return (towards * attention.signed.messages(h)).sum()

    counts = given.weight > 0
    total = jnp.where(counts, jax.vmap(jax.vmap(pull))(given.middle), 0.0).sum()
    last = lambda a: (a.signed.message.layers[-1].weight, a.signed.message.layers[-1].bias)  # noqa: E731
    return eqx.tree_at(last, attention, replace_fn=lambda x: jnp.where(total < 0, -x, x))


def _update(ode) -> LeastSquaresUpdate:
    return ode.update.update if isinstance(ode.update, OracleUpdate) else ode.update
