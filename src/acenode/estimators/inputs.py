"""Columns that are inputs alone: those known ahead of time, and those that are the same in all rows of a series.

A model predicts a time from the rows before it. So a column that is known ahead says in each row what it will be in the
next one, and the rows that are to be predicted stay in the context with these columns alone.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..series import Query, Series
from ..series.scale import limits
from ..series.table import Columns, Table

Mask = np.ndarray  # of the variables, or of each value


def lead(series: Series, future: Mask) -> Series:
    """The series with what is known ahead moved up by one row; the last row does not know what follows it."""
    if not future.any():
        return series
    values, observed = np.array(series.values), np.array(series.observed)
    values[:, :-1, future], observed[:, :-1, future] = values[:, 1:, future], observed[:, 1:, future]
    values[:, -1:, future], observed[:, -1:, future] = 0, False
    return Series(series.times, values, observed, series.length)


def keep_known(query: Query, whole: Series, future: Mask) -> Query:
    """The query, its context with what is known ahead of all rows."""
    if not future.any():
        return query
    early = np.arange(whole.times.shape[1]) < np.asarray(query.context.length)[:, None]
    left = np.asarray(whole.observed) & (early[..., None] | future)
    context = Series(whole.times, np.where(left, whole.values, 0).astype(np.float32), left, whole.length)
    return Query(context, query.times, query.values, query.observed, query.scored)


def only_targets(query: Any, targets: Mask) -> Any:
    """A query of what is to be predicted alone; other data as they are."""
    if not isinstance(query, Query) or targets.all():
        return query
    observed, scored = (np.asarray(x) & targets for x in (query.observed, query.scored))
    return Query(query.context, query.times, query.values, observed, scored)


def extended(table: Table, codes: np.ndarray, times: np.ndarray, known: np.ndarray) -> Table:
    """The table with a row for each query, which holds the columns known ahead and the static ones."""
    columns = table.columns
    values = np.full((len(codes), len(columns.values)), np.nan)
    values[:, mask_of(columns, columns.future)] = known
    static = mask_of(columns, columns.static)
    values[:, static] = table.values[table.starts[:-1]][codes][:, static]
    joined = [np.concatenate(pair) for pair in ((table.codes, codes), (table.times, times), (table.values, values))]
    order = np.lexsort((joined[1], joined[0]))
    codes, times, values = (each[order] for each in joined)
    return table._replace(codes=codes, times=times, values=values, order=order)


def mask_of(columns: Columns, names: Sequence[Any]) -> Mask:
    return np.asarray([name in names for name in columns.values], bool)


def winsorised(series: Series, train: np.ndarray, columns: Columns, what: str) -> Series:
    """The series with absurd values moved to the limits of training, and a warning that counts them."""
    moved = within_limits(np.asarray(series.values), np.asarray(series.observed), train, columns.values, what)
    return Series(series.times, moved, series.observed, series.length)


def within_limits(values: np.ndarray, observed: Mask, train: np.ndarray, names: Sequence[Any], what: str) -> np.ndarray:
    """Values (series, ..., names) moved to the `limits` of training series, and a warning that counts them."""
    moved = np.where(observed, np.clip(values, *limits(values[train], observed[train])), values)
    counts = (moved != values).reshape(-1, len(names)).sum(axis=0)
    if not counts.any():
        return values
    named = [f"{int(n)} of {name!r}" for name, n in zip(names, counts, strict=True) if n]
    said = ", ".join(named[:5]) + (f" and more of {len(named) - 5} other columns" if len(named) > 5 else "")
    warnings.warn(
        f"{what}: {said} lie far outside the others (more than ten times as far from the median as the quartiles from "
        "each other); in training they count as just that far. Tables to predict from or to evaluate on keep their "
        "values.",
        stacklevel=5,
    )
    return moved


def resampled(train: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The training series, each as often as its weight says, about as many as there are."""
    if weights is None:
        return train
    if not weights[train].any():
        raise ValueError(
            "weight: every training series has the weight 0; give some of them more, or take another seed."
        )
    own = weights[train] / weights[train].sum() * len(train)
    ends = np.cumsum(own)
    return train[np.searchsorted(ends, np.arange(len(train)) + 0.5).clip(0, len(train) - 1)]
