"""A check of compiled programs on their first use: a batch against parts of it.

XLA of jax 0.11.2 was seen to compile a program wrongly for batches of one size on a GPU, and rightly for others
(`benchmarks/compiler_fault.py`). Nothing fails then; the numbers are wrong. So on accelerators the first use of a
program is compared with the same computation in parts: evaluation by its metrics, a training step of stacked members by
the loss and the gradient of each member alone. Where they differ, a warning says so and the parts are used.
"""

import functools as ft
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..backend import backend
from ..compiled import compiled, in_parallel
from ..precision import jax_precision

SelfCheck = Literal["auto", "always", "never"]

_RELATIVE = {"highest": 2e-3}  # of a metric: rounding may move a sample across a threshold
_REDUCED = 2e-2  # the same where products keep fewer digits, and another algorithm for each size
_ABSOLUTE = 1e-6

_parts: dict[Any, "Parts"] = {}  # by program: those that are right
_stacked: dict[Any, str] = {}  # by program: what is wrong where members are stacked


class WrongProgram(UserWarning):
    """A compiled program and the same computation in parts gave different answers."""


def check_self_check(owner: str, given: object) -> None:
    if given not in get_args(SelfCheck):
        raise ValueError(f"{owner}(self_check={given!r}): choose from {', '.join(get_args(SelfCheck))}.")


def is_wanted(given: SelfCheck) -> bool:
    """`auto` checks on accelerators; the compiler for CPUs has not been seen to fail."""
    return given == "always" or (given == "auto" and backend() != "cpu")


class Parts(NamedTuple):
    """What is evaluated at a time: so many members, and so many samples of each."""

    members: int
    samples: int

    def __str__(self) -> str:
        of = "" if self.members == 1 else f" of {self.members} members"
        return f"{self.samples} samples{of} at a time"


def agreed_parts(
    metrics: Callable[[Parts, Array], dict[str, np.ndarray]], program: PyTree, parts: Parts, weight: Array
) -> Parts:
    """The first of `parts`, one member of them, half the samples of it, ... at which `metrics(parts, weight)` are those
    of one member and half the samples.

    Of the same `program` it is known after the first call.
    """
    key = (parts, *_signature(program))
    if key not in _parts:
        _parts[key] = _find_parts(metrics, parts, weight)
    return _parts[key]


def _find_parts(metrics, tried: Parts, weight: Float[Array, "members rows"]) -> Parts:
    while tried != Parts(1, 1):
        smaller = Parts(1, max(tried.samples // 2, 1))
        if _alike(*in_parallel(*(ft.partial(metrics, each, weight) for each in (tried, smaller)))):
            break
        # Random numbers are drawn for each place in a part: only samples at the same place in both are comparable.
        index = np.arange(weight.shape[1])
        same_place = jnp.asarray(index % tried.samples == index % smaller.samples, weight.dtype)
        whole, parts = metrics(tried, weight * same_place), metrics(smaller, weight * same_place)
        if _alike(whole, parts):
            break
        name = next(n for n in whole if not _alike({n: whole[n]}, {n: parts[n]}))
        k = int(np.argmax(np.abs(whole[name] - parts[name])))
        warnings.warn(
            f"evaluated {tried}, {name} is {whole[name][k]:.6g}; {smaller}, it is {parts[name][k]:.6g}. The compiler "
            "for this device seems to have made a wrong program of one of them. Smaller parts are used; "
            "self_check='never' turns this check off.",
            WrongProgram,
            stacklevel=4,
        )
        tried = smaller if tried.members == 1 else Parts(1, tried.samples)
    return tried


def stacking_fault(step: Callable[..., tuple[Array, PyTree]], members: PyTree, data: PyTree, program: PyTree) -> str:
    """What differs where `step(member, data)`, a loss and its gradient, is computed for all members stacked and for
    each alone; nothing where they may be stacked."""
    key = _signature((members, data, program))
    if key not in _stacked:
        _stacked[key] = _compare_stacked(step, members, data)
    return _stacked[key]


def _compare_stacked(step, members: PyTree, data: PyTree) -> str:
    all_at_once, alone = compiled(jax.vmap(step, in_axes=(0, None))), compiled(step)
    pick = lambda tree, k: jax.tree.map(lambda x: x[k], tree)  # noqa: E731
    count = jax.tree.leaves(members)[0].shape[0]
    together, each = in_parallel(
        lambda: jax.tree.map(np.asarray, all_at_once(members, data)),
        lambda: [jax.tree.map(np.asarray, alone(pick(members, k), data)) for k in range(count)],
    )
    for k, (loss, gradient) in enumerate(each):
        stacked_loss, stacked_gradient = pick(together, k)
        near = _near(stacked_gradient, gradient)
        if not near:  # as it may be where rounding alone changes the gradient as much
            near = _near(stacked_gradient, gradient, alone(_rounded(pick(members, k)), data)[1])
        if not (_close(stacked_loss, loss) and near):
            return (
                f"the training loss of member {k} is {stacked_loss:.6g} among the others and {loss:.6g} alone, or its "
                "gradient differs. The compiler for this device seems to have made a wrong program of one of them. "
                "Members are trained one after the other; self_check='never' turns this check off."
            )
    return ""


def _alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(_close(one[name], other[name]) for name in one)


def _tolerance() -> float:
    return _RELATIVE.get(jax_precision(), _REDUCED)


def _close(one, other) -> bool:
    return np.allclose(one, other, rtol=_tolerance(), atol=_ABSOLUTE, equal_nan=True)


def _rounded(member: PyTree) -> PyTree:
    """The same with other last digits, of those that products keep of their inputs."""
    leaves, structure = jax.tree.flatten(member)
    part = 2.0**-23 if jax_precision() in _RELATIVE else 2.0**-11

    def one(k: int, x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x * (1 + part * jax.random.normal(jax.random.key(k), x.shape, x.dtype))

    return jax.tree.unflatten(structure, [one(k, x) for k, x in enumerate(leaves)])


def _near(one: PyTree, other: PyTree, rounded: PyTree = None) -> bool:
    """Gradients by the length of their difference; not finite ones have to be so in the same places.

    With one that was computed from rounded parameters, twice as far from `other` as that one is near too.
    """
    trees = [_flat(tree) for tree in (one, other, rounded) if tree is not None]
    if any(not np.array_equal(np.isfinite(tree), np.isfinite(trees[1])) for tree in trees):
        return False
    flat, like, *moved = (np.nan_to_num(tree, posinf=0, neginf=0) for tree in trees)
    far = 2 * np.linalg.norm(moved[0] - like) if moved else 10 * _tolerance() * np.linalg.norm(like) + _ABSOLUTE
    return bool(np.linalg.norm(flat - like) <= far)


def _flat(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(float)


def _signature(program: PyTree) -> tuple:
    """What decides which program is compiled: shapes, static parts, and the precision of products."""
    arrays, static = eqx.partition(program, eqx.is_array)
    shapes = tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(arrays))
    return shapes, tuple(jax.tree.leaves(static)), jax.tree.structure(program), jax_precision()
