"""The system that all benchmarks solve: pairwise attention evolving beside a vector, both moved by small networks.

    dh/dt = f'(h'),  da/dt = g'(h'),  h' = h softmax(a)^T,  a(0) = correlation of h(0)

f' and g' have three hidden layers of 50 with tanh. One training step is the value of `mean(h^2)` over all samples,
times and dimensions, and its gradient with respect to all parameters.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from acenode.ode import CoEvolvingODE, Correlation, MLPField, Pairwise, Solver

WIDTH, HIDDEN = 50, 3
RTOL = ATOL = 1e-4


@dataclass(frozen=True)
class Size:
    """How large the system is: dimensions of h, samples, and output times, which are spread evenly over [0, 1]."""

    h: int = 20
    batch: int = 50
    times: int = 50

    def as_dict(self) -> dict:
        return asdict(self) | {"width": WIDTH, "hidden": HIDDEN, "rtol": RTOL, "atol": ATOL}


class Problem(NamedTuple):
    """Everything that a training step needs."""

    ode: CoEvolvingODE
    h0: jax.Array
    times: jax.Array


def problem(size: Size, solver: Solver | None = None, gain: float = 1.0) -> Problem:
    """The system with random weights and random first states.

    `gain` multiplies all weights and biases: larger ones make a livelier system, which takes more solver steps.
    """
    of_f, of_g, of_h = jax.random.split(jax.random.key(0), 3)
    f = MLPField(size.h, WIDTH, HIDDEN, key=of_f)
    g = MLPField(size.h, WIDTH, HIDDEN, out=(size.h, size.h), key=of_g)
    f, g = jax.tree.map(lambda x: gain * x if eqx.is_inexact_array(x) else x, (f, g))
    ode = CoEvolvingODE(
        f=f,
        g=g,
        attention=Pairwise(),
        initial=Correlation(size.h),
        solver=solver or Solver("dopri5", rtol=RTOL, atol=ATOL),
    )
    return Problem(ode, jax.random.normal(of_h, (size.batch, size.h)), jnp.linspace(0.0, 1.0, size.times))


def loss(ode: CoEvolvingODE, h0, times, attention: bool):
    """`mean(h^2)`; beside it the attention at all times, where wanted, and the solver's statistics."""
    path = ode(h0, times, attention=attention)
    return jnp.mean(jnp.square(path.h)), (path.a, path.stats)


def training_step(loss: Callable, ode: CoEvolvingODE) -> tuple[Callable, CoEvolvingODE]:
    """The compiled function `(parameters, h0, times) -> ((value, beside), gradients)`, and its parameters.

    `loss(ode, h0, times) -> (value, beside)`. What stands beside the value is an output of the program, so the
    compiler cannot leave its work undone.
    """
    parameters, rest = eqx.partition(ode, eqx.is_inexact_array)

    def whole(parameters, h0, times):
        return loss(eqx.combine(parameters, rest), h0, times)

    return jax.jit(jax.value_and_grad(whole, has_aux=True)), parameters


def layers(ode: CoEvolvingODE) -> list[eqx.nn.Linear]:
    """The linear layers of f', then those of g'; also of a gradient, which has the same form."""
    return [*ode.f.net.layers, *ode.g.net.layers]
