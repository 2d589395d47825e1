"""`Baseline`: a row of a table that is not trained, such as the last value carried forward, and how it is scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float

from ..series import Query

Predicted = Float[np.ndarray, "batch queries variables"]


@dataclass(frozen=True)
class Baseline:
    """A prediction from the training data alone; a table of forecasts needs one beside its models.

    Unless the test data differ from seed to seed (`by_seed`), one seed is all there is.
    """

    table: str
    name: str
    score: Callable[[Any, Sequence[int]], Sequence[Mapping[str, float]]]  # metrics on test data, one for each seed
    checksum: Callable[[Any], str]  # of the data in this folder
    protocol: str = "comparable"
    by_seed: bool = False
    config: dict[str, object] = field(default_factory=dict)
    dataset: str = ""


def variable_mean(
    values: Float[Array | np.ndarray, "*batch variables"], observed: Bool[Array | np.ndarray, "*batch variables"]
) -> Float[np.ndarray, " variables"]:
    """The mean of each variable over all its observations; 0 where there is none."""
    values, observed = np.asarray(values, np.float64), np.asarray(observed)
    axes = tuple(range(values.ndim - 1))
    return np.sum(values, axes, where=observed) / np.maximum(observed.sum(axes), 1)


def mean_value(query: Query, train: np.ndarray) -> Predicted:
    """The training mean of each variable, at all times."""
    mean = variable_mean(query.values[train], query.observed[train])
    return np.broadcast_to(mean, np.asarray(query.values).shape)


def last_value(query: Query, train: np.ndarray) -> Predicted:
    """The last context value of each variable before or at the query time; the training mean where there is none."""
    context, queried = query.context, np.asarray(query.times)
    rows = np.arange(context.times.shape[1])
    seen = np.maximum.accumulate(np.where(context.observed, rows[None, :, None], -1), axis=1)
    seen = np.concatenate([np.full_like(seen[:, :1], -1), seen], axis=1)
    ends = np.where(context.real, context.times, np.inf)
    before = np.stack([np.searchsorted(end, at, side="right") for end, at in zip(ends, queried, strict=True)])
    last = np.take_along_axis(seen, before[..., None], axis=1)
    value = np.take_along_axis(np.asarray(context.values), np.maximum(last, 0), axis=1)
    return np.where(last >= 0, value, mean_value(query, train))


def published_mse(query: Query, predicted: Predicted, test: np.ndarray) -> dict[str, float]:
    """The metrics of `tasks.Reconstruction`, of any prediction."""
    error = np.square(np.asarray(query.values, np.float64) - predicted)[test]
    scored = np.asarray(query.scored)[test]
    by_variable = np.sum(error, axis=1, where=scored) / np.maximum(scored.sum(1), 1)
    return {"mse": float(by_variable.mean()), "mse_per_value": float(error[scored].mean())}


def gaussian_scores(query: Query, predicted: Predicted, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Mean squared error and negative log likelihood per scored value of the samples `test`.

    The likelihood is that of a Gaussian around the prediction, whose variance is the mean squared error of the same
    prediction on the scored values of the samples `train`, one for each variable (1 if there is none).
    """
    from scipy.stats import norm  # slow to import

    scored = np.asarray(query.scored)
    if not scored[test].any():
        raise ValueError("gaussian_scores: the test samples have no scored value; expected at least one.")
    error = np.asarray(query.values, np.float64) - predicted
    count = scored[train].sum((0, 1))
    squares = np.square(error[train]).sum((0, 1), where=scored[train])
    # A variable without any error in training, such as no snow at all, must not promise certainty.
    variance = np.maximum(np.where(count > 0, squares / np.maximum(count, 1), 1.0), 1e-6)
    negll = -norm.logpdf(error, scale=np.sqrt(variance))
    return {
        "mse": float(np.square(error)[test].mean(where=scored[test])),
        "negll": float(negll[test].mean(where=scored[test])),
    }
