"""A page about a user's own run, with the pictures of the demo."""

from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np


def write_report(estimator: Any, frame: Any, out: Path) -> Path | None:
    """Write `report/index.html` into the model's folder; nothing where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from ..estimators.registry import MODELS
    from ..report import page, plots

    summary, settings = estimator.summary_, estimator.settings_
    table = nw.from_native(frame, eager_only=True)
    id = table.get_column(estimator.columns_.id)[0]
    own = table.filter(nw.col(estimator.columns_.id) == id)
    rows = [
        ["series", f"{summary.series:,}, {summary.validation_series:,} of them for validation"],
        ["observed values", f"{summary.observations:,}"],
        ["weights", f"{summary.parameters:,}"],
        ["best epoch", f"{summary.best_epoch} of {summary.epochs}"],
        [f"validation {summary.metric}", f"{summary.validation:.4f}"],
        ["seconds", f"{summary.seconds:.0f}"],
    ]
    curves = plots.learning_curves(
        [(settings.model, estimator.history_[f"validation_{summary.metric}"])], summary.metric
    )
    sections = [
        page.Section("The run", [f"{settings.model}: {_says(MODELS, settings.model)}."], [page.Table(["", ""], rows)]),
        page.Section(
            "Learning", ["The validation score over the epochs."], [page.picture("learning", curves, "learning")]
        ),
    ]
    if estimator.task == "forecast":
        picture = page.picture("forecast", _forecast(estimator, own, id), f"forecast of {id}")
        words = f"{estimator.columns_.id} {id}: what was seen, and the forecast after the last row with its band."
        sections.append(page.Section("A forecast", [words], [picture]))
    lead = f"Trained on {summary.series:,} series of {', '.join(estimator.columns_.values)}."
    return page.write(out / "report", f"{type(estimator).__name__}: {settings.model}", lead, sections)


def _says(models: Any, name: str) -> str:
    return models[name].says if name in models else "a model of your own"


def _forecast(estimator: Any, own: Any, id: Any):
    times = own.get_column(estimator.columns_.time)
    last, first = times[-1], times[0]
    ahead = [last + (last - first) * part for part in np.linspace(0.02, 0.25, 8).tolist()]
    return estimator.plot(own.to_native(), id, ahead)
