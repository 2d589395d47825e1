"""Rows of JSON to data frames and back."""

import datetime
import math
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from ..estimators import follow
from ..series.categories import encoded
from .schema import Observation


def variables(estimator: Any) -> dict[str, Any]:
    """The names of the model's columns by what JSON calls them; a column of pandas may have a number for a name."""
    return {str(name): name for name in follow.variables(estimator)}


def known_ahead(estimator: Any) -> list[str]:
    """What JSON calls the columns that are known ahead."""
    future, words = estimator.columns_.future, estimator.categories_
    return [
        key
        for key, name in variables(estimator).items()
        if name in future or any(encoded(name, word) in future for word in words.get(name, ()))
    ]


def to_frame(estimator: Any, rows: Sequence[Observation]) -> pl.DataFrame:
    """A table as the estimator was trained on."""
    known = variables(estimator)
    for row in rows:
        unknown = [name for name in row.values if name not in known]
        if unknown:
            raise ValueError(f"rows: there is no variable {unknown[0]!r}; the model has {', '.join(known)}.")
    return _frame(estimator, rows, known, "rows")


def queries(estimator: Any, at: Sequence[Any]) -> Any:
    """Query times as a forecaster takes them: times, or a table of ids, times and the columns that are known ahead."""
    rows, ahead = [each for each in at if isinstance(each, Observation)], known_ahead(estimator)
    if not rows and ahead:
        raise ValueError(
            f"at: the model has columns that are known ahead ({', '.join(ahead)}); give rows with id, time and, in "
            "values, these columns."
        )
    if not rows:
        return list(at)
    if len(rows) < len(at):
        raise ValueError("at: some are times and some are rows; give only times, or only rows.")
    ignored = [str(name) for name in estimator.left_out_]
    seen = set()
    for k, row in enumerate(rows):
        other = [name for name in row.values if name not in (*ahead, *ignored)]
        if other:
            raise ValueError(
                f"at: {other[0]!r} is no column that is known ahead; those are: {', '.join(ahead) or 'none'}."
            )
        absent = [name for name in ahead if name not in row.values]
        if absent:
            raise ValueError(
                f"at: {absent[0]!r} is known ahead and missing in row {k + 1}; give it, or null where it is not known."
            )
        if (key := (str(row.id), row.time)) in seen:
            raise ValueError(f"at: {key[0]!r} is queried twice at {key[1]!r}; give each time once.")
        seen.add(key)
    return _frame(estimator, rows, ahead, "at")


def _frame(estimator: Any, rows: Sequence[Observation], names: Any, what: str) -> pl.DataFrame:
    columns = estimator.columns_
    data = {
        str(columns.id): _column([str(row.id) for row in rows], "id", what),
        str(columns.time): _column([row.time for row in rows], "time", what),
        **{name: _column([row.values.get(name) for row in rows], name, what) for name in names},
    }
    return pl.DataFrame(data)


def _column(items: list[Any], name: str, what: str) -> pl.Series:
    """A column of one type: text, true and false, or numbers."""
    kinds = {str if isinstance(x, str) else bool if isinstance(x, bool) else float for x in items if x is not None}
    if str in kinds and len(kinds) > 1:
        raise ValueError(f"{what}: {name!r} is text in some rows and a number in others; write all in the same way.")
    kind = kinds.pop() if len(kinds) == 1 else float
    if kind is not float:
        return pl.Series(items, dtype=pl.String if kind is str else pl.Boolean)
    try:
        return pl.Series([None if x is None else float(x) for x in items], dtype=pl.Float64)
    except OverflowError as error:
        raise ValueError(f"{what}: {name!r} holds a number that is too large; give a smaller one.") from error


def records(frame: Any, renamed: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of a frame, as JSON has them; blank where a number is none."""
    table = nw.from_native(frame, eager_only=True)
    return [
        {renamed.get(str(name), str(name)): plain(value) for name, value in row.items()}
        for row in table.iter_rows(named=True)
    ]


def plain(value: Any) -> Any:
    """A value of JSON: dates as text in ISO 8601, what is no finite number as null."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def forecasts(estimator: Any, frame: Any) -> list[dict[str, Any]]:
    """The answer of a forecaster."""
    return records(frame, {str(estimator.columns_.id): "id", str(estimator.columns_.time): "time"})


def labels(estimator: Any, frame: Any) -> list[dict[str, Any]]:
    """The answer of a classifier to a table; of several labels, by their names."""
    ids, probability, _ = estimator._probabilities(frame)
    marginals = estimator._marginals(probability)
    answers = []
    for k, id in enumerate(ids.tolist()):
        each = {name: _label(classes, own[k]) for name, classes, own in marginals}
        if isinstance(estimator.columns_.label, str):
            ((best, p),) = each.values()
        else:
            best, p = {name: one for name, (one, _) in each.items()}, {name: own for name, (_, own) in each.items()}
        answers.append({"id": id, "label": best, "probabilities": p})
    return answers


def _label(classes: list[Any], probability: np.ndarray) -> tuple[Any, dict[str, float | None]]:
    """The likeliest class, and the probability of each; null where there is none."""
    p = [plain(each) for each in probability.astype(np.float64).tolist()]
    best = None if None in p else classes[int(probability.argmax())]
    return best, dict(zip(map(str, classes), p, strict=True))


def targets(estimator: Any, frame: Any) -> list[dict[str, Any]]:
    """The answer of a regressor."""
    return records(frame, {str(estimator.columns_.id): "id", str(estimator.columns_.label): "target"})


def filled(estimator: Any, frame: Any) -> list[dict[str, Any]]:
    """The answer of an imputer."""
    columns = estimator.columns_
    names = [name for name in variables(estimator) if name in frame.columns]
    return [
        {"id": row[str(columns.id)], "time": row[str(columns.time)], "values": {name: row[name] for name in names}}
        for row in records(frame, {})
    ]
