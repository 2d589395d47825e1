"""PhysioNet/CinC Challenge 2012: the first 48 hours of intensive-care stays, and who died in hospital.

Sets a, b and c hold 4,000 records each, one text file a stay with lines `hh:mm,parameter,value`. See
https://physionet.org/content/challenge-2012/1.0.0/ (open data, ODC-By 1.0).
"""

import gzip
import hashlib
import itertools
import lzma
import math
import os
import re
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ..series import Panel, Series
from . import files
from .files import DataCorrupted, DataNotFound, Folder
from .split import Split, random_split

NAME = "physionet2012"
URL = "https://physionet.org/files/challenge-2012/1.0.0/"
SHA256 = {
    "set-a.tar.gz": "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920",
    "set-b.tar.gz": "b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30",
    "set-c.tar.gz": "a4a56b95bcee4d50a3874fe298bf2998f2ed0dd98a676579573dc10419329ee1",
    "Outcomes-a.txt": "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2",
    "Outcomes-b.txt": "1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5",
    "Outcomes-c.txt": "0b32dcb7753c0f18f2f5fde498a28618b8879c5e527ce0dae8ad120dd7e205c9",
}

# What a value may be in a living adult, wide enough to keep every extreme that is merely rare; outside it is a slip of
# the pen or the machine. Zero is dropped where it only means "not connected" (pressures, blood gases) and kept where it
# can be true (a heart or a ventilator standing still, no urine). Order of the variables: as in the published tables.
PLAUSIBLE: dict[str, tuple[float, float]] = {
    "Age": (0, 120),  # years
    "Gender": (0, 1),  # 0 female, 1 male
    "Height": (60, 250),  # cm
    "ICUType": (1, 4),  # 1 coronary, 2 cardiac surgery, 3 medical, 4 surgical
    "Weight": (20, 400),  # kg
    "Albumin": (0.1, 10),  # g/dL
    "ALP": (1, 10_000),  # IU/L
    "ALT": (1, 50_000),  # IU/L
    "AST": (1, 50_000),  # IU/L
    "Bilirubin": (0, 100),  # mg/dL
    "BUN": (0, 400),  # mg/dL
    "Cholesterol": (10, 2_000),  # mg/dL
    "Creatinine": (0, 60),  # mg/dL
    "DiasABP": (1, 300),  # mmHg, invasive
    "FiO2": (0.21, 1),  # fraction; room air has 0.21
    "GCS": (3, 15),  # Glasgow coma score
    "Glucose": (1, 3_000),  # mg/dL
    "HCO3": (1, 100),  # mmol/L
    "HCT": (1, 80),  # %
    "HR": (0, 350),  # beats/min
    "K": (0.5, 25),  # mmol/L
    "Lactate": (0, 60),  # mmol/L
    "Mg": (0.1, 30),  # mmol/L
    "MAP": (1, 320),  # mmHg, invasive
    "MechVent": (0, 1),  # 1 while ventilated
    "Na": (80, 220),  # mmol/L
    "NIDiasABP": (1, 300),  # mmHg, by cuff
    "NIMAP": (1, 320),  # mmHg, by cuff
    "NISysABP": (1, 350),  # mmHg, by cuff
    "PaCO2": (5, 250),  # mmHg
    "PaO2": (5, 800),  # mmHg
    "pH": (6.3, 8),
    "Platelets": (0, 5_000),  # 1,000/uL
    "RespRate": (0, 150),  # breaths/min
    "SaO2": (5, 100),  # %
    "SysABP": (1, 350),  # mmHg, invasive
    "Temp": (20, 45),  # degrees Celsius; -17.8 is 0 degrees Fahrenheit, an empty field
    "TroponinI": (0, 1_000),  # ug/L
    "TroponinT": (0, 500),  # ug/L
    "Urine": (0, 12_000),  # mL in one entry
    "WBC": (0, 1_000),  # 1,000/uL
}
VARIABLES: tuple[str, ...] = tuple(PLAUSIBLE)
SENTINEL = -1.0
SENTINEL_VARIABLES = ("Gender", "Height", "Weight")

# A change to what `Lines` holds must change this, or old cached copies would be read as new ones.
_CACHE_VERSION = 1
_EXAMPLES = 5
_GREATEST = float(np.finfo(np.float32).max)
_SKIPPED = -1
_COLUMN = {name: i for i, name in enumerate(VARIABLES)} | {"RecordID": _SKIPPED}
_MINUTE = {f"{minute // 60:02d}:{minute % 60:02d}": minute for minute in range(48 * 60 + 1)}
_CLOCK = re.compile(r"(\d{1,3}):([0-5]\d)")
_RECORD_FILE = re.compile(r"(\d+)\.txt")
_SOURCE = re.compile(r"set-([abc](?:-[abc])*)(?:\.tar(?:\.(?:gz|xz|bz2))?|\.tgz)?")


class Clean(NamedTuple):
    """What becomes of doubtful values; they are counted either way.

    `sentinels`: the value -1 of Gender, Height and Weight, which means "unknown". `impossible`: values outside
    `PLAUSIBLE`.
    """

    sentinels: Literal["drop", "keep"] = "drop"
    impossible: Literal["drop", "keep"] = "drop"


PUBLISHED = Clean(sentinels="keep", impossible="keep")


@dataclass(frozen=True)
class CleaningReport:
    """What was read, and what was doubtful in it.

    `only_start` names the records with nothing after admission, `repeated` counts values merged with another of the
    same variable and minute, `unknown` counts the lines of each unknown parameter.
    """

    clean: Clean
    records: dict[str, int]
    labelled: int
    died: int
    rows: int
    observations: int
    repeated: int
    only_start: tuple[int, ...]
    sentinels: dict[str, int]
    impossible: dict[str, int]
    unknown: dict[str, int]
    malformed: int
    malformed_examples: tuple[str, ...]

    def __str__(self) -> str:
        sets = ", ".join(f"{letter} {count:,}" for letter, count in self.records.items())
        done = {"drop": "treated as missing", "keep": "kept as they are"}
        lines = [
            f"records: {sum(self.records.values()):,} (set {sets}); {self.labelled:,} with outcome, {self.died:,} died",
            f"rows: {self.rows:,} with {self.observations:,} observations; {self.repeated:,} repeats averaged",
            f"records with nothing after t=0: {len(self.only_start)}, kept",
            f"sentinels -1, {done[self.clean.sentinels]}: {_listed(self.sentinels)}",
            f"impossible values, {done[self.clean.impossible]}: {_listed(self.impossible)}",
            f"lines of unknown parameters, skipped: {_listed(self.unknown)}",
            f"malformed lines, skipped: {self.malformed:,}",
            *(f"  {example}" for example in self.malformed_examples),
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class PhysioNet:
    """The records sorted by id, times in hours; `died` is 1, 0, or NaN where the outcome is not known."""

    panel: Panel
    died: np.ndarray
    report: CleaningReport

    def __len__(self) -> int:
        return len(self.panel)


def load(sets: Sequence[str] = ("a",), *, data_dir: Folder | None = None, clean: Clean = Clean()) -> PhysioNet:  # noqa: B008
    """The records of `sets` (letters among a, b, c), with their outcomes where these are present.

    Looks for folders `set-a`, archives `set-a.tar.gz` (or several sets in one, `set-a-b.tar.xz`) and `Outcomes-a.txt`
    in `data_dir` and `$ACENODE_DATA`, and downloads the official files otherwise. The parsed records are kept in the
    cache, so that the next call takes a second. `clean=PUBLISHED` keeps every doubtful value, as the published results
    do.
    """
    letters = _checked_sets(sets)
    _check_clean(clean)
    sources = {letter: _source(letter, data_dir) for letter in letters}
    raw = {letter: _lines(source, letter) for letter, source in sources.items()}
    ids, record = _merged_ids(raw)
    columns = zip(*((lines.minute, lines.variable, lines.value) for lines in raw.values()), strict=True)
    minute, variable, value = (np.concatenate(column) for column in columns)
    sentinel, impossible = _doubtful(variable, value)
    kept = ~(sentinel & (clean.sentinels == "drop")) & ~(impossible & (clean.impossible == "drop"))
    merged = _merged_repeats(len(ids), record[kept], minute[kept], variable[kept], value[kept])
    panel = _panel(ids, *merged)
    died = _died(ids, sources, data_dir)
    report = CleaningReport(
        clean=clean,
        records={letter: len(lines.ids) for letter, lines in raw.items()},
        labelled=int(np.isfinite(died).sum()),
        died=int(np.nansum(died)),
        rows=int(panel.series.length.sum()),
        observations=int(panel.series.observed.sum()),
        repeated=int(kept.sum()) + len(ids) - len(merged[0]),
        only_start=tuple(int(i) for i in ids[panel.series.length == 1]),
        sentinels=_counted(variable[sentinel]),
        impossible=_counted(variable[impossible]),
        unknown=_unknown(raw.values()),
        malformed=sum(int(lines.malformed) for lines in raw.values()),
        malformed_examples=tuple(str(e) for lines in raw.values() for e in lines.examples)[:_EXAMPLES],
    )
    return PhysioNet(panel, died, report)


def split(records: int | np.ndarray, seed: int = 42, protocol: str = "sound", labels=None) -> Split:
    """The division of the published results: a random fifth is the test set.

    `records` is their number, if they are sorted by id, or their ids. `protocol="sound"` sets a tenth of the training
    records aside for validation, with the same share of each of the `labels` if these are given (NaN for unknown);
    "published" has no validation records. The test records are the same in both.
    """
    if protocol not in ("sound", "published"):
        raise ValueError(f"split: protocol is {protocol!r}; expected 'sound' or 'published'.")
    # The division goes by the order of the ids, so that it does not depend on the order in which records were read.
    by_id = np.arange(records) if isinstance(records, int | np.integer) else np.argsort(records, kind="stable")
    n = len(by_id)
    if n < 2:
        raise ValueError(f"split: there are {n} records; expected at least 2.")
    if labels is not None and np.shape(labels) != (n,):
        raise ValueError(f"split: labels has shape {np.shape(labels)}; expected ({n},), one for each record.")
    # The legacy generator is the one that the published division was drawn with.
    shuffled = np.random.RandomState(seed).permutation(n)
    tested = n - math.floor(0.8 * n)
    test, train = shuffled[:tested], np.sort(shuffled[tested:])
    fractions = (0.9, 0.1, 0) if protocol == "sound" else (1, 0, 0)
    stratify = None if labels is None else np.asarray(labels)[by_id][train]
    inner = random_split(len(train), fractions, seed, stratify)
    return Split(*(np.sort(by_id[part]) for part in (train[inner.train], train[inner.validation], test)))


# --- finding the files -----------------------------------------------------------------------------------------------


def _steps(name: str) -> str:
    return (
        f"To get it by hand: download {URL}{name} and put it into a folder named {NAME}; then pass the folder that "
        f"holds it as data_dir (--data-dir), or set the environment variable ACENODE_DATA to it."
    )


def _official(name: str, data_dir: Folder | None) -> Path:
    """An official file, from the cache or the site."""
    return files.find(NAME, name, data_dir=data_dir, url=URL + name, sha256=SHA256[name], steps=_steps(name))


def _source(letter: str, data_dir: Folder | None) -> Path:
    """The folder or archive that holds a set: rather a folder, rather an archive of one set than of several."""
    for place in files.user_folders(NAME, data_dir):
        matches = [(path, _SOURCE.fullmatch(path.name)) for path in sorted(place.glob("set-*"))]
        held = [(path, match[1].split("-")) for path, match in matches if match]
        found = [(not path.is_dir(), len(letters), path) for path, letters in held if letter in letters]
        if found:
            return min(found)[2]
    return _official(f"set-{letter}.tar.gz", data_dir)


def _outcomes(letter: str, source: Path, data_dir: Folder | None) -> Path | None:
    """The file of outcomes of a set, fetched only if the records were: a user's own folder may well have none."""
    name = f"Outcomes-{letter}.txt"
    if source.is_relative_to(files.cache_folder()):
        return _official(name, data_dir)
    beside = source.parent / name
    return beside if beside.exists() else files.look(NAME, name, data_dir=data_dir)


# --- reading records -------------------------------------------------------------------------------------------------


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
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{record}.txt line {number}: {line[:60]!r}: {why}")


def parse(records: Iterable[tuple[int, str]]) -> Lines:
    """The lines of records given as (id, text of the file)."""
    faults = _Faults()
    ids: list[int] = []
    parts = []
    for record, text in records:
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
    measured = variable != _SKIPPED
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


def _records(source: Path, letter: str) -> Iterator[tuple[int, str]]:
    """Id and text of each record of a set in a folder or archive."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if match := _RECORD_FILE.fullmatch(path.name):
                yield int(match[1]), _decoded(path.read_bytes())
        return
    try:
        yield from _archived(source, letter)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataCorrupted(f"{source} cannot be unpacked ({error}). Download it again.") from error


def _archived(source: Path, letter: str) -> Iterator[tuple[int, str]]:
    named = _SOURCE.fullmatch(source.name)
    only = named is not None and named[1] == letter
    with tarfile.open(source) as archive:
        for member in archive:
            path = Path(member.name)
            match = _RECORD_FILE.fullmatch(path.name)
            # Records that lie in no folder of a set belong to the one set that the archive is named after.
            ours = path.parent.name == f"set-{letter}" or (only and not _SOURCE.fullmatch(path.parent.name))
            content = archive.extractfile(member) if match and ours else None
            if match and content is not None:
                yield int(match[1]), _decoded(content.read())


def _decoded(content: bytes) -> str:
    """The text of a file; bytes that are no text spoil their own line only."""
    return content.decode("utf-8-sig", errors="replace")


# --- keeping what was parsed -----------------------------------------------------------------------------------------


def _lines(source: Path, letter: str) -> Lines:
    """The lines of a set, from the cache if this very content was parsed before."""
    kept = files.cache_folder() / NAME / f"set-{letter}-v{_CACHE_VERSION}-{_fingerprint(source)[:24]}.npz"
    if kept.exists():
        try:
            with kept.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return Lines(**arrays)
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            warnings.warn(f"{kept} cannot be read ({error}); parsing {source} again.", stacklevel=3)
    lines = parse(_records(source, letter))
    if len(lines.ids) == 0:
        raise DataNotFound(f"{source} holds no records of set {letter}: no files named <record id>.txt.")
    _keep(kept, lines)
    return lines


def _keep(path: Path, lines: Lines) -> None:
    """Write the cached copy so that it appears whole or not at all."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            part = Path(file.name)
            np.savez(file, **lines._asdict())
        os.replace(part, path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        warnings.warn(f"the parsed records could not be kept in {path.parent} ({error}).", stacklevel=4)


def _fingerprint(source: Path) -> str:
    """A hash of the content of a file, or of the names and contents of a folder's records."""
    if source.is_file():
        return files.digest(source)
    total = hashlib.sha256()
    for path in sorted(source.iterdir()):
        if _RECORD_FILE.fullmatch(path.name):
            content = path.read_bytes()
            total.update(f"{path.name} {len(content)}\n".encode())
            total.update(content)
    return total.hexdigest()


# --- from lines to a panel -------------------------------------------------------------------------------------------


def _merged_ids(raw: dict[str, Lines]) -> tuple[np.ndarray, np.ndarray]:
    """All ids, sorted, and for each line of all sets the place of its record among them."""
    ids = np.concatenate([lines.ids for lines in raw.values()])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    twice = np.flatnonzero(np.diff(ids) == 0)
    if len(twice):
        raise DataCorrupted(f"record {ids[twice[0]]} is there twice (set {', '.join(raw)}). Remove one of them.")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    counts = np.concatenate([lines.counts for lines in raw.values()])
    return ids, np.repeat(place, counts)


def _doubtful(variable: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which values are sentinels, and which of the others are impossible."""
    has_sentinel = np.isin(VARIABLES, SENTINEL_VARIABLES)
    # In the precision of the values, or 0.21 would be less than 0.21.
    low, high = np.asarray(list(PLAUSIBLE.values()), np.float32).T
    sentinel = has_sentinel[variable] & (value == SENTINEL)
    impossible = ((value < low[variable]) | (value > high[variable])) & ~sentinel
    return sentinel, impossible


def _merged_repeats(
    n: int, record: np.ndarray, minute: np.ndarray, variable: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Record, minute, variable and mean value of each observation, in this order.

    Each of the `n` records begins with the variable `_SKIPPED` at minute 0, so that it has a row there in any case.
    """
    span, width = int(minute.max(initial=0)) + 1, len(VARIABLES) + 1
    # One number for each place a value can go to; sorted, equal numbers are repeats. The lines are nearly in order
    # already, which a stable sort makes use of.
    start = np.arange(n, dtype=np.int64) * span * width
    cell = np.concatenate([start, (record * span + minute) * width + variable + 1])
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    total = np.add.reduceat(np.concatenate([np.zeros(n), value])[order], first)
    row, column = np.divmod(cell[first], width)
    return *np.divmod(row, span), column - 1, total / np.diff(first, append=len(cell))


def _panel(ids: np.ndarray, record: np.ndarray, minute: np.ndarray, variable: np.ndarray, value: np.ndarray) -> Panel:
    """The panel of observations that `_merged_repeats` gave."""
    n, width = len(ids), len(VARIABLES)
    new = (np.diff(record, prepend=-1) != 0) | (np.diff(minute, prepend=-1) != 0)
    length = np.bincount(record[new], minlength=n)
    longest = int(length.max())
    offset = np.arange(n) * longest - (np.cumsum(length) - length)
    row = np.cumsum(new) - 1 + offset[record]
    times = np.zeros(n * longest, np.float32)
    times[row[new]] = minute[new] / 60
    times = times.reshape(n, longest)
    padding = np.arange(longest) >= length[:, None]
    times = np.where(padding, times[np.arange(n), length - 1][:, None], times)
    filled = variable != _SKIPPED
    place = (row * width + variable)[filled]
    values = np.zeros(n * longest * width, np.float32)
    values[place] = value[filled]
    observed = np.zeros(n * longest * width, bool)
    observed[place] = True
    shape = (n, longest, width)
    return Panel(Series(times, values.reshape(shape), observed.reshape(shape), length.astype(np.int32)), ids, VARIABLES)


def _died(ids: np.ndarray, sources: dict[str, Path], data_dir: Folder | None) -> np.ndarray:
    """The outcome of each record, NaN where it is not known."""
    known: dict[int, float] = {}
    for letter, source in sources.items():
        path = _outcomes(letter, source, data_dir)
        if path is not None:
            known |= _read_outcomes(path)
    return np.asarray([known.get(int(i), np.nan) for i in ids])


def _read_outcomes(path: Path) -> dict[int, float]:
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


# --- checks and counts -----------------------------------------------------------------------------------------------


def _checked_sets(sets: Sequence[str]) -> list[str]:
    letters = [str(letter).lower() for letter in sets]
    if not letters or len(set(letters)) < len(letters) or not set(letters) <= set("abc"):
        raise ValueError(f"load: sets is {sets!r}; expected one or more of 'a', 'b', 'c', each once.")
    return letters


def _check_clean(clean: Clean) -> None:
    for name, choice in clean._asdict().items():
        if choice not in ("drop", "keep"):
            raise ValueError(f"load: clean.{name} is {choice!r}; expected 'drop' or 'keep'.")


def _counted(variable: np.ndarray) -> dict[str, int]:
    """How often each variable occurs, without those that do not."""
    counts = np.bincount(variable, minlength=len(VARIABLES))
    return {name: int(count) for name, count in zip(VARIABLES, counts, strict=True) if count}


def _unknown(raw: Iterable[Lines]) -> dict[str, int]:
    """The lines of each unknown parameter over all sets."""
    total: Counter = Counter()
    for lines in raw:
        pairs = zip(lines.unknown_names, lines.unknown_counts, strict=True)
        total.update({str(name): int(count) for name, count in pairs})
    return dict(total)


def _listed(counts: dict[str, int], most: int = 12) -> str:
    """Counts in words, greatest first."""
    if not counts:
        return "none"
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in itertools.islice(ordered, most))
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"
