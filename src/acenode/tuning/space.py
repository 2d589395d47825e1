"""What is tuned, and over which range."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..estimators.registry import entry
from ..train import Member

Range = tuple[float, float]


@dataclass(frozen=True, order=True)
class Shape:
    """What makes another program: the kind of the model and its size."""

    model: str
    hidden: int

    def given(self) -> dict[str, Any]:
        """As Optuna's parameters."""
        return {"model": self.model, "hidden": self.hidden}


@dataclass(frozen=True)
class Space:
    """The settings that are tried. Rates, decays, lambdas and seeds vary inside one program; a `Shape` is a program."""

    models: tuple[str, ...]
    hidden: tuple[int, ...]
    learning_rate: Range
    weight_decay: Range
    penalty: Range
    seed: int

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(Shape(model, size) for model in self.models for size in self.hidden)

    def suggest(self, trial: Any) -> tuple[Shape, Member]:
        """What an Optuna trial says to train."""
        shape = Shape(trial.suggest_categorical("model", self.models), trial.suggest_categorical("hidden", self.hidden))
        rate = trial.suggest_float("learning_rate", *self.learning_rate, log=True)
        decay = trial.suggest_float("weight_decay", *self.weight_decay, log=True)
        attends = shape.model in self._attentive
        penalty = trial.suggest_float("penalty", *self.penalty, log=True) if attends else 0.0
        return shape, Member(self.seed + trial.number, 0, rate, penalty, decay)

    @property
    def _attentive(self) -> set[str]:
        """The models with a theta_g, whose norm lambda weighs (Equation 6)."""
        return {name for name in self.models if entry(name).attends is not None}


def default_sizes(hidden: int, models: Sequence[str]) -> tuple[int, ...]:
    """Half and twice the size that suits the data; of several models only that one, as each is a program to compile."""
    return (hidden,) if len(models) > 1 else tuple(dict.fromkeys((max(2, hidden // 2), hidden, 2 * hidden)))
