"""A page about a user's own run, with the pictures of the demo."""

from pathlib import Path
from typing import Any

import numpy as np

from .own_influence import influence_sections

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
    from ..report import page

    summary, names = estimator.summary_, estimator.columns_.values
    what = "the training table"
    labelled = estimator.columns_.label is not None
    table = estimator._read(frame, what, labelled=labelled)
    whole = estimator._scaled(table, what)
    places = np.flatnonzero(np.isin(whole.ids, np.asarray(estimator.validation_ids_, object)))
    panel = whole[places]
    scale, unit = _clock(estimator, float(np.asarray(panel.series.times).max()))
    sections = [_run(estimator), *_candidates(estimator)]
    longest = int(np.argmax(np.asarray(panel.series.observed).sum((1, 2))))
    if labelled:
        assert table.labels is not None
        sections += _labels(estimator, panel, table.labels[places])
    else:
        sections += _values(estimator, panel, longest, scale, unit)
    attention = None
    if estimator.entry_.attends is not None:
        figure = _attention(estimator, panel, longest, scale)
        who = f"{estimator.columns_.id} {panel.ids[longest]}"
        words = f"{who}: how much each row of a matrix attends to each column; a row adds up to 1."
        drawn = page.picture("attention", figure, "attention over time")
        attention = page.Section("Attention", [_time(words, unit)], [drawn])
    influence = influence_sections(estimator, panel[: min(_SERIES, len(panel))], attention)
    misleading = estimator.reading_ is not None and not estimator.reading_.informative
    sections = influence + sections if misleading else sections + influence
    sections += _learning(estimator)
    trained = summary.series - summary.validation_series
    lead = (
        f"Trained on {trained:,} series of {', '.join(map(str, names))}; {summary.validation_series:,} more were set "
        "aside for validation, and only these are shown: as the model answered before it was trained on any of them, "
        "but the best epoch was chosen by them."
    )
    if summary.notes:  # such as that nothing beats the plain baselines: before all else
        lead = f"{summary.notes[0][0].upper()}{summary.notes[0][1:]} {lead}"
    if misleading:
        lead = f"{estimator.reading_} {lead}"
    title = f"{type(estimator).__name__}: {estimator.members_}"
    return page.write(out / "report", title, lead, sections)


# --- sections -----------------------------------------------------------------------------------------------------


def _run(estimator: Any) -> Any:
    from ..report import page

    summary = estimator.summary_
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
    words = [f"{estimator.settings_.model}: {estimator.entry_.description}."]
    return page.Section("The run", words, [page.Table(["", ""], rows)])


def _candidates(estimator: Any) -> list[Any]:
    """The table of all candidates, where there are several."""
    from ..estimators.card import leaderboard_rows
    from ..report import page

    names, rows = leaderboard_rows(estimator)
    if len(rows) < 2:
        return []
    words = [
        "All that were tried, on the validation series, the best first. The weight is the part that a model has in the "
        "answers."
    ]
    return [page.Section("Candidates", words, [page.Table(names, rows, best=0)])]


def _values(estimator: Any, panel: Any, longest: int, scale: float, unit: str) -> list[Any]:
    """Of predicted values: three series, the error over time, the coverage of the bands, residuals."""
    from ..report import page
    from . import own_plots

    some = panel[: min(_SERIES, len(panel))]
    query, mean, sd = _predictions(estimator, some)
    scored = np.asarray(query.scored)
    error = np.asarray(query.values) - mean
    chosen = {**typical_and_hard(error, scored), "longest": longest}
    words = {
        "forecast": "Observed up to the shaded part, forecast from there, with the 90 % band.",
        "impute": "What was observed, and what the model would fill in between, with the 90 % band.",
    }[estimator.task]
    said = {"typical": "of median error", "hard": "of the largest error", "longest": "with the most values"}
    pictures, names = [], []
    for kind, k in chosen.items():
        who = f"{estimator.columns_.id} {panel.ids[k]}"
        names.append(f"{who} is the one {said[kind]}")
        figure = _bands(estimator, panel, k, scale)
        pictures.append(page.picture(f"series-{kind}", figure, f"{who}, {said[kind]}", f"{who}, {said[kind]}"))
    sections = [page.Section("Three series", [_time(f"{words} {'; '.join(names)}.", unit)], pictures)]
    if estimator.task == "forecast":
        words = (
            f"Squared error of the forecasts of the last part of {len(some):,} series, in scaled units (1 is the "
            "variance)."
        )
        drawn = page.picture("error", _error(estimator, some, scale), "squared error over time")
        sections.append(page.Section("Error over time", [_time(words, unit)], [drawn]))
    if scored.any():
        standardised = (error / sd)[scored]
        inside = float((np.abs(standardised) <= 1.6448536).mean())
        words = f"Of {scored.sum():,} values {inside:.1%} lie inside the band of 90 %, which was corrected on them."
        drawn = page.picture("calibration", own_plots.calibration(standardised), "coverage of the bands")
        sections.append(page.Section("Calibration", [words], [drawn]))
        figure = own_plots.residuals(mean[scored], error[scored], standardised)
        drawn = page.picture("residuals", figure, "residuals against predictions, and their distribution")
        sections.append(page.Section("Residuals", ["Observed minus predicted, in scaled units."], [drawn]))
    return sections


def typical_and_hard(error: np.ndarray, scored: np.ndarray) -> dict[str, int]:
    """The series of median error and of the largest, of those with a value that is scored."""
    by_series = np.where(scored, np.square(error), 0).sum((1, 2)) / np.maximum(scored.sum((1, 2)), 1)
    known = np.flatnonzero(scored.any(axis=(1, 2)))
    ranked = known[np.argsort(by_series[known], kind="stable")]
    return {"typical": int(ranked[len(ranked) // 2]), "hard": int(ranked[-1])} if len(ranked) else {}


def _predictions(estimator: Any, panel: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """A query of the series as in validation; mean and standard deviation of its answers."""
    from ..estimators.inputs import only_targets
    from ..series import Panel, hold_out

    if estimator.task == "forecast":
        query = estimator._last_part(panel.series)
    else:
        query = only_targets(hold_out(panel.series, estimator.hide, estimator.seed), estimator.columns_.targets)
    context = Panel(query.context, panel.ids, panel.variables)
    mean, log_variance = estimator._gaussians(context, np.asarray(query.times))
    return query, mean, np.exp(0.5 * log_variance)


def _labels(estimator: Any, panel: Any, labels: np.ndarray) -> list[Any]:
    """Of labels the reliability of their probabilities, of targets the residuals."""
    from ..report import page
    from . import own_plots

    place = {id: k for k, id in enumerate(estimator.validation_ids_)}
    outputs = np.asarray(estimator.validation_outputs_)[[place[id] for id in panel.ids.tolist()]]
    if estimator.task == "regress":
        centre, spread = estimator.target_
        predicted = outputs
        error = (np.asarray(labels, float) - centre) / spread - predicted
        figure = own_plots.residuals(predicted, error, error / max(float(error.std()), 1e-12))
        drawn = page.picture("residuals", figure, "residuals against predictions, and their distribution")
        return [page.Section("Residuals", ["Target minus predicted, in standard deviations."], [drawn])]
    truth = np.asarray([estimator.classes_.index(label) for label in labels.tolist()])
    named = [" ".join(map(str, c)) if isinstance(c, tuple) else str(c) for c in estimator.classes_]
    figure = own_plots.reliability(outputs, truth, named)
    drawn = page.picture("calibration", figure, "predicted probability and frequency")
    return [page.Section("Calibration", ["How frequent a label is where it is given so much probability."], [drawn])]


def _learning(estimator: Any) -> list[Any]:
    """The validation score over the epochs, of a model that was trained."""
    from ..report import page, plots

    metric = estimator.summary_.metric
    score = estimator.history_.get(f"validation_{metric}")
    if score is None:
        return []
    curves = plots.learning_curves([(estimator.settings_.model, np.asarray(score))], metric)
    drawn = page.picture("learning", curves, f"{metric} on the validation series by epoch")
    return [page.Section("Learning", ["The validation score over the epochs."], [drawn])]


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
