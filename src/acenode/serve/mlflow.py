"""A fitted estimator as an MLflow model (`pyfunc`): its folder of safetensors and JSON, nothing pickled.

log_model(forecaster, name="forecaster")
mlflow.pyfunc.load_model(uri).predict(frame, params={"at": [24.0, 48.0]})

MLflow takes no list of records as a parameter. With columns that are known ahead, they are in an object:

    params={"at": {"records": [{"id": "m01", "time": 24.0, "plan": 1.5}]}}
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
    from mlflow.types import ParamSchema

    saved = estimator.save(Path(folder) / "acenode")
    given: dict[str, Any] = {
        "loader_module": __name__,
        "data_path": str(saved),
        "pip_requirements": list(REQUIREMENTS),
        "metadata": {"model": estimator.settings_.model, "estimator": type(estimator).__name__},
    }
    if estimator.task == "forecast":
        given["signature"] = ModelSignature(params=ParamSchema([_at(estimator)]))
    return given


def _at(estimator: Any) -> Any:
    """What `params["at"]` is: times, or records where columns are known ahead."""
    from mlflow.types import ParamSpec
    from mlflow.types.schema import AnyType, Array, Object, Property

    if estimator.columns_.future:
        return ParamSpec("at", Object([Property("records", Array(AnyType()), required=False)]), {})
    return ParamSpec("at", "double" if estimator.clock_.kind == "number" else "string", [], shape=(-1,))


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
            return self.estimator.predict(frame, at=_queries((params or {}).get("at", ())))
        if self.estimator.task == "classify":
            return self.estimator.predict_proba(frame)
        if self.estimator.task == "regress":
            return self.estimator.predict(frame)
        return self.estimator.transform(frame)


def _queries(at: Any) -> Any:
    """Times, or a frame of records; nothing where there are none."""
    items = list(at.get("records") or () if isinstance(at, Mapping) else at)
    if not items or not isinstance(items[0], Mapping):
        return items or None
    import pandas as pd

    return pd.DataFrame(items)


def _load_pyfunc(path: str) -> Predictor:
    """Called by MLflow, with the folder that was logged."""
    from ..estimators import load

    return Predictor(load(path))
