"""Daily climate of the United States (USHCN), observed sporadically: precipitation, snow and temperatures.

A series is about four years of a station, in time units of 7.4508 days, of which one in twenty values is kept. The
query is the first three rows after time 150. Two sources:

- `load_national`: the published file, 1996-12-02 to 2000-12-31 of some 1,100 stations.
- `load_maine`: every such window of one state's 12 stations, over more than a century ("USHCN Maine").

Values are as in the files. `query` scales them, with statistics of the training series only.
"""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..series import Panel, Query, Scaler, Series, forecast, series as one_series, stack
from . import files
from .files import DataCorrupted, Folder, Remote
from .split import Split, k_fold
from .ushcn_raw import ELEMENTS, Reading, Table, date_of, read

NAME = "ushcn"
AFTER, ROWS = 150.0, 3
MORE_THAN = 3  # rows of a series after time 150
NATIONAL = "small_chunked_sporadic.csv"
NATIONAL_URL = (
    "https://raw.githubusercontent.com/edebrouwer/gru_ode_bayes/ddd0b34e884dbee1c09b6a3927d1e9ab10443af8/"
    f"gru_ode_bayes/datasets/Climate/{NATIONAL}"
)
NATIONAL_SHA256 = "671eb8d121522e98891c84197742a6c9e9bb5015e42b328a93ebdf2cfd393ecf"
MAINE = "state17_ME.txt.gz"
MAINE_URL = f"https://cdiac.ess-dive.lbl.gov/ftp/ushcn_daily/{MAINE}"
MAINE_SHA256 = "762f5f232cc7828abc9c5e6e6feb02452a60540b21db534e63b523fc155e55a4"

# The published clock: 2500 units from 1950-01-01 to 2000-12-31, which is 18,627 days later, in tenths of a unit. One
# unit is 7.4508 days, so that each day has a tenth of its own.
UNITS, LAST_DAY = 2500, 18_627
# The published window is from time 2300 on: 1,491 days, 1996-12-02 to 2000-12-31, of which 1999-12-25 and later are
# after time 150.
FIRST_DAY, WINDOW_DAYS, WINDOW_TIME = 17_137, 1_491, 2_300

# The columns of the published file.
COLUMNS = ("ID", "Time", *(f"{what}_{i}" for what in ("Value", "Mask") for i in range(len(ELEMENTS))))


class Skipped(NamedTuple):
    """What was left out, by name: windows that lack a variable, and series with too few rows around time 150."""

    incomplete: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()


@dataclass(frozen=True)
class Climate:
    """Sporadic series of stations, with the station and the first day (a date) of each."""

    panel: Panel
    station: np.ndarray
    start: np.ndarray
    skipped: Skipped
    readings: tuple[Reading, ...]
    sha256: dict[str, str]

    def __len__(self) -> int:
        return len(self.panel)


def load_national(data_dir: Folder | None = None) -> Climate:
    """The published file: looked for in `data_dir` and `$ACENODE_DATA`, and downloaded otherwise.

    A file of the user's own with another checksum is read with a warning; one in the cache is refused. Its stations
    have numbers only.
    """
    path = files.find(NAME, official_national()[0], data_dir)
    sha256 = files.digest(path)
    if sha256 != NATIONAL_SHA256:
        warnings.warn(
            f"{path} is not the published file: its sha256 is {sha256}, expected {NATIONAL_SHA256}. Results on it are "
            "not comparable with published ones.",
            stacklevel=2,
        )
    numbers, rows = read_national(path)
    station, start = numbers.astype(np.str_), starts(np.zeros(len(numbers)))
    return _climate(rows, _Names(station, start, station), Skipped(), (), {path.name: sha256})


def load_maine(
    data_dir: Folder | None = None, part: float | int = 0.05, seed: int = 0, days: int = WINDOW_DAYS
) -> Climate:
    """Every window of the 12 stations of Maine, 1886 to 2014, that holds all five variables.

    Windows do not overlap; the published one, from 1996-12-02, is one of them. Of their values a random `part` is kept,
    decided by `seed`. A window of the published length of 1,491 days is 30 days longer than four years, so the season
    at a given time moves from window to window; `days=1461` keeps it.
    """
    table, reading = read(_maine(data_dir))
    table = drop_flagged(table)
    held = np.unique(_key(table, windows(table, days).number) * len(ELEMENTS) + table.element)
    keys, variables = np.unique(held // len(ELEMENTS), return_counts=True)
    whole = variables == len(ELEMENTS)
    incomplete = tuple(_names(table, keys[~whole], days).ids.tolist())
    table = keep_part(table, part, seed)
    return _windowed(table, keys[whole], days, Skipped(incomplete=incomplete), (reading,))


def query(climate: Climate, train: np.ndarray, entire: bool = False) -> Query:
    """The task: the first three rows after time 150 of every series, from what came before.

    Each variable is scaled to mean 0 and deviation 1 over the series `train` (their places), and over these only.
    With `entire` the context of a training series is all of it, for models that learn from every next row.
    """
    if len(train) == 0:
        raise ValueError("query: there are no training series; the scale of the variables is measured on these.")
    scaler = Scaler.fit(climate.panel.series[np.asarray(train)], "standard")
    whole = np.isin(np.arange(len(climate)), train) if entire else None
    return forecast(scaler.scale(climate.panel.series), after=AFTER, rows=ROWS, entire=whole)


def folds(climate: Climate, seed: int = 0) -> list[Split]:
    """Five divisions with disjoint test stations; a fifth of the other stations is for validation.

    All series of a station are on the same side. Of the 12 stations of Maine, 2 or 3 are tested, and 2 validate.
    """
    return k_fold(len(climate), 5, seed, groups=climate.station, validation=0.2)


def published_splits(n: int, seed: int = 432) -> list[Split]:
    """The five divisions of the published results: each a new draw of a tenth to test and a fifth of the rest to
    validate. Their test series overlap.
    """
    from sklearn.model_selection import train_test_split  # slow to import

    if n < 3:
        raise ValueError(f"published_splits: n is {n}; expected at least 3 series, one for each part.")
    random = np.random.RandomState(seed)  # one generator for all five
    splits = []
    for _ in range(5):
        rest, test = train_test_split(np.arange(n), test_size=0.1, random_state=random)
        train, validation = train_test_split(rest, test_size=0.2, random_state=random)
        splits.append(Split(np.sort(train), np.sort(validation), np.sort(test)))
    return splits


# --- from daily values to rows ---------------------------------------------------------------------------------------


def drop_flagged(table: Table) -> Table:
    """Without the values that failed a quality check, whichever: there is no other removal of outliers."""
    return table[table.flag == ord(" ")]


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
    return date_of(FIRST_DAY + np.asarray(number, int) * days)


class Rows(NamedTuple):
    """Rows of several series, sorted by series and time; NaN where nothing was observed."""

    series: np.ndarray  # (rows,), from 0
    time: np.ndarray  # (rows,)
    values: np.ndarray  # (rows, variables)


def rows_of(series: np.ndarray, time: np.ndarray, element: np.ndarray, value: np.ndarray) -> Rows:
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


# --- from windows to series ------------------------------------------------------------------------------------------

# A station and a window in one number; windows count from the published one, in both directions.
_STRIDE = 1 << 20
_PUBLISHED = _STRIDE // 2


def _key(table: Table, number: np.ndarray) -> np.ndarray:
    return table.station.astype(np.int64) * _STRIDE + _PUBLISHED + number


class _Names(NamedTuple):
    """The station, first day and id of some windows."""

    station: np.ndarray
    start: np.ndarray
    ids: np.ndarray


def _names(table: Table, keys: np.ndarray, days: int) -> _Names:
    place, number = np.divmod(keys, _STRIDE)
    station = np.asarray(table.stations, np.str_)[place]
    start = starts(number - _PUBLISHED, days)
    ids = [f"{name}/{day}" for name, day in zip(station, start, strict=True)]
    return _Names(station, start, np.asarray(ids, np.str_))


def _windowed(table: Table, keys: np.ndarray, days: int, skipped: Skipped, readings: tuple[Reading, ...]) -> Climate:
    """The series of the windows `keys`, as far as they have both sides."""
    number, time = windows(table, days)
    key = _key(table, number)
    chosen = np.isin(key, keys)
    series = np.searchsorted(keys, key[chosen])
    rows = rows_of(series, time[chosen], table.element[chosen], table.value[chosen])
    sha256 = {reading.source: reading.sha256 for reading in readings}
    return _climate(rows, _names(table, keys, days), skipped, readings, sha256)


def _climate(
    rows: Rows,
    names: _Names,
    skipped: Skipped,
    readings: tuple[Reading, ...],
    sha256: dict[str, str],
) -> Climate:
    """The series that have both sides, and the names of the others."""
    kept = both_sides(rows, len(names.ids))
    skipped = skipped._replace(one_sided=tuple(names.ids[~kept].tolist()))
    if not kept.any():
        raise ValueError(
            f"USHCN: no series is left: {len(skipped.incomplete)} windows lack a variable, and "
            f"{len(skipped.one_sided)} series have no row up to time {AFTER:g} or no more than {MORE_THAN} after it. "
            "Keep a larger part of the values, or give a file of more years."
        )
    mine = kept[rows.series]
    panel = Panel(padded(Rows(*(column[mine] for column in rows))), names.ids[kept], ELEMENTS)
    return Climate(panel, names.station[kept], names.start[kept], skipped, readings, sha256)


def _maine(data_dir: Folder | None) -> Path:
    """The raw file of Maine, as it is or unpacked."""
    unpacked = files.look(NAME, MAINE.removesuffix(".gz"), data_dir=data_dir)
    if unpacked is not None and files.look(NAME, MAINE, data_dir=data_dir) is None:
        return unpacked
    return files.find(NAME, official_maine()[0], data_dir)


def official_national() -> tuple[Remote, ...]:
    """The published file."""
    return (Remote(NATIONAL, NATIONAL_URL, sha256=NATIONAL_SHA256),)


def official_maine() -> tuple[Remote, ...]:
    """The raw file of Maine."""
    return (Remote(MAINE, MAINE_URL, sha256=MAINE_SHA256),)


# --- the published file ----------------------------------------------------------------------------------------------


def read_national(path: Path) -> tuple[np.ndarray, Rows]:
    """The published file: the stations' numbers, sorted, and the rows; a series is the place of its number.

    One line for each station and time: ID, Time in [0, 200], Value_0 to Value_4 (0 where not observed) and Mask_0 to
    Mask_4, for the elements in the order of `ELEMENTS`. The values were scaled with the mean and deviation of all
    stations; scaled again with those of the training stations, they are what raw values scaled with these would be, and
    the leak is gone. The numbers may have gaps, so they cannot serve as places. Whatever is not as described raises
    `DataCorrupted`, which names the line.
    """
    ids, time, values, mask = _columns(path)
    checks = [
        (ids == np.rint(ids), "the ID is not a whole number"),
        ((time >= 0) & (time <= 200), "the time is not in [0, 200]"),
        (np.abs(10 * time - np.rint(10 * time)) < 1e-3, "the time is not in tenths"),
        (((mask == 0) | (mask == 1)).all(1), "a mask is neither 0 nor 1"),
        (mask.any(1), "nothing is observed"),
        (np.isfinite(values).all(1), "a value is not a finite number"),
        (((mask == 1) | (values == 0)).all(1), "there is a value where the mask is 0"),
    ]
    for passed, why in checks:
        _refuse(path, ~passed, why)
    numbers, series = np.unique(ids.astype(np.int64), return_inverse=True)
    # The file has 0.30000000000018 for 0.3, say.
    time = np.rint(10 * time) / 10
    order = np.lexsort((time, series))
    again = np.zeros(len(time), bool)
    again[order[1:]] = (np.diff(series[order]) == 0) & (np.diff(time[order]) == 0)
    _refuse(path, again, "the ID and time are those of an earlier line")
    return numbers, Rows(series[order], time[order], np.where(mask == 1, values, np.nan)[order])


def _columns(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ids, times, values and masks of all lines."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = [name.strip() for name in file.readline().split(",")]
        if sorted(header) != sorted(COLUMNS):
            raise DataCorrupted(f"{path} has the columns {', '.join(header)!r}; expected {', '.join(COLUMNS)}.")
        lines = file.read().splitlines()
    if not any(lines):
        raise DataCorrupted(f"{path} has no rows; expected about 350,000.")
    try:
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    except ValueError as error:
        raise DataCorrupted(f"{path} is not a table of numbers ({error}; row 0 is line 2).") from error
    if table.shape[1] != len(header):
        raise DataCorrupted(f"{path} has {table.shape[1]} numbers in a line; expected {len(header)}.")
    ids, time, *rest = (table[:, header.index(name)] for name in COLUMNS)
    width = len(ELEMENTS)
    return ids, time, np.stack(rest[:width], 1), np.stack(rest[width:], 1)


def _refuse(path: Path, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        raise DataCorrupted(f"{path} line {int(np.argmax(wrong)) + 2}: {why}. In all, {int(wrong.sum())} such lines.")
