"""A fitted estimator as an MLflow model (`pyfunc`): its folder of safetensors and JSON, nothing pickled.

log_model(forecaster, name="forecaster")
mlflow.pyfunc.load_model(uri).predict(frame, params={"at": [24.0, 48.0]})
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import __version__

REQUIREMENTS = (f"acenode=={__version__}", "pandas")


def save_model(estimator: Any, path: str | Path, **more: Any) -> None:
    """Save as an MLflow model in a new folder; `more` goes to `mlflow.pyfunc.save_model`."""
    with tempfile.TemporaryDirectory() as folder:
        _pyfunc().save_model(path=str(path), **_given(estimator, folder), **more)


def log_model(estimator: Any, name: str = "model", **more: Any) -> Any:
    """Log to the active run of MLflow; `more` goes to `mlflow.pyfunc.log_model`, whose answer is given."""
    with tempfile.TemporaryDirectory() as folder:
        return _pyfunc().log_model(name=name, **_given(estimator, folder), **more)


def _given(estimator: Any, folder: str) -> dict[str, Any]:
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSchema, ParamSpec

    saved = estimator.save(Path(folder) / "acenode")
    given: dict[str, Any] = {
        "loader_module": __name__,
        "data_path": str(saved),
        "pip_requirements": list(REQUIREMENTS),
        "metadata": {"model": estimator.settings_.model, "estimator": type(estimator).__name__},
    }
    if estimator.task == "forecast":
        kind = "double" if estimator.clock_.kind == "number" else "string"
        given["signature"] = ModelSignature(params=ParamSchema([ParamSpec("at", kind, [], shape=(-1,))]))
    return given


def _pyfunc() -> Any:
    try:
        import mlflow.pyfunc
    except ImportError as error:
        raise ValueError("an MLflow model needs mlflow; install it with: pip install 'acenode[mlflow]'") from error
    return mlflow.pyfunc


class Predictor:
    """What MLflow calls: forecasts at the times of `params["at"]`, probabilities, targets, or the table filled in."""

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def predict(self, frame: Any, params: Mapping[str, Any] | None = None) -> Any:
        if self.estimator.task == "forecast":
            return self.estimator.predict(frame, at=list((params or {}).get("at", ())) or None)
        if self.estimator.task == "classify":
            return self.estimator.predict_proba(frame)
        if self.estimator.task == "regress":
            return self.estimator.predict(frame)
        return self.estimator.transform(frame)


def _load_pyfunc(path: str) -> Predictor:
    """Called by MLflow, with the folder that was logged."""
    from ..estimators import load

    return Predictor(load(path))
