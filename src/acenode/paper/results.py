"""One small JSON file a run: what was trained, how, on what, and what came out."""

import json
import math
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..train.checkpoint import write_atomically


class BrokenResult(ValueError):
    """A file that is no result file."""


@dataclass(frozen=True)
class Result:
    """A finished run. `metrics` are on test data, which chose nothing; `validation` chose the epoch.

    `figures` holds what pictures of the run are drawn from, by kind:

    - `error_over_time`: `time` (middles of bins), `mse` and `values` (how many) of each bin; `unit` of time, if any
    - `attention`: `times`, `matrices` (times, n, n) and their `entropy` (times), in nats, mean over rows and samples
    - `attention_maps`: `times`, `maps` (samples, times, y, x)
    - `embedding`: `x`, `y` and `label` of each point
    """

    table: str
    row: str
    seed: int
    metrics: Mapping[str, float]
    validation: Mapping[str, float]
    protocol: str
    config: Mapping[str, object]
    epochs: int
    best_epoch: int
    parameters: int
    data: Mapping[str, str]
    versions: Mapping[str, str]
    device: str
    seconds: float
    history: Mapping[str, list[float]]
    notes: tuple[str, ...] = ()
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dataset: str = ""  # where a table has several


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def path_of(folder: Path, table: str, row: str, seed: int, quick: bool = False, dataset: str = "") -> Path:
    """`<folder>/<table>/[<dataset>-]<row>-seed<k>[-quick].json`."""
    name = "-".join(filter(None, (slug(dataset), slug(row), f"seed{seed}", "quick" if quick else "")))
    return folder / table / f"{name}.json"


def place(folder: Path, result: Result) -> Path:
    """Where a result belongs."""
    quick = bool(result.config.get("quick"))
    return path_of(folder, result.table, result.row, result.seed, quick, result.dataset)


def save(folder: Path, result: Result) -> Path:
    path = place(folder, result)
    text = json.dumps(worded(asdict(result)), indent=1, sort_keys=True, allow_nan=False)
    write_atomically(path, _short_lists(text).encode() + b"\n")
    return path


def load(folder: Path) -> list[Result]:
    """Every result below `folder`, each in its place: a copy under another name would count twice."""
    if folder.exists() and not folder.is_dir():
        raise BrokenResult(f"{folder} is not a folder of result files.")
    found = {path: read(path) for path in sorted(folder.glob("*/*.json"))}
    for path, result in found.items():
        if path != place(folder, result):
            raise BrokenResult(f"{path} belongs at {place(folder, result)}: its table, row and seed name the file.")
    return list(found.values())


def read(path: Path) -> Result:
    try:
        found = json.loads(path.read_text())
        notes = tuple(found["notes"])
        parts = ("metrics", "validation", "history", "config", "figures")
        numbers = {part: _numbered(found[part]) for part in parts if part in found}
        _check({**found, **numbers})
        return Result(**{**found, "notes": notes, **numbers})
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenResult(f"{path} is not a result file: {error}") from error


def _check(found: Mapping[str, Any]) -> None:
    """Contents of a file that would mislead or break what reads them."""
    if not all(isinstance(found[part], str) for part in ("table", "row", "protocol")):
        raise ValueError("table, row and protocol are texts")
    if not all(type(found[part]) is int for part in ("seed", "epochs", "parameters")):
        raise ValueError("seed, epochs and parameters are whole numbers")
    if not all(isinstance(found[part], dict) for part in ("config", "history")):
        raise ValueError("config and history are by name")
    for part in ("metrics", "validation"):
        if not isinstance(found[part], dict) or any(type(each) not in (int, float) for each in found[part].values()):
            raise ValueError(f"{part} are numbers by name")
    if not found["metrics"]:
        raise ValueError("it has no metrics")


def worded(found: Any) -> Any:
    """Numbers that JSON does not have as words: inf, -inf, nan."""
    if isinstance(found, dict):
        return {name: worded(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [worded(value) for value in found]
    return str(found) if isinstance(found, float) and not math.isfinite(found) else found


def _numbered(found: Any) -> Any:
    """The words for such numbers as numbers."""
    if isinstance(found, dict):
        return {name: _numbered(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_numbered(value) for value in found]
    return float(found) if found in ("inf", "-inf", "nan") else found


def _short_lists(text: str) -> str:
    """Lists of numbers on one line each."""
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text)


def versions() -> dict[str, str]:
    import diffrax
    import equinox
    import jax
    import optax

    from .. import __version__

    return {
        "acenode": __version__,
        "python": platform.python_version(),
        **{m.__name__: m.__version__ for m in (jax, equinox, diffrax, optax)},
    }
