"""`Entry`: what an estimator has to know of a model, one of the library's or a user's own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtyping import Array

Attends = Literal["variables", "hidden dimensions"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of the data and of the model."""

    variables: int
    hidden: int
    step: float  # of Euler's method, in the model's time
    count: int  # steps a series may take
    span: float  # of the longest series with its forecast


@dataclass(frozen=True)
class Entry:
    """A model by name, or your own: how it is built, and between what it attends.

    `build(sizes, key)` gives a module with the call `module(series, times, key) -> Trace`.
    `state` and `summary` are the sizes of what heads read; a model with an emission of its own has no use for the
    first.
    """

    build: Callable[[Sizes, Array], Any] = field(repr=False)
    summary: Callable[[Sizes], int] = field(repr=False)
    state: Callable[[Sizes], int] | None = field(repr=False)
    description: str
    attends: Attends | None = None
    causal: bool = True  # whether a prediction sees only the rows before its time
    linear: bool = False  # whether a linear head reads the label
