"""Functions of a model that hide weights from training."""

import functools as ft
import inspect
from typing import Any

import jax
import jax.core
from jaxtyping import PyTree


def check_closures(model: PyTree) -> None:
    """Refuse a function that closes over arrays which `build` has drawn: they are no part of the model."""
    for leaf in jax.tree.leaves(model):
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(_closed_over(leaf))):
            raise ValueError(
                f"fit(build=...): {getattr(leaf, '__qualname__', leaf)} closes over arrays that build made, where "
                "training cannot find them. Make it an equinox.Module that holds them as fields."
            )


def _closed_over(leaf: Any) -> list[Any]:
    if isinstance(leaf, ft.partial):
        return [*leaf.args, *leaf.keywords.values(), *_closed_over(leaf.func)]
    function = inspect.unwrap(leaf) if callable(leaf) else None
    cells = getattr(function, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells]
