"""A fitted model applied to series: in batches of few shapes, with as many solver steps as they need."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..compiled import compiled
from ..models import GRUODEBayes
from ..series import Panel, Query, Series
from ..series.columns import shown
from ..tasks import Forecast, Headed
from ..tasks.forecast import mixture, predictions


def without_sampling(headed: Headed) -> Headed:
    """A model that draws its first state takes the mean of it: a prediction depends on its series alone, and not on
    chance or on its place in a batch."""
    model = headed.model
    return Headed(_changed(model, samples=0), headed.head) if getattr(model, "samples", 0) else headed


def with_enough_steps(headed: Headed, panel: Panel, queries: np.ndarray) -> Headed:
    """The same model, allowed as many steps as these series and queries take, if that is more than in training.

    The number is a power of two, so that a model is not compiled for every query anew.
    """
    model = headed.model
    times = np.asarray(panel.series.times)
    span = float(max(times.max(initial=0.0), np.max(queries, initial=0.0)))
    solver = getattr(getattr(model, "ode", None), "solver", None)
    if solver is None or solver.adaptive:
        return headed
    cuts = times.shape[1] + queries.shape[1] if isinstance(model, GRUODEBayes) else 0
    need = math.ceil(span / solver.step) + cuts + 2
    if need <= solver.max_steps:
        return headed
    longer = replace(solver, max_steps=_power_of_two(need))
    return Headed(_changed(model, ode=_changed(model.ode, solver=longer)), headed.head)


def _changed(module: Any, **fields: Any) -> Any:
    """A copy with other fields, static ones too."""
    new = copy.copy(module)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def in_batches(call: Callable, panel: Panel, *more: np.ndarray, size: int = 64) -> Any:
    """`call(series, *more)` on so many series at a time; `more` has an axis of queries after that of the series.

    Series, rows and queries are padded to powers of two, so that tables of about a size share a compiled program; the
    caller drops the queries that were padded.
    """
    outs = []
    count = len(panel)
    size = min(size, max(8, _power_of_two(count)))
    series, more = _padded(panel.series), tuple(map(_padded_queries, more))
    for begin in range(0, count, size):
        rows = np.minimum(np.arange(begin, begin + size), count - 1)
        outs.append(jax.tree.map(np.asarray, call(series[rows], *(m[rows] for m in more))))
    return jax.tree.map(lambda *xs: np.concatenate(xs)[:count], *outs)


def _padded(series: Series) -> Series:
    times, values, observed = (np.asarray(x) for x in (series.times, series.values, series.observed))
    fill = max(8, _power_of_two(times.shape[1])) - times.shape[1]
    values, observed = (np.pad(x, ((0, 0), (0, fill), (0, 0))) for x in (values, observed))
    return Series(np.pad(times, ((0, 0), (0, fill)), "edge"), values, observed, np.asarray(series.length))


def _padded_queries(queries: np.ndarray) -> np.ndarray:
    fill = max(4, _power_of_two(queries.shape[1])) - queries.shape[1]
    return np.pad(queries, ((0, 0), (0, fill)), "edge")


def gaussians(headed: Headed, panel: Panel, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log variance of every (scaled) variable at the query times of each series, which are sorted."""
    model = with_enough_steps(headed, panel, queries)
    mean, log_variance = in_batches(lambda series, times: _gaussians(model, series, times), panel, queries)
    warn_of_failures(mean, panel.ids)
    return mean[:, : queries.shape[1]], log_variance[:, : queries.shape[1]]


@compiled
def _gaussians(model: Headed, series, queries):
    return mixture(*predictions(model, model.model(series, queries, jax.random.key(0)).mask_failed()))


def warn_of_failures(predicted: np.ndarray, ids: np.ndarray) -> None:
    """Say which series have no prediction, NaN, as their solve failed."""
    failed = np.isnan(predicted.reshape(len(predicted), -1)).any(axis=1)
    if failed.any():
        them, everyone = (dict.fromkeys(each.tolist()) for each in (ids[failed], ids))  # an id may be there twice
        warnings.warn(
            f"for {len(them)} of {len(everyone)} series, {shown(next(iter(them)))} first, the solver failed: they have "
            "no prediction. A value far from all others may be the reason.",
            stacklevel=4,
        )


def scores(outputs: tuple[np.ndarray, np.ndarray], query: Query) -> dict[str, float]:
    """The metrics of `Forecast` of predictions (mean and log variance), and the MSE of straight lines as a baseline."""
    metrics = Forecast().metrics(outputs, query, jnp.ones(len(query)))
    error = np.square(np.asarray(query.values, float) - straight_lines(query))
    baseline = {"mse_baseline": error[np.asarray(query.scored)].mean()}
    return {name: float(value) for name, value in {**metrics, **baseline}.items()}


def straight_lines(query: Query) -> np.ndarray:
    """At the query times, straight lines between the observed values of a variable; beyond them the nearest.

    Where none is observed it is 0, the training mean of scaled values.
    """
    context = query.context
    made = np.zeros(np.shape(query.values))
    for k, times in enumerate(np.asarray(query.times)):
        for variable, seen in enumerate(np.asarray(context.observed)[k].T):
            if seen.any():
                points = np.asarray(context.times)[k, seen], np.asarray(context.values)[k, seen, variable]
                made[k, :, variable] = np.interp(times, *points)
    return made
