"""The steps from raw daily values to sporadic series, each a function of its own.

The published set (GRU-ODE-Bayes) is `drop_flagged`, `keep_long_lived`, `keep_years`, `keep_part`, then the window
number 0 of `windows`, then `rows`, and the series with `both_sides`. It was drawn without a seed, so nobody can draw
the same values again; here a seed decides.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..series import Series, series as one_series, stack
from .ushcn_raw import ELEMENTS, EPOCH, Table

# The published clock: 2500 units from 1950-01-01 to 2000-12-31, which is 18,627 days later, in tenths of a unit. One
# unit is 7.4508 days, so that each day has a tenth of its own.
UNITS, LAST_DAY = 2500, 18_627
# The published window is from time 2300 on: 1,491 days, 1996-12-02 to 2000-12-31, of which 1999-12-25 and later are
# after time 150.
FIRST_DAY, WINDOW_DAYS, WINDOW_TIME = 17_137, 1_491, 2_300
AFTER = 150.0
MORE_THAN = 3


def drop_flagged(table: Table) -> Table:
    """Without the values that failed a quality check, whichever: there is no other removal of outliers."""
    return table[table.flag == ord(" ")]


def keep_long_lived(table: Table, first_before: int = 1970, last_after: int = 2001) -> Table:
    """The stations with a value before the year `first_before` and one after the year `last_after`."""
    year = years(table)
    n = len(table.stations)
    early = np.bincount(table.station[year < first_before], minlength=n) > 0
    late = np.bincount(table.station[year > last_after], minlength=n) > 0
    return table[(early & late)[table.station]]


def keep_years(table: Table, first: int = 1950, last: int = 2000) -> Table:
    """The values of the years from `first` to `last`, both included."""
    year = years(table)
    return table[(year >= first) & (year <= last)]


def keep_part(table: Table, part: float | int = 0.05, seed: int = 0) -> Table:
    """A random part of the values of every station and element.

    Each pair has a stream of random numbers of its own, made of `seed`, the station's name and the element: what is
    kept of one station does not depend on which others are there.
    """
    if not 0 < part <= 1:
        raise ValueError(f"keep_part: part is {part}; expected a part of the values, above 0 and at most 1.")
    if part == 1:
        return table
    pair = table.station.astype(np.int64) * len(ELEMENTS) + table.element
    ends = np.append(np.flatnonzero(np.diff(pair, prepend=-1)), len(pair))
    kept = []
    for start, stop in pairwise(ends):
        name = int.from_bytes(table.stations[table.station[start]].encode())
        rng = np.random.default_rng([seed, name, int(table.element[start])])
        n = stop - start
        kept.append(start + np.sort(rng.choice(n, round(part * n), replace=False)))
    return table[np.concatenate(kept) if kept else np.arange(0)]


def join(tables: list[Table]) -> Table:
    """One table of several, which must not share a station: two files of it would tell its days twice."""
    names = sorted(name for table in tables for name in table.stations)
    twice = [name for name, following in pairwise(names) if name == following]
    if twice:
        raise ValueError(f"join: station {twice[0]} is in two of the files; leave one of them out.")
    place = {name: i for i, name in enumerate(names)}
    columns = [
        (np.asarray([place[name] for name in t.stations], np.int32)[t.station], t.element, t.day, t.value, t.flag)
        for t in tables
    ]
    joined = Table(tuple(names), *(np.concatenate(column) for column in zip(*columns, strict=True)))
    return joined[np.argsort(joined.station, kind="stable")]


def stamp(day: np.ndarray) -> np.ndarray:
    """The published time of each day since 1950-01-01: 2500 * day / 18,627, rounded to a tenth."""
    return np.rint(10 * UNITS * np.asarray(day, np.float64) / LAST_DAY) / 10


# The times of the days of the published window, 0 to 200. They serve for every window: its first day has time 0.
TIMES = np.rint(10 * (stamp(np.arange(FIRST_DAY, FIRST_DAY + WINDOW_DAYS)) - WINDOW_TIME)) / 10


def day_of(times: np.ndarray) -> np.ndarray:
    """The day of its window, from 0, that each time of `TIMES` belongs to."""
    nearest = np.searchsorted((TIMES[1:] + TIMES[:-1]) / 2, np.asarray(times, np.float64))
    if np.abs(TIMES[nearest] - times).max(initial=0) > 1e-4:
        wrong = np.ravel(times)[np.argmax(np.abs(TIMES[nearest] - times))]
        raise ValueError(f"day_of: {wrong:g} is not the time of any day; expected times as `windows` gives them.")
    return nearest


class Windows(NamedTuple):
    """For each value of a table the window it lies in (0 is the published one), and its time there."""

    number: np.ndarray
    time: np.ndarray


def windows(table: Table, days: int = WINDOW_DAYS) -> Windows:
    """Windows of so many days, one after the other, in both directions from the published one."""
    if not 1 <= days <= WINDOW_DAYS:
        raise ValueError(f"windows: days is {days}; expected 1 to {WINDOW_DAYS}, the length of the published window.")
    number, day = np.divmod(table.day - FIRST_DAY, days)
    return Windows(number, TIMES[day])


def starts(number: np.ndarray, days: int = WINDOW_DAYS) -> np.ndarray:
    """The first day of each window, as a date."""
    return EPOCH + (FIRST_DAY + np.asarray(number, int) * days)


class Rows(NamedTuple):
    """Rows of several series, sorted by series and time; NaN where nothing was observed."""

    series: np.ndarray  # (rows,), from 0
    time: np.ndarray  # (rows,)
    values: np.ndarray  # (rows, variables)


def rows(series: np.ndarray, time: np.ndarray, element: np.ndarray, value: np.ndarray) -> Rows:
    """One row for each series and time, from single values."""
    order = np.lexsort((time, series))
    series, time, element, value = series[order], time[order], element[order], value[order]
    new = (np.diff(series, prepend=-1) != 0) | (np.diff(time, prepend=-1) != 0)
    values = np.full((int(new.sum()), len(ELEMENTS)), np.nan)
    values[np.cumsum(new) - 1, element] = value
    return Rows(series[new], time[new], values)


def both_sides(rows: Rows, n: int, after: float = AFTER, more_than: int = MORE_THAN) -> np.ndarray:
    """Which of `n` series have a row up to time `after` and more than so many after it."""
    later = rows.time > after
    before, behind = (np.bincount(rows.series[side], minlength=n) for side in (~later, later))
    return (before > 0) & (behind > more_than)


def padded(rows: Rows) -> Series:
    """The rows as a batch, a series for each number that occurs, in order."""
    ends = np.flatnonzero(np.diff(rows.series)) + 1
    parts = zip(np.split(rows.time, ends), np.split(rows.values, ends), strict=True)
    return stack([one_series(time, values) for time, values in parts])


def years(table: Table) -> np.ndarray:
    """The year of each value."""
    return (EPOCH + table.day).astype("datetime64[Y]").astype(int) + 1970
