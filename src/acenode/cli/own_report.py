"""A page about a user's own run, with the pictures of the demo."""

from pathlib import Path
from typing import Any

import numpy as np

_SERIES = 300  # at most so many for the error over time
_VARIABLES = 9  # at most so many panels
_BINS = 8


def write_report(estimator: Any, frame: Any, out: Path) -> Path | None:
    """Write `report/index.html` into the model's folder; nothing without the packages of `acenode[report]`.

    `frame` is the training table. What is drawn and measured are the validation series.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        return None
    from ..report import page, plots

    summary, settings, names = estimator.summary_, estimator.settings_, estimator.columns_.values
    what = "the training table"
    whole = estimator._scaled(estimator._read(frame, what), what)
    panel = whole[np.flatnonzero(np.isin(whole.ids, np.asarray(estimator.validation_ids_, object)))]
    shown = int(np.argmax(np.asarray(panel.series.observed).sum((1, 2))))
    scale, unit = _clock(estimator, float(np.asarray(panel.series.times).max()))
    rows = [
        ["series", f"{summary.series:,}, {summary.validation_series:,} of them for validation"],
        ["observed values", f"{summary.observations:,}"],
        ["weights", f"{summary.parameters:,}"],
        ["best epoch", f"{summary.best_epoch} of {summary.epochs}"],
        [f"validation {summary.metric}", f"{summary.validation:.4f}"],
        ["seconds", f"{summary.seconds:.0f}"],
    ]
    if estimator.left_out_:
        rows.append(["constant columns, left out", ", ".join(map(str, estimator.left_out_))])
    score = estimator.history_[f"validation_{summary.metric}"]
    curves = plots.learning_curves([(settings.model, np.asarray(score))], summary.metric)
    learning = page.picture("learning", curves, f"{summary.metric} on the validation series by epoch")
    run = [f"{settings.model}: {estimator.entry_.description}."]
    sections = [page.Section("The run", run, [page.Table(["", ""], rows)])]
    who = f"{estimator.columns_.id} {panel.ids[shown]}"
    if estimator.task in ("forecast", "impute"):
        words = {
            "forecast": f"{who}: observed up to the shaded part, forecast from there, with the 90 % band.",
            "impute": f"{who}: what was observed, and what the model would fill in between, with the 90 % band.",
        }
        figure = _bands(estimator, panel, shown, scale)
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
        words = f"{who}: how much each row of a matrix attends to each column; a row adds up to 1."
        attention = page.picture("attention", figure, "attention over time")
        sections.append(page.Section("Attention", [_time(words, unit)], [attention]))
    sections.append(page.Section("Learning", ["The validation score over the epochs."], [learning]))
    trained = summary.series - summary.validation_series
    lead = (
        f"Trained on {trained:,} series of {', '.join(map(str, names))}; {summary.validation_series:,} more were set "
        "aside for validation, and only these are shown: the weights were not trained on them, but the best epoch was "
        "chosen by them."
    )
    return page.write(out / "report", f"{type(estimator).__name__}: {settings.model}", lead, sections)


def named_members(members: Any) -> str:
    """The models that answer together, such as gru-d x 4 + statistics."""
    counts = {name: members.names.count(name) for name in dict.fromkeys(members.names)}
    return " + ".join(name if count == 1 else f"{name} x {count}" for name, count in counts.items())


def leaderboard_rows(estimator: Any) -> tuple[list[str], list[list[str]]]:
    """The names of the columns of the table of candidates, and its rows as text."""
    import narwhals as nw

    table = nw.from_native(estimator.leaderboard_, eager_only=True)

    def shown(name: str, value: Any) -> str:
        if value is None or value != value:
            return ""
        if isinstance(value, str) or name == "epochs":
            return str(value)
        return f"{value:.0f}" if name == "seconds" else f"{value:.2f}" if name == "weight" else f"{value:.4f}"

    names = list(table.columns)
    return names, [[shown(name, row[name]) for name in names] for row in table.rows(named=True)]


def _clock(estimator: Any, longest: float) -> tuple[float, str]:
    """What to multiply the model's times by, and the unit they then have; no name for numbers, which have none."""
    unit = estimator.settings_.unit
    if estimator.clock_.kind == "number":
        return unit, ""
    return (unit / 86_400, "days") if unit * longest / 86_400 > 3 else (unit / 3600, "hours")


def _time(words: str, unit: str) -> str:
    return words + (f" Time in {unit} since its first row." if unit else " Time since its first row.")


def _bands(estimator: Any, panel: Any, which: int, scale: float):
    from ..report import plots
    from ..series import Panel, Series

    one = panel.series[which : which + 1]
    last = np.asarray(one.times)[0, -1:]  # padding repeats it
    context, split = one, np.inf
    if estimator.task == "forecast":
        context = estimator._last_part(one).context
        split = float(((1 - estimator.horizon) * last * scale)[0])  # in single precision, as the times are
    grid = np.linspace(0, last[0], 120, dtype=np.float32)[None]
    mean, log_variance = estimator._gaussians(Panel(context, panel.ids[which : which + 1], panel.variables), grid)
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
    return plots.forecasts(grid[0] * scale, [band], drawn, names, split, later="held out")


def _error(estimator: Any, some: Any, scale: float):
    from ..report import plots
    from ..series import Panel
    from ..tasks.metrics import error_by_time

    query = estimator._last_part(some.series)
    times, scored = np.asarray(query.times), np.asarray(query.scored)
    mean, _ = estimator._gaussians(Panel(query.context, some.ids, some.variables), times)
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
