"""Values at asked times without a model: what a table of forecasts is to be read against."""

import numpy as np
from jaxtyping import Float

from ..series import Query


def mean_value(query: Query, train: np.ndarray) -> Float[np.ndarray, "batch queries variables"]:
    """The training mean of each variable, at all times."""
    values, observed = np.asarray(query.values)[train], np.asarray(query.observed)[train]
    mean = values.sum((0, 1), dtype=np.float64) / np.maximum(observed.sum((0, 1)), 1)
    return np.broadcast_to(mean, np.asarray(query.values).shape)


def last_value(query: Query, train: np.ndarray) -> Float[np.ndarray, "batch queries variables"]:
    """The last known value of each variable before or at the asked time; the training mean where there is none."""
    known, queried = query.context, np.asarray(query.times)
    rows = np.arange(known.times.shape[1])
    seen = np.maximum.accumulate(np.where(known.observed, rows[None, :, None], -1), axis=1)
    seen = np.concatenate([np.full_like(seen[:, :1], -1), seen], axis=1)
    ends = np.where(known.real, known.times, np.inf)
    before = np.stack([np.searchsorted(end, at, side="right") for end, at in zip(ends, queried, strict=True)])
    last = np.take_along_axis(seen, before[..., None], axis=1)
    value = np.take_along_axis(np.asarray(known.values), np.maximum(last, 0), axis=1)
    return np.where(last >= 0, value, mean_value(query, train))


def published_mse(query: Query, predicted: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """The metrics of `tasks.Reconstruct`, of any prediction."""
    error = np.square(np.asarray(query.values, np.float64) - predicted)[test]
    scored = np.asarray(query.scored)[test]
    by_variable = np.sum(error, axis=1, where=scored) / np.maximum(scored.sum(1), 1)
    return {"mse": float(by_variable.mean()), "mse_per_value": float(error[scored].mean())}
