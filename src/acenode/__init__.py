"""acenode: attentive co-evolving neural ODEs.

What most users need is here; all else is in the packages. `import acenode` loads nothing heavy: each name loads its
package when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        datasets as datasets,
        estimators as estimators,
        models as models,
        ode as ode,
        report as report,
        series as series,
        tasks as tasks,
        train as train,
        tuning as tuning,
    )
    from .estimators import (
        Classifier as Classifier,
        Forecaster as Forecaster,
        Imputer as Imputer,
        Regressor as Regressor,
        load as load,
    )
    from .ode import (
        AugmentedODE as AugmentedODE,
        CoEvolvingODE as CoEvolvingODE,
        ConvInitial as ConvInitial,
        Correlation as Correlation,
        Dense as Dense,
        Elementwise as Elementwise,
        Identity as Identity,
        NeuralODE as NeuralODE,
        Pairwise as Pairwise,
        Solver as Solver,
    )
    from .series import Scaler as Scaler, Series as Series
    from .tasks import Forecast as Forecast
    from .train import Member as Member, Recipe as Recipe, evaluate as evaluate, fit as fit
    from .tuning import tune as tune

__version__ = "0.1.0"

_NAMES = {
    "ode": (
        "AugmentedODE",
        "CoEvolvingODE",
        "ConvInitial",
        "Correlation",
        "Dense",
        "Elementwise",
        "Identity",
        "NeuralODE",
        "Pairwise",
        "Solver",
    ),
    "series": ("Scaler", "Series"),
    "models": (),
    "tasks": ("Forecast",),
    "train": ("Member", "Recipe", "evaluate", "fit"),
    "estimators": ("Classifier", "Forecaster", "Imputer", "Regressor", "load"),
    "datasets": (),
    "report": (),
    "tuning": ("tune",),
}
_PACKAGE = {name: package for package, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_NAMES, *_PACKAGE]  # noqa: PLE0604


def __getattr__(name: str):
    if name in _NAMES:
        return import_module(f".{name}", __name__)
    if name in _PACKAGE:
        return getattr(import_module(f".{_PACKAGE[name]}", __name__), name)
    raise AttributeError(f"module 'acenode' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
