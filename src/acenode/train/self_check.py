"""A check of compiled programs on their first use: a batch against parts of it.

XLA of jax 0.11.2 was seen to compile a program wrongly for batches of one size on a GPU, and rightly for others
(`benchmarks/compiler_fault.py`). Nothing fails then; the numbers are wrong. So on accelerators the first use of a
program is compared with the same computation in parts: evaluation by its metrics, a training step of stacked members by
the loss and the gradient of each member alone. Where they differ, a warning says so and the parts are used.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..precision import jax_precision

SelfCheck = Literal["auto", "always", "never"]

_RELATIVE = {"highest": 2e-3}  # of a metric: rounding may move a sample across a threshold
_REDUCED = 2e-2  # the same where products keep fewer digits, and another algorithm for each size
_ABSOLUTE = 1e-6

_sizes: dict[Any, int] = {}  # by program: the size of parts that is right
_stacked: dict[Any, bool] = {}  # by program: whether members may be stacked


class WrongProgram(UserWarning):
    """A compiled program and the same computation in parts gave different answers."""


def check_self_check(owner: str, given: object) -> None:
    if given not in get_args(SelfCheck):
        raise ValueError(f"{owner}(self_check={given!r}): choose from {', '.join(get_args(SelfCheck))}.")


def is_wanted(given: SelfCheck) -> bool:
    """`auto` checks on accelerators; the compiler for CPUs has not been seen to fail."""
    return given == "always" or (given == "auto" and jax.default_backend() != "cpu")


def agreed_size(metrics: Callable[[int, Array], dict[str, np.ndarray]], program: PyTree, size: int, weight) -> int:
    """The largest of `size`, its half, its quarter, ... at which `metrics(size, weight)` are those of half of it.

    Of the same `program` it is known after the first call.
    """
    key = (size, *_signature(program))
    if key not in _sizes:
        _sizes[key] = _find_size(metrics, size, weight)
    return _sizes[key]


def _find_size(metrics, size: int, weight: Float[Array, "members rows"]) -> int:
    tried = size
    while tried > 1:
        half = tried // 2
        if _alike(metrics(tried, weight), metrics(half, weight)):
            break
        # Random numbers are drawn for each place in a part: only samples at the same place in both are comparable.
        index = np.arange(weight.shape[1])
        same_place = jnp.asarray(index % tried == index % half, weight.dtype)
        whole, parts = metrics(tried, weight * same_place), metrics(half, weight * same_place)
        if _alike(whole, parts):
            break
        name = next(n for n in whole if not _alike({n: whole[n]}, {n: parts[n]}))
        k = int(np.argmax(np.abs(whole[name] - parts[name])))
        warnings.warn(
            f"evaluated {tried} samples at a time, {name} is {whole[name][k]:.6g}; {half} at a time, it is "
            f"{parts[name][k]:.6g}. The compiler for this device seems to have made a wrong program of one of them. "
            "Smaller parts are used; self_check='never' turns this check off.",
            WrongProgram,
            stacklevel=4,
        )
        tried = half
    return tried


def may_stack(step: Callable[..., tuple[Array, PyTree]], members: PyTree, data: PyTree, program: PyTree) -> bool:
    """Whether `step(member, data)`, a loss and its gradient, is the same for all members stacked as for each alone."""
    key = _signature((members, data, program))
    if key not in _stacked:
        _stacked[key] = _compare_stacked(step, members, data)
    return _stacked[key]


def _compare_stacked(step, members: PyTree, data: PyTree) -> bool:
    together = jax.tree.map(np.asarray, jax.jit(jax.vmap(step, in_axes=(0, None)))(members, data))
    alone = jax.jit(step)
    for k in range(jax.tree.leaves(members)[0].shape[0]):
        pick = lambda tree, k=k: jax.tree.map(lambda x: x[k], tree)  # noqa: E731
        loss, gradient = jax.tree.map(np.asarray, alone(pick(members), data))
        stacked_loss, stacked_gradient = pick(together)
        if not (_close(stacked_loss, loss) and _near(stacked_gradient, gradient)):
            warnings.warn(
                f"the training loss of member {k} is {stacked_loss:.6g} among the others and {loss:.6g} alone, or its "
                "gradient differs. The compiler for this device seems to have made a wrong program of one of them. "
                "Members are trained one after the other; self_check='never' turns this check off.",
                WrongProgram,
                stacklevel=4,
            )
            return False
    return True


def _alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(_close(one[name], other[name]) for name in one)


def _tolerance() -> float:
    return _RELATIVE.get(jax_precision(), _REDUCED)


def _close(one, other) -> bool:
    return np.allclose(one, other, rtol=_tolerance(), atol=_ABSOLUTE, equal_nan=True)


def _near(one: PyTree, other: PyTree) -> bool:
    """Gradients by the length of their difference; not finite ones have to be so in the same places."""
    flat, like = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(float) for tree in (one, other))
    if not np.array_equal(np.isfinite(flat), np.isfinite(like)):
        return False
    flat, like = np.nan_to_num(flat, posinf=0, neginf=0), np.nan_to_num(like, posinf=0, neginf=0)
    return bool(np.linalg.norm(flat - like) <= 10 * _tolerance() * np.linalg.norm(like) + _ABSOLUTE)


def _signature(program: PyTree) -> tuple:
    """What decides which program is compiled: shapes, static parts, and the precision of products."""
    arrays, static = eqx.partition(program, eqx.is_array)
    shapes = tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(arrays))
    return shapes, tuple(jax.tree.leaves(static)), jax.tree.structure(program), jax_precision()
