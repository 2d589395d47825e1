"""The recordings of Human Activity as lines: where one of four tags was at a moment, and what the person did.

A line of `ConfLongDemo_JSI.txt` is `sequence,tag,timestamp,date,x,y,z,label`, with timestamps in ticks of 100 ns and
coordinates in metres. What becomes of a line that is not so:

| fault | what becomes of it |
|---|---|
| another number of fields (a line cut short), no sequence, a timestamp or coordinate that is no number | left out |
| an unknown tag | left out, counted by its name |
| an unknown or blank label | its position is kept without a label, counted by its name |
| a time before that of the line above (two lines of the official file, by 5 ms) | put where its time says |

All are counted in the `Reading`, and the first few quoted. A file without any good line is refused.

`read_quantised` takes a degraded copy, a Parquet table with the columns sequence, tag, x, y, z, activity and t_recon_s.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import files
from .files import DataCorrupted, listed

SENSORS = {
    "010-000-024-033": "left ankle",
    "010-000-030-096": "right ankle",
    "020-000-033-111": "chest",
    "020-000-032-221": "belt",
}
CLASSES = ("walking", "falling", "lying", "sitting", "standing up", "on all fours", "sitting on the ground")
# The names of the activities, of which there are eleven, one of them in two spellings.
CLASS_OF = {
    "walking": 0,
    "falling": 1,
    "lying": 2,
    "lying down": 2,
    "sitting": 3,
    "sitting down": 3,
    "standing up from lying": 4,
    "standing up from sitting": 4,
    "standing up from sitting on the ground": 4,
    "standing up from sit on grnd": 4,
    "on all fours": 5,
    "sitting on the ground": 6,
}
UNLABELLED = -1
TICKS = 10_000_000  # a second

_FIELDS = 8
_EXAMPLES = 5
_TAGS = {tag: place for place, tag in enumerate(SENSORS)}
_COLUMNS = ("sequence", "tag", "t_recon_s", "x", "y", "z", "activity")
_GREATEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Table:
    """The good lines, sorted by sequence (as these first appear) and time.

    `sequence` and `sensor` are places in `sequences` and `SENSORS`, `ticks` the time in 100 ns, `position` (lines, 3)
    is in metres, and `label` one of the `CLASSES` or `UNLABELLED`.
    """

    sequences: tuple[str, ...]
    sequence: np.ndarray
    sensor: np.ndarray
    ticks: np.ndarray
    position: np.ndarray
    label: np.ndarray


@dataclass(frozen=True)
class Reading:
    """What a file held, and what was wrong with it: see the table above."""

    source: str
    sha256: str
    lines: int
    kept: int
    sequences: dict[str, int]
    activities: dict[str, int]
    backwards: int
    unknown_tags: dict[str, int]
    unknown_labels: dict[str, int]
    malformed: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.lines:,} lines, {self.kept:,} kept, of {len(self.sequences)} sequences",
            f"lines of each activity: {listed(self.activities)}",
            f"lines earlier than the one above, put in order: {self.backwards:,}",
            f"lines of unknown tags, skipped: {listed(self.unknown_tags)}",
            f"lines with unknown labels, kept without: {listed(self.unknown_labels)}",
            f"malformed lines, skipped: {self.malformed:,}",
            *(f"  {example}" for example in self.examples),
        ]
        return "\n".join(lines)


def read_text(path: Path) -> tuple[Table, Reading]:
    """The lines of a file in the original format, all of it or a part."""
    lines = path.read_bytes().decode("utf-8-sig", errors="replace").splitlines()
    numbered = ((i, [part.strip() for part in line.split(",")]) for i, line in enumerate(lines, 1) if line.strip())
    return _collect(path, numbered)


def read_quantised(path: Path) -> tuple[Table, Reading]:
    """The rows of the degraded copy; their times are in seconds."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install 'acenode[data]'.") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataCorrupted(f"{path} cannot be read as Parquet ({error}).") from error
    absent = [name for name in _COLUMNS if name not in table.column_names]
    if absent:
        raise DataCorrupted(f"{path} has no column {absent[0]!r}; expected {', '.join(_COLUMNS)}.")
    rows = zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True)
    return _collect(path, _as_fields(rows))


def _as_fields(rows: Iterable[tuple]) -> Iterator[tuple[int, list[str]]]:
    """Rows as lines of the original format, so that both are checked in the same way."""
    for number, (sequence, tag, seconds, *rest) in enumerate(rows, 1):
        ticks = None if seconds is None or not math.isfinite(seconds) else round(seconds * TICKS)
        fields = [sequence, tag, ticks, "", *rest]
        yield number, ["" if part is None else str(part) for part in fields]


@dataclass
class _Faults:
    """What was wrong so far."""

    malformed: int = 0
    backwards: int = 0
    tags: Counter = field(default_factory=Counter)
    labels: Counter = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def quote(self, number: int, fields: list[str], why: str) -> None:
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"line {number}: {','.join(fields)[:60]!r}: {why}")


def _collect(path: Path, numbered: Iterable[tuple[int, list[str]]]) -> tuple[Table, Reading]:
    """The table of lines given as (number, fields)."""
    faults = _Faults()
    sequences, activities = Counter(), Counter()
    latest: dict[str, int] = {}
    rows, count = [], 0
    for number, fields in numbered:
        count += 1
        row = _checked(number, fields, faults)
        if row is None:
            continue
        name, sensor, ticks, position, label = row
        if ticks < latest.get(name, ticks):
            faults.backwards += 1
            faults.quote(number, fields, "earlier than the line above")
        latest[name] = ticks
        sequences[name] += 1
        if label in CLASS_OF:
            activities[label] += 1
        rows.append((name, sensor, ticks, position, CLASS_OF.get(label, UNLABELLED)))
    reading = Reading(
        source=path.name,
        sha256=files.digest(path),
        lines=count,
        kept=len(rows),
        sequences=dict(sequences),
        activities=dict(activities),
        backwards=faults.backwards,
        unknown_tags=dict(faults.tags),
        unknown_labels=dict(faults.labels),
        malformed=faults.malformed,
        examples=tuple(faults.examples),
    )
    if not rows:
        raise DataCorrupted(
            f"{path} holds no positions; expected lines of sequence,tag,timestamp,date,x,y,z,label. What was found:\n"
            f"{reading}"
        )
    return _table(tuple(sequences), rows), reading


def _checked(number: int, fields: list[str], faults: _Faults) -> tuple[str, int, int, list[float], str] | None:
    """Sequence, sensor, ticks, position and label of a line; None if it has a fault, which is counted."""
    if len(fields) != _FIELDS:
        return _malformed(number, fields, faults, f"{len(fields)} fields, expected {_FIELDS}")
    name, tag, timestamp, _, *coordinates, label = fields
    if not name:
        return _malformed(number, fields, faults, "no sequence is named")
    # A time of nineteen digits or more would not fit.
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 19):
        return _malformed(number, fields, faults, "the timestamp is not a whole number")
    position = _finite(coordinates)
    if position is None:
        return _malformed(number, fields, faults, "a coordinate is not a finite number")
    if tag not in _TAGS:
        faults.tags[tag or "(blank)"] += 1
        faults.quote(number, fields, "an unknown tag")
        return None
    if label not in CLASS_OF:
        faults.labels[label or "(blank)"] += 1
        faults.quote(number, fields, "an unknown label")
    return name, _TAGS[tag], int(timestamp), position, label


def _malformed(number: int, fields: list[str], faults: _Faults, why: str) -> None:
    faults.malformed += 1
    faults.quote(number, fields, why)


def _finite(texts: list[str]) -> list[float] | None:
    """The numbers that some texts denote, if all do and fit 32 bits."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    return numbers if all(abs(number) <= _GREATEST for number in numbers) else None


def _table(sequences: tuple[str, ...], rows: list) -> Table:
    names, *columns = zip(*rows, strict=True)
    place = {name: i for i, name in enumerate(sequences)}
    sequence = np.asarray([place[name] for name in names])
    sensor, ticks, position, label = (np.asarray(column) for column in columns)
    order = np.lexsort((ticks, sequence))  # stable: lines of one moment stay in their order
    return Table(sequences, sequence[order], sensor[order], ticks[order], position[order], label[order])
