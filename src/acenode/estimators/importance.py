"""Which variable a forecast depends on, by perturbation; and whether an attention may be read as influence."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..series import Panel, Query, Series
from ..series.frames import write_frame
from ..train.health import INACTIVE
from .explain import Out, attention_of, finished, pyplot

AGREES = 0.3  # rank correlation of weights and importances from which on they say the same
COLLAPSED = 0.9  # a column that gets so much of every row's weight
_SERIES = 100  # at most so many are read


@dataclass(frozen=True)
class Importance:
    """`increase[i, j]` is by how much the MSE of forecasting variable i grows where variable j is hidden from the
    context, a mean over series, and `error[i, j]` its standard error. Scaled values, so 1 is the variance."""

    mse: np.ndarray
    increase: np.ndarray
    error: np.ndarray


def importance_of(estimator: Any, panel: Panel) -> Importance:
    """Forecasts of the last part of each series with and without each variable in the context."""
    query = estimator._last_part(panel.series)
    base = _squared_errors(estimator, panel, query)
    each = [_squared_errors(estimator, panel, _hidden(query, j)) for j in range(len(panel.variables))]
    # A series counts for a variable where it has scored values of it.
    differences = np.stack([hidden - base for hidden in each], axis=-1)  # (series, forecast, hidden)
    count = np.maximum(np.isfinite(differences).sum(axis=0), 1)
    increase = np.nansum(differences, axis=0) / count
    spread = np.sqrt(np.nansum(np.square(differences - increase), axis=0) / np.maximum(count - 1, 1))
    mse = np.nansum(base, axis=0) / np.maximum(np.isfinite(base).sum(axis=0), 1)
    return Importance(mse, increase, spread / np.sqrt(count))


def _squared_errors(estimator: Any, panel: Panel, query: Query) -> np.ndarray:
    """Mean squared error of each series and variable, NaN where nothing is scored."""
    context = Panel(query.context, panel.ids, panel.variables)
    mean, _ = estimator._gaussians(context, np.asarray(query.times))
    scored = np.asarray(query.scored)
    total = np.where(scored, np.square(np.asarray(query.values) - mean), 0.0).sum(axis=1)
    count = scored.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _hidden(query: Query, variable: int) -> Query:
    context = query.context
    observed = np.array(context.observed)
    observed[..., variable] = False
    values = np.where(observed, np.asarray(context.values), 0.0).astype(np.asarray(context.values).dtype)
    without = Series(context.times, values, observed, context.length)
    return Query(without, query.times, query.values, query.observed, query.scored)


def importance_frame(estimator: Any, frame: Any) -> Any:
    """A frame (forecast, hidden, mse, increase, standard_error): by how much hiding a variable hurts a forecast."""
    found, names, backend = _importance_in(estimator, frame)
    size = len(names)
    data = {
        "forecast": np.repeat(names, size).tolist(),
        "hidden": names * size,
        "mse": np.repeat(found.mse, size),
        "increase": found.increase.ravel(),
        "standard_error": found.error.ravel(),
    }
    return write_frame(data, backend)


def plot_importance(estimator: Any, frame: Any, out: Out):
    """A picture of it, which is also written to `out`."""
    pyplot()
    found, names, _ = _importance_in(estimator, frame)
    return finished(importance_figure(found, names), out)


def importance_figure(found: Importance, names: list[str]):
    """A matrix; row: the variable that is forecast, column: the one that is hidden. A decrease is drawn as 0."""
    from ..report.plots import matrix

    return matrix(np.maximum(found.increase, 0.0), names, "forecast", "hidden", "increase of MSE")


def _importance_in(estimator: Any, frame: Any) -> tuple[Importance, list[str], Any]:
    """That of the series of a frame, the names of the variables, and the frame's backend."""
    what = "the table to explain"
    table = estimator._read(frame, what)
    panel = estimator._scaled(table, what)
    if not estimator._last_part(panel.series).scored.any():
        raise ValueError(f"{what}: no series has values in its last {estimator.horizon:.0%} to forecast.")
    return importance_of(estimator, panel), [str(name) for name in panel.variables], table.backend


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
    return read_attention(
        attention_of(estimator, some)[0], np.asarray(some.series.real), importance_of(estimator, some)
    )


def read_attention(weights: np.ndarray, real: np.ndarray, found: Importance) -> Reading:
    """Of weights (series, rows, n, n), where `real` (series, rows), beside the importances."""
    from scipy.stats import spearmanr  # slow to import

    change = np.abs(weights - weights[:, :1]).max(axis=(2, 3))
    change = np.where(real, change, 0.0).max(axis=1).mean()
    mean = weights[real].mean(axis=0)
    pairs = ~np.eye(len(mean), dtype=bool)
    collapsed = len(mean) > 1 and bool((mean.min(axis=0) > COLLAPSED).any())
    varies = min(np.ptp(mean[pairs], axis=0), np.ptp(found.increase[pairs], axis=0)) > 0 if pairs.any() else False
    agreement = float(np.asarray(spearmanr(mean[pairs], found.increase[pairs]))[0]) if varies else 0.0
    return Reading(float(change), collapsed, agreement)
