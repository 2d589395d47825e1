"""The one reader of data frames: columns found and checked, rows in the order of ids and times."""

import re
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from .columns import read_ids, read_labels, read_numbers, shown, stands_for_blank
from .series import Panel, Series
from .times import Clock, read_times

_NO_NAME = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # also what pandas and Parquet call such a column


class Columns(NamedTuple):
    """The names of the columns of ids, times, values and (for a classifier) labels; and what is no value."""

    id: str
    time: str
    values: tuple[Any, ...]  # names, which may be numbers in pandas
    label: str | tuple[str, ...] | None = None  # or several
    missing: tuple[float, ...] = ()  # numbers that stand for a blank
    future: tuple[Any, ...] = ()  # those of the values that are known ahead, and not predicted
    static: tuple[Any, ...] = ()  # those of the values that are the same in all rows of a series, and not predicted

    @property
    def targets(self) -> np.ndarray:
        """Which of the values are predicted."""
        return np.asarray([name not in (*self.future, *self.static) for name in self.values], bool)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of labels."""
        return () if self.label is None else (self.label,) if isinstance(self.label, str) else self.label

    @property
    def unlabelled(self) -> "Columns":
        """Those of a table without labels."""
        return self._replace(label=None)


class Table(NamedTuple):
    """The rows of a frame in the order of ids and times."""

    ids: np.ndarray
    codes: np.ndarray  # for each row the place of its id
    times: np.ndarray  # float64, in the unit of the clock
    values: np.ndarray  # float64, NaN where blank
    labels: np.ndarray | None  # one for each id; of several, a tuple
    clock: Clock
    columns: Columns
    backend: str  # the library of the frame: pandas, polars or pyarrow
    order: np.ndarray  # which row of the frame each row here is

    @property
    def starts(self) -> np.ndarray:
        """The first row of each series, and the end of the last."""
        return np.searchsorted(self.codes, np.arange(len(self.ids) + 1))

    @property
    def rows(self) -> np.ndarray:
        """The place of each row in its series, from 0."""
        return np.arange(len(self.codes)) - self.starts[self.codes]

    @property
    def first(self) -> np.ndarray:
        """The first time of each series."""
        return self.times[self.starts[:-1]]

    @property
    def last(self) -> np.ndarray:
        """The last time of each series."""
        return self.times[self.starts[1:] - 1]

    def named(self, code: int | np.integer) -> str:
        """The id of a series, as in a sentence."""
        return f"{self.columns.id} {shown(self.ids[code])}"

    def panel(self, unit: float = 1.0, origin: float | None = None) -> Panel:
        """The series, padded to the longest. Times are since `origin`, or the first time of each series, in units of
        `unit`, in single precision; values are in double precision, to be scaled in."""
        since = self.times - (self.first[self.codes] if origin is None else origin)
        with np.errstate(over="ignore"):
            single = (since / unit).astype(np.float32)
        self._check_precision(single)
        length = np.diff(self.starts)
        places = np.arange(length.max())
        pick = self.starts[:-1, None] + np.minimum(places, length[:, None] - 1)  # padding repeats the last time
        values = self.values[pick]
        observed = ~np.isnan(values) & (places < length[:, None])[..., None]
        series = Series(single[pick], np.where(observed, values, 0), observed, length.astype(np.int32))
        return Panel(series, self.ids, tuple(map(str, self.columns.values)))

    def _check_precision(self, single: np.ndarray) -> None:
        """Refuse times that are infinite or equal in single precision only."""
        if not np.isfinite(single).all():
            k = int(np.argmin(np.isfinite(single)))
            raise ValueError(
                f"{self.named(self.codes[k])}: the time {self.clock.show(self.times[k])} is too large; use a larger "
                "unit."
            )
        lost = (np.diff(self.codes) == 0) & (np.diff(single) <= 0)
        if lost.any():
            k = int(np.argmax(lost))
            one, two = (self.clock.show(time) for time in self.times[k : k + 2])
            raise ValueError(
                f"{self.named(self.codes[k])}: the times {one} and {two} are the same number in single precision, so "
                "far are they from the first; subtract an origin, merge the two rows, or cut the series into parts."
            )


def frame_of(frame: Any, what: str) -> nw.DataFrame:
    """Any data frame behind one interface, with at least one row."""
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        name = type(frame).__name__
        fix = "collect it first" if name == "LazyFrame" else "expected a pandas or polars data frame or a pyarrow table"
        raise ValueError(f"{what}: a {name} was given; {fix}.") from error
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"{what}: two columns have the same name; rename or drop one of them.") from error
    if len(table) == 0:
        raise ValueError(f"{what}: the table is empty; expected at least one row below the column names.")
    return table


def column_of(table: nw.DataFrame, name: Any, what: str) -> nw.Series:
    if name not in table.columns:
        raise ValueError(
            f"{what}: there is no column {name!r}; the columns are {', '.join(map(repr, table.columns))}. Rename it, "
            "or name the right one."
        )
    return table.get_column(name)


def value_columns(
    frame: Any, id: str, time: str, label: str | tuple[str, ...] | None, values: Any, *, what: str
) -> tuple[Any, ...]:
    """The columns of the variables: those named, or all that are neither id, time nor label."""
    table = frame_of(frame, what)
    roles = [id, time, *Columns(id, time, (), label).labels]
    if len(set(roles)) < len(roles):
        raise ValueError(f"{what}: id, time and label are {', '.join(map(repr, roles))}; name a column for each.")
    if values is None:
        chosen = tuple(c for c in table.columns if c not in roles)
        nameless = [c for c in chosen if _NO_NAME.fullmatch(str(c))]
        if nameless:
            raise ValueError(
                f"{what}: column {table.columns.index(nameless[0]) + 1} has no name and may be a row number; give it a "
                "name, leave it out (in pandas, write with index=False), or name the columns of values."
            )
        if not chosen:
            raise ValueError(f"{what}: there is no column of values beside {id!r} and {time!r}; add one, or name it.")
    else:
        chosen = named_once(values, what)
    reserved = [c for c in chosen if c in roles]
    if reserved:
        raise ValueError(f"{what}: {reserved[0]!r} is named as a value and as id, time or label; choose one.")
    return chosen


def named_once(values: Any, what: str) -> tuple[Any, ...]:
    """The names of variables, or of one: at least one, no two the same."""
    names = (values,) if isinstance(values, str) else tuple(values)
    if not names:
        raise ValueError(f"{what}: no variable is named; name at least one.")
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise ValueError(f"{what}: the variable {twice[0]!r} is named twice; name it once.")
    return names


def read(frame: Any, columns: Columns, *, what: str = "the table") -> Table:
    """Read and check a frame of one row for each id and time. Every fault is a sentence with its place and the fix."""
    table = frame_of(frame, what)
    names = [columns.id, columns.time, *columns.values, *columns.labels]
    given = {name: column_of(table, name, what) for name in names}
    codes, ids = read_ids(given[columns.id], what)
    times, clock = read_times(given[columns.time], what)
    labels = None
    if columns.label is not None:
        each = [read_labels(given[name], codes, ids, columns.id, what) for name in columns.labels]
        labels = each[0]
        if not isinstance(columns.label, str):
            labels = np.empty(len(ids), object)
            labels[:] = list(zip(*each, strict=True))
    # Most tables are sorted by id already; a copy of each of their columns may not fit into memory.
    in_order = bool((codes[1:] >= codes[:-1]).all())
    order = np.arange(len(codes), dtype=np.int32) if in_order else np.argsort(codes, kind="stable")
    if not in_order:
        codes, times = codes[order], times[order]
    check_times(times, codes, order, ids, columns, what)
    values = np.empty((len(codes), len(columns.values)))
    for k, name in enumerate(columns.values):
        numbers = read_numbers(given[name], what, columns.missing)
        values[:, k] = numbers if in_order else numbers[order]
    for name in columns.static:
        k = columns.values.index(name)
        values[:, k] = _spread_out(values[:, k], codes, order, ids, columns, name, what)
    return Table(ids, codes, times, values, labels, clock, columns, str(table.implementation.value), order)


def _spread_out(values, codes, order, ids, columns: Columns, name: Any, what: str) -> np.ndarray:
    """A static column with its one value in all rows of a series, blank where it has none."""
    seen = np.flatnonzero(~np.isnan(values))
    first = np.full(len(ids), -1)
    first[codes[seen[::-1]]] = seen[::-1]
    differs = seen[values[seen] != values[first[codes[seen]]]]
    if differs.size:
        row = int(differs[0])
        one = int(first[codes[row]])
        raise ValueError(
            f"{what}: the static column {name!r} of {columns.id} {shown(ids[codes[row]])} is {values[one]:g} in row "
            f"{int(order[one]) + 1} and {values[row]:g} in row {int(order[row]) + 1}; a series has one value in all "
            "its rows. Correct it, or do not name the column as static."
        )
    return np.where(first[codes] >= 0, values[np.maximum(first[codes], 0)], np.nan)


def check_times(
    times: np.ndarray,
    codes: np.ndarray,
    order: np.ndarray,
    ids: np.ndarray,
    columns: Columns,
    what: str,
    once: bool = True,
) -> None:
    """Refuse times of an id that go back or, if `once`, repeat; rows are in the order of ids, `order` says which of the
    frame they are."""
    same = codes[1:] == codes[:-1]
    back = same & ((times[1:] <= times[:-1]) if once else (times[1:] < times[:-1]))
    if not back.any():
        return
    k = int(np.argmax(back))
    row, before = int(order[k + 1]) + 1, int(order[k]) + 1
    who = f"{columns.id} {shown(ids[codes[k]])}"
    if times[k + 1] == times[k]:
        raise ValueError(
            f"{what}: {who} has the same {columns.time!r} in rows {before} and {row}; merge the two rows or drop one. "
            "If every row has the value of another variable, make a column of each variable first (a pivot)."
        )
    raise ValueError(
        f"{what}: {who} goes back in time from row {before} to row {row}; sort the rows of an id by {columns.time!r}."
    )


def absent_codes(frame: Any, columns: Columns, what: str) -> list[float]:
    """Those of the numbers that stand for a blank which no cell holds."""
    left = list(columns.missing)
    for name in columns.values if left else ():
        given = frame_of(frame, what).get_column(name)
        if given.dtype.is_numeric():
            values, single = given.cast(nw.Float64).to_numpy(), given.dtype == nw.Float32
            left = [number for number in left if not stands_for_blank(values, [number], single).any()]
    return left
