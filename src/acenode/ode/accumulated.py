"""a(t) in few numbers, where g' ends in a linear map: `a(t) = a(0) + L C(t)` with `dC/dt = c(t, h')`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from ..precision import products_in
from .coevolve import CoEvolvingODE
from .evolve import where_jumped
from .fields import evaluate_field
from .pairwise_fields import GRULinear
from .solver import Solver


def started(ode: Any, h0: Float[Array, "batch ..."], weights: Array | None = None) -> tuple[Any, Any]:
    """An ODE and its first state, for models that take steps of given sizes themselves.

    The ODE is the given one, or one that moves in the same way with fewer numbers. `weights` are first attentions in
    place of those of its `initial` (`Attention.of_weights`).
    """
    if isinstance(ode, CoEvolvingODE) and ode.evolution == "evolved" and _is_linear_map(ode.g) and _keeps(ode):
        first = ode.initial(h0) if weights is None else ode.with_weights(ode.begin(h0), weights)[1]
        few = AccumulatedODE(ode, first)
        return few, few.begin(h0)
    begin = ode.begin(h0)
    return ode, begin if weights is None else ode.with_weights(begin, weights)


def _keeps(ode: CoEvolvingODE) -> bool:
    """Whether a jump of h keeps the attention."""
    return ode.update is None and not ode.renew


def _is_linear_map(g) -> bool:
    """Of few numbers. A class of a user's own may answer otherwise than `GRULinear`, which it extends."""
    return type(g) is GRULinear and g.linear.bias is None


class AccumulatedODE(eqx.Module):
    """A `CoEvolvingODE` whose g is a linear map of few numbers, from known first attentions on.

    The state is (h, C), where the other has (h, a): H numbers for the attention instead of H x H. Steps of given sizes
    give the same h and a, but for rounding.
    """

    ode: CoEvolvingODE
    first: Float[Array, "batch h h"]

    @property
    def solver(self) -> Solver:
        return self.ode.solver

    @property
    def g(self) -> GRULinear:
        assert isinstance(self.ode.g, GRULinear)
        return self.ode.g

    def begin(self, h0: Float[Array, "batch h"]) -> tuple[Array, Array]:
        """The state (h, C) that `slope` moves."""
        return h0, jnp.zeros_like(h0)

    def slope(self, t: Float[Array, " batch"], state: tuple[Array, Array]) -> tuple[Array, Array]:
        """The derivative of h and C."""
        with products_in(self.solver.precision):
            return jax.vmap(self._slope)(t, *state, self.first)

    def hidden(self, state: tuple[Array, Array]) -> Array:
        """h, out of the state."""
        return state[0]

    def output(self, state: tuple[Array, Array]) -> Array:
        """What is read out of the state: h."""
        return state[0]

    def logits(self, state: tuple[Array, Array]) -> Array:
        """a, out of the state."""
        return jax.vmap(self._logits)(state[1], self.first)

    def jump(self, state: tuple[Array, Array], h: Array, jumped: Bool[Array, " batch"]) -> tuple[Array, Array]:
        """The state with another h for the samples that jumped; their attention is kept."""
        return where_jumped(jumped, h, state[0]), state[1]

    def _held(self, x):
        return stop_gradient(x) if self.ode.hold_attention else x

    def _logits(self, c, first):
        return first + self._held(self.g.spread(c))

    def _slope(self, t, h, c, first):
        a = self._held(self._logits(c, first))
        attended = self.ode.attention(h, a)
        return evaluate_field(self.ode.f, t, attended, h, a), self._held(self.g.cell(t, attended))
