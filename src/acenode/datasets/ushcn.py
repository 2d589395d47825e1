"""Daily climate of the United States (USHCN), seen sporadically: rain, snowfall, snow depth, high and low temperature.

A series is about four years of a station, in time units of 7.4508 days, of which one in twenty values is kept. Asked
are the first three rows after time 150. Three sources:

- `load_national`: the published file, 1996-12-02 to 2000-12-31 of some 1,100 stations.
- `from_raw`: the same from the raw files of the states, with a draw of our own.
- `load_maine`: every such window of one state's 12 stations, over more than a century ("USHCN Maine").

Values are as in the files. `question` scales them, with statistics of the training series only.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..series import Panel, Query, Scaler, forecast
from . import files, ushcn_steps as steps
from .files import Folder
from .split import Split, k_fold
from .ushcn_processed import read_processed
from .ushcn_raw import ELEMENTS, Reading, Table, read
from .ushcn_steps import AFTER, Rows

NAME = "ushcn"
ROWS = 3
NATIONAL = "small_chunked_sporadic.csv"
NATIONAL_URL = (
    "https://raw.githubusercontent.com/edebrouwer/gru_ode_bayes/ddd0b34e884dbee1c09b6a3927d1e9ab10443af8/"
    f"gru_ode_bayes/datasets/Climate/{NATIONAL}"
)
NATIONAL_SHA256 = "671eb8d121522e98891c84197742a6c9e9bb5015e42b328a93ebdf2cfd393ecf"
MAINE = "state17_ME.txt.gz"
MAINE_URL = f"https://cdiac.ess-dive.lbl.gov/ftp/ushcn_daily/{MAINE}"
MAINE_SHA256 = "762f5f232cc7828abc9c5e6e6feb02452a60540b21db534e63b523fc155e55a4"


class Skipped(NamedTuple):
    """What was left out, by name.

    `incomplete` are windows that lack a variable, `one_sided` series without rows enough on both sides of time 150, and
    `short_lived` stations that began too late or ended too early for the published set.
    """

    incomplete: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()
    short_lived: tuple[str, ...] = ()


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
    path = files.find(
        NAME, NATIONAL, data_dir=data_dir, url=NATIONAL_URL, sha256=NATIONAL_SHA256, steps=by_hand(NATIONAL_URL)
    )
    sha256 = files.digest(path)
    if sha256 != NATIONAL_SHA256:
        warnings.warn(
            f"{path} is not the published file: its sha256 is {sha256}, expected {NATIONAL_SHA256}. Results on it are "
            "not comparable with published ones.",
            stacklevel=2,
        )
    numbers, rows = read_processed(path)
    station, start = numbers.astype(np.str_), steps.starts(np.zeros(len(numbers)))
    return _climate(rows, _Names(station, start, station), Skipped(), (), {path.name: sha256})


def from_raw(paths: Sequence[str | Path], part: float | int = 0.05, seed: int = 0) -> Climate:
    """The published processing of raw files of states, each as it is or compressed with gzip.

    The published draw had no seed, so this gives the same stations and days to draw from, but another draw.
    """
    if len(paths) == 0:
        raise ValueError("from_raw: there are no paths; expected raw files such as state17_ME.txt.gz.")
    tables, readings = [], []
    for path in paths:
        # One state at a time: the whole country would not fit into the memory of a small machine.
        table, reading = read(Path(path))
        table = steps.keep_years(steps.keep_long_lived(steps.drop_flagged(table)))
        tables.append(steps.keep_part(table, part, seed))
        readings.append(reading)
    table = steps.join(tables)
    lived = np.unique(table.station)
    short_lived = tuple(np.delete(np.asarray(table.stations), lived).tolist())
    keys = lived.astype(np.int64) * _STRIDE + _PUBLISHED
    return _windowed(table, keys, steps.WINDOW_DAYS, Skipped(short_lived=short_lived), tuple(readings))


def load_maine(
    data_dir: Folder | None = None, part: float | int = 0.05, seed: int = 0, days: int = steps.WINDOW_DAYS
) -> Climate:
    """Every window of the 12 stations of Maine, 1886 to 2014, that holds all five variables.

    Windows do not overlap; the published one, from 1996-12-02, is one of them. Of their values a random `part` is kept,
    decided by `seed`. A window of the published length of 1,491 days is 30 days longer than four years, so the season
    at a given time moves from window to window; `days=1461` keeps it.
    """
    table, reading = read(_maine(data_dir))
    table = steps.drop_flagged(table)
    held = np.unique(_key(table, steps.windows(table, days).number) * len(ELEMENTS) + table.element)
    keys, variables = np.unique(held // len(ELEMENTS), return_counts=True)
    whole = variables == len(ELEMENTS)
    incomplete = tuple(_names(table, keys[~whole], days).ids.tolist())
    table = steps.keep_part(table, part, seed)
    return _windowed(table, keys[whole], days, Skipped(incomplete=incomplete), (reading,))


def query(climate: Climate, train: np.ndarray, entire: bool = False) -> Query:
    """The task: the first three rows after time 150 of every series, from what came before.

    Each variable is scaled to mean 0 and deviation 1 over the series `train` (their places), and over these only.
    `entire` lets the training series be known to their end, for models that learn from every next row.
    """
    if len(train) == 0:
        raise ValueError("question: there are no training series; the scale of the variables is measured on these.")
    scaler = Scaler.fit(climate.panel.series[np.asarray(train)], "standard")
    known = np.isin(np.arange(len(climate)), train) if entire else None
    return forecast(scaler.scale(climate.panel.series), after=AFTER, rows=ROWS, entire=known)


def folds(climate: Climate, seed: int = 0) -> list[Split]:
    """Five divisions with disjoint test stations; a fifth of the other stations is for validation.

    All series of a station are on the same side. Of the 12 stations of Maine, 2 or 3 are tested, and 2 validate.
    """
    return k_fold(len(climate), 5, seed, groups=climate.station, validation=0.2)


def published_splits(n: int, seed: int = 432) -> list[Split]:
    """The five divisions of the published results: each a new draw of a tenth to test and a fifth of the rest to
    validate. Their test series overlap.
    """
    if n < 3:
        raise ValueError(f"published_splits: n is {n}; expected at least 3 series, one for each part.")
    # The legacy generator is the one that the published divisions were drawn with.
    random = np.random.RandomState(seed)
    splits = []
    for _ in range(5):
        test, rest = np.split(random.permutation(n), [math.ceil(0.1 * n)])
        validation, train = np.split(rest[random.permutation(len(rest))], [math.ceil(0.2 * len(rest))])
        splits.append(Split(np.sort(train), np.sort(validation), np.sort(test)))
    return splits


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
    start = steps.starts(number - _PUBLISHED, days)
    ids = [f"{name}/{day}" for name, day in zip(station, start, strict=True)]
    return _Names(station, start, np.asarray(ids, np.str_))


def _windowed(table: Table, keys: np.ndarray, days: int, skipped: Skipped, readings: tuple[Reading, ...]) -> Climate:
    """The series of the windows `keys`, as far as they have both sides."""
    number, time = steps.windows(table, days)
    key = _key(table, number)
    chosen = np.isin(key, keys)
    series = np.searchsorted(keys, key[chosen])
    rows = steps.rows(series, time[chosen], table.element[chosen], table.value[chosen])
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
    kept = steps.both_sides(rows, len(names.ids))
    skipped = skipped._replace(one_sided=tuple(names.ids[~kept].tolist()))
    if not kept.any():
        raise ValueError(
            f"USHCN: no series is left: {len(skipped.short_lived)} stations began too late or ended too early, "
            f"{len(skipped.incomplete)} windows lack a variable, and {len(skipped.one_sided)} series have no row up to "
            f"time {AFTER:g} or no more than {steps.MORE_THAN} after it. Keep a larger part of the values, or give "
            "files of more years."
        )
    mine = kept[rows.series]
    panel = Panel(steps.padded(Rows(*(column[mine] for column in rows))), names.ids[kept], ELEMENTS)
    return Climate(panel, names.station[kept], names.start[kept], skipped, readings, sha256)


def _maine(data_dir: Folder | None) -> Path:
    """The raw file of Maine, as it is or unpacked."""
    unpacked = files.look(NAME, MAINE.removesuffix(".gz"), data_dir=data_dir)
    if unpacked is not None and files.look(NAME, MAINE, data_dir=data_dir) is None:
        return unpacked
    return files.find(NAME, MAINE, data_dir=data_dir, url=MAINE_URL, sha256=MAINE_SHA256, steps=by_hand(MAINE_URL))


def by_hand(url: str) -> str:
    """How a person gets a file."""
    return (
        f"To get it by hand: download {url} and put it into a folder named {NAME}; then pass the folder that holds it "
        "as data_dir (--data-dir), or set the environment variable ACENODE_DATA to it."
    )
