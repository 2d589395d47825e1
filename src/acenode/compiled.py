"""How the library compiles what it runs."""

import functools as ft
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.core
from jaxtyping import PyTree

from .backend import backend
from .precision import jax_precision, products_in

Function = TypeVar("Function", bound=Callable)

# On a GPU XLA times many ways of every product while it compiles. For a step of covariance attention on an H200 (five
# folds as one program) that took more than 250 s, without it 12 s. Products by Triton are slow without it, so they are
# left out too. Flags named in `XLA_FLAGS` take precedence.
_OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


def compiled(function: Function) -> Function:
    """`equinox.filter_jit` of it, with products of matrices in the precision around the call, or else in float32.

    A GPU left to itself multiplies with three decimal digits (TF32). A solver whose tolerance is finer than that takes
    ever smaller steps in vain. On a GPU it is compiled without autotuning.
    """
    inner = products_in()(function)
    plain = eqx.filter_jit(inner)
    for_gpu = eqx.filter_jit(inner, compiler_options=_options())  # type: ignore[call-overload]

    @ft.wraps(function)
    def call(*args, **kwargs):
        # Within another compiled function that one's options count, and JAX refuses others.
        alone = backend() == "gpu" and not _traced((args, kwargs))
        return (for_gpu if alone else plain)(*args, **kwargs)

    call.lower = plain.lower  # without these options  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def compiled_quickly(function: Function, optimise: bool | Literal["auto"] = "auto") -> Function:
    """`compiled` for what runs once, such as drawing first weights.

    `optimise="auto"` leaves the compiler's optimisations out on a CPU, where they take longer than the program runs;
    the answers are the same up to rounding.
    """
    if optimise == "auto":
        optimise = backend() != "cpu"
    options = _options() if optimise else {"xla_backend_optimization_level": 0}
    return eqx.filter_jit(products_in()(function), compiler_options=options)  # type: ignore[return-value]


def _traced(given: PyTree) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given))


def _options() -> dict[str, int | bool]:
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in _OPTIONS.items() if name not in given}


def in_parallel(*functions: Callable[[], Any]) -> list[Any]:
    """What the functions give, each in a thread: the compiler works on all of them at the same time.

    Precision, x64 and device that are set around it hold in the threads. With several devices the functions are called
    in turn, as threads might start programs in another order on each; and once more in turn where memory is too small
    for all of them.
    """
    in_turn = lambda: [function() for function in functions]  # noqa: E731
    if jax.device_count() > 1:
        return in_turn()
    config: Any = jax.config
    precision, x64, device = jax_precision(), config.jax_enable_x64, config.jax_default_device

    def one(function: Callable[[], Any]) -> Any:
        with jax.default_matmul_precision(precision), jax.enable_x64(x64), jax.default_device(device):
            return function()

    try:
        with ThreadPoolExecutor(len(functions)) as pool:
            return list(pool.map(one, functions))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
    return in_turn()


def loops(function: Callable, *args) -> bool:
    """Whether it has a loop, as one that trains has: then `compiled_quickly` would be slow."""
    jaxpr, _, _ = eqx.filter_make_jaxpr(function)(*args)
    return any(equation.primitive.name == "scan" for equation in jaxpr.jaxpr.eqns)
