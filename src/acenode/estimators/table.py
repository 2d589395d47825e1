"""A user's frame as series: columns found and checked, times of any kind on one clock."""

import itertools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np

from ..series import Panel, Series, stack
from ..series.series import series as one_series

Kind = Literal["number", "datetime"]

_MICRO = 1_000_000


class Columns(NamedTuple):
    """The names of the columns: who, when, what, and (for a classifier) the label."""

    id: str
    time: str
    values: tuple[str, ...]
    label: str | None = None


@dataclass(frozen=True)
class Clock:
    """From the times of a frame to those of a model: since the first time of a series, in units of `unit`.

    Numbers are taken as they are, points in time as seconds. `zone` is the time zone of the frame, if it has one.
    """

    kind: Kind
    unit: float
    zone: str | None = None

    def describe(self) -> str:
        return f"{self.unit:g} {'seconds' if self.kind == 'datetime' else 'of the time column'}"


class Table(NamedTuple):
    """A frame read: rows in the order of ids and times. Times are float numbers, or seconds of the calendar."""

    ids: np.ndarray
    codes: np.ndarray
    times: np.ndarray  # float64
    values: np.ndarray  # float32, NaN where blank
    labels: np.ndarray | None
    kind: Kind
    zone: str | None
    columns: Columns
    implementation: str  # of the frame: pandas, polars or pyarrow

    @property
    def first(self) -> np.ndarray:
        """The first time of each series."""
        starts = np.searchsorted(self.codes, np.arange(len(self.ids)))
        return self.times[starts]

    @property
    def last(self) -> np.ndarray:
        """The last time of each series."""
        ends = np.searchsorted(self.codes, np.arange(len(self.ids)), side="right") - 1
        return self.times[ends]

    def panel(self, clock: Clock) -> Panel:
        """The series on the clock of a model."""
        relative = (self.times - self.first[self.codes]) / clock.unit
        bounds = np.searchsorted(self.codes, np.arange(len(self.ids) + 1))
        many: list[Series] = []
        for k, (a, b) in enumerate(itertools.pairwise(bounds)):
            try:
                many.append(one_series(relative[a:b], self.values[a:b]))
            except ValueError as error:
                raise ValueError(f"{self.columns.id} {shown(self.ids[k])}: {error}") from error
        return Panel(stack(many), self.ids, self.columns.values)


def shown(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def frame_of(frame: Any, what: str) -> nw.DataFrame:
    """Any data frame behind one interface, with at least one row."""
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        raise ValueError(
            f"{what}: a {type(frame).__name__} was given; expected a pandas or polars data frame or a pyarrow table."
        ) from error
    if len(table) == 0:
        raise ValueError(f"{what}: the table is empty; expected at least one row below the column names.")
    return table


def read(frame: Any, columns: Columns, *, what: str = "the table") -> Table:
    """Read and check a frame. Every fault is one sentence that says where, and what to do."""
    table = frame_of(frame, what)
    wanted = [columns.id, columns.time, *columns.values, *([columns.label] if columns.label else [])]
    absent = [c for c in wanted if c not in table.columns]
    if absent:
        raise ValueError(
            f"{what}: there is no column {absent[0]!r}; the columns are {', '.join(map(repr, table.columns))}. Rename "
            "it, or name the right one."
        )
    codes, ids = _ids(table, columns.id, what)
    times, kind, zone = times_of(table.get_column(columns.time), what)
    _check_times(times, codes, ids, columns, what)
    values = np.stack([_numbers(table.get_column(c), what) for c in columns.values], axis=1)
    labels = None if columns.label is None else _labels(table.get_column(columns.label), codes, ids, columns, what)
    order = np.argsort(codes, kind="stable")
    name = str(table.implementation.value)
    return Table(ids, codes[order], times[order], values[order], labels, kind, zone, columns, name)


def value_columns(frame: Any, id: str, time: str, label: str | None, values: Any, *, what: str) -> tuple[str, ...]:
    """The columns of the variables: those named, or all that are neither id, time nor label."""
    table = frame_of(frame, what)
    if values is None:
        chosen = tuple(c for c in table.columns if c not in (id, time, label))
    else:
        chosen = (values,) if isinstance(values, str) else tuple(values)
    if not chosen:
        raise ValueError(f"{what}: there is no column of values beside {id!r} and {time!r}; add one, or name it.")
    reserved = [c for c in chosen if c in (id, time, label)]
    if reserved:
        raise ValueError(f"{what}: {reserved[0]!r} is named as a value and as id, time or label; choose one.")
    return chosen


def _ids(table: nw.DataFrame, column: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    given = table.get_column(column)
    blank = given.is_null().to_numpy()
    if blank.any():
        raise ValueError(f"{what}: {column!r} is blank in row {_row(blank)}; give every row its id.")
    items = given.to_list()
    distinct = {item: k for k, item in enumerate(dict.fromkeys(items))}
    codes = np.fromiter(map(distinct.__getitem__, items), np.int64, len(items))
    ids = np.empty(len(distinct), object)
    ids[:] = list(distinct)
    return codes, ids


def _row(fault: np.ndarray) -> int:
    """The row of the first fault, counted from 1 below the column names."""
    return int(np.argmax(fault)) + 1


def times_of(given: nw.Series, what: str) -> tuple[np.ndarray, Kind, str | None]:
    """A column of times as float numbers, or as seconds since 1970 where it holds points in time."""
    blank = given.is_null().to_numpy()
    if blank.any():
        raise ValueError(f"{what}: {given.name!r} is blank in row {_row(blank)}; give every row its time.")
    if given.dtype == nw.Date:
        given = given.cast(nw.Datetime("us"))
    if isinstance(given.dtype, nw.Datetime):
        zone = given.dtype.time_zone
        return given.dt.timestamp("us").to_numpy() / _MICRO, "datetime", zone
    if isinstance(given.dtype, nw.Duration):
        return given.dt.total_microseconds().to_numpy() / _MICRO, "number", None
    if not given.dtype.is_numeric():
        raise ValueError(
            f"{what}: the time column {given.name!r} holds {given.dtype}, such as {given[0]!r}; expected numbers or "
            "dates. Parse it as dates first."
        )
    times = given.cast(nw.Float64).to_numpy()
    bad = ~np.isfinite(times)
    if bad.any():
        raise ValueError(f"{what}: {given.name!r} is not a finite number in row {_row(bad)}; correct or drop the row.")
    return times, "number", None


def _check_times(times, codes, ids, columns: Columns, what: str) -> None:
    order = np.argsort(codes, kind="stable")
    back = (np.diff(codes[order]) == 0) & (np.diff(times[order]) <= 0)
    if not back.any():
        return
    k = int(np.argmax(back))
    row, before = int(order[k + 1]) + 1, int(order[k]) + 1
    who = f"{columns.id} {shown(ids[codes[order[k]]])}"
    if times[order[k + 1]] == times[order[k]]:
        raise ValueError(
            f"{what}: {who} has the same {columns.time!r} in rows {before} and {row}; merge the two rows or drop one."
        )
    raise ValueError(
        f"{what}: {who} goes back in time from row {before} to row {row}; sort the rows of an id by {columns.time!r}."
    )


def _numbers(given: nw.Series, what: str) -> np.ndarray:
    """A column of values in single precision, NaN where blank."""
    if given.null_count() == len(given):
        return np.full(len(given), np.nan, np.float32)
    if not (given.dtype.is_numeric() or given.dtype == nw.Boolean):
        present = given.drop_nulls()
        raise ValueError(
            f"{what}: column {given.name!r} holds {given.dtype}, such as {present[0]!r}; expected numbers or true and "
            "false. Code categories as numbers or as one column of true and false for each."
        )
    values = given.cast(nw.Float64).to_numpy().astype(np.float64)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    bad = np.isinf(single)
    if bad.any():
        raise ValueError(
            f"{what}: column {given.name!r} is {values[int(np.argmax(bad))]} in row {_row(bad)}; expected a finite "
            "number or a blank."
        )
    return single


def _labels(given: nw.Series, codes, ids, columns: Columns, what: str) -> np.ndarray:
    """One label for each id."""
    blank = given.is_null().to_numpy()
    if blank.any():
        raise ValueError(f"{what}: the label {given.name!r} is blank in row {_row(blank)}; give every row its label.")
    items = given.to_list()
    found = np.empty(len(ids), object)
    first_row = np.full(len(ids), -1)
    for row, (code, item) in enumerate(zip(codes, items, strict=True)):
        if first_row[code] < 0:
            first_row[code], found[code] = row, item
        elif found[code] != item:
            raise ValueError(
                f"{what}: the label {given.name!r} of {columns.id} {shown(ids[code])} is {found[code]!r} in row "
                f"{first_row[code] + 1} and {item!r} in row {row + 1}; a series has one label in all its rows."
            )
    return found


def write_times(times: np.ndarray, kind: Kind, zone: str | None, backend: str) -> nw.Series:
    """Times as they were given: numbers, or points in time in their zone."""
    if kind == "number":
        return nw.new_series("time", times, backend=backend)
    micro = np.round(times * _MICRO).astype(np.int64).astype("datetime64[us]")
    made = nw.new_series("time", micro, nw.Datetime("us"), backend=backend)
    return made if zone is None else made.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
