"""Saved estimators: one folder with safetensors and JSON, written whole or not at all."""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np

from ..train.checkpoint import DamagedCheckpoint, is_left_behind
from .card import CARD, card

FORMAT = 5
ARRAYS, HEAD = "model.safetensors", "model.json"
_OURS = (ARRAYS, HEAD, CARD, "report")  # what a folder of a model may hold


class ModelFolderError(ValueError):
    """The folder is not a saved model, or it was damaged."""


def save(estimator: Any, folder: str | Path, metrics: Mapping[str, float] | None = None) -> Path:
    """Save a fitted estimator. An existing model in `folder` is replaced at once, when the new one is complete.

    `metrics` are those on test data, for the model card. The folder may be uploaded to a hub as it is.
    A model of one's own is saved without its code: keep its `Entry` and pass it to `load(folder, model=entry)`.
    """
    target = Path(folder)
    try:
        check_target(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        _settle(target)
        part = _beside(target, "new")
        try:
            part.mkdir()
            _write(estimator, part)
            (part / CARD).write_text(card(estimator, metrics), encoding="utf-8")
            _put(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise ModelFolderError(
            f"{target} could not be written ({error.strerror or error}); free some space, or choose another folder. "
            "What was there before is as it was."
        ) from error
    return target


def check_target(target: Path) -> None:
    """Refuse a place where no model can be saved."""
    if target.exists() and not target.is_dir():
        raise ModelFolderError(f"{target} is a file; choose a folder for the model.")
    others = sorted(each.name for each in target.iterdir() if each.name not in _OURS) if target.is_dir() else []
    if others:
        raise ModelFolderError(
            f"{target} holds other files, such as {others[0]}; choose an empty or a new folder for the model."
        )


def _beside(target: Path, kind: str) -> Path:
    """A folder for the new model while it is written, or for the old one while it is replaced."""
    place = target.absolute()
    return place.parent / f".{place.name}-{os.getpid()}-{secrets.token_hex(4)}-{kind}"


def _settle(target: Path) -> None:
    """What a save that was killed left behind: the new model is put in its place if it was complete, else removed."""
    place = target.absolute()
    pattern = re.compile(rf"\.{re.escape(place.name)}-(\d+)-[0-9a-f]{{8}}-(new|old)")
    found = [(path, pattern.fullmatch(path.name)) for path in place.parent.iterdir()] if place.parent.is_dir() else []
    left = {match[2]: path for path, match in found if match and is_left_behind(match[1])}
    if len(left) == 2 and not place.exists():  # killed between the two moves
        os.replace(left["new"], place)
    for path in left.values():
        shutil.rmtree(path, ignore_errors=True)


def _write(estimator: Any, part: Path) -> None:
    from ..paper.results import versions
    from ..train import checkpoint
    from .registry import Entry, name_of

    checkpoint.save_arrays(part / ARRAYS, estimator.members_.models, {})
    parameters = estimator.get_params()
    if isinstance(parameters["model"], Entry):
        parameters["model"] = name_of(parameters["model"])
    head = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "settings": asdict(estimator.settings_),
        "summary": asdict(estimator.summary_),
        "reading": None if estimator.reading_ is None else asdict(estimator.reading_),
        "columns": estimator.columns_._asdict(),
        "left_out": estimator.left_out_,
        "categories": list(estimator.categories_.items()),  # a name may be a number, which no key of JSON is
        "validation_ids": estimator.validation_ids_,
        "clock": asdict(estimator.clock_),
        "scaler": {name: getattr(estimator.scaler_, name) for name in ("shift", "spread", "kind")},
        "classes": getattr(estimator, "classes_", None),
        "target": getattr(estimator, "target_", None),
        "members": {"names": estimator.members_.names, "weights": estimator.members_.weights},
        "calibration": asdict(estimator.calibration_),
        "leaderboard": nw.from_native(estimator.leaderboard_, eager_only=True).rows(named=True),
        "history": {name: np.asarray(v, float).tolist() for name, v in estimator.history_.items()},
        "versions": versions(),
        "precision": str(jnp.result_type(float)),
        "sha256": hashlib.sha256((part / ARRAYS).read_bytes()).hexdigest(),
    }
    head = json.loads(json.dumps(head, default=_plain))
    head["leaderboard"] = [{k: None if v != v else v for k, v in row.items()} for row in head["leaderboard"]]
    head["check"] = _digest(head)
    checkpoint.write_atomically(part / HEAD, json.dumps(head, indent=1).encode() + b"\n")


def _plain(value: Any) -> Any:
    """Numbers and lists of numpy, pandas and the like, as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _pairs(categories: Any) -> Any:
    """Names of columns and their words; models saved before have them as an object of JSON."""
    return categories.items() if isinstance(categories, dict) else categories


def _digest(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _put(part: Path, target: Path) -> None:
    """Move the new folder into place; should that fail, the old one is back where it was."""
    if not target.exists():
        os.replace(part, target)
        return
    old = _beside(target, "old")
    os.replace(target, old)
    try:
        os.replace(part, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def read_head(folder: str | Path) -> dict[str, Any]:
    """What a saved model says of itself, checked."""
    place = Path(folder)
    if not place.exists():
        _settle(place)
    if not (place / HEAD).is_file():
        raise ModelFolderError(
            f"{place} is not a saved model: it has no {HEAD}. Give a folder made by `acenode train` or `save`."
        )
    try:
        head = json.loads((place / HEAD).read_text())
        made_by, checksum = head["format"], head["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFolderError(f"{place / HEAD} is damaged ({error}); restore the folder or train again.") from error
    if made_by != FORMAT:
        older = isinstance(made_by, int) and made_by < FORMAT
        fix = "Train again, or use the acenode that made it" if older else "Update acenode or train again"
        raise ModelFolderError(f"{place} has format {made_by}; this version reads {FORMAT}. {fix}.")
    if head.pop("check", None) != _digest(head):
        raise ModelFolderError(f"{place / HEAD} was changed since it was saved; restore the folder or train again.")
    arrays = place / ARRAYS
    if not arrays.is_file():
        raise ModelFolderError(f"{place} has no {ARRAYS}; restore the folder or train again.")
    if hashlib.sha256(arrays.read_bytes()).hexdigest() != checksum:
        raise ModelFolderError(f"{arrays} was changed since it was saved; restore the folder or train again.")
    return head


def load(folder: str | Path, model: Any = None) -> Any:
    """The saved estimator. `model` is the `Entry` of one that was fitted with a model of your own."""
    from ..series import Scaler
    from ..series.table import Columns
    from ..series.times import Clock
    from ..train import enable_compilation_cache
    from ..train.checkpoint import CheckpointMismatch, load_arrays
    from . import Classifier, Forecaster, Imputer, Regressor
    from .auto import leaderboard_frame
    from .calibration import Calibration
    from .importance import Reading
    from .inference import without_sampling
    from .members import Members
    from .registry import OWN, Entry, entry
    from .training import Settings, Summary

    enable_compilation_cache()
    head = read_head(folder)
    try:
        kinds: dict[str, Any] = {k.__name__: k for k in (Forecaster, Classifier, Imputer, Regressor)}
        kind = kinds[head["estimator"]]
        parameters = {n: tuple(v) if isinstance(v, list) else v for n, v in head["parameters"].items()}
        if (head["settings"]["model"] == OWN) != isinstance(model, Entry):
            was = "was fitted with a model of your own: give its Entry, load(folder, model=entry)"
            named = f"was fitted with {head['settings']['model']}: load it without model=..."
            raise ModelFolderError(f"{folder} {named if isinstance(model, Entry) else was}.")
        if model is not None:
            parameters["model"] = model
        estimator = kind(**parameters)
        estimator.settings_ = Settings(**head["settings"])
        estimator.entry_ = entry(model if model is not None else estimator.settings_.model)
        estimator.calibration_ = Calibration(*(tuple(head["calibration"][n]) for n in ("horizons", "factors")))
        estimator.leaderboard_ = leaderboard_frame(head["leaderboard"])
        estimator.summary_ = Summary(**{**head["summary"], "notes": tuple(head["summary"]["notes"])})
        estimator.reading_ = Reading(**head["reading"]) if head.get("reading") else None
        columns: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in head["columns"].items()}
        estimator.columns_ = Columns(**columns)
        estimator.left_out_ = tuple(head["left_out"])
        estimator.categories_ = {name: tuple(words) for name, words in _pairs(head["categories"])}
        estimator.validation_ids_ = head["validation_ids"]
        estimator.clock_ = Clock(**head["clock"])
        if head["classes"] is not None:
            estimator.classes_ = [tuple(c) if isinstance(c, list) else c for c in head["classes"]]
        if head["target"] is not None:
            estimator.target_ = tuple(head["target"])
        estimator.history_ = {name: np.asarray(v) for name, v in head["history"].items()}
        names, weights = head["members"]["names"], head["members"]["weights"]
        entries = [estimator._entry(name) for name in names]
        build = eqx.filter_eval_shape
        made = tuple(build(lambda key, e=e: estimator._build(key, e), jax.random.key(0)) for e in entries)
        like = jax.tree.map(lambda x: _empty(x, head["precision"]), made)
        loaded = load_arrays(Path(folder) / ARRAYS, eqx.nn.inference_mode(like))
        scaler = head["scaler"]
        estimator.scaler_ = Scaler(np.asarray(scaler["shift"]), np.asarray(scaler["spread"]), scaler["kind"])
        # Saved in double precision and loaded in single, or the other way round.
        in_precision = jax.tree.map(lambda x: x.astype(float) if eqx.is_inexact_array(x) else x, loaded)
        estimator.members_ = Members(tuple(names), tuple(weights), tuple(map(without_sampling, in_precision)))
        estimator.model_ = estimator.members_.models[0]
    except ModelFolderError:
        raise
    except DamagedCheckpoint as error:
        raise ModelFolderError(str(error)) from error
    except (KeyError, TypeError, ValueError, CheckpointMismatch) as error:
        fix = _made_by_newer(head) or "restore the folder or train again"
        raise ModelFolderError(f"{folder} does not fit together ({error}); {fix}.") from error
    if isinstance(estimator, Forecaster):
        estimator._clear_updates()
    return estimator


def _made_by_newer(head: dict[str, Any]) -> str | None:
    """What to do about a folder of a newer version than this one."""
    from .. import __version__

    made_by = str(head.get("versions", {}).get("acenode", ""))
    if _numbers(made_by) <= _numbers(__version__):
        return None
    return f"acenode {made_by} saved it, and this is {__version__}: update acenode"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _empty(leaf: Any, precision: str) -> Any:
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    return np.zeros(leaf.shape, precision if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype)
