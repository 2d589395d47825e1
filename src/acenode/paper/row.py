"""`Row`: one row of one table as data; training it is the same for all."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from ..tasks import Task
from ..train import Recipe

_BESIDE_TRAINING = ("epochs", "eval_batch", "self_check", "rates")  # what does not make another run
ALIKE = {"float32", "tf32"}  # precisions of products
_OF_ATTENTION = ("norm", "attention_rate", "attention_decay")  # that concern theta_g alone

Setting = tuple[float, float]  # learning rate and lambda
# From a trained model, its task, the data and the test samples.
Figure = Callable[[Any, Any, Any, Any], Mapping[str, Any]]


class Refused(ValueError):
    """A row cannot be run in this way; says why."""


class Prepared(NamedTuple):
    """Data ready for `fit`: arrays, one split for all seeds or one for each, and a checksum of where they came from.

    `given` is what a row's `build` needs to know of the training data, as keyword arguments; `variant` names the copy
    of the data where there are several.
    """

    data: Any
    splits: Any
    checksum: str
    given: Mapping[str, Any] = MappingProxyType({})
    variant: str = ""


def checksum(data: Any) -> str:
    """Of all arrays of prepared data."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves(data):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Row:
    """What a row of a published table is: a data set, a task, a model and a recipe.

    A seed is a run: where the table is over folds of the data, seed k tests on fold k.
    """

    table: str
    name: str
    data: Callable[[Any, Sequence[int]], Prepared]  # from the data folder (or None) and the seeds
    task: Task
    build: Callable[..., Any]  # from a key, and what `Prepared.given` holds
    recipe: Callable[[int], Recipe]  # for a number of epochs
    epochs: int  # of a full run
    learning_rate: float
    penalty: float = 0.0
    protocol: str = "comparable"
    config: dict[str, object] = field(default_factory=dict)
    dataset: str = ""  # where a table has several; name and data set together are unique in it
    query: str = ""  # what is predicted, where a table has several
    base: str = ""  # the row of the same table that this one extends by an attention
    differs: str = ""  # what else is not as in that row
    own_settings: tuple[str, ...] = ()  # that this row has of its own on purpose: no comparison is confounded by them
    controls: tuple[str, ...] = ()  # rows that have what else comes with the attention, or another kind of it
    overlap: float = 0.0  # where seeds are folds of the same series: the tested ones, as a part of the trained ones
    candidate: bool = False  # one of several settings: only the best by validation is compared on test data
    variables: tuple[str, ...] = ()  # names of what attends to what; none for hidden dimensions
    reported: tuple[str, ...] = ()  # metrics to show beside the one that chooses the epoch and the published ones
    grid: tuple[Setting, ...] = ()  # the paper's
    measures: Figure | None = None  # more metrics on the test samples
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by the kinds of `Result.figures`

    def variant(self, name: str, **changes: Any) -> "Row":
        """The same row with changes, called `..., name`; so are the rows that it is compared with."""
        base = self.base and f"{self.base}, {name}"
        controls = tuple(f"{each}, {name}" for each in self.controls)
        return replace(self, name=f"{self.name}, {name}", base=base, controls=controls, **changes)

    def rates_only(self, settings: Sequence[Setting]) -> tuple[Setting, ...]:
        """For a model without g: lambda is of theta_g alone, so all of its values would train the same model."""
        return tuple(dict.fromkeys((rate, self.penalty) for rate, _ in settings))

    def changed(self, made: Mapping[str, Any]) -> tuple[str, ...]:
        """Settings that a run had otherwise, by the `config` of its result; functions, as a schedule is, do not count.

        A part of the recipe that the result does not have is younger than it, and had its default. What concerns
        theta_g does not count in a row without attention, nor does tf32 in place of float32.
        """
        now = self.settings(made.get("epochs", self.epochs))
        irrelevant = () if self.base else _OF_ATTENTION
        if {now.get("precision"), made.get("precision")} <= ALIKE:
            irrelevant = (*irrelevant, "precision")
        return tuple(
            name
            for name, value in now.items()
            if made.get(name) != value and (name in made or name in self.config) and name not in irrelevant
        )

    def settings(self, epochs: int) -> dict[str, Any]:
        """All that makes a run what it is, but for its epochs, its learning rate and its lambda."""
        every = {**self.recipe(epochs).plain(), **self.config}
        return {name: value for name, value in every.items() if name not in _BESIDE_TRAINING}
