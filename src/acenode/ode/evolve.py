"""ODEs without attention: the base models of the paper. All answer `ode(h0, times) -> Path`.

They take a batch: `h0` has a leading batch axis, `times` is shared, or has one row per sample. The first time is
the one at which `h0` holds. `attention` is there because a `CoEvolvingODE` takes it; here there is none.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..precision import products_in
from .path import Path, check_query
from .solver import Solver, Stats, check_slope, check_solver, of_batch
from .solver.runge_kutta import METHODS, stages


class _Alone(eqx.Module):
    """A user's `(t, h) -> dh` in the solver's form."""

    f: Callable

    def __call__(self, t, h, args):
        return self.f(t, h)

    def on_batch(self, h):
        return of_batch(self.f, h)


def where_jumped(chosen: Bool[Array, " batch"], yes: Array, no: Array) -> Array:
    """`yes` for the chosen samples, `no` for the others."""
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (no.ndim - 1)), yes, no)


def advance(ode, time: Float[Array, " batch"], dt: Float[Array, " batch"], state):
    """The state of an ODE after one step of its solver, for models that choose the steps' sizes themselves."""
    slope = ode.slope(time, state)
    check_slope(slope, state)
    return stages(lambda t, y, _: ode.slope(t, y), None, time, dt, state, slope, METHODS[ode.solver.method])[1]


class NeuralODE(eqx.Module):
    """`dh/dt = f(t, h)`, Equation 1."""

    f: Callable
    solver: Solver = eqx.field(static=True, default=Solver())

    def __check_init__(self):
        check_solver("NeuralODE", self.solver)

    def __call__(self, h0: Float[Array, "batch ..."], times: Array, *, attention: bool = True) -> Path:
        solver, times = self.solver.with_enough_steps(times), check_query("NeuralODE", h0, times)
        h, stats = solver.solve(_Alone(self.f), h0, times)
        return Path(times, h, None, stats)

    def begin(self, h0: Float[Array, "batch ..."]) -> Array:
        """The state that `slope` moves, for models that take the steps themselves."""
        return h0

    def slope(self, t: Float[Array, " batch"], state: Array) -> Array:
        """The derivative of the state."""
        with products_in(self.solver.precision):
            return jax.vmap(self.f)(t, state)

    def hidden(self, state: Array) -> Array:
        """h, out of the state."""
        return state

    def output(self, state: Array) -> Array:
        """What is read out of the state."""
        return state

    def jump(self, state: Array, h: Array, jumped: Bool[Array, " batch"]) -> Array:
        """The state with another h for the samples that jumped."""
        return where_jumped(jumped, h, state)


class AugmentedODE(eqx.Module):
    """A neural ODE on h with `extra` zeros appended to its last axis: dimensions of a vector, channels of a map.

    `f` works on the larger state, and so does whatever reads the path.
    """

    f: Callable
    extra: int = eqx.field(static=True, default=5)
    solver: Solver = eqx.field(static=True, default=Solver())

    def __check_init__(self):
        check_solver("AugmentedODE", self.solver)

    def __call__(self, h0: Float[Array, "batch ..."], times: Array, *, attention: bool = True) -> Path:
        solver, times = self.solver.with_enough_steps(times), check_query("AugmentedODE", h0, times)
        h, stats = solver.solve(_Alone(self.f), self.begin(h0), times)
        return Path(times, h, None, stats)

    def begin(self, h0: Float[Array, "batch ..."]) -> Array:
        """The augmented state that `slope` moves."""
        return jnp.concatenate([h0, jnp.zeros((*h0.shape[:-1], self.extra), h0.dtype)], axis=-1)

    def slope(self, t: Float[Array, " batch"], state: Array) -> Array:
        """The derivative of the state."""
        with products_in(self.solver.precision):
            return jax.vmap(self.f)(t, state)

    def hidden(self, state: Array) -> Array:
        """h, its extra dimensions among it."""
        return state

    def output(self, state: Array) -> Array:
        """What is read out of the state."""
        return state

    def jump(self, state: Array, h: Array, jumped: Bool[Array, " batch"]) -> Array:
        """The state with another h for the samples that jumped."""
        return where_jumped(jumped, h, state)


class ResidualStack(eqx.Module):
    """Residual blocks in the place of an ODE: `h <- h + block(h)`, the ResNet of the comparison.

    The blocks share out the time between the first and the last of `times`; a time in between sees the state
    after the last block before it.
    """

    blocks: tuple[Callable, ...]

    def __init__(self, blocks: Sequence[Callable]):
        self.blocks = tuple(blocks)

    def __call__(self, h0: Float[Array, "batch ..."], times: Array, *, attention: bool = True) -> Path:
        times = check_query("ResidualStack", h0, times)
        states = [h0]
        for block in self.blocks:
            states.append(states[-1] + eqx.filter_vmap(block)(states[-1]))
        span = times[:, -1:] - times[:, :1]
        progress = (times - times[:, :1]) / jnp.where(span > 0, span, 1.0)
        # The small number keeps rounding from losing a block that ends exactly at a time.
        index = jnp.floor(progress * len(self.blocks) + 1e-4).astype(int)
        h = jnp.stack(states, axis=1)[jnp.arange(h0.shape[0])[:, None], index]
        return Path(times, h, None, Stats.none(h0.shape[0]))
