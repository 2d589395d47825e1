"""The part of a run's page that says which variable the forecasts depend on, and whether its attention shows that."""

from dataclasses import replace
from typing import Any

_PERTURBATION = (
    "Each variable was hidden in turn from the context: by how much the squared error of forecasting the others grows, "
    "in scaled units (1 is the variance). Row: the variable that is forecast. Column: the one that is hidden."
)


def influence_sections(estimator: Any, panel: Any, attention: Any) -> list[Any]:
    """Perturbation of a forecaster, and the section `attention` of a model that has one, the more telling one first.

    `panel` are the series to measure on.
    """
    from ..estimators.importance import importance_figure
    from ..report import page

    if attention is not None:
        attention = replace(attention, words=[*filter(None, [_said(estimator)]), *attention.words])
    if estimator.task != "forecast" or len(panel.variables) < 2:
        return [] if attention is None else [attention]
    figure = importance_figure(estimator, panel)
    picture = page.picture("importance", figure, "increase of the error of each variable where another is hidden")
    perturbation = page.Section("What the forecasts depend on", [_PERTURBATION], [picture])
    if attention is None:
        return [perturbation]
    reading = estimator.reading_
    return [attention, perturbation] if reading is not None and reading.informative else [perturbation, attention]


def _said(estimator: Any) -> str:
    """Whether the attention does anything, and whether it may be read as influence."""
    from ..train.health import INACTIVE

    if estimator.reading_ is not None:
        return str(estimator.reading_)
    said = []
    if "attention_change" in estimator.history_:
        change = float(estimator.history_["attention_change"][estimator.summary_.best_epoch - 1])
        active = "active" if change >= INACTIVE else "inactive"
        said.append(f"The attention is {active}: its weights change by {change:.2g} along a series.")
    if estimator.entry_.attends != "variables":
        said.append("It is between hidden dimensions, so it says nothing about variables.")
    return " ".join(said)
