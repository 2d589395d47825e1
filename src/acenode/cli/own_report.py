"""A page about a user's own run, with the pictures of the demo."""

from pathlib import Path
from typing import Any

import numpy as np

_SERIES = 300  # at most so many for the error over time
_VARIABLES = 9  # at most so many panels
_BINS = 8


def write_report(estimator: Any, frame: Any, out: Path) -> Path | None:
    """Write `report/index.html` into the model's folder; nothing without the packages of `acenode[report]`.

    `frame` is the training table. What is drawn and measured are the series that were set aside for validation.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        return None
    from ..estimators.registry import MODELS
    from ..estimators.table import read
    from ..report import page, plots

    summary, settings, names = estimator.summary_, estimator.settings_, estimator.columns_.values
    table = read(frame, estimator.columns_)
    panel = estimator._scaled(table, "the training table")
    aside = _set_aside(estimator, table)
    if aside is not None:
        panel = panel[aside]
    shown = int(np.argmax(np.asarray(panel.series.observed).sum((1, 2))))
    scale, unit = _clock(estimator, float(np.asarray(panel.series.times).max()))
    says = MODELS[settings.model].says if settings.model in MODELS else "a model of your own"
    rows = [
        ["series", f"{summary.series:,}, {summary.validation_series:,} of them for validation"],
        ["observed values", f"{summary.observations:,}"],
        ["weights", f"{summary.parameters:,}"],
        ["best epoch", f"{summary.best_epoch} of {summary.epochs}"],
        [f"validation {summary.metric}", f"{summary.validation:.4f}"],
        ["seconds", f"{summary.seconds:.0f}"],
    ]
    score = estimator.history_[f"validation_{summary.metric}"]
    curves = plots.learning_curves([(settings.model, np.asarray(score))], summary.metric)
    learning = page.picture("learning", curves, f"{summary.metric} on the validation series by epoch")
    sections = [page.Section("The run", [f"{settings.model}: {says}."], [page.Table(["", ""], rows)])]
    who = f"{estimator.columns_.id} {panel.ids[shown]}"
    if estimator.task in ("forecast", "impute"):
        words = {
            "forecast": f"{who}: known up to the shaded part, forecast from there, with the 90 % band.",
            "impute": f"{who}: what was observed, and what the model would fill in between, with the 90 % band.",
        }
        figure = _bands(estimator, panel, shown, scale, "observed later" if aside is None else "held out")
        said = [_time(words[estimator.task], unit)]
        sections.append(page.Section("One series", said, [page.picture("series", figure, who)]))
    if estimator.task == "forecast":
        some = panel[: min(_SERIES, len(panel))]
        figure = _error(estimator, some, scale)
        words = (
            f"Squared error of the forecasts of the last part of {len(some):,} series, in scaled units (1 is the "
            "variance)."
        )
        error = page.picture("error", figure, "squared error over time")
        sections.append(page.Section("Error over time", [_time(words, unit)], [error]))
    if estimator.entry_.attends is not None:
        figure = _attention(estimator, panel, shown, scale)
        words = f"{who}: how much each row of a matrix looks at each column; a row adds up to 1."
        attention = page.picture("attention", figure, "attention over time")
        sections.append(page.Section("Attention", [_time(words, unit)], [attention]))
    sections.append(page.Section("Learning", ["The validation score over the epochs."], [learning]))
    trained = summary.series - summary.validation_series
    lead = (
        f"Trained on {trained:,} series of {', '.join(names)}; {summary.validation_series:,} more were set aside for "
        f"validation. {_trusted(aside is not None)}"
    )
    return page.write(out / "report", f"{type(estimator).__name__}: {settings.model}", lead, sections)


def _set_aside(estimator: Any, table: Any) -> np.ndarray | None:
    """Which series of the table were set aside for validation; `None` if it is not the table of the training.

    The split is made again from its seed. The scaler knows the training series alone: if it comes out as it was, these
    are they.
    """
    from ..estimators.base import split_of
    from ..series import Scaler

    codes = None
    if table.labels is not None:
        if not set(table.labels) <= set(estimator.classes_):
            return None
        codes = [estimator.classes_.index(label) for label in table.labels]
    split = split_of(len(table.ids), estimator.settings_.seed, codes)
    if len(split.train) == 0 or len(split.validation) == 0:
        return None
    again, scaler = Scaler.fit(table.panel(estimator.clock_).series[split.train]), estimator.scaler_
    same = np.array_equal(again.shift, scaler.shift) and np.array_equal(again.spread, scaler.spread)
    return split.validation if same else None


def _trusted(aside: bool) -> str:
    """How far one may trust what is shown of the series."""
    if aside:
        return (
            "Shown are only series set aside for validation: the weights were not trained on them, but the best epoch "
            "was chosen by them."
        )
    return "The table is not as it was in training: the model may have been trained on what is shown here."


def _clock(estimator: Any, longest: float) -> tuple[float, str]:
    """What to multiply the model's times by, and the unit they then have; no name for numbers, which have none."""
    clock = estimator.clock_
    if clock.kind == "number":
        return clock.unit, ""
    days = clock.unit * longest / 86_400
    return (clock.unit / 86_400, "days") if days > 3 else (clock.unit / 3600, "hours")


def _time(words: str, unit: str) -> str:
    return words + (f" Time in {unit} since its first row." if unit else " Time since its first row.")


def _bands(estimator: Any, panel: Any, which: int, scale: float, later: str):
    from ..estimators.base import gaussians
    from ..report import plots
    from ..series import Panel, Series

    one = panel.series[which : which + 1]
    last = np.asarray(one.times)[0, -1:]  # padding repeats it
    known, split = one, np.inf
    if estimator.task == "forecast":
        known = estimator._last_part(one).context
        split = float(((1 - estimator.horizon) * last * scale)[0])  # in single precision, as the times are
    grid = np.linspace(0, last[0], 120, dtype=np.float32)[None]
    mean, log_variance = gaussians(estimator.model_, Panel(known, panel.ids[which : which + 1], panel.variables), grid)
    chosen = slice(0, _VARIABLES)
    names = estimator.columns_.values[chosen]
    deviation = estimator.scaler_.unscale_deviation(np.exp(0.5 * log_variance[0]))
    band = plots.Band(
        estimator.settings_.model,
        np.asarray(estimator.scaler_.unscale(mean[0]))[:, chosen],
        np.asarray(deviation)[:, chosen],
    )
    values = np.asarray(estimator.scaler_.unscale(one.values[0]))
    drawn = Series(one.times[0] * scale, values[:, chosen], one.observed[0][:, chosen], one.length[0, ...])
    return plots.forecasts(grid[0] * scale, [band], drawn, names, split, later=later)


def _error(estimator: Any, some: Any, scale: float):
    from ..estimators.base import gaussians
    from ..report import plots
    from ..series import Panel
    from ..tasks.metrics import error_by_time

    query = estimator._last_part(some.series)
    times, scored = np.asarray(query.times), np.asarray(query.scored)
    mean, _ = gaussians(estimator.model_, Panel(query.context, some.ids, some.variables), times)
    error = np.square(np.asarray(query.values) - mean)
    edges, mse, count = error_by_time(times, error, scored, _BINS)
    errors = np.where(count > 0, mse, np.nan)
    return plots.error_over_time(edges * scale, [(estimator.settings_.model, errors)], "squared error")


def _attention(estimator: Any, panel: Any, which: int, scale: float):
    from ..estimators.explain import attention_of
    from ..report import plots

    one = panel[which : which + 1]
    weights, names = attention_of(estimator, one)
    count = int(np.asarray(one.series.length)[0])
    rows = np.unique(np.linspace(0, count - 1, 5).round().astype(int))
    times = np.asarray(one.series.times)[0, rows] * scale
    return plots.attention_over_time(times, [("attention", weights[0, rows])], [str(n) for n in names])
