"""acenode: attentive co-evolving neural ODEs.

Everything public is reached from here; `import acenode` itself loads nothing heavy, each name loads its room when it
is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_ROOMS = {
    "ode": (
        "AugmentedODE",
        "CoEvolvingODE",
        "Constant",
        "Conv",
        "ConvField",
        "ConvInitial",
        "Correlation",
        "Dense",
        "Elementwise",
        "ConditionedGRUField",
        "ConditionedMLPField",
        "GRUField",
        "GroupNorm",
        "GRULinear",
        "GRURows",
        "Identity",
        "Leaky",
        "MLPField",
        "NeuralODE",
        "Pairwise",
        "Path",
        "QueryKey",
        "ResidualBlock",
        "ResidualStack",
        "RowField",
        "Solver",
        "Stats",
        "Status",
        "correlation",
        "pairwise_field",
    ),
    "series": (
        "Panel",
        "Question",
        "Scaler",
        "Series",
        "forecast",
        "from_long",
        "from_wide",
        "reconstruct",
        "stack",
        "to_long",
        "to_wide",
    ),
    "models": (
        "Cell",
        "Filter",
        "GRUD",
        "GRUEncoder",
        "GRUODEBayes",
        "gru_ode_bayes",
        "GRUSimple",
        "ImageClassifier",
        "LatentODE",
        "RNNDecay",
        "RNNDt",
        "RNNImpute",
        "RNNVAE",
        "SequentialVAE",
        "Stem",
        "TLSTM",
        "Trace",
    ),
    "tasks": ("Forecast", "GaussianHead", "Headed", "ImageClassification", "LabelledImages", "Report", "RowHead", "Task"),
    "train": ("Bar", "Fit", "Member", "Quiet", "Recipe", "evaluate", "fit", "groups", "hold_attention", "members"),
    "estimators": ("Classifier", "Forecaster", "Imputer", "NotFittedError", "load"),
    "datasets": (),
    "report": (),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names if name not in _ROOMS}

__all__ = ["__version__", *_ROOMS, *_HOME]  # noqa: PLE0604

if TYPE_CHECKING:
    from . import (
        datasets as datasets,
        estimators as estimators,
        models as models,
        report as report,
        tasks as tasks,
        train as train,
    )
    from .estimators import *  # noqa: F403
    from .models import *  # noqa: F403
    from .ode import *  # noqa: F403
    from .series import *  # noqa: F403
    from .tasks import *  # noqa: F403
    from .train import *  # noqa: F403


def __getattr__(name: str):
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'acenode' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
