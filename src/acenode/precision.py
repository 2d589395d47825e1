"""The precision of matrix products: one setting with the same default on every kind of machine.

Arrays are in single precision; this is what a product of two matrices may keep of its inputs before it multiplies them
and adds up in single precision:

- `float32`: all 23 binary digits. The default. A GPU left to itself takes fewer.
- `tf32`: 10 digits and the whole range, where the hardware has it (GPUs since Ampere).
- `bfloat16`: 7 digits and the whole range, where the hardware has it.

A CPU has neither, and computes in float32 whatever is set. Double precision (`jax_enable_x64`) is for `float32` alone.

The nearest setting counts: that of a `Conv`, then of the `Solver` for the vector field, then of the `Recipe` for all of
training and evaluation, then `jax.default_matmul_precision`. Where none is set it is float32. `docs/solver.md` has the
error of each against double precision.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

Precision = Literal["float32", "tf32", "bfloat16"]

# JAX's own name "bfloat16" stands for the quickest, which is tf32 on a GPU; the name of the algorithm does not.
_JAX: dict[str, str] = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "BF16_BF16_F32"}


def check_precision(owner: str, given: object, *more: str, optional: bool = True) -> None:
    """Refuse what is no precision; `more` are names that only the owner knows."""
    choices = (*get_args(Precision), *more)
    if given not in choices and not (optional and given is None):
        none = ", or None for that around it" if optional else ""
        raise ValueError(f"{owner}(precision={given!r}): choose from {', '.join(choices)}{none}.")


def jax_precision(precision: Precision | None = None) -> str:
    """JAX's name for it; `None` stands for what is set around, or float32 where nothing is."""
    if precision is not None:
        return _JAX[precision]
    return jax.config.jax_default_matmul_precision or _JAX["float32"]  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def products_in(precision: Precision | None = None) -> Iterator[None]:
    """Products that are traced within it have this precision; `None` as in `jax_precision`. Also a decorator."""
    with jax.default_matmul_precision(jax_precision(precision)):
        yield


def matmul(a: Array, b: Array) -> Array:
    """`a @ b` in the precision that is set around it, float32 where none is."""
    return jnp.matmul(a, b, precision=jax_precision())
