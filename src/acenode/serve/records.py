"""Rows of JSON to data frames and back."""

import datetime
import math
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import polars as pl

from .schema import Observation


def variables(estimator: Any) -> dict[str, Any]:
    """The names of the model's columns by what JSON calls them; a column of pandas may have a number for a name."""
    words = getattr(estimator, "categories_", {})  # each a column of a table, and several of the model
    encoded = {f"{name}={word}" for name, some in words.items() for word in some}
    names = [name for name in estimator.columns_.values if name not in encoded]
    return {str(name): name for name in (*names, *words, *estimator.left_out_)}


def to_frame(estimator: Any, rows: Sequence[Observation]) -> pl.DataFrame:
    """A table as the estimator was trained on."""
    columns, known = estimator.columns_, variables(estimator)
    for row in rows:
        unknown = [name for name in row.values if name not in known]
        if unknown:
            raise ValueError(f"rows: there is no variable {unknown[0]!r}; the model has {', '.join(known)}.")
    data = {
        str(columns.id): _column([str(row.id) for row in rows], "id"),
        str(columns.time): _column([row.time for row in rows], "time"),
        **{name: _column([row.values.get(name) for row in rows], name) for name in known},
    }
    return pl.DataFrame(data)


def _column(items: list[Any], name: str) -> pl.Series:
    """A column of one type: text, true and false, or numbers."""
    kinds = {str if isinstance(x, str) else bool if isinstance(x, bool) else float for x in items if x is not None}
    if str in kinds and len(kinds) > 1:
        raise ValueError(f"rows: {name!r} is text in some rows and a number in others; write all in the same way.")
    kind = kinds.pop() if len(kinds) == 1 else float
    if kind is not float:
        return pl.Series(items, dtype=pl.String if kind is str else pl.Boolean)
    try:
        return pl.Series([None if x is None else float(x) for x in items], dtype=pl.Float64)
    except OverflowError as error:
        raise ValueError(f"rows: {name!r} holds a number that is too large; give a smaller one.") from error


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
    """The answer of a classifier, from its probabilities."""
    classes = estimator.classes_
    answers = []
    for row in records(frame, {str(estimator.columns_.id): "id"}):
        p = [row[f"p_{c}"] for c in classes]
        best = None if None in p else classes[p.index(max(p))]
        answers.append({"id": row["id"], "label": best, "probabilities": dict(zip(map(str, classes), p, strict=True))})
    return answers


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
