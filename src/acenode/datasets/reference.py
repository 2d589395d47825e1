"""Predictions that need no training, and the two definitions of the squared error they are compared by.

Any table of forecasts should show these beside the models: they are hard to beat.
"""

import numpy as np

from ..series import Series


def observed_range(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """The least and greatest observed value of each variable; 0 and 1 for a variable never observed."""
    values, observed = np.asarray(series.values), np.asarray(series.observed)
    axes = tuple(range(values.ndim - 1))
    low = np.min(values, axes, where=observed, initial=np.inf)
    high = np.max(values, axes, where=observed, initial=-np.inf)
    return np.where(np.isfinite(low), low, 0), np.where(np.isfinite(high), high, 1)


def min_over_max(series: Series, low: np.ndarray, high: np.ndarray) -> Series:
    """The published scaling `(x - low) / high`, which divides by the maximum and not by the range."""
    divisor = np.where(high == 0, 1, high)
    scaled = np.where(series.observed, (series.values - low) / divisor, 0).astype(np.float32)
    return Series(series.times, scaled, series.observed, series.length)


def variable_mean(series: Series) -> np.ndarray:
    """The mean of each variable over all its observations in all series; 0 where there is none."""
    values, observed = np.asarray(series.values, np.float64), np.asarray(series.observed)
    axes = tuple(range(values.ndim - 1))
    return np.sum(values, axes, where=observed) / np.maximum(observed.sum(axes), 1)


def past_mean(series: Series, until: float | int, otherwise: np.ndarray) -> np.ndarray:
    """For each series and variable, the mean of its observations before `until`, or `otherwise` (variables,)."""
    past = _before(series, until)
    count = past.sum(1)
    mean = np.sum(series.values, 1, dtype=np.float64, where=past) / np.maximum(count, 1)
    return np.where(count > 0, mean, otherwise)


def locf(series: Series, until: float | int, otherwise: np.ndarray) -> np.ndarray:
    """For each series and variable, its last observation before `until`, or `otherwise` (variables,)."""
    past = _before(series, until)
    last = past.shape[1] - 1 - np.argmax(past[:, ::-1], axis=1)
    value = np.take_along_axis(np.asarray(series.values), last[:, None, :], axis=1)[:, 0]
    return np.where(past.any(1), value, otherwise)


def mse_published(prediction: np.ndarray, series: Series, since: float | int = -np.inf) -> float:
    """The squared error of the published tables (they print it x 1e-3).

    The mean over a variable's observations from `since` on, then over variables, then over series. A variable without
    an observation counts as an error of 0, so the figure falls as data get sparser.
    """
    error, count = _squared_error(prediction, series, since)
    return float(np.mean(error / np.maximum(count, 1)))


def mse_per_observation(prediction: np.ndarray, series: Series, since: float | int = -np.inf) -> float:
    """The mean squared error over all observations from `since` on."""
    error, count = _squared_error(prediction, series, since)
    return float(error.sum() / count.sum())


def _squared_error(prediction: np.ndarray, series: Series, since: float | int) -> tuple[np.ndarray, np.ndarray]:
    """Sum of squared errors and number of targets, for each series and variable.

    `prediction` is (variables,), (series, variables) or (series, rows, variables).
    """
    if prediction.ndim == 2:
        prediction = prediction[:, None, :]
    targets = np.asarray(series.observed) & (np.asarray(series.times) >= since)[..., None]
    error = np.sum((series.values - prediction) ** 2, 1, dtype=np.float64, where=targets)
    return np.asarray(error), targets.sum(1)


def _before(series: Series, until: float | int) -> np.ndarray:
    """Which values were observed before the time `until`."""
    return np.asarray(series.observed) & (np.asarray(series.times) < until)[..., None]
