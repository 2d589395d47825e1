"""A user's frame as series: columns found and checked, times of any kind on one clock."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from numbers import Real
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np

from ..series import Panel, Series

Kind = Literal["number", "datetime"]

_MICRO = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_NAME = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # also what pandas and Parquet call such a column
_WORDS = "in a file, words such as NA and null are blanks too"


class Columns(NamedTuple):
    """The names of the columns: who, when, what, and (for a classifier) the label; and what is no value."""

    id: str
    time: str
    values: tuple[str, ...]
    label: str | None = None
    missing: tuple[float, ...] = ()  # numbers that stand for a blank

    @property
    def unlabelled(self) -> "Columns":
        """Those of a table whose labels are not known, or not asked for."""
        return self._replace(label=None)


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
    values: np.ndarray  # float64, NaN where blank
    labels: np.ndarray | None
    kind: Kind
    zone: str | None
    columns: Columns
    implementation: str  # of the frame: pandas, polars or pyarrow
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

    def shown_time(self, time: float) -> str:
        """A time as the frame has it."""
        return shown_time(time, self.kind, self.zone)

    def panel(self, clock: Clock) -> Panel:
        """The series on the clock of a model, padded to the longest; values in double precision, to be scaled in."""
        relative = (self.times - self.first[self.codes]) / clock.unit
        single = relative.astype(np.float32)
        lost = (np.diff(self.codes) == 0) & (np.diff(single) <= 0)
        if lost.any():
            k = int(np.argmax(lost))
            one, two = (self.shown_time(t) for t in self.times[k : k + 2])
            raise ValueError(
                f"{self.columns.id} {shown(self.ids[self.codes[k]])}: the times {one} and {two} cannot be told apart "
                "in single precision, so long is the series; merge the two rows or cut the series into parts."
            )
        length = np.diff(self.starts)
        places = np.arange(length.max())
        pick = self.starts[:-1, None] + np.minimum(places, length[:, None] - 1)  # padding repeats the last time
        values = self.values[pick]
        observed = ~np.isnan(values) & (places < length[:, None])[..., None]
        series = Series(single[pick], np.where(observed, values, 0), observed, length.astype(np.int32))
        return Panel(series, self.ids, self.columns.values)


def shown(value: Any) -> str:
    return repr(_plain(value))


def shown_time(time: float, kind: Kind, zone: str | None) -> str:
    if kind == "number":
        return f"{time:.10g}"
    moment = _EPOCH + timedelta(microseconds=round(time * _MICRO))
    return str(moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone_of(zone)))


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python, which JSON knows too."""
    return value.item() if isinstance(value, np.generic) else value


def zone_of(name: str) -> tzinfo:
    """A time zone by its name: of the tz database, or an offset such as +01:00."""
    offset = re.fullmatch(r"(?:UTC)?([+-])(\d\d):?(\d\d)", name)
    if offset is None:
        return ZoneInfo(name)
    hours, minutes = int(offset[2]), int(offset[3])
    return timezone((1 if offset[1] == "+" else -1) * timedelta(hours=hours, minutes=minutes))


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
    labels = None if columns.label is None else _labels(table.get_column(columns.label), codes, ids, columns, what)
    # Most tables are sorted by id already; a copy of each of their columns may not fit into memory.
    in_order = bool((codes[1:] >= codes[:-1]).all())
    order = np.arange(len(codes), dtype=np.int32) if in_order else np.argsort(codes, kind="stable")
    if not in_order:
        codes, times = codes[order], times[order]
    _check_times(times, codes, order, ids, columns, what)
    values = np.empty((len(codes), len(columns.values)))
    for k, column in enumerate(columns.values):
        given = _numbers(table.get_column(column), what, columns.missing)
        values[:, k] = given if in_order else given[order]
    empty = np.ones(len(ids), bool)
    empty[codes[~np.isnan(values).all(axis=1)]] = False
    if empty.any():
        who = f"{columns.id} {shown(ids[int(np.argmax(empty))])}"
        raise ValueError(f"{what}: {who} has no value in any row; drop its rows.")
    name = str(table.implementation.value)
    return Table(ids, codes, times, values, labels, kind, zone, columns, name, order)


def unheld(frame: Any, columns: Columns, what: str) -> list[float]:
    """Those of the numbers that stand for a blank which no cell holds."""
    left = list(columns.missing)
    for name in columns.values if left else ():
        given = frame_of(frame, what).get_column(name)
        if given.dtype.is_numeric():
            values, single = given.cast(nw.Float64).to_numpy(), given.dtype == nw.Float32
            left = [number for number in left if not stand_for_blanks(values, [number], single).any()]
    return left


def value_columns(frame: Any, id: str, time: str, label: str | None, values: Any, *, what: str) -> tuple[str, ...]:
    """The columns of the variables: those named, or all that are neither id, time nor label."""
    table = frame_of(frame, what)
    roles = [name for name in (id, time, label) if name is not None]
    if len(set(roles)) < len(roles):
        raise ValueError(f"{what}: id, time and label are {', '.join(map(repr, roles))}; name a column for each.")
    if values is None:
        chosen = tuple(c for c in table.columns if c not in (id, time, label))
        nameless = [c for c in chosen if _NO_NAME.fullmatch(str(c))]
        if nameless:
            raise ValueError(
                f"{what}: column {table.columns.index(nameless[0]) + 1} has no name and may be a row number; give it a "
                "name, leave it out (in pandas, write with index=False), or name the columns of values."
            )
    else:
        chosen = (values,) if isinstance(values, str) else tuple(values)
    if not chosen:
        raise ValueError(f"{what}: there is no column of values beside {id!r} and {time!r}; add one, or name it.")
    twice = [c for k, c in enumerate(chosen) if c in chosen[:k]]
    if twice:
        raise ValueError(f"{what}: the column of values {twice[0]!r} is named twice; name it once.")
    reserved = [c for c in chosen if c in (id, time, label)]
    if reserved:
        raise ValueError(f"{what}: {reserved[0]!r} is named as a value and as id, time or label; choose one.")
    return chosen


def _ids(table: nw.DataFrame, column: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    given = table.get_column(column)
    blank = _blank(given)
    if blank.any():
        raise ValueError(f"{what}: {column!r} is blank in row {_row(blank)} ({_WORDS}); give every row its id.")
    try:
        codes, distinct = _coded(given)
    except TypeError as error:
        raise ValueError(f"{what}: {column!r} holds {given.dtype}; expected plain ids, text or numbers.") from error
    ids = np.empty(len(distinct), object)
    ids[:] = [_plain(item) for item in distinct]
    return codes, ids


def _coded(given: nw.Series) -> tuple[np.ndarray, list]:
    """The distinct values as they first appear, and for each row which of them it has."""
    if given.implementation.is_pyarrow():
        # Without an object of Python's for each of what may be millions of rows.
        import pyarrow as pa

        native = pa.chunked_array(given.to_native())
        encoded = native if pa.types.is_dictionary(native.type) else native.dictionary_encode()
        parts = encoded.unify_dictionaries().chunks
        codes = np.concatenate([part.indices.to_numpy() for part in parts])
        distinct = parts[0].dictionary
        there = np.zeros(len(distinct), bool)
        there[codes] = True
        if not there.all():  # some rows of a larger table
            codes, distinct = (np.cumsum(there) - 1)[codes], distinct.filter(pa.array(there))
        return codes, distinct.to_pylist()
    items = given.to_list()
    distinct = {item: k for k, item in enumerate(dict.fromkeys(items))}
    return np.fromiter(map(distinct.__getitem__, items), np.int64, len(items)), list(distinct)


def _blank(given: nw.Series) -> np.ndarray:
    """Where there is nothing, not a number, or a text of spaces only."""
    blank = given.is_null().to_numpy().astype(bool)
    if given.dtype.is_float():
        return blank | np.isnan(given.cast(nw.Float64).to_numpy())
    if given.dtype == nw.String:
        return blank | (given.str.strip_chars().str.len_chars() == 0).fill_null(True).to_numpy().astype(bool)
    return blank


def _row(fault: np.ndarray) -> int:
    """The row of the first fault, counted from 1 below the column names."""
    return int(np.argmax(fault)) + 1


def times_of(given: nw.Series, what: str) -> tuple[np.ndarray, Kind, str | None]:
    """A column of times as float numbers, or as seconds since 1970 where it holds points in time."""
    blank = given.is_null().to_numpy().astype(bool)
    if blank.any():
        raise ValueError(f"{what}: {given.name!r} is blank in row {_row(blank)}; give every row its time.")
    native = given.to_native()
    if given.dtype == nw.Unknown and hasattr(native, "dt") and getattr(native.dt, "tz", None) is not None:
        # narwhals does not know the zones of pandas that have a "_" or a digit in their name
        utc = nw.from_native(native.dt.tz_convert("UTC"), series_only=True)
        return utc.dt.timestamp("us").to_numpy() / _MICRO, "datetime", str(native.dt.tz)
    if given.dtype == nw.Object and all(isinstance(item, date) for item in given.to_list()):  # dates, in pandas
        items = given.to_list()
        zones = {str(item.tzinfo) for item in items if isinstance(item, datetime) and item.tzinfo is not None}
        zone = zones.pop() if len(zones) == 1 else ("UTC" if zones else None)
        return moments_of(items, "datetime", zone, f"{what}: {given.name!r}"), "datetime", zone
    if given.dtype == nw.Date:
        given = given.cast(nw.Datetime("us"))
    if isinstance(given.dtype, nw.Datetime):
        zone = given.dtype.time_zone
        return given.dt.timestamp("us").to_numpy() / _MICRO, "datetime", zone
    if isinstance(given.dtype, nw.Duration):
        return given.dt.total_microseconds().to_numpy() / _MICRO, "number", None
    if not given.dtype.is_numeric():
        row = _first_not_a_time(given)
        raise ValueError(
            f"{what}: the time column {given.name!r} holds {given.dtype}, such as {given[row]!r} in row {row + 1}; "
            "expected numbers or dates. Parse it as dates first; write a number without leading zeros, as 7 and not 07."
        )
    if given.dtype.is_integer() and _dates_without_dashes(given.to_numpy()):
        raise ValueError(
            f"{what}: the numbers of the time column {given.name!r}, such as {given[0]}, look like dates, and from the "
            "last of a month to the next they would count as a leap. Write them as dates, 2024-01-31; or as a count, "
            "say of days."
        )
    times = given.cast(nw.Float64).to_numpy()
    bad = ~np.isfinite(times)
    if bad.any():
        raise ValueError(f"{what}: {given.name!r} is not a finite number in row {_row(bad)}; correct or drop the row.")
    return times, "number", None


def _first_not_a_time(given: nw.Series) -> int:
    """The row of the first text that is no time where others are; else the first row."""
    texts = [str(item) for item in given.to_list()]
    for reads in (float, datetime.fromisoformat):
        fits = np.asarray([_reads(text, reads) for text in texts])
        if 2 * fits.sum() > len(fits) and not fits.all():
            return int(np.argmin(fits))
    return 0


def _reads(item: Any, how: Callable[[Any], Any]) -> bool:
    try:
        how(item)
    except (TypeError, ValueError):
        return False
    return True


def _dates_without_dashes(numbers: np.ndarray) -> bool:
    """Whether all are days written as 20240131, or minutes or seconds of them, and not all of one day."""
    for digits in (8, 12, 14):
        below = 10 ** (digits - 8)
        if (numbers >= 1900_01_01 * below).all() and (numbers < 2101_01_01 * below).all():
            days = np.unique(numbers // below)
            return len(days) > 1 and all(_reads(str(day), datetime.fromisoformat) for day in days[:1000])
    return False


def _check_times(times, codes, order, ids, columns: Columns, what: str) -> None:
    """Refuse times that go back or repeat; rows are in the order of ids, `order` says which of the table they are."""
    back = (codes[1:] == codes[:-1]) & (times[1:] <= times[:-1])
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


def _numbers(given: nw.Series, what: str, missing: Sequence[float]) -> np.ndarray:
    """A column of values, NaN where blank or where a number stands for that."""
    if given.null_count() == len(given):
        return np.full(len(given), np.nan)
    if given.dtype.is_numeric() or given.dtype == nw.Boolean:
        values = given.cast(nw.Float64).to_numpy()
    else:  # pandas keeps true and false with blanks, for one, as objects
        items, blank = given.to_list(), given.is_null().to_numpy()
        fault = [not b and not isinstance(item, Real | np.bool_) for item, b in zip(items, blank, strict=True)]
        if any(fault):
            # The one word or code among texts of numbers, where there is one.
            words = [f and not _reads_as_number(item) for item, f in zip(items, fault, strict=True)]
            row = _row(np.asarray(words if any(words) else fault))
            raise ValueError(
                f"{what}: column {given.name!r} holds {items[row - 1]!r} in row {row}; expected numbers or true and "
                "false. Correct or leave out the column; code categories as numbers without leading zeros, or as a "
                "column of true and false for each."
            )
        values = np.asarray([np.nan if b else float(item) for item, b in zip(items, blank, strict=True)])
    values = np.where(stand_for_blanks(values, missing, given.dtype == nw.Float32), np.nan, values)
    with np.errstate(over="ignore"):
        bad = np.isinf(values.astype(np.float32))
    if bad.any():
        raise ValueError(
            f"{what}: column {given.name!r} is {values[int(np.argmax(bad))]} in row {_row(bad)}; expected a finite "
            "number or a blank."
        )
    return values


def stand_for_blanks(values: Any, missing: Sequence[float], single: bool = False) -> np.ndarray:
    """Which numbers are among those that stand for a blank; -99.9 is another number in single precision."""
    with np.errstate(over="ignore"):
        marks = np.asarray(missing, np.float32 if single else np.float64)
    return np.isin(values, marks.astype(np.float64))


def _reads_as_number(item: Any) -> bool:
    """Whether a text is a number, which 1.5 is, and 007 is not."""
    if isinstance(item, str) and re.match(r"[+-]?0\d", item):
        return False
    return _reads(item, float)


def _labels(given: nw.Series, codes, ids, columns: Columns, what: str) -> np.ndarray:
    """One label for each id."""
    blank = _blank(given)
    if blank.any():
        raise ValueError(
            f"{what}: the label {given.name!r} is blank in row {_row(blank)} ({_WORDS}); give every row its label."
        )
    items = [_plain(item) for item in given.to_list()]
    odd = [not isinstance(item, str | bool | int | float) for item in items]
    if any(odd):
        row = _row(np.asarray(odd))
        raise ValueError(
            f"{what}: the label {given.name!r} is {items[row - 1]!r} in row {row}; expected text, numbers or true and "
            "false. Write it as text."
        )
    found = np.empty(len(ids), object)
    first_row = np.full(len(ids), -1)
    for row, (code, item) in enumerate(zip(codes.tolist(), items, strict=True)):
        if first_row[code] < 0:
            first_row[code], found[code] = row, item
        elif found[code] != item:
            raise ValueError(
                f"{what}: the label {given.name!r} of {columns.id} {shown(ids[code])} is {found[code]!r} in row "
                f"{first_row[code] + 1} and {item!r} in row {row + 1}; a series has one label in all its rows."
            )
    return found


def moments_of(times: Iterable[Any], kind: Kind, zone: str | None, what: str) -> np.ndarray:
    """Times one by one as float numbers, or as seconds since 1970; those without a time zone are in `zone`."""
    times = list(times)
    if kind == "number":
        moments = [_number(time, what) for time in times]
    else:
        moments = [_moment(time, zone, what) for time in times]
    bad = ~np.isfinite(np.asarray(moments, np.float64))
    if bad.any():
        raise ValueError(f"{what}: {times[int(np.argmax(bad))]!r} is not a finite time; leave it out.")
    return np.asarray(moments, np.float64)


def _number(time: Any, what: str) -> float:
    if isinstance(time, Real | np.number) and not isinstance(time, np.timedelta64):
        return float(time)
    raise ValueError(f"{what}: {shown(time)} is not a number, as the times of the model are.")


def _moment(time: Any, zone: str | None, what: str) -> float:
    given = time
    try:
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        elif isinstance(time, np.datetime64):
            time = time.astype("datetime64[us]").item()
    except ValueError as error:
        raise ValueError(f"{what}: {given!r} is not a date; write it as 2020-01-31 or 2020-01-31T14:00.") from error
    if not isinstance(time, date) or time != time:  # the latter: no time at all
        raise ValueError(f"{what}: {given!r} is not a date, as the times of the model are.")
    if not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC if zone is None else zone_of(zone))
    elif zone is None:
        raise ValueError(f"{what}: {given!r} has a time zone, and the times of the table have none; leave it off.")
    return (time - _EPOCH) / timedelta(microseconds=1) / _MICRO


def given_times(at: Any) -> "nw.DataFrame | Sequence[Any]":
    """What was asked: a frame behind one interface, or a list of times."""
    seen = nw.from_native(at, pass_through=True, allow_series=True)
    if isinstance(seen, nw.DataFrame | nw.LazyFrame):
        return frame_of(at, "predict(at=...)")
    if isinstance(seen, nw.Series):
        return seen.to_list()
    if isinstance(at, str | date | np.generic) or not isinstance(at, Iterable):
        return [at]
    return list(at)


def write_times(times: np.ndarray, kind: Kind, zone: str | None, backend: Any) -> nw.Series:
    """Times as they were given: numbers, or points in time in their zone."""
    if kind == "number":
        return nw.new_series("time", times, backend=backend)
    micro = np.round(times * _MICRO).astype(np.int64).astype("datetime64[us]")
    made = nw.new_series("time", micro, nw.Datetime("us"), backend=backend)
    return made if zone is None else made.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def write_frame(data: dict[str, Any], backend: Any) -> Any:
    """A frame of these columns. Series join it last, as `from_dict` drops the time zone of one in pandas."""
    plain = {name: column for name, column in data.items() if not isinstance(column, nw.Series)}
    more = [column.alias(name) for name, column in data.items() if isinstance(column, nw.Series)]
    return nw.from_dict(plain, backend=backend).with_columns(*more).select(*data).to_native()
