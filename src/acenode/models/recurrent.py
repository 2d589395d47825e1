"""Recurrent baselines of the ODE models, as cells for `Filter`.

They differ in how they are told that time has passed: as an input, as a decay of what was last seen, or as a decay of
what is stored. Throughout, x is a row (0 where missing), m its mask, `gap` the time since the last row, and Delta
the time since each variable was last seen, or since the first row if it never was.

At a query every cell takes one more step with an empty row (m = 0), so that its answer depends on how long ago it saw
what; the recurrent state is not changed by that.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..layers import GRUCell, Linear
from ..ode import Constant


class Memory(NamedTuple):
    """The state of a cell with a gated recurrent unit; `drift` moves the clocks alone."""

    hidden: Float[Array, " size"]
    gap: Float[Array, ""]  # time since the last row
    ago: Float[Array, " variables"]  # time since each variable was last seen
    last: Float[Array, " variables"]  # its value then


class Recurrent(eqx.Module):
    """The interface of the cells with one gated recurrent unit: a cell says how it starts and how it steps."""

    unit: eqx.AbstractVar[GRUCell]

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.unit.hidden_size

    @abstractmethod
    def start(self) -> Memory: ...

    @abstractmethod
    def step(
        self, memory: Memory, values: Float[Array, " variables"], observed: Bool[Array, " variables"]
    ) -> Float[Array, " size"]:
        """The hidden state after this row."""

    def drift(self, state: Memory, gap: Float[Array, ""]) -> Memory:
        return state._replace(gap=state.gap + gap, ago=state.ago + gap)

    def update(self, state: Memory, values, observed, key: PRNGKeyArray) -> Memory:
        return Memory(
            self.step(state, values, observed),
            jnp.zeros_like(state.gap),
            jnp.where(observed, 0.0, state.ago),
            jnp.where(observed, values, state.last),
        )

    def read(self, state: Memory) -> Float[Array, " size"]:
        return self.step(state, jnp.zeros_like(state.last), jnp.zeros(state.last.shape, bool))


class RNNDt(Recurrent):
    """RNN-Dt: `h <- GRU([x, m, gap], h)`."""

    unit: GRUCell
    variables: int = eqx.field(static=True)

    def __init__(self, variables: int, size: int, *, key: PRNGKeyArray):
        self.unit = GRUCell(2 * variables + 1, size, key=key)
        self.variables = variables

    def start(self) -> Memory:
        return _blank(self.unit, self.variables)

    def step(self, memory: Memory, values, observed) -> Array:
        return self.unit(_join(values, observed, memory.gap[None]), memory.hidden)


class GRUSimple(Recurrent):
    """GRU-Simple: `h <- GRU([x, m, Delta], h)`."""

    unit: GRUCell
    variables: int = eqx.field(static=True)

    def __init__(self, variables: int, size: int, *, key: PRNGKeyArray):
        self.unit = GRUCell(3 * variables, size, key=key)
        self.variables = variables

    def start(self) -> Memory:
        return _blank(self.unit, self.variables)

    def step(self, memory: Memory, values, observed) -> Array:
        return self.unit(_join(values, observed, memory.ago), memory.hidden)


class InputDecay(eqx.Module):
    """What to put in place of a missing value: the last one, decaying to the mean of the variable.

    `x <- m x + (1 - m) (gamma last + (1 - gamma) mean)`, `gamma = exp(-max(0, w Delta + b))` for each variable; the
    mean alone where the variable was never seen.
    """

    weight: Float[Array, " variables"]
    bias: Float[Array, " variables"]
    mean: Constant

    def __init__(self, variables: int, mean: Constant | None, *, key: PRNGKeyArray):
        # Not below zero: such a weight would mean no decay, and would get no gradient to change that.
        self.weight = jax.random.uniform(key, (variables,))
        self.bias = jnp.zeros(variables)
        self.mean = Constant(jnp.zeros(variables)) if mean is None else mean
        if self.mean.array.shape != (variables,):
            raise ValueError(
                f"mean has shape {self.mean.array.shape}; expected ({variables},), the training mean of each variable."
            )

    def __call__(self, memory: Memory, values, observed) -> Float[Array, " variables"]:
        kept = _decay(self.weight * memory.ago + self.bias)
        mean = self.mean.value.astype(values.dtype)
        return jnp.where(observed, values, kept * memory.last + (1 - kept) * mean)


class RNNImpute(Recurrent):
    """RNN-Impute: `h <- GRU([x', m, gap], h)`, with x' the row filled up by `InputDecay`.

    `mean` holds the training mean of each variable; zeros by default, which is right for standardised data.
    """

    unit: GRUCell
    impute: InputDecay

    def __init__(self, variables: int, size: int, mean: Constant | None = None, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.unit = GRUCell(2 * variables + 1, size, key=one)
        self.impute = InputDecay(variables, mean, key=two)

    def start(self) -> Memory:
        return _blank(self.unit, self.impute.mean)

    def step(self, memory: Memory, values, observed) -> Array:
        filled = self.impute(memory, values, observed)
        return self.unit(_join(filled, observed, memory.gap[None]), memory.hidden)


class RNNDecay(Recurrent):
    """RNN-Decay: `h <- GRU([x, m], exp(-max(0, W Delta + b)) * h)`, a decay for each hidden unit."""

    unit: GRUCell
    decay: Linear
    variables: int = eqx.field(static=True)

    def __init__(self, variables: int, size: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.unit = GRUCell(2 * variables, size, key=one)
        self.decay = Linear(variables, size, key=two)
        self.variables = variables

    def start(self) -> Memory:
        return _blank(self.unit, self.variables)

    def step(self, memory: Memory, values, observed) -> Array:
        return self.unit(_join(values, observed), _decay(self.decay(memory.ago)) * memory.hidden)


class GRUD(Recurrent):
    """GRU-D: `h <- GRU([x', m], exp(-max(0, W Delta + b)) * h)`, with x' the row filled up by `InputDecay`.

    `mean` holds the training mean of each variable; zeros by default, which is right for standardised data.
    """

    unit: GRUCell
    impute: InputDecay
    decay: Linear

    def __init__(self, variables: int, size: int, mean: Constant | None = None, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.unit = GRUCell(2 * variables, size, key=one)
        self.impute = InputDecay(variables, mean, key=two)
        self.decay = Linear(variables, size, key=three)

    def start(self) -> Memory:
        return _blank(self.unit, self.impute.mean)

    def step(self, memory: Memory, values, observed) -> Array:
        filled = self.impute(memory, values, observed)
        return self.unit(_join(filled, observed), _decay(self.decay(memory.ago)) * memory.hidden)


class LongMemory(NamedTuple):
    """The state of `TLSTM`."""

    hidden: Float[Array, " size"]
    cell: Float[Array, " size"]
    gap: Float[Array, ""]


class TLSTM(eqx.Module):
    """T-LSTM: the short-term part of the memory fades with the time that passes.

    `c_s = tanh(W_d c + b_d)`, `c* = c - c_s + c_s / log(e + gap)`, `(h, c) <- LSTM([x, m], (h, c*))`.
    """

    unit: eqx.nn.LSTMCell
    short: Linear

    def __init__(self, variables: int, size: int, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.unit = eqx.nn.LSTMCell(2 * variables, size, key=one)
        self.short = Linear(size, size, key=two)

    @property
    def size(self) -> int:
        """How many numbers heads see."""
        return self.unit.hidden_size

    def start(self) -> LongMemory:
        zero = jnp.zeros(self.unit.hidden_size, self.unit.weight_hh.dtype)
        return LongMemory(zero, zero, jnp.zeros((), zero.dtype))

    def drift(self, state: LongMemory, gap: Float[Array, ""]) -> LongMemory:
        return state._replace(gap=state.gap + gap)

    def update(self, state: LongMemory, values, observed, key: PRNGKeyArray) -> LongMemory:
        return LongMemory(*self._step(state, _join(values, observed)), jnp.zeros_like(state.gap))

    def read(self, state: LongMemory) -> Float[Array, " size"]:
        return self._step(state, jnp.zeros(self.unit.input_size, state.hidden.dtype))[0]

    def _step(self, state: LongMemory, row) -> tuple[Array, Array]:
        short = jnp.tanh(self.short(state.cell))
        faded = state.cell - short + short / jnp.log(jnp.e + state.gap)
        return self.unit(row, (state.hidden, faded))


def _blank(unit: GRUCell, last: int | Constant) -> Memory:
    """Nothing seen yet; `last` is the number of variables, or the values that stand in until they are seen."""
    dtype = unit.weight_hh.dtype
    values = jnp.zeros(last, dtype) if isinstance(last, int) else last.value.astype(dtype)
    return Memory(jnp.zeros(unit.hidden_size, dtype), jnp.zeros((), dtype), jnp.zeros_like(values), values)


def _decay(rate: Array) -> Array:
    return jnp.exp(-jnp.maximum(0.0, rate))


def _join(values: Array, observed: Array, *more: Array) -> Array:
    return jnp.concatenate([values, observed.astype(values.dtype), *more])
