"""`Row`: one row of one table as data; training it is the same for all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..tasks import Task
from ..train import Recipe


class Prepared(NamedTuple):
    """Data ready for `fit`: arrays, splits, and what to say of where they came from."""

    data: Any
    split: Any
    checksum: str


@dataclass(frozen=True)
class Row:
    """What a row of a published table is: a data set, a task, a model and a recipe."""

    table: str
    name: str
    data: Callable[[Any], Prepared]  # from the data folder, or None
    task: Task
    build: Callable[[Any], Any]
    recipe: Recipe
    learning_rate: float
    penalty: float = 0.0
    protocol: str = "sound"
    config: dict[str, object] = field(default_factory=dict)
