"""Models that are not trained but solved for: the plain baselines, and a linear model on statistics of the history."""

import functools as ft
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..compiled import compiled
from ..models.plain import HistorySummary, NoInput, PlainForecast, history
from ..models.statistics import statistic_edges
from ..ode import Constant
from ..series import Query, Series
from ..tasks import Headed
from .entry import Entry

_SERIES = 500  # at most so many to solve on
_RIDGE = 1e-2  # per value
_STRENGTHS = (0.003, 0.01, 0.03, 0.1)  # of the logistic regression (C), the best on validation
_BIAS_OF_LOG = 1.27  # -E log z^2 of a standard normal z
_EMPTY = 1e-4  # a variance below is that of rounding


@dataclass(frozen=True)
class Solved:
    """A model in closed form: its entry, and `solve(headed, data, train, validation)`, which gives it its numbers.

    `solve_again` takes the same, for a model that has been chosen: with the settings that were best on validation
    series it is solved on these too.
    """

    entry: Entry
    solve: Callable[[Headed, Any, np.ndarray, np.ndarray], Headed]
    solve_again: Callable[[Headed, Any, np.ndarray, np.ndarray], Headed] | None = None


def _forecast(guess, description: str) -> Solved:
    return Solved(Entry(lambda s, key: PlainForecast(s.variables, guess), lambda s: 1, None, description), _solve_band)


# --- values -------------------------------------------------------------------------------------------------------


def _solve_band(headed: Headed, data: Query, train: np.ndarray, validation: np.ndarray) -> Headed:
    """The weights of the linear guess by ridge regression, and the band from the residuals of training series."""
    model, query = headed.model, _some(data, train)
    if model.guess == "linear":
        model = _ridge(model, query)
    guess, distance = (np.asarray(x) for x in _guesses(model, query.context, jnp.asarray(query.times)))
    residual = np.asarray(query.values) - guess
    wide, growth = np.log1p(distance), np.zeros(residual.shape[-1])
    level = np.zeros_like(growth)
    for k in range(len(level)):
        here = np.asarray(query.scored)[..., k]
        square, x = np.maximum(np.square(residual[..., k][here]), _EMPTY), wide[..., k][here]
        if square.size > 1 and np.var(x) > 1e-8:
            growth[k] = np.clip(np.cov(x, np.log(square) + _BIAS_OF_LOG)[0, 1] / np.var(x, ddof=1), 0.0, 3.0)
        level[k] = np.log(np.mean(square * np.exp(-growth[k] * x))) if square.size else 0.0
    numbers = (jnp.asarray(level, float), jnp.asarray(growth, float))
    return Headed(eqx.tree_at(lambda m: (m.level, m.growth), model, numbers), None)


def _some(data: Query, train: np.ndarray) -> Query:
    chosen = train[np.linspace(0, len(train) - 1, min(len(train), _SERIES)).astype(int)]
    return jax.tree.map(lambda x: np.asarray(x)[chosen], data)


@compiled
def _guesses(model: PlainForecast, context: Series, times):
    states = model(context, times, jax.random.key(0)).states[0]
    return states[..., 0], states[..., 1]


def _ridge(model: PlainForecast, query: Query) -> PlainForecast:
    features, _ = compiled(history)(query.context, jnp.asarray(query.times))
    features = np.asarray(features, np.float64)
    weight, bias = np.zeros(model.weight.shape), np.zeros(model.bias.shape)
    for k in range(len(bias)):
        here = np.asarray(query.scored)[..., k]
        if not here.any():
            continue
        x, y = features[here], np.asarray(query.values, np.float64)[..., k][here]
        centre, middle = x.mean(0), y.mean()
        x = x - centre
        weight[:, k] = np.linalg.solve(x.T @ x + _RIDGE * len(y) * np.eye(x.shape[1]), x.T @ (y - middle))
        bias[k] = middle - centre @ weight[:, k]
    found = (jnp.asarray(weight, float), jnp.asarray(bias, float))
    return eqx.tree_at(lambda m: (m.weight, m.bias), model, found)


# --- labels and targets of series ---------------------------------------------------------------------------------


def _solve_frequencies(headed: Headed, data: Any, train: np.ndarray, validation: np.ndarray) -> Headed:
    """The part of training series that has each label; of targets, which are scaled, the mean is 0."""
    bias = np.zeros(headed.head.bias.shape)
    if hasattr(data, "label"):
        count = np.bincount(np.asarray(data.label)[train], minlength=len(bias)) + 0.5
        bias = np.log(count / count.sum())
    return _with_head(headed, headed.model, np.zeros(headed.head.weight.shape), bias)


def _solve_statistics(
    headed: Headed, data: Any, train: np.ndarray, validation: np.ndarray, again: bool = False
) -> Headed:
    """Logistic or ridge regression on the statistics of the series, its strength chosen on validation."""
    edges = statistic_edges(_rows(data.series, train))
    model = eqx.tree_at(lambda m: m.statistics.edges, headed.model, Constant(jnp.asarray(edges, float)))
    x = _encoded(model, data.series)
    fitted = _logistic if hasattr(data, "label") else _ridge_target
    return _with_head(headed, model, *fitted(x, data, train, validation, headed.head.bias.shape[0], again))


def _encoded(model: HistorySummary, series: Series, size: int = 256) -> np.ndarray:
    call = compiled(lambda model, series: model.statistics(series))
    starts = range(0, len(series), size)
    parts = [np.minimum(np.arange(begin, begin + size), len(series) - 1) for begin in starts]
    return np.concatenate([np.asarray(call(model, _rows(series, rows))) for rows in parts])[: len(series)]


def _logistic(x: np.ndarray, data: Any, train, validation, classes: int, again: bool) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    label = np.asarray(data.label)
    best = None
    for strength in _STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=300).fit(x[train], label[train])
        loss = log_loss(label[validation], model.predict_proba(x[validation]), labels=model.classes_)
        if best is not None and loss >= best[0]:
            break
        best = (loss, model)
    assert best is not None
    if again:
        both = np.concatenate([train, validation])
        best[1].fit(x[both], label[both])
    weight, bias = np.zeros((classes, x.shape[1])), np.full(classes, -20.0)  # a class that training lacks
    found = best[1].classes_.astype(int)
    if len(found) == 2:  # one logit, for the second
        weight[found[1]], bias[found] = best[1].coef_[0], (0.0, best[1].intercept_[0])
    else:
        weight[found], bias[found] = best[1].coef_, best[1].intercept_
    return weight, bias


def _ridge_target(
    x: np.ndarray, data: Any, train, validation, outputs: int, again: bool
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import Ridge

    target = np.asarray(data.target, np.float64)

    def error(model) -> float:
        return float(np.mean(np.square(model.predict(x[validation]) - target[validation])))

    best = min((Ridge(alpha=a).fit(x[train], target[train]) for a in (1.0, 10.0, 100.0, 1000.0)), key=error)
    if again:
        both = np.concatenate([train, validation])
        best.fit(x[both], target[both])
    return np.reshape(best.coef_, (outputs, -1)), np.reshape(best.intercept_, (outputs,))


def _rows(series: Series, rows: np.ndarray) -> Series:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], series)


def _with_head(headed: Headed, model: Any, weight: np.ndarray, bias: np.ndarray) -> Headed:
    numbers = (jnp.asarray(weight, float), jnp.asarray(bias, float))
    return Headed(model, eqx.tree_at(lambda h: (h.weight, h.bias), headed.head, numbers))


_one = lambda s: 1  # noqa: E731

SOLVED: dict[str, Solved] = {
    "last-value": _forecast("last value", "the last observed value of each variable"),
    "mean": _forecast("mean", "the training mean of each variable"),
    "linear": _forecast("linear", "a linear map of last values and means so far"),
    "interpolation": _forecast("interpolation", "straight lines between the observed values"),
    "frequencies": Solved(
        Entry(lambda s, key: NoInput(), _one, _one, "how frequent each label is, the same for all", linear=True),
        _solve_frequencies,
    ),
    "statistics": Solved(
        Entry(
            lambda s, key: HistorySummary(s.variables),
            lambda s: HistorySummary(s.variables).size,
            _one,
            "a linear model on statistics of each variable's history",
            linear=True,
        ),
        _solve_statistics,
        ft.partial(_solve_statistics, again=True),
    ),
}

PLAIN: dict[str, tuple[str, ...]] = {
    "forecast": ("last-value", "mean", "linear"),
    "impute": ("mean", "interpolation"),
    "classify": ("frequencies", "statistics"),
    "regress": ("frequencies", "statistics"),
}
