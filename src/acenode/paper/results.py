"""One small JSON file a run: what was trained, how, on what, and what came out."""

import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..train.checkpoint import write_atomically
from ..train.health import INACTIVE
from .published import HIGHER_IS_BETTER

if TYPE_CHECKING:
    import pandas as pd

DIVERGED = 1000  # times the smallest error of a row


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

    `attention_health` says whether the attention did anything: `change` (largest change of a weight along the solve),
    `entropy` (normalised, at the end), `gradient_ratio` (norm of the task's gradient on theta_g over that of the
    penalty), `norm` (of theta_g), `variance_share` (of h that the attended state keeps).
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
    attention_health: Mapping[str, float] = field(default_factory=dict)
    unverified: str = ""  # why the numbers may be wrong, where they may and were not measured again


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
        parts = ("metrics", "validation", "history", "config", "figures", "attention_health")
        numbers = {part: _numbered(found[part]) for part in parts if part in found}
        _check({**found, **numbers})
        return Result(**{**found, "notes": notes, **numbers})
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenResult(f"{path} is not a result file: {error}") from error


def _check(found: Mapping[str, Any]) -> None:
    """Contents of a file that would mislead or break what reads them."""
    if not all(isinstance(found[part], str) for part in ("table", "row", "protocol")):
        raise ValueError("table, row and protocol are texts")
    if not isinstance(found.get("unverified", ""), str):
        raise ValueError("unverified is a text")
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


# --- all results as one table -----------------------------------------------------------------------------------


def attention_status(result: Result) -> Literal["active", "inactive", "unknown", ""]:
    """Whether the attention changed along the solve of a run; nothing for a row without attention.

    A run with an inactive attention is no evidence for or against the method. The criterion is `INACTIVE`, for the
    change in `attention_health` or in the history, or for older results the largest change of a drawn weight from first
    to last.
    """
    from .tables import TABLES  # they import this module

    named = [r for r in TABLES.get(result.table, ()) if (r.dataset, r.name) == (result.dataset, result.row)]
    attentive = any(getattr(row, "base", "") for row in named)
    if named and not attentive:
        return ""
    change = attention_change(result)
    if change is not None:
        return "inactive" if change < INACTIVE else "active"
    return "unknown" if attentive else ""


def attention_change(result: Result) -> float | None:
    """The largest change of an attention weight along the solve; nothing where the run does not tell."""
    if (change := _health(result, "change")) is not None:
        return change if math.isfinite(change) else None
    kept = result.figures
    if "attention" in kept:
        weights = np.asarray(kept["attention"]["matrices"], float)
    elif "attention_maps" in kept:
        weights = np.moveaxis(np.asarray(kept["attention_maps"]["maps"], float), 1, 0)
    else:
        return None
    change = np.abs(weights[-1] - weights[0]).max()
    return float(change) if np.isfinite(change) else None


def attention_entropy(result: Result) -> float | None:
    """The entropy of the last attention weights, from 0 (one-hot) to 1 (uniform)."""
    if (entropy := _health(result, "entropy")) is not None:
        return entropy
    if "attention" not in result.figures:
        return None
    kept = result.figures["attention"]
    return float(kept["entropy"][-1]) / math.log(len(kept["matrices"][-1]))


def _health(result: Result, name: str) -> float | None:
    """A number of `attention_health`, or of the history at the chosen epoch."""
    if name in result.attention_health:
        return float(result.attention_health[name])
    recorded = result.history.get(f"attention_{name}", ())
    return float(recorded[result.best_epoch - 1]) if 0 < result.best_epoch <= len(recorded) else None


def frame(results: Sequence[Result]) -> "pd.DataFrame":
    """One line for each run, split and metric; `value` is what was measured, the rest says of what.

    `split` is `test` or `validation` (at the epoch that validation chose). `epochs` were planned; `outdated` names
    settings that the row has otherwise today, `unverified` says why a number may be wrong, `skipped` counts updates
    that were not finite. Whether a value `diverged` is decided among those of its row.
    """
    import pandas as pd

    from .tables import TABLES  # they import this module

    rows = {(row.table, row.dataset, row.name): row for rows in TABLES.values() for row in rows}
    lines = []
    for result in results:
        row = rows.get((result.table, result.dataset, result.row))
        run = _of_run(result, row)
        measured = {("test", name): value for name, value in result.metrics.items()}
        measured |= {
            ("validation", name.removeprefix("validation_")): value for name, value in result.validation.items()
        }
        for (split, metric), value in measured.items():
            lines.append({**run, "split": split, "metric": metric, "value": float(value)})
    made = pd.DataFrame(lines, columns=COLUMNS).astype({"quick": bool})
    made["diverged"] = False
    for (*_, metric), values in made.groupby(["table", "dataset", "row", "quick", "split", "metric"]).value:
        made.loc[values.index, "diverged"] = diverged(values.tolist(), metric)
    return made


COLUMNS = (
    *("table", "dataset", "row", "seed", "query", "epochs", "best_epoch", "parameters", "protocol", "learning_rate"),
    *("penalty", "seconds", "device", "quick", "skipped", "attention", "attention_change", "attention_entropy"),
    *("base", "controls", "outdated", "unverified", "config", "notes", "file", "split", "metric", "value"),
)


def diverged(values: Sequence[float], metric: str) -> np.ndarray:
    """Which runs of a row diverged: the value is not finite, or an error a thousand times the smallest of the row.

    A NegLL may lie near zero, so its smallest counts as 1 at least.
    """
    size = np.abs(np.array(values, float))
    if metric in HIGHER_IS_BETTER:
        return ~np.isfinite(size)
    known = size[np.isfinite(size) & (size > 0)]
    least = max(known.min(), 1.0 if metric == "negll" else 0.0) if known.size else math.inf
    return ~(size <= DIVERGED * least)


def _of_run(result: Result, row: Any) -> dict[str, Any]:
    config = result.config
    change, entropy = attention_change(result), attention_entropy(result)
    return {
        "table": result.table,
        "dataset": result.dataset,
        "row": result.row,
        "seed": result.seed,
        "query": getattr(row, "query", ""),
        "epochs": int(str(config.get("epochs", result.epochs))),
        "best_epoch": result.best_epoch,
        "parameters": result.parameters,
        "protocol": result.protocol,
        "learning_rate": config.get("learning_rate", math.nan),
        "penalty": config.get("penalty", math.nan),
        "seconds": result.seconds,
        "device": result.device,
        "quick": bool(config.get("quick")),
        "skipped": int(sum(result.history.get("skipped", ()))),
        "attention": attention_status(result),
        "attention_change": math.nan if change is None else change,
        "attention_entropy": math.nan if entropy is None else entropy,
        "base": getattr(row, "base", ""),
        "controls": getattr(row, "controls", ()),
        "outdated": row.changed(config) if hasattr(row, "changed") else (),
        "unverified": result.unverified,
        "config": config,
        "notes": result.notes,
        "file": place(Path("results"), result).as_posix(),
    }
