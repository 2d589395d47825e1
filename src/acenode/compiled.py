"""How the library compiles what it runs."""

from collections.abc import Callable
from typing import Literal, TypeVar

import equinox as eqx
import jax

from .precision import products_in

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """`equinox.filter_jit` of it, with products of matrices in the precision around the call, or else in float32.

    A GPU left to itself multiplies with three decimal digits (TF32). A solver with a tolerance of more of them than the
    vector field has takes ever smaller steps in vain.
    """
    return eqx.filter_jit(products_in()(function))  # type: ignore[return-value]


def compiled_quickly(function: Function, optimise: bool | Literal["auto"] = "auto") -> Function:
    """`compiled` for what runs once, such as drawing first weights.

    `optimise="auto"` leaves the compiler's optimisations out on a CPU, where they take longer than the program runs;
    the answers are the same up to rounding.
    """
    if optimise == "auto":
        optimise = jax.default_backend() != "cpu"
    options = {} if optimise else {"compiler_options": {"xla_backend_optimization_level": 0}}
    return eqx.filter_jit(products_in()(function), **options)  # type: ignore[return-value]


def loops(function: Callable, *args) -> bool:
    """Whether it has a loop, as one that trains has: then `compiled_quickly` would be slow."""
    jaxpr, _, _ = eqx.filter_make_jaxpr(function)(*args)
    return any(equation.primitive.name == "scan" for equation in jaxpr.jaxpr.eqns)
