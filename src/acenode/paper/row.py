"""`Row`: one row of one table as data; training it is the same for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..tasks import Task
from ..train import Recipe


class Prepared(NamedTuple):
    """Data ready for `fit`: arrays, one split for all seeds or one for each, and a checksum of where they came from."""

    data: Any
    splits: Any
    checksum: str


@dataclass(frozen=True)
class Row:
    """What a row of a published table is: a data set, a task, a model and a recipe.

    A seed is a run: where the table is over folds of the data, seed k tests on fold k.
    """

    table: str
    name: str
    data: Callable[[Any, Sequence[int]], Prepared]  # from the data folder (or None) and the seeds
    task: Task
    build: Callable[[Any], Any]
    recipe: Callable[[int], Recipe]  # for a number of epochs
    epochs: int  # as published
    learning_rate: float
    penalty: float = 0.0
    protocol: str = "sound"
    config: dict[str, object] = field(default_factory=dict)
