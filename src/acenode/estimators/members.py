"""The models of a fitted estimator, which answer together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..compiled import compiled
from ..series import Panel, Query
from ..tasks import Headed, LabelledSeries, Regression, SeriesClassification, SeriesTarget
from .inference import gaussians, in_batches, warn_of_failures, with_enough_steps


@dataclass(frozen=True)
class Members:
    """Models with their names and weights, which add up to 1. The first is the best alone."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    models: tuple[Headed, ...]

    def __len__(self) -> int:
        return len(self.models)

    def __str__(self) -> str:
        """Such as gru-d x 4 + statistics."""
        counts = {name: self.names.count(name) for name in dict.fromkeys(self.names)}
        return " + ".join(name if count == 1 else f"{name} x {count}" for name, count in counts.items())

    def gaussians(self, panel: Panel, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and log variance of the mixture of what they say, of scaled values at sorted query times."""
        return mixed([gaussians(model, panel, queries) for model in self.models], self.weights)

    def probabilities(self, panel: Panel) -> np.ndarray:
        """The mean probability of each class."""
        return self._mean([summarised(model, panel, "classes") for model in self.models], panel)

    def targets(self, panel: Panel) -> np.ndarray:
        """The mean of the predicted (scaled) targets."""
        return self._mean([summarised(model, panel, "target") for model in self.models], panel)

    def _mean(self, outputs: list[np.ndarray], panel: Panel) -> np.ndarray:
        mean = sum(w * each for w, each in zip(self.weights, outputs, strict=True))
        assert isinstance(mean, np.ndarray)
        warn_of_failures(mean, panel.ids)
        return mean


def mixed(outputs: list[tuple[np.ndarray, np.ndarray]], weights: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log variance of a mixture of Gaussians."""
    if len(outputs) == 1:
        return outputs[0]
    mean = sum(w * m for w, (m, _) in zip(weights, outputs, strict=True))
    spread = sum(w * (np.exp(v) + np.square(m - mean)) for w, (m, v) in zip(weights, outputs, strict=True))
    return np.asarray(mean), np.log(np.maximum(spread, 1e-12))


def summarised(headed: Headed, panel: Panel, what: str) -> np.ndarray:
    """What the head of a model reads from the summary of each series: probabilities of classes, or a target."""
    model = with_enough_steps(headed, panel, np.zeros((len(panel), 1)))
    call = _classes if what == "classes" else _target
    return in_batches(lambda series: call(model, series), panel)


@compiled
def _classes(model: Headed, series):
    batch = LabelledSeries(series, np.zeros(len(series), np.int32))
    return SeriesClassification().outputs(model, batch, jax.random.key(0))


@compiled
def _target(model: Headed, series):
    batch = SeriesTarget(series, np.zeros(len(series), np.float32))
    return Regression().outputs(model, batch, jax.random.key(0))


# --- on validation ------------------------------------------------------------------------------------------------


def outputs_of(headed: Headed, data: Query | LabelledSeries | SeriesTarget) -> Any:
    """What the metrics of a task need, of one model on its data."""
    if isinstance(data, Query):
        names = tuple(map(str, range(data.context.variables)))
        return gaussians(headed, Panel(data.context, np.arange(len(data)), names), np.asarray(data.times))
    names = tuple(map(str, range(data.series.variables)))
    panel = Panel(data.series, np.arange(len(data.series)), names)
    return summarised(headed, panel, "classes" if isinstance(data, LabelledSeries) else "target")


def mix(outputs: Sequence[Any], weights: Sequence[float]) -> Any:
    """The outputs of models, as those of their mixture."""
    if isinstance(outputs[0], tuple):
        return mixed(list(outputs), tuple(weights))
    return sum(w * each for w, each in zip(weights, outputs, strict=True))
