"""The raw daily records of the U.S. Historical Climatology Network: fixed-width text, a month of one element a line.

| columns | what |
|---|---|
| 1-6 | station |
| 7-10, 11-12 | year, month |
| 13-16 | element, one of `ELEMENTS` |
| 17-21, 25-29, ... | value of each of 31 days, -9999 if missing |
| 22-24, 30-32, ... | its three marks: measurement, quality, source |

A line that is not exactly this is left out whole and counted: a number cut short would be a wrong number. See
https://cdiac.ess-dive.lbl.gov/ftp/ushcn_daily/data_format.txt (public data).
"""

import gzip
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import files
from .files import DataCorrupted, DataNotFound, listed

# Precipitation (0.01 in), snowfall (0.1 in), snow depth (in), maximum and minimum temperature (degrees Fahrenheit). The
# published index of an element is its place in the alphabet.
ELEMENTS = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")
MISSING = -9999
# Days are counted from here.
EPOCH = np.datetime64("1950-01-01", "D")

_WIDTH = 264
_LAST_VALUE = slice(256, 261)
_YEARS = (1800, 2099)
_EXAMPLES = 5
_GZIP = b"\x1f\x8b"
_BLANK = ord(" ")
_UNREADABLE = -(10**6)


@dataclass(frozen=True)
class Table:
    """Daily values, one a place, sorted by station, element and day; no two are of the same day.

    `station` and `element` are places in `stations` and `ELEMENTS`, `day` counts from `EPOCH`, and `flag` is the
    letter of the quality check that the value failed, or a blank.
    """

    stations: tuple[str, ...]
    station: np.ndarray  # int32
    element: np.ndarray  # int8
    day: np.ndarray  # int32
    value: np.ndarray  # int32
    flag: np.ndarray  # one byte

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, chosen: np.ndarray) -> "Table":
        """The chosen values, in their order; the names of the stations stay."""
        columns = (self.station, self.element, self.day, self.value, self.flag)
        return Table(self.stations, *(column[chosen] for column in columns))


@dataclass(frozen=True)
class Reading:
    """What a file held, and what was wrong with it.

    `values` are those in the table, of which the `flagged` failed a quality check (by letter). `missing` are days
    without a value, `impossible_dates` values on days that do not exist, `repeated` second values of one day; these are
    left out. `unknown` counts the lines of each unknown element, `malformed` the lines that could not be read.
    """

    source: str
    sha256: str
    lines: int
    stations: int
    values: int
    flagged: dict[str, int]
    missing: int
    impossible_dates: int
    repeated: int
    unknown: dict[str, int]
    malformed: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.lines:,} lines of {self.stations:,} stations, {self.values:,} values",
            f"values that failed a quality check: {listed(self.flagged)}",
            f"days without a value: {self.missing:,}",
            f"values on days that do not exist, skipped: {self.impossible_dates:,}",
            f"second values of one day, skipped: {self.repeated:,}",
            f"lines of unknown elements, skipped: {listed(self.unknown)}",
            f"malformed lines, skipped: {self.malformed:,}",
            *(f"  {example}" for example in self.examples),
        ]
        return "\n".join(lines)


def date_of(day) -> Any:
    """The date of a day, or of many, that counts from `EPOCH`."""
    return EPOCH + np.asarray(day, np.int64).astype("timedelta64[D]")


def read(path: Path) -> tuple[Table, Reading]:
    """The values of one file, as it is or compressed with gzip, and what was wrong with it."""
    if not path.is_file():
        raise DataNotFound(f"{path} is not a file; expected raw daily records such as state17_ME.txt.gz.")
    content = path.read_bytes()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataCorrupted(f"{path} cannot be unpacked ({error}). Download it again.") from error
    table, reading = parse(content, path.name, files.digest(path))
    if len(table) == 0:
        raise DataCorrupted(
            f"{path} holds no daily values; expected lines of {_WIDTH} characters: station, year, month, element, "
            f"then 31 values. What was found:\n{reading}"
        )
    return table, reading


def parse(content: bytes, source: str = "text", sha256: str = "") -> tuple[Table, Reading]:
    """The values of the lines of `content`, and what was wrong with them; `source` and `sha256` are only reported."""
    faults = _Faults()
    numbers, block = _block(content, faults)
    lines = len(numbers) + faults.malformed
    good = _good_lines(numbers, block, faults)
    block = block[good]
    values = _numbers(block)
    unreadable = (values == _UNREADABLE).any(1)
    faults.add(numbers[good][unreadable], block[unreadable], "a value is not a whole number of 5 characters")
    values, block = values[~unreadable], block[~unreadable]
    stations, table, missing = _flat(block, values, faults)
    table, repeated = _sorted(stations, table, faults)
    letters, counts = np.unique(table.flag[table.flag != _BLANK], return_counts=True)
    reading = Reading(
        source=source,
        sha256=sha256,
        lines=lines,
        stations=len(stations),
        values=len(table),
        flagged={chr(letter): int(count) for letter, count in zip(letters, counts, strict=True)},
        missing=missing,
        impossible_dates=faults.impossible,
        repeated=repeated,
        unknown=dict(faults.unknown),
        malformed=faults.malformed,
        examples=tuple(faults.examples),
    )
    return table, reading


# --- from text to a table --------------------------------------------------------------------------------------------


@dataclass
class _Faults:
    """What could not be read so far."""

    malformed: int = 0
    impossible: int = 0
    unknown: Counter = field(default_factory=Counter)
    examples: list = field(default_factory=list)

    def add(self, numbers, lines, why: str) -> None:
        """Count malformed lines, of which some serve as examples."""
        self.malformed += len(numbers)
        for number, line in zip(numbers, lines, strict=True):
            text = bytes(line)[:40].decode("ascii", errors="replace")
            if not self.example(f"line {number}: {text!r}: {why}"):
                break

    def example(self, text: str) -> bool:
        """Keep an example if there is space."""
        if len(self.examples) < _EXAMPLES:
            self.examples.append(text)
        return len(self.examples) < _EXAMPLES


def _block(content: bytes, faults: _Faults) -> tuple[np.ndarray, np.ndarray]:
    """Lines of the right width as (lines, 264) bytes, with their numbers in the file."""
    numbers, lines = [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.rstrip(b"\r")
        text = line.rstrip()
        if not text:
            continue
        # An editor may have cut blanks off the end. Only a missing value has blank marks, so any other line that is too
        # short may have lost something.
        cut = len(line) < _WIDTH and len(text) == _LAST_VALUE.stop and text[_LAST_VALUE] == b"%d" % MISSING
        if len(text) <= _WIDTH and (len(line) >= _WIDTH or cut):
            numbers.append(number)
            lines.append(text.ljust(_WIDTH))
        else:
            length = len(line) if len(line) < _WIDTH else len(text)
            faults.add([number], [text], f"{length} characters, expected {_WIDTH}")
    return np.asarray(numbers, int), np.frombuffer(b"".join(lines), np.uint8).reshape(-1, _WIDTH)


def _good_lines(numbers: np.ndarray, block: np.ndarray, faults: _Faults) -> np.ndarray:
    """Places of the lines whose station, date and element are right, and whose quality marks are letters or blank."""
    good = np.arange(len(block))
    quality = _daily(block)[:, :, 6]
    letter = (block >= ord("A")) & (block <= ord("Z"))
    code = (letter | _digit(block))[:, 12:16].all(1)
    tests = [
        (_digit(block[:, :12]).all(1), "the station, year or month is not a number"),
        ((_whole(block, 10, 12) >= 1) & (_whole(block, 10, 12) <= 12), "the month is not 1 to 12"),
        ((_whole(block, 6, 10) >= _YEARS[0]) & (_whole(block, 6, 10) <= _YEARS[1]), "the year is impossible"),
        (code, "the element is not a code of four letters"),
        (((quality == _BLANK) | _daily(letter)[:, :, 6]).all(1), "a quality mark is not a letter"),
    ]
    for passed, why in tests:
        failed = good[~passed[good]]
        faults.add(numbers[failed], block[failed], why)
        good = good[passed[good]]
    names = _strings(block[good, 12:16])
    known = np.isin(names, ELEMENTS)
    faults.unknown.update(names[~known].tolist())
    return good[known]


def _numbers(block: np.ndarray) -> np.ndarray:
    """The values (lines, 31) as whole numbers; `_UNREADABLE` for what is not blanks, a sign perhaps, and digits."""
    text = _daily(block)[:, :, :5]
    digit, minus, blank = _digit(text), text == ord("-"), text == _BLANK
    # Nothing but a digit may follow a sign or a digit, and the last character is a digit.
    right = (digit | minus | blank).all(2) & digit[:, :, 4] & (blank[:, :, :4] | digit[:, :, 1:]).all(2)
    size = np.where(digit, text - np.uint8(ord("0")), 0) @ np.asarray([10_000, 1_000, 100, 10, 1], np.int32)
    return np.where(right, np.where(minus.any(2), -size, size), _UNREADABLE).astype(np.int32)


def _flat(block: np.ndarray, values: np.ndarray, faults: _Faults) -> tuple[tuple[str, ...], Table, int]:
    """The names of the stations, the values in the order of the file, and the number of missing ones."""
    names, station = np.unique(_strings(block[:, :6]), return_inverse=True)
    stations = tuple(str(name) for name in names)
    element = np.searchsorted(ELEMENTS, _strings(block[:, 12:16]))
    month = (_whole(block, 6, 10) - 1970) * 12 + _whole(block, 10, 12) - 1
    first, following = ((month + i).astype("datetime64[M]").astype("datetime64[D]") for i in (0, 1))
    exists = np.arange(31) < (following - first).astype(int)[:, None]
    there = values != MISSING
    impossible = np.argwhere(there & ~exists)
    faults.impossible = len(impossible)
    for line, day in impossible[:_EXAMPLES]:
        date = f"{str(first[line])[:8]}{day + 1:02d}"
        faults.example(f"{stations[station[line]]} {ELEMENTS[element[line]]} {date}: no such day")
    kept = there & exists
    line = np.nonzero(kept)[0]
    day = (first - EPOCH).astype(np.int32)[:, None] + np.arange(31, dtype=np.int32)
    table = Table(
        stations,
        station[line].astype(np.int32),
        element[line].astype(np.int8),
        day[kept],
        values[kept],
        _daily(block)[:, :, 6][kept],
    )
    return stations, table, int((exists & ~there).sum())


def _sorted(stations: tuple[str, ...], table: Table, faults: _Faults) -> tuple[Table, int]:
    """The table in order, without second values of one day, and how many of these there were."""
    if len(table) == 0:
        return table, 0
    start = int(table.day.min())
    span = int(table.day.max()) - start + 1
    cell = (table.station.astype(np.int64) * len(ELEMENTS) + table.element) * span + table.day - start
    # Stable, so that the first value in the file is the one that stays.
    order = np.argsort(cell, kind="stable")
    again = np.diff(cell[order], prepend=-1) == 0
    for i in order[again][:_EXAMPLES]:
        date = date_of(table.day[i])
        faults.example(f"{stations[table.station[i]]} {ELEMENTS[table.element[i]]} {date}: there twice")
    return table[order[~again]], int(again.sum())


def _daily(block: np.ndarray) -> np.ndarray:
    """The part of each line that holds the days, (lines, 31, 8)."""
    return block[:, 16:].reshape(-1, 31, 8)


def _digit(text: np.ndarray) -> np.ndarray:
    return (text >= ord("0")) & (text <= ord("9"))


def _whole(block: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The number written in some columns; of no meaning where these are not digits."""
    digits = block[:, start:stop].astype(np.int64) - ord("0")
    return digits @ 10 ** np.arange(stop - start)[::-1]


def _strings(text: np.ndarray) -> np.ndarray:
    """Rows of ASCII bytes as strings."""
    return np.ascontiguousarray(text).view(f"S{text.shape[1]}").ravel().astype(np.str_)
