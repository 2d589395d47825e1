"""GRU-ODE-Bayes: a hidden state that follows an ODE between observations and jumps at each of them.

Which ODE is the whole difference between GRU-ODE-Bayes, Augmented-GRU-ODE-Bayes and ACE-GRU-ODE-Bayes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..layers import GRUCell, Linear
from ..ode import Correction, Covariance, Stats
from ..ode.accumulated import started
from ..ode.covariance import directional
from ..ode.evolve import advance
from ..ode.solver import Status, status_where
from ..series import Series
from .masked_scan import masked_scan
from .time_grid import time_grid
from .trace import Trace

_POSTERIOR_SD = 0.01  # standard deviation to which the state after a jump is drawn around the observed value


class Emission(eqx.Module):
    """From a state to the mean and the log variance of every variable: Linear, ReLU, dropout, Linear."""

    first: Linear
    last: Linear

    def __init__(self, size: int, variables: int, width: int = 25, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.first, self.last = _xavier(size, width, one), _xavier(width, 2 * variables, two)

    def __call__(self, h: Float[Array, " size"], keep: Array | float = 1.0) -> tuple[Array, Array]:
        """`keep` multiplies the hidden layer: a mask of dropout, or 1."""
        mean, log_variance = jnp.split(self.last(keep * jax.nn.relu(self.first(h))), 2)
        return mean, log_variance

    @property
    def width(self) -> int:
        return self.first.weight.shape[0]


class CovarianceEmission(eqx.Module):
    """`Emission` of an h with a `Covariance`: `variance + diag(S S^T)` with `S = (d mean / dh) a`.

    It is given h and a behind it, as `Covariance.output` has them; for h alone it leaves the covariance out.
    """

    emission: Emission

    def __call__(self, output: Float[Array, " both"], keep: Array | float = 1.0) -> tuple[Array, Array]:
        size = self.emission.first.weight.shape[1]
        h, a = output[:size], output[size:].reshape(-1, size)
        mean, log_variance = self.emission(h, keep)
        if a.shape[0] == 0:
            return mean, log_variance
        _, along = directional(lambda h: self.emission(h, keep)[0], h, a)
        return mean, jnp.logaddexp(log_variance, jnp.log(jnp.sum(jnp.square(along), axis=0) + 1e-8))

    @property
    def width(self) -> int:
        return self.emission.width


class Jump(eqx.Module):
    """What an observation does to h: a GRU cell on what each variable has to say.

    Variable j says relu(w_j [x, mean, log variance, e] + b_j) with e = (x - mean) / sd, or nothing where it was not
    observed.
    """

    weight: Float[Array, "variables 4 prepared"]
    bias: Float[Array, "variables prepared"]
    cell: GRUCell

    def __init__(self, size: int, variables: int, prepared: int = 10, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.weight = jax.random.normal(one, (variables, 4, prepared)) * np.sqrt(2 / (4 + prepared))
        self.bias = jnp.full((variables, prepared), 0.1, float)
        self.cell = GRUCell(variables * prepared, size, key=two)

    def __call__(self, h, x, observed, mean, log_variance) -> Float[Array, " size"]:
        error = (x - mean) * jnp.exp(-0.5 * log_variance)
        says = jnp.stack([x, mean, log_variance, error], axis=-1)
        # A sum, not a product of tiny matrices: the compiler merges it with its surroundings.
        prepared = jax.nn.relu((says[:, :, None] * self.weight).sum(axis=1) + self.bias)
        return self.cell(jnp.ravel(prepared * observed[:, None]), h)


class Memory(NamedTuple):
    """What a fitted model knows of a batch of series so far: its state, and the time up to which it holds."""

    state: Any
    time: Float[Array, " batch"]


class FirstState(eqx.Module):
    """h(0), the same for every series but for dropout, as there are no covariates: tanh(W2 relu(b1) + b2)."""

    layers: tuple[Linear, Linear]

    def __init__(self, size: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.layers = (_xavier(1, size, one), _xavier(size, size, two))

    def __call__(self, keep: Array | float = 1.0) -> Float[Array, " size"]:
        hidden = jax.nn.relu(self.layers[0](jnp.zeros(1)))
        return jnp.tanh(self.layers[1](keep * hidden))

    @property
    def width(self) -> int:
        return self.layers[0].weight.shape[0]


class GRUODEBayes(eqx.Module):
    """h(t) follows `ode` by steps of its solver, cut at observations and queries; an observed row changes it by `jump`.

    - `first(keep) -> h(0)`, `jump(h, x, observed, mean, log_variance) -> h`, `emission(h, keep) -> (mean,
      log_variance)`: for one series; `gru_ode_bayes` makes those of the paper. Without a `jump`, the `update` of the
      ODE is an `Assimilation` and takes the observed values itself;
    - `ode` is any with `begin`, `slope`, `hidden` and `jump`: `NeuralODE`, `AugmentedODE`, `CoEvolvingODE`. Its solver
      has a fixed step, which is the largest one taken. Its `max_steps` are those that a series may take, e.g. its span
      over the step and one for each row whose time is not a whole number of steps; a series that needs more fails,
      with a status, and so does one with rows before `start`;
    - `dropout` acts on the first state and on the emission wherever it is evaluated, one mask a series and call;
    - `history(series) -> a(0)`, for a batch, reads the first attention of a `CoEvolvingODE` from the whole context;
    - `mixing` weights the penalty: the divergence of the state's emission after a jump from a narrow peak at the value.

    The state at a queried time has seen the rows strictly before it.
    """

    first: Callable
    ode: Any
    jump: Callable | None
    emission: Callable
    start: float = eqx.field(static=True, default=0.0)
    dropout: float = eqx.field(static=True, default=0.2)
    mixing: float = eqx.field(static=True, default=1e-4)
    inference: bool = False
    history: Callable | None = None

    def __check_init__(self):
        if self.ode.solver.adaptive:
            raise ValueError(
                "GRUODEBayes(ode=...): its solver adapts its steps, and observations cut them here: give the ODE a "
                "solver with a fixed step, e.g. Solver('euler', step=0.1)."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"GRUODEBayes(dropout={self.dropout}): from 0 to below 1.")

    def __call__(
        self,
        series: Series,
        times: Float[Array | np.ndarray, "batch queries"],
        key: PRNGKeyArray,
        *,
        attention: bool = False,
    ) -> Trace:
        values, observed = jnp.asarray(series.values), jnp.asarray(series.observed)
        batch = values.shape[0]
        seen = observed.any(axis=2) & (jnp.arange(values.shape[1]) < jnp.asarray(series.length)[:, None])
        lay = lambda t, s, q: time_grid(t, s, q, self.start, self.ode.solver.step, self.ode.solver.max_steps)  # noqa: E731
        laid = jax.vmap(lay)(jnp.asarray(series.times, values.dtype), seen, jnp.asarray(times, values.dtype))
        keep_start, keep = self._masks(batch, key)
        weights = None if self.history is None else self.history(series)
        ode, begin = started(self.ode, jax.vmap(self.first)(keep_start), weights)
        met = jax.vmap(lambda of, row: of[row])
        x, o = met(values, laid.row), met(observed, laid.row) & (laid.row >= 0)[..., None]
        # A move of the scan is the row of one step and the way through the next, so that the states before the moves
        # are those before the rows.
        late = lambda leaf: jnp.pad(leaf.swapaxes(0, 1), ((1, 0), *((0, 0),) * (leaf.ndim - 1)))  # noqa: E731
        early = lambda leaf: jnp.pad(leaf.T, ((0, 1), (0, 0)))  # noqa: E731
        xs = (late(x), late(o), early(laid.time), early(laid.dt))
        step = _GridStep(eqx.tree_at(lambda m: m.ode, self, ode), keep)
        last, path = masked_scan(step, begin, xs, xs[1].any(axis=2) | (xs[3] != 0))
        before = jax.tree.map(lambda leaf: leaf[1:], path)
        pick = jax.vmap(lambda path, at: path[at], in_axes=(1, 0))
        queried = jax.tree.map(lambda leaf: pick(leaf, laid.query), before)
        rows_at = jax.vmap(lambda row: _row_places(row, values.shape[1]))(laid.row)
        too_early = (seen & (jnp.asarray(series.times) < self.start)).any(axis=1)
        status = status_where(laid.enough, Status.solved, Status.max_steps_reached)
        status = status_where(too_early, Status.bad_times, status)
        used, none = laid.used.astype(jnp.int32), jnp.zeros(batch, jnp.int32)
        return Trace(
            states=_zero_unless(status == Status.solved, _outputs(ode, queried))[None],
            summary=ode.hidden(last).reshape(1, batch, -1),
            penalty=self._penalty(pick(ode.hidden(before), rows_at), values, observed & seen[..., None], keep),
            attention=_logits(ode, queried)[None] if attention and hasattr(ode, "logits") else None,
            stats=Stats(used, none, used, used, status),
            # A renewed attention is one of states after observations; at the very start all series are the same.
            h0=ode.hidden(last if getattr(ode, "renew", False) else begin),
            times=None,
            keep=keep,
        )

    # --- one observation at a time ----------------------------------------------------------------------------

    def begin(self, batch: int = 1) -> Memory:
        """What is known before the first observation."""
        _, keep = self._masks(batch, None)
        return Memory(self.ode.begin(jax.vmap(self.first)(keep)), jnp.full(batch, self.start))

    def advance(self, memory: Memory, time: Float[Array, " batch"]) -> Memory:
        """The state carried on to a later time, in as many steps as the longest gap needs."""
        gap = time - memory.time
        steps = jnp.maximum(jnp.ceil(gap / self.ode.solver.step - 1e-3), jnp.where(gap > 0, 1, 0))
        dt = gap / jnp.maximum(steps, 1)

        def one(carry):
            k, state = carry
            moving = k < steps
            return k + 1, self._moved(state, memory.time + k * dt, jnp.where(moving, dt, 0.0))

        _, state = lax.while_loop(lambda c: (c[0] < steps).any(), one, (jnp.zeros(()), memory.state))
        return Memory(state, time)

    def observe(self, memory: Memory, values: Float[Array, "batch variables"], observed: Array) -> Memory:
        """The state after a row at the time up to which it holds."""
        return memory._replace(state=self._observed(memory.state, values, observed, 1.0))

    def emit(self, memory: Memory) -> tuple[Array, Array]:
        """Mean and log variance of every variable now."""
        return jax.vmap(self.emission)(self.ode.output(memory.state))

    # --- parts ------------------------------------------------------------------------------------------------

    def _masks(self, batch: int, key) -> tuple[Any, Any]:
        """Masks of dropout for the first state and for the emission; ones in inference mode."""
        if self.inference or self.dropout == 0 or key is None:
            return jnp.ones((batch, 1)), jnp.ones((batch, 1))
        widths = (self.first.width, self.emission.width)  # pyright: ignore[reportFunctionMemberAccess]
        rate = 1 - self.dropout
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(jnp.arange(batch))
        draw = lambda k, width: jax.random.bernoulli(k, rate, (width,)) / rate  # noqa: E731
        first, second = (jax.vmap(lambda k, w=w: draw(k, w))(keys[:, i]) for i, w in enumerate(widths))
        return first, second

    def _moved(self, state, time, dt):
        """A step of the solver (Equation 2)."""
        return advance(self.ode, time, dt, state)

    def _observed(self, state, x, observed, keep):
        jump = self.jump
        if jump is None:
            return self.ode.assimilate(state, x, observed)
        keep = jnp.broadcast_to(keep, (x.shape[0], 1)) if jnp.ndim(keep) == 0 else keep
        if isinstance(getattr(self.ode, "update", None), Correction):
            state = self.ode.correct(state, x, observed, lambda h, k: self.emission(h, k)[0], keep)
        h = self.ode.hidden(state)
        after = jax.vmap(lambda h, x, o, k: jump(h, x, o, *self.emission(h, k)))(h, x, observed, keep)
        return self.ode.jump(state, after, observed.any(axis=1))

    def _penalty(self, before: Float[Array, "batch rows ..."], values, observed, keep) -> Float[Array, " batch"]:
        """`mixing` times the mean over observed values of KL(N(mean, variance) after the jump || N(x, 0.01^2))."""
        jump = self.jump
        if not self.mixing or jump is None:
            return jnp.zeros(len(values))

        def one(h, x, o, k):
            mean, log_variance = self.emission(jump(h, x, o, *self.emission(h, k)), k)
            far = (jnp.exp(log_variance) + jnp.square(mean - x)) / (2 * _POSTERIOR_SD**2)
            return jnp.where(o, np.log(_POSTERIOR_SD) - 0.5 * log_variance + far - 0.5, 0.0)

        each = jax.vmap(jax.vmap(one, in_axes=(0, 0, 0, None)))(before, values, observed, keep)
        return self.mixing * each.sum(axis=(1, 2)) / jnp.maximum(observed.sum(axis=(1, 2)), 1)


class _GridStep(eqx.Module):
    """The step of the scan: meet a row, then advance."""

    model: GRUODEBayes
    keep: Array

    def __call__(self, state, x):
        values, observed, time, dt = x
        return self.model._moved(self.model._observed(state, values, observed, self.keep), time, dt)


def gru_ode_bayes(
    variables: int,
    ode: Any,
    size: int = 50,
    *,
    extra: int = 0,
    prepared: int = 10,
    width: int = 25,
    start: float = 0.0,
    dropout: float = 0.2,
    mixing: float = 1e-4,
    key: PRNGKeyArray,
) -> GRUODEBayes:
    """GRU-ODE-Bayes with the parts of its paper; `extra` are the dimensions that an `AugmentedODE` adds.

    A `Covariance` attention adds what it knows of h to the variance of the emission.
    """
    one, two, three = jax.random.split(key, 3)
    emission = Emission(size + extra, variables, width, key=three)
    has_covariance = isinstance(getattr(ode, "attention", None), Covariance)
    return GRUODEBayes(
        FirstState(size, key=one),
        ode,
        Jump(size + extra, variables, prepared, key=two),
        CovarianceEmission(emission) if has_covariance else emission,
        start,
        dropout,
        mixing,
    )


def _outputs(ode, states):
    """What the emission reads of states (batch, times, ...)."""
    return jax.vmap(ode.output, in_axes=1, out_axes=1)(states)


def _logits(ode, states):
    """a of states (batch, times, ...)."""
    return jax.vmap(ode.logits, in_axes=1, out_axes=1)(states)


def _zero_unless(well, x):
    return jnp.where(well.reshape(-1, *(1,) * (x.ndim - 1)), x, 0.0)


def _row_places(row_of_step: Int[Array, " steps"], rows: int) -> Int[Array, " rows"]:
    """The step at which each row is met; 0 for those that never are."""
    every = jnp.arange(row_of_step.size, dtype=jnp.int32)
    place = jnp.zeros(rows, jnp.int32)
    return place.at[jnp.where(row_of_step >= 0, row_of_step, rows)].set(every, mode="drop")


def _xavier(size_in: int, size_out: int, key: PRNGKeyArray) -> Linear:
    """A linear layer with Xavier's uniform weights and biases of 0.05."""
    limit = np.sqrt(6 / (size_in + size_out))
    layer = Linear(size_in, size_out, key=key)
    new = (jax.random.uniform(key, layer.weight.shape, minval=-limit, maxval=limit), jnp.full(size_out, 0.05, float))
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, new)
