"""Times of data frames: numbers, or dates in a time zone."""

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from numbers import Real
from typing import Any, Literal
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np

from .columns import is_blank, row_of, shown

Kind = Literal["number", "datetime"]

_MICRO = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)")


@dataclass(frozen=True)
class Clock:
    """What the times of a frame are: numbers, or dates, which count as seconds since 1970, in the time zone `zone`."""

    kind: Kind
    zone: str | None = None

    def show(self, time: float) -> str:
        """A time as the frame has it."""
        return f"{time:.10g}" if self.kind == "number" else str(self._date(time))

    def read(self, times: Iterable[Any], what: str) -> np.ndarray:
        """Single times, dates also as text, in double precision; a date without a time zone is in that of the clock."""
        times = list(times)
        read = np.asarray([self._read(time, what) for time in times], np.float64)
        if not np.isfinite(read).all():
            raise ValueError(
                f"{what}: {times[int(np.argmin(np.isfinite(read)))]!r} is not a finite time; leave it out."
            )
        return read

    def write(self, times: np.ndarray, backend: Any) -> nw.Series:
        """A column of times: numbers, or dates in their time zone."""
        if self.kind == "number":
            return nw.new_series("time", times, backend=backend)
        if backend == "polars" and self.zone is not None and _OFFSET.fullmatch(self.zone):
            # polars has no time zones that are an offset: dates that were read as text are text again
            return nw.new_series("time", [self._date(time).isoformat() for time in times], backend=backend)
        micro = np.round(times * _MICRO).astype(np.int64).astype("datetime64[us]")
        made = nw.new_series("time", micro, nw.Datetime("us"), backend=backend)
        return made if self.zone is None else made.dt.replace_time_zone("UTC").dt.convert_time_zone(self.zone)

    def _date(self, time: float) -> datetime:
        moment = _EPOCH + timedelta(microseconds=round(time * _MICRO))
        return moment.replace(tzinfo=None) if self.zone is None else moment.astimezone(_zone(self.zone))

    def _read(self, time: Any, what: str) -> float:
        if self.kind == "number":
            if isinstance(time, Real | np.number) and not isinstance(time, np.timedelta64):
                return float(time)
            told = f"{shown(time)} is not a number, as the times of the model are"
            if (seconds := _duration(time)) is not None:
                told += f"; where these were durations too they are in seconds, {seconds:.10g}"
            raise ValueError(f"{what}: {told}.")
        try:
            moment = _datetime(time)
        except ValueError as error:
            raise ValueError(f"{what}: {time!r} is not a date; write it as 2020-01-31 or 2020-01-31T14:00.") from error
        except TypeError as error:
            raise ValueError(f"{what}: {time!r} is not a date, as the times of the model are.") from error
        if moment.tzinfo is None:
            return _seconds(moment.replace(tzinfo=UTC if self.zone is None else _zone(self.zone)))
        if self.zone is None:
            raise ValueError(f"{what}: {time!r} has a time zone, and the times of the table have none; leave it off.")
        return _seconds(moment)


def read_times(given: nw.Series, what: str) -> tuple[np.ndarray, Clock]:
    """A column of times in double precision, and what they are: numbers, durations (in seconds), dates, or dates as
    text in ISO 8601."""
    blank = is_blank(given)
    if blank.any():
        raise ValueError(f"{what}: {given.name!r} is blank in row {row_of(blank)}; give every row its time.")
    native = given.to_native()
    if given.dtype == nw.Unknown and hasattr(native, "dt") and getattr(native.dt, "tz", None) is not None:
        # narwhals does not know the zones of pandas that have a "_" or a digit in their name
        utc = nw.from_native(native.dt.tz_convert("UTC"), series_only=True)
        return utc.dt.timestamp("us").to_numpy() / _MICRO, Clock("datetime", str(native.dt.tz))
    if given.dtype in (nw.String, nw.Object, nw.Categorical):
        return _read_dates(given, what)
    if given.dtype == nw.Date:
        given = given.cast(nw.Datetime("us"))
    if isinstance(given.dtype, nw.Datetime):
        return given.dt.timestamp("us").to_numpy() / _MICRO, Clock("datetime", given.dtype.time_zone)
    if isinstance(given.dtype, nw.Duration):
        return given.dt.total_microseconds().to_numpy() / _MICRO, Clock("number")
    if not given.dtype.is_numeric():
        raise _no_times(given, 0, what)
    if given.dtype.is_integer() and _dates_without_dashes(given.to_numpy()):
        raise ValueError(
            f"{what}: the numbers of the time column {given.name!r}, such as {given[0]}, look like dates, and from the "
            "last of a month to the next they would count as a leap. Write them as dates, 2024-01-31; or as a count, "
            "say of days."
        )
    times = given.cast(nw.Float64).to_numpy()
    bad = ~np.isfinite(times)
    if bad.any():
        raise ValueError(
            f"{what}: {given.name!r} is not a finite number in row {row_of(bad)}; correct or drop the row."
        )
    return times, Clock("number")


def _read_dates(given: nw.Series, what: str) -> tuple[np.ndarray, Clock]:
    """Dates that are text, or objects of Python, which pandas has for plain days."""
    items = given.to_list()
    try:
        moments = [_datetime(item) for item in items]
    except (TypeError, ValueError) as error:
        raise _no_times(given, _first_misfit(items), what) from error
    zones = {moment.tzinfo for moment in moments}
    if None in zones and len(zones) > 1:
        raise ValueError(
            f"{what}: {given.name!r} has a time zone in some rows, and none in row "
            f"{row_of(np.asarray([moment.tzinfo is None for moment in moments]))}; give it to all or none."
        )
    if len(zones) > 1 and len({moment.utcoffset() for moment in moments}) > 1:
        warnings.warn(
            f"{what}: {given.name!r} has several offsets from UTC, such as {min(map(str, zones))} and "
            f"{max(map(str, zones))}; its times are shown in UTC, and a time without an offset is one in UTC.",
            stacklevel=4,
        )
    one = zones.pop() if len(zones) == 1 else UTC
    seconds = np.asarray([_seconds(moment if one else moment.replace(tzinfo=UTC)) for moment in moments])
    return seconds, Clock("datetime", one and re.sub(r"^UTC(?=[+-])", "", str(one)))


def _no_times(given: nw.Series, row: int, what: str) -> ValueError:
    return ValueError(
        f"{what}: the time column {given.name!r} holds {given.dtype}, such as {given[row]!r} in row {row + 1}; "
        "expected numbers or dates, as 2024-01-31 or 2024-01-31T14:00. Write a number without leading zeros, as 7 and "
        "not 07."
    )


def _first_misfit(items: list[Any]) -> int:
    """The first that is no time where most others are; else the first of all."""
    for reads in (float, _datetime):
        fits = np.asarray([_is_read(item, reads) for item in items])
        if 2 * fits.sum() > len(fits) and not fits.all():
            return int(np.argmin(fits))
    return 0


def _is_read(item: Any, reads: Callable[[Any], Any]) -> bool:
    try:
        reads(item)
    except (TypeError, ValueError):
        return False
    return True


def _datetime(given: Any) -> datetime:
    """A date in any form; a ValueError for a text that is none, a TypeError for what cannot be one."""
    if isinstance(given, np.datetime64):
        given = given.astype("datetime64[us]").item()
    if isinstance(given, str):
        return datetime.fromisoformat(given.strip())
    if not isinstance(given, date) or given != given:  # the latter is pandas' "not a time"
        raise TypeError
    return given if isinstance(given, datetime) else datetime(given.year, given.month, given.day)


def _duration(given: Any) -> float | None:
    """A duration in seconds; of months and years none."""
    if isinstance(given, np.timedelta64) and np.datetime_data(given)[0] not in ("M", "Y", "generic"):
        return None if np.isnat(given) else float(given / np.timedelta64(1, "s"))
    return given.total_seconds() if isinstance(given, timedelta) else None


def _seconds(moment: datetime) -> float:
    return (moment - _EPOCH) / timedelta(microseconds=1) / _MICRO


def _zone(name: str) -> tzinfo:
    """A time zone by its name: of the tz database, or an offset such as +01:00."""
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo(name)
    hours, minutes = int(offset[2]), int(offset[3])
    return timezone((1 if offset[1] == "+" else -1) * timedelta(hours=hours, minutes=minutes))


def _dates_without_dashes(numbers: np.ndarray) -> bool:
    """Whether all are days written as 20240131, or minutes or seconds of them, and not all of one day."""
    for digits in (8, 12, 14):
        below = 10 ** (digits - 8)
        if (numbers >= 1900_01_01 * below).all() and (numbers < 2101_01_01 * below).all():
            days = np.unique(numbers // below)
            return len(days) > 1 and all(_is_read(str(day), datetime.fromisoformat) for day in days[:1000])
    return False
