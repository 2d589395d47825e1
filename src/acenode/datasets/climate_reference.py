"""Forecasts of climate that need no training: the last value seen, and what is usual at this time of the year.

Any table of forecasts should show these beside the models. They answer a `Query` as `ushcn.question` makes it, in
its scale, where 0 is the mean of the training series.
"""

from typing import NamedTuple

import numpy as np

from ..series import Query
from . import reference
from .split import Split
from .ushcn import Climate, query as ask
from .ushcn_steps import day_of

# Days of a leap year; 29 February has its own in every year.
_DAYS = 366
_MARCH = 60


class Scores(NamedTuple):
    """Mean squared error and negative log likelihood per scored value."""

    mse: float
    negll: float


def references(climate: Climate, split: Split, window: int = 31) -> dict[str, Scores]:
    """The scores on the test series of both forecasts, everything measured on the training series."""
    queried = ask(climate, split.train)
    given = {"LOCF": locf(queried), "climatology": climatology(climate, queried, split.train, window)}
    return {name: score(prediction, queried, split.train, split.test) for name, prediction in given.items()}


def locf(query: Query) -> np.ndarray:
    """The last known value of each variable, or 0 where none is known, at every asked time."""
    last = reference.locf(query.context, np.inf, np.zeros(query.context.variables))
    return np.broadcast_to(last[:, None, :], query.values.shape)


def climatology(climate: Climate, query: Query, train: np.ndarray, window: int = 31) -> np.ndarray:
    """The mean of each variable at this time of the year over all years of the training series, at every asked time.

    For each day of the year, all observations count that lie in a window of so many days (an odd number) around it,
    each as much as any other, whatever its year and station. Where there is none, the mean of all days.
    """
    if window % 2 == 0 or not 1 <= window < _DAYS:
        raise ValueError(f"climatology: window is {window}; expected an odd number of days below {_DAYS}.")
    if len(train) == 0:
        raise ValueError("climatology: there are no training series to take the mean of.")
    day = _day_of_year(climate.start, np.asarray(query.times))
    observed, values = (np.asarray(array)[train] for array in (query.observed, query.values))
    total = np.zeros((_DAYS, values.shape[-1]))
    count = np.zeros_like(total)
    np.add.at(total, day[train], np.where(observed, values, 0.0))
    np.add.at(count, day[train], observed)
    around = (np.arange(_DAYS)[:, None] + np.arange(window) - window // 2) % _DAYS
    near, seen = total[around].sum(1), count[around].sum(1)
    overall = total.sum(0) / np.maximum(count.sum(0), 1)
    usual = np.where(seen > 0, near / np.maximum(seen, 1), overall)
    return usual[day]


def score(prediction: np.ndarray, query: Query, train: np.ndarray, test: np.ndarray) -> Scores:
    """The scores of predictions (series, queries, variables) on the series `test`.

    The likelihood is that of a Gaussian around the prediction, with the mean squared error of the same prediction on
    the scored values of the training series as its variance, one for each variable (1 if there is none).
    """
    if not np.asarray(query.scored)[test].any():
        raise ValueError("score: nothing is asked of the test series; expected at least one scored value.")
    error = np.square(np.asarray(query.values, np.float64) - prediction)
    scored = np.asarray(query.scored)
    count = scored[train].sum((0, 1))
    variance = np.where(count > 0, error[train].sum((0, 1), where=scored[train]) / np.maximum(count, 1), 1.0)
    # A variable without any error in training, such as no snow at all, must not promise certainty.
    variance = np.maximum(variance, 1e-6)
    negll = 0.5 * (np.log(2 * np.pi * variance) + error / variance)
    return Scores(*(float(each[test].mean(where=scored[test])) for each in (error, negll)))


def _day_of_year(start: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The day of the year, 0 to 365, of each time (series, queries) of series that begin on `start`."""
    date = start[:, None] + day_of(times)
    year = date.astype("datetime64[Y]")
    day = (date - year.astype("datetime64[D]")).astype(int)
    leap = ((year + 1).astype("datetime64[D]") - year.astype("datetime64[D]")).astype(int) == _DAYS
    return np.where(leap | (day < _MARCH - 1), day, day + 1)
