"""Saved estimators: one folder with safetensors and JSON, written whole or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

FORMAT = 1
ARRAYS, HEAD = "model.safetensors", "model.json"


class ModelFolderError(ValueError):
    """The folder is not a saved model, or it was damaged."""


def save(estimator: Any, folder: str | Path) -> Path:
    """Save a fitted estimator. An existing model in `folder` is replaced at once, when the new one is complete."""
    from ..paper.results import versions
    from ..train.checkpoint import save_arrays

    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ModelFolderError(f"{target} is a file; choose a folder for the model.")
    if target.is_dir() and any(target.iterdir()) and not (target / HEAD).exists():
        raise ModelFolderError(f"{target} holds other files; choose an empty or a new folder for the model.")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        save_arrays(part / ARRAYS, (estimator.model_, estimator.scaler_), {})
        head = {
            "format": FORMAT,
            "estimator": type(estimator).__name__,
            "parameters": estimator.get_params(),
            "settings": asdict(estimator.settings_),
            "summary": asdict(estimator.summary_),
            "columns": estimator.columns_._asdict(),
            "clock": asdict(estimator.clock_),
            "scaler": estimator.scaler_.kind,
            "classes": getattr(estimator, "classes_", None),
            "history": {name: np.asarray(v, float).tolist() for name, v in estimator.history_.items()},
            "versions": versions(),
            "sha256": hashlib.sha256((part / ARRAYS).read_bytes()).hexdigest(),
        }
        (part / HEAD).write_text(json.dumps(head, indent=1, default=str) + "\n")
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            os.replace(target, old / "model")
            os.replace(part, target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def read_head(folder: str | Path) -> dict[str, Any]:
    """What a saved model says of itself, checked."""
    place = Path(folder)
    if not (place / HEAD).is_file():
        raise ModelFolderError(
            f"{place} is not a saved model: it has no {HEAD}. Give a folder made by `acenode train`."
        )
    try:
        head = json.loads((place / HEAD).read_text())
        made_by, checksum = head["format"], head["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFolderError(f"{place / HEAD} is damaged ({error}); restore the folder or train again.") from error
    if made_by != FORMAT:
        raise ModelFolderError(
            f"{place} has format {made_by}; this version reads {FORMAT}. Update acenode or train again."
        )
    arrays = place / ARRAYS
    if not arrays.is_file():
        raise ModelFolderError(f"{place} has no {ARRAYS}; restore the folder or train again.")
    if hashlib.sha256(arrays.read_bytes()).hexdigest() != checksum:
        raise ModelFolderError(f"{arrays} was changed since it was saved; restore the folder or train again.")
    return head


def load(folder: str | Path) -> Any:
    """The saved estimator."""
    from ..series import Scaler
    from ..train.checkpoint import CheckpointMismatch, load_arrays
    from . import Classifier, Forecaster, Imputer
    from .base import Settings, Summary
    from .table import Clock, Columns

    head = read_head(folder)
    try:
        kind = {k.__name__: k for k in (Forecaster, Classifier, Imputer)}[head["estimator"]]
        parameters = {n: tuple(v) if isinstance(v, list) else v for n, v in head["parameters"].items()}
        estimator = kind(**parameters)
        estimator.settings_ = Settings(**head["settings"])
        estimator.summary_ = Summary(**{**head["summary"], "notes": tuple(head["summary"]["notes"])})
        columns = head["columns"]
        estimator.columns_ = Columns(columns["id"], columns["time"], tuple(columns["values"]), columns["label"])
        estimator.clock_ = Clock(**head["clock"])
        if head["classes"] is not None:
            estimator.classes_ = head["classes"]
        estimator.history_ = {name: np.asarray(v) for name, v in head["history"].items()}
        width = len(estimator.columns_.values)
        zeros = np.zeros(width, np.float32)
        model = eqx.nn.inference_mode(estimator._build(jax.random.key(0)))
        like = (model, Scaler(zeros, zeros, head["scaler"]))
        estimator.model_, estimator.scaler_ = load_arrays(Path(folder) / ARRAYS, like)
    except (KeyError, TypeError, CheckpointMismatch) as error:
        raise ModelFolderError(
            f"{folder} does not fit together ({error}); restore the folder or train again."
        ) from error
    if hasattr(estimator, "_forget"):
        estimator._forget()
    return estimator
