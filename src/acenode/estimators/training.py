"""From a training table to the settings of a fit."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..series.categories import Categories, encode, expanded, find_categories, hold
from ..series.columns import missing_codes
from ..series.table import Columns, Table, absent_codes, column_of, frame_of, read, value_columns
from ..train import Recipe
from .registry import Entry, Sizes, is_search, name_of

WHAT = "the training table"

_UNITS = 10.0  # the typical series is so long in the model's time
_STEPS = (0.1, 0.5)  # of Euler's method, there: that of the typical gap, within these
_OUTLYING, _OUTLYING_AGAIN = 100, 50  # distances of the quartiles from the median, of a value seen once and again


@dataclass(frozen=True)
class Settings:
    """What was chosen for a fit, from the data where the user did not say."""

    model: str
    hidden: int
    batch_size: int
    epochs: int
    patience: int
    learning_rate: float
    penalty: float
    unit: float  # of the model's time, in that of the data
    step: float
    count: int
    span: float
    seed: int


@dataclass(frozen=True)
class Summary:
    """How training went. `notes` are for people; what they count is in the other fields too."""

    series: int
    validation_series: int
    observations: int
    epochs: int
    best_epoch: int
    metric: str
    validation: float
    seconds: float
    parameters: int
    skipped_updates: int
    failed_solves: int
    notes: tuple[str, ...]


def read_training(estimator: Any, frame: Any) -> tuple[Table, tuple[Any, ...]]:
    """The training table and the columns left out of it, refused where nothing can be learned from it."""
    table, left_out, _, _ = read_rough(estimator, frame)
    return table, left_out


def read_rough(estimator: Any, frame: Any) -> tuple[Table, tuple[Any, ...], Categories, np.ndarray | None]:
    """The training table, the columns left out of it, the words of its categories, and the weights of its series."""
    id, time, label = estimator.id, estimator.time, getattr(estimator, "label", None)
    label = label if label is None or isinstance(label, str) else tuple(label)
    future, static = (_named(getattr(estimator, each, None)) for each in ("future", "static"))
    weight = getattr(estimator, "weight", None)
    roles = [*future, *static]
    if estimator.values is not None and (inside := [name for name in roles if name in _named(estimator.values)]):
        raise ValueError(f"{WHAT}: {inside[0]!r} is named among the values and as future or static; name it once.")
    values = None if estimator.values is None else [*_named(estimator.values), *roles]
    if weight is not None and values is None:
        labels = Columns(id, time, (), label).labels
        values = [c for c in frame_of(frame, WHAT).columns if c not in (id, time, weight, *labels)]
    chosen = value_columns(frame, id, time, label, values, what=WHAT)
    absent = [name for name in roles if name not in chosen]
    if absent:
        column_of(frame_of(frame, WHAT), absent[0], WHAT)
    both = [name for name in future if name in static]
    if both:
        raise ValueError(f"{WHAT}: {both[0]!r} is named as future and as static; choose one.")
    missing = missing_codes(estimator.missing)
    categories = find_categories(frame, chosen, WHAT, missing)
    given = frame
    frame, _ = encode(given, categories, missing)
    chosen, future, static = (expanded(names, categories) for names in (chosen, future, static))
    columns = Columns(id, time, chosen, label, missing, future, static)
    if not columns.targets.any():
        raise ValueError(f"{WHAT}: every column of values is named as future or static; leave one to be predicted.")
    table = read(frame, columns, what=WHAT)
    weights = None if weight is None else _weights(frame, columns, weight)
    absent = [number for number in absent_codes(frame, columns, WHAT) if not hold(given, categories, number)]
    for number in absent:
        warnings.warn(f"{WHAT}: {number:g} is said to stand for a missing value, and no cell holds it.", stacklevel=3)
    check_observed(table, WHAT)
    table, left_out = _without_constants(table)
    check_observed(table, WHAT, " but in the columns that are left out")
    if len(table.ids) < 5:
        raise ValueError(
            f"{WHAT}: there {'is one series' if len(table.ids) == 1 else f'are {len(table.ids)} series'}; training "
            f"needs at least 5, as some are set aside for validation. Cut a long series into parts with an {id!r} each."
        )
    return table, left_out, categories, weights


def _named(given: Any) -> tuple[Any, ...]:
    """One name or several, or none."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _weights(frame: Any, columns: Columns, name: str) -> np.ndarray:
    """The weight of each series, from a column that is the same in all its rows."""
    column_of(frame_of(frame, WHAT), name, WHAT)
    only = Columns(columns.id, columns.time, (name,), missing=columns.missing, static=(name,))
    table = read(frame, only, what=WHAT)
    weights = table.values[table.starts[:-1], 0]
    bad = ~(weights >= 0)
    if bad.any() or not (weights > 0).any():
        who = table.named(int(np.argmax(bad)))
        raise ValueError(
            f"{WHAT}: the weight {name!r} of {who} is {weights[int(np.argmax(bad))]:g}; expected numbers that are not "
            "negative, and not all 0."
        )
    return weights


def check_observed(table: Table, what: str, beside: str = "") -> None:
    """Refuse a series without any value; `beside` says what it may have for all that."""
    empty = np.ones(len(table.ids), bool)
    empty[table.codes[~np.isnan(table.values).all(axis=1)]] = False
    if empty.any():
        raise ValueError(
            f"{what}: {table.named(int(np.argmax(empty)))} has no value in any row{beside}; drop its rows."
        )


def _without_constants(table: Table) -> tuple[Table, tuple[Any, ...]]:
    """The table without the columns that never vary, with a warning that names them."""
    useless: dict[int, str] = {}
    for k, (name, column) in enumerate(zip(table.columns.values, table.values.T, strict=True)):
        present = column[~np.isnan(column)]
        if present.size == 0:
            useless[k] = f"column {name!r} is blank in every row"
        elif (present == present[0]).all():
            useless[k] = f"column {name!r} is {present[0]:g} in every row"
        else:
            _warn_of_outliers(present, name)
    if not useless:
        return table, ()
    said = f"{WHAT}: {', '.join(useless.values())}"
    if len(useless) == len(table.columns.values):
        raise ValueError(f"{said}; nothing can be learned from it. Add a column whose values vary.")
    warnings.warn(f"{said}; {'it is' if len(useless) == 1 else 'they are'} left out.", stacklevel=4)
    kept = [k for k in range(len(table.columns.values)) if k not in useless]
    names = table.columns.values
    columns = table.columns._replace(
        values=tuple(names[k] for k in kept),
        future=tuple(name for name in table.columns.future if names.index(name) in kept),
        static=tuple(name for name in table.columns.static if names.index(name) in kept),
    )
    return table._replace(values=table.values[:, kept], columns=columns), tuple(names[k] for k in useless)


def _warn_of_outliers(present: np.ndarray, name: Any) -> None:
    """A value like -999 that stands for a missing one would stretch the scale of all others."""
    for value in (present.min(), present.max()):
        count = int((present == value).sum())
        others = present[present != value]
        low, middle, high = np.quantile(others, (0.25, 0.5, 0.75))
        if high > low and abs(value - middle) > (_OUTLYING if count == 1 else _OUTLYING_AGAIN) * (high - low):
            break
    else:
        return
    where = f"{count} rows" if count > 1 else "one row"
    warnings.warn(
        f"{WHAT}: column {name!r} is {value:g} in {where}, where half of its other values lie between {low:g} and "
        f"{high:g}. "
        "If it stands for a missing value, say so (missing=..., in a command --missing), or leave the cell blank.",
        stacklevel=5,
    )


def recipe_of(settings: Settings, train: int) -> Recipe:
    """How the models of the estimators are trained."""
    return Recipe(
        epochs=settings.epochs,
        algorithm="joint",  # one gradient instead of two: half the time
        batch_size=min(settings.batch_size, train),
        schedule=warm_up,
        average=0.98,  # of the parameters over some 50 iterations: steadier than the last ones
        patience=settings.patience,
        clip=10.0,
        eval_batch=64,
        reference=256,
        bucket=True,
    )


def warm_up(iteration: Any) -> Any:
    """The factor on the learning rate: from a little to 1 over the first iterations."""
    return jnp.minimum(1.0, (1 + iteration) / 20)


def choose_settings(
    table: Table, model: str | Entry | Sequence[str], given: dict[str, Any], ahead: float | int
) -> Settings:
    """Settings from the data, where they are not given."""
    spans = table.last - table.first
    typical = float(np.quantile(spans[spans > 0], 0.9)) if (spans > 0).any() else 1.0
    unit = typical / _UNITS
    rows = int(np.bincount(table.codes).max())
    span = (float(spans.max()) or typical) / unit * (1 + ahead)
    gaps = np.diff(table.times)[np.diff(table.codes) == 0]
    step = float(np.clip(np.median(gaps) / unit if gaps.size else 0.0, *_STEPS))

    def pick(name: str, default):
        value = given.get(name)
        if value is not None and (value < 0 or (value == 0 and name != "penalty")):
            raise ValueError(f"{name}={value!r}: expected a positive number, or None to choose it from the data.")
        return default if value is None else value

    return Settings(
        model=name_of(model),
        hidden=int(pick("hidden", 16 if len(table.ids) < 500 else 32)),
        batch_size=int(pick("batch_size", min(128, max(4, len(table.ids) // 8)))),
        epochs=int(pick("epochs", 1000 if is_search(model) else 100)),
        patience=int(pick("patience", 15)),
        learning_rate=float(pick("learning_rate", 5e-3)),
        penalty=float(pick("penalty", 0.0)),
        unit=unit,
        step=step,
        count=math.ceil(span / step) + 2 * rows + 16,
        span=span,
        seed=int(given["seed"]),
    )


def sizes(settings: Settings, variables: int) -> Sizes:
    """The sizes of the data and of the model."""
    return Sizes(variables, settings.hidden, settings.step, settings.count, settings.span)
