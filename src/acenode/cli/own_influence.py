"""The part of a run's page that says which variable the forecasts depend on, and whether its attention shows that."""

from dataclasses import replace
from typing import Any

import numpy as np

_PERTURBATION = (
    "Each variable was hidden in turn from the context: by how much the squared error of forecasting the others grows, "
    "in scaled units (1 is the variance). Row: the variable that is forecast. Column: the one that is hidden."
)


def influence_sections(estimator: Any, panel: Any, attention: Any) -> list[Any]:
    """Perturbation of a forecaster, and the section `attention` of a model that has one, the more telling one first.

    `panel` are the series to measure on.
    """
    from ..estimators.explain import attention_of
    from ..estimators.importance import importance_of, read_attention
    from ..report import page, plots

    if estimator.task != "forecast" or len(panel.variables) < 2:
        return [] if attention is None else [attention]
    found = importance_of(estimator, panel)
    names = [str(name) for name in panel.variables]
    shown = np.maximum(found.increase, 0.0)
    figure = plots.attention_grid(["increase"], [("", [shown])], names, vmax=max(float(shown.max()), 1e-6))
    picture = page.picture("importance", figure, "increase of the error of each variable where another is hidden")
    perturbation = page.Section("What the forecasts depend on", [_PERTURBATION], [picture])
    if attention is None:
        return [perturbation]
    if estimator.entry_.attends != "variables":
        return [perturbation, attention]
    real = np.asarray(panel.series.real)
    reading = read_attention(attention_of(estimator, panel)[0], real, found)
    said = replace(attention, words=[str(reading), *attention.words])
    return [said, perturbation] if reading.informative else [perturbation, said]
