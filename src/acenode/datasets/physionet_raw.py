"""The raw records of PhysioNet 2012: lines `hh:mm,parameter,value`, read, checked, and doubted.

A line that cannot be read is skipped and counted, and so is one of an unknown parameter. Of what was read, two kinds of
values are doubtful: the sentinel -1 of Gender, Height and Weight, which means "unknown", and values outside
`PLAUSIBLE`. Whoever loads the records decides what becomes of these (`Clean`); they are counted either way.
"""

import gzip
import lzma
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from .files import DataCorrupted

# What a value may be in a living adult, wide enough to keep every extreme that is merely rare; outside it is a slip of
# the pen or the machine. Zero is dropped where it only means "not connected" (pressures, blood gases) and kept where it
# can be true (a heart or a ventilator standing still, no urine). Order of the variables: as in the published tables.
_VARIABLES: dict[str, tuple[float, float, str]] = {
    "Age": (0, 120, "years"),
    "Gender": (0, 1, "0 female, 1 male"),
    "Height": (60, 250, "cm"),
    "ICUType": (1, 4, "1 coronary, 2 cardiac surgery, 3 medical, 4 surgical"),
    "Weight": (20, 400, "kg"),
    "Albumin": (0.1, 10, "g/dL"),
    "ALP": (1, 10_000, "IU/L"),
    "ALT": (1, 50_000, "IU/L"),
    "AST": (1, 50_000, "IU/L"),
    "Bilirubin": (0, 100, "mg/dL"),
    "BUN": (0, 400, "mg/dL"),
    "Cholesterol": (10, 2_000, "mg/dL"),
    "Creatinine": (0, 60, "mg/dL"),
    "DiasABP": (1, 300, "mmHg, invasive"),
    "FiO2": (0.21, 1, "fraction"),  # room air has 0.21
    "GCS": (3, 15, "Glasgow coma score"),
    "Glucose": (1, 3_000, "mg/dL"),
    "HCO3": (1, 100, "mmol/L"),
    "HCT": (1, 80, "%"),
    "HR": (0, 350, "beats/min"),
    "K": (0.5, 25, "mmol/L"),
    "Lactate": (0, 60, "mmol/L"),
    "Mg": (0.1, 30, "mmol/L"),
    "MAP": (1, 320, "mmHg, invasive"),
    "MechVent": (0, 1, "1 while ventilated"),
    "Na": (80, 220, "mmol/L"),
    "NIDiasABP": (1, 300, "mmHg, by cuff"),
    "NIMAP": (1, 320, "mmHg, by cuff"),
    "NISysABP": (1, 350, "mmHg, by cuff"),
    "PaCO2": (5, 250, "mmHg"),
    "PaO2": (5, 800, "mmHg"),
    "pH": (6.3, 8, ""),
    "Platelets": (0, 5_000, "1,000/uL"),
    "RespRate": (0, 150, "breaths/min"),
    "SaO2": (5, 100, "%"),
    "SysABP": (1, 350, "mmHg, invasive"),
    "Temp": (20, 45, "degrees Celsius"),  # -17.8 is 0 degrees Fahrenheit, an empty field
    "TroponinI": (0, 1_000, "ug/L"),
    "TroponinT": (0, 500, "ug/L"),
    "Urine": (0, 12_000, "mL in one entry"),
    "WBC": (0, 1_000, "1,000/uL"),
}
VARIABLES: tuple[str, ...] = tuple(_VARIABLES)
PLAUSIBLE = {name: (low, high) for name, (low, high, _) in _VARIABLES.items()}
UNITS = {name: unit for name, (_, _, unit) in _VARIABLES.items()}
SENTINEL = -1.0
SENTINEL_VARIABLES = ("Gender", "Height", "Weight")

EXAMPLES = 5
_GREATEST = float(np.finfo(np.float32).max)
SKIPPED = -1
_COLUMN = {name: i for i, name in enumerate(VARIABLES)} | {"RecordID": SKIPPED}
_MINUTE = {f"{minute // 60:02d}:{minute % 60:02d}": minute for minute in range(48 * 60 + 1)}
_CLOCK = re.compile(r"(\d{1,3}):([0-5]\d)")
RECORD_FILE = re.compile(r"(\d+)\.txt")
SOURCE = re.compile(r"set-([abc](?:-[abc])*)(?:\.tar(?:\.(?:gz|xz|bz2))?|\.tgz)?")


class Clean(NamedTuple):
    """What becomes of doubtful values: they are kept as they are, or dropped, that is, missing.

    `sentinels`: the value -1 of Gender, Height and Weight. `impossible`: values outside `PLAUSIBLE`.
    """

    sentinels: Literal["drop", "keep"] = "drop"
    impossible: Literal["drop", "keep"] = "drop"


PUBLISHED = Clean(sentinels="keep", impossible="keep")


class Lines(NamedTuple):
    """The good lines of many records as arrays, in the order read; `counts` is how many of them each record has."""

    ids: np.ndarray
    counts: np.ndarray
    minute: np.ndarray
    variable: np.ndarray
    value: np.ndarray
    unknown_names: np.ndarray
    unknown_counts: np.ndarray
    malformed: np.ndarray
    examples: np.ndarray


@dataclass
class _Faults:
    """What could not be read so far."""

    unknown: Counter = field(default_factory=Counter)
    malformed: int = 0
    examples: list = field(default_factory=list)

    def add(self, record: int, number: int, line: str, why: str) -> None:
        self.malformed += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{record}.txt line {number}: {line[:60]!r}: {why}")


def parse(texts: Iterable[tuple[int, str]]) -> Lines:
    """The lines of records given as (id, text of the file)."""
    faults = _Faults()
    ids: list[int] = []
    parts = []
    for record, text in texts:
        ids.append(record)
        parts.append(_parse_record(record, text, faults))
    minute, variable, value = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else _arrays([])
    return Lines(
        ids=np.asarray(ids, np.int64),
        counts=np.asarray([len(part[0]) for part in parts], np.int64),
        minute=minute,
        variable=variable,
        value=value,
        unknown_names=np.asarray(list(faults.unknown), np.str_),
        unknown_counts=np.asarray(list(faults.unknown.values()), np.int64),
        malformed=np.asarray(faults.malformed),
        examples=np.asarray(faults.examples, np.str_),
    )


def _parse_record(record: int, text: str, faults: _Faults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minutes, columns and values of one record."""
    lines = text.splitlines()
    first = 1 if lines and lines[0].replace(" ", "").lower() == "time,parameter,value" else 0
    columns = _columns(lines[first:])
    if columns is None:
        columns = _arrays(list(_line_by_line(record, lines, first, faults)))
    minute, variable, value = columns
    measured = variable != SKIPPED
    return minute[measured], variable[measured], value[measured]


def _columns(lines: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The columns of faultless lines at once, which is five times faster than line by line; None if any has a fault."""
    fields = ",".join(lines).split(",")
    if len(fields) != 3 * len(lines):
        return None
    try:
        minute = np.asarray([_MINUTE[clock] for clock in fields[::3]], np.int32)
        variable = np.asarray([_COLUMN[name] for name in fields[1::3]], np.int8)
        value = np.asarray([float(number) for number in fields[2::3]])
    except (KeyError, ValueError):
        return None
    # Not true of NaN, infinity, and what would be infinity in 32 bits.
    fits = np.abs(value) <= _GREATEST
    return (minute, variable, value.astype(np.float32)) if fits.all() else None


def _line_by_line(record: int, lines: list[str], first: int, faults: _Faults) -> Iterator[tuple[int, int, float]]:
    """Minute, column and value of each good line; the others go to `faults`."""
    for number, line in enumerate(lines[first:], start=first + 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3:
            faults.add(record, number, line, f"{len(parts)} fields, expected time,parameter,value")
            continue
        clock, name, number_text = parts
        time = _CLOCK.fullmatch(clock)
        if time is None:
            faults.add(record, number, line, "the time is not hh:mm")
        elif not name:
            faults.add(record, number, line, "no parameter is named")
        elif name not in _COLUMN:
            faults.unknown[name] += 1
        elif (value := _finite(number_text)) is None:
            faults.add(record, number, line, "the value is not a finite number")
        else:
            yield 60 * int(time[1]) + int(time[2]), _COLUMN[name], value


def _finite(text: str) -> float | None:
    """The number that a text denotes, if it is one and fits a 32-bit float."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= _GREATEST else None


def _arrays(lines: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of a list of (minute, column, value)."""
    minute, variable, value = zip(*lines, strict=True) if lines else ((), (), ())
    return np.asarray(minute, np.int32), np.asarray(variable, np.int8), np.asarray(value, np.float32)


def read_records(source: Path, letter: str) -> Iterator[tuple[int, str]]:
    """Id and text of each record of a set in a folder or archive."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if match := RECORD_FILE.fullmatch(path.name):
                yield int(match[1]), _decoded(path.read_bytes())
        return
    try:
        yield from _archived(source, letter)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataCorrupted(f"{source} cannot be unpacked ({error}). Download it again.") from error


def _archived(source: Path, letter: str) -> Iterator[tuple[int, str]]:
    named = SOURCE.fullmatch(source.name)
    only = named is not None and named[1] == letter
    with tarfile.open(source) as archive:
        for member in archive:
            path = Path(member.name)
            match = RECORD_FILE.fullmatch(path.name)
            # Records that lie in no folder of a set belong to the one set that the archive is named after.
            ours = path.parent.name == f"set-{letter}" or (only and not SOURCE.fullmatch(path.parent.name))
            content = archive.extractfile(member) if match and ours else None
            if match and content is not None:
                yield int(match[1]), _decoded(content.read())


def _decoded(content: bytes) -> str:
    """The text of a file; bytes that are no text spoil their own line only."""
    return content.decode("utf-8-sig", errors="replace")


# --- doubtful values and outcomes ------------------------------------------------------------------------------------


def doubtful(variable: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which values are sentinels, and which of the others are impossible."""
    has_sentinel = np.isin(VARIABLES, SENTINEL_VARIABLES)
    # In the precision of the values, or 0.21 would be less than 0.21.
    low, high = np.asarray(list(PLAUSIBLE.values()), np.float32).T
    sentinel = has_sentinel[variable] & (value == SENTINEL)
    impossible = ((value < low[variable]) | (value > high[variable])) & ~sentinel
    return sentinel, impossible


def read_outcomes(path: Path) -> dict[int, float]:
    """In-hospital death of each record in a file of outcomes."""
    header, *lines = [line for line in _decoded(path.read_bytes()).splitlines() if line.strip()] or [""]
    names = [name.strip() for name in header.split(",")]
    if not {"RecordID", "In-hospital_death"} <= set(names):
        raise DataCorrupted(f"{path} has the columns {header!r}; expected RecordID and In-hospital_death among them.")
    record, death = names.index("RecordID"), names.index("In-hospital_death")
    died: dict[int, float] = {}
    for number, line in enumerate(lines, start=2):
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != len(names) or not parts[record].isdecimal() or parts[death] not in ("0", "1"):
            raise DataCorrupted(f"{path} line {number} is {line[:60]!r}; expected {header} with a death of 0 or 1.")
        died[int(parts[record])] = float(parts[death])
    return died
