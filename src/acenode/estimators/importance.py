"""Which variable a forecast depends on, by perturbation; and whether an attention may be read as influence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from ..series import Panel, Query, Series
from ..series.categories import collapsed
from ..series.frames import write_frame
from ..train.health import INACTIVE
from .explain import Out, attention_of, finished, pyplot

AGREES = 0.3  # rank correlation of weights and importances from which on they say the same
COLLAPSED = 0.9  # a column that gets so much of every row's weight
_SERIES = 100  # at most so many are read


@dataclass(frozen=True)
class Importance:
    """`increase[i, j]` is by how much the MSE of forecasting the i-th variable that is forecast grows where the j-th
    column is hidden from the context, a mean over series, and `error[i, j]` its standard error. Scaled values, so 1 is
    the variance."""

    mse: np.ndarray
    increase: np.ndarray
    error: np.ndarray


def importance_of(estimator: Any, panel: Panel, hidden: Iterable[Sequence[int]]) -> Importance:
    """Forecasts of the last part of each series, with the whole context and without these variables in turn."""
    targets = estimator.columns_.targets
    query = estimator._last_part(panel.series)
    base = _squared_errors(estimator, panel, query)[:, targets]
    each = [_squared_errors(estimator, panel, _hidden(query, which))[:, targets] for which in hidden]
    # A series counts for a variable where it has scored values of it.
    differences = np.stack([without - base for without in each], axis=-1)  # (series, forecast, hidden)
    count = np.maximum(np.isfinite(differences).sum(axis=0), 1)
    increase = np.nansum(differences, axis=0) / count
    spread = np.sqrt(np.nansum(np.square(differences - increase), axis=0) / np.maximum(count - 1, 1))
    mse = np.nansum(base, axis=0) / np.maximum(np.isfinite(base).sum(axis=0), 1)
    return Importance(mse, increase, spread / np.sqrt(count))


def forecast_names(estimator: Any) -> list[str]:
    """The variables that are forecast."""
    return [str(name) for name in compress(estimator.columns_.values, estimator.columns_.targets)]


def columns_to_hide(estimator: Any) -> dict[Any, list[int]]:
    """The places of the variables of each column of the user's table: a column of words is hidden as a whole."""
    hidden: dict[Any, list[int]] = {}
    for place, name in enumerate(estimator.columns_.values):
        (column,) = collapsed((name,), estimator.categories_)
        hidden.setdefault(column, []).append(place)
    return hidden


def _squared_errors(estimator: Any, panel: Panel, query: Query) -> np.ndarray:
    """Mean squared error of each series and variable, NaN where nothing is scored."""
    context = Panel(query.context, panel.ids, panel.variables)
    mean, _ = estimator._gaussians(context, np.asarray(query.times))
    scored = np.asarray(query.scored)
    total = np.where(scored, np.square(np.asarray(query.values) - mean), 0.0).sum(axis=1)
    count = scored.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _hidden(query: Query, variables: Sequence[int]) -> Query:
    context = query.context
    observed = np.array(context.observed)
    observed[..., list(variables)] = False
    values = np.where(observed, np.asarray(context.values), 0.0).astype(np.asarray(context.values).dtype)
    without = Series(context.times, values, observed, context.length)
    return Query(without, query.times, query.values, query.observed, query.scored)


def importance_frame(estimator: Any, frame: Any) -> Any:
    """A frame (forecast, hidden, mse, increase, standard_error): by how much hiding a column hurts a forecast."""
    panel, backend = _panel(estimator, frame)
    forecast, hidden = forecast_names(estimator), columns_to_hide(estimator)
    found = importance_of(estimator, panel, hidden.values())
    data = {
        "forecast": np.repeat(forecast, len(hidden)).tolist(),
        "hidden": [*map(str, hidden)] * len(forecast),
        "mse": np.repeat(found.mse, len(hidden)),
        "increase": found.increase.ravel(),
        "standard_error": found.error.ravel(),
    }
    return write_frame(data, backend)


def plot_importance(estimator: Any, frame: Any, out: Out):
    """A picture of it, which is also written to `out`."""
    pyplot()
    return finished(importance_figure(estimator, _panel(estimator, frame)[0]), out)


def importance_figure(estimator: Any, panel: Panel):
    """A matrix; row: the variable that is forecast, column: the one that is hidden. A decrease is drawn as 0."""
    from ..report.plots import matrix

    hidden = columns_to_hide(estimator)
    increase = importance_of(estimator, panel, hidden.values()).increase
    names = forecast_names(estimator), [*map(str, hidden)]
    return matrix(np.maximum(increase, 0.0), *names, "forecast", "hidden", "increase of MSE")


def _panel(estimator: Any, frame: Any) -> tuple[Panel, Any]:
    """The scaled series of a frame, and the frame's backend."""
    what = "the table to explain"
    table = estimator._read(frame, what)
    panel = estimator._scaled(table, what)
    if not estimator._last_part(panel.series).scored.any():
        raise ValueError(f"{what}: no series has values in its last {estimator.horizon:.0%} to forecast.")
    return panel, table.backend


# --- is an attention informative? ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """Whether the weights of an attention between variables may be read as influence.

    - `change`: the largest change of a weight along a series, mean over series;
    - `collapsed`: whether all variables attend to one and the same;
    - `agreement`: rank correlation between weights and importances over pairs of different variables.
    """

    change: float
    collapsed: bool
    agreement: float

    @property
    def informative(self) -> bool:
        return self.change >= INACTIVE and not self.collapsed and self.agreement >= AGREES

    def __str__(self) -> str:
        if self.informative:
            return (
                f"The attention is active (its weights change by {self.change:.2f}) and agrees with perturbation "
                f"(rank correlation {self.agreement:.2f})."
            )
        return (
            f"Do not read this attention as influence: {self.reason}. Perturbation says what the forecasts depend on."
        )

    @property
    def reason(self) -> str:
        """Why it may not be read so."""
        if self.collapsed:
            return "all variables attend to one and the same"
        if self.change < INACTIVE:
            return f"it is inactive, its weights change by {self.change:.4f} along a series"
        return f"its rank correlation with perturbation is {self.agreement:.2f}"


def reading_of(estimator: Any, panel: Panel) -> Reading | None:
    """Of a fitted forecaster on these series; None where its attention is not between variables."""
    if estimator.entry_.attends != "variables" or len(panel.variables) < 2:
        return None
    some = panel[: min(_SERIES, len(panel))]
    each = importance_of(estimator, some, [[place] for place in range(len(panel.variables))])
    weights = attention_of(estimator, some)[0]
    return read_attention(weights, np.asarray(some.series.real), each, estimator.columns_.targets)


def read_attention(weights: np.ndarray, real: np.ndarray, found: Importance, targets: np.ndarray) -> Reading:
    """Of weights (series, rows, n, n), where `real` (series, rows), beside the importances for the `targets` of n."""
    from scipy.stats import spearmanr  # slow to import

    change = np.abs(weights - weights[:, :1]).max(axis=(2, 3))
    change = np.where(real, change, 0.0).max(axis=1).mean()
    mean = weights[real].mean(axis=0)
    attends_to_one = len(mean) > 1 and bool((mean.min(axis=0) > COLLAPSED).any())
    pairs = ~np.eye(len(mean), dtype=bool)[targets]
    shown, increase = mean[targets][pairs], found.increase[pairs]
    varies = pairs.any() and np.ptp(shown) > 0 and np.ptp(increase) > 0
    agreement = float(np.asarray(spearmanr(shown, increase))[0]) if varies else 0.0
    return Reading(float(change), attends_to_one, agreement)
