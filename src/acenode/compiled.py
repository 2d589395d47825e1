"""How the library compiles what it runs."""

import functools as ft
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax

Function = TypeVar("Function", bound=Callable)


def in_full_precision(function: Function) -> Function:
    """The same function with products of matrices in full single precision.

    A GPU multiplies single precision with three digits (TF32) unless it is told otherwise. A solver with a tolerance of
    more of them than the vector field has takes ever smaller steps in vain. A precision that is already set
    (`jax.default_matmul_precision`) stays.
    """

    @ft.wraps(function)
    def in_full(*args, **kwargs):
        if jax.config.jax_default_matmul_precision is not None:  # pyright: ignore
            return function(*args, **kwargs)
        with jax.default_matmul_precision("float32"):
            return function(*args, **kwargs)

    return in_full  # type: ignore[return-value]


def compiled_quickly(function: Function) -> Function:
    """`compiled` for what runs once, such as drawing first weights: on a CPU the compiler does not optimise it."""
    options = {"compiler_options": {"xla_backend_optimization_level": 0}} if jax.default_backend() == "cpu" else {}
    return eqx.filter_jit(in_full_precision(function), **options)  # type: ignore[return-value]


def compiled(function: Function) -> Function:
    """`equinox.filter_jit` of it, in full precision."""
    return eqx.filter_jit(in_full_precision(function))  # type: ignore[return-value]


def loops(function: Callable, *args) -> bool:
    """Whether it has a loop, as one that trains has: then `compiled_quickly` would be slow."""
    jaxpr, _, _ = eqx.filter_make_jaxpr(function)(*args)
    return any(equation.primitive.name == "scan" for equation in jaxpr.jaxpr.eqns)
