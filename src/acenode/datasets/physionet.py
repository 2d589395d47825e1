"""PhysioNet/CinC Challenge 2012: the first 48 hours of intensive-care stays, and who died in hospital.

Sets a, b and c hold 4,000 records each, one text file a stay with lines `hh:mm,parameter,value`. See
https://physionet.org/content/challenge-2012/1.0.0/ (open data, ODC-By 1.0).
"""

import hashlib
import os
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..series import Panel, Series
from . import files
from .files import DataCorrupted, DataNotFound, Folder, Remote, listed
from .physionet_raw import (
    EXAMPLES,
    PLAUSIBLE as PLAUSIBLE,
    PUBLISHED as PUBLISHED,
    RECORD_FILE,
    SKIPPED,
    SOURCE,
    UNITS as UNITS,
    VARIABLES,
    Clean,
    Lines,
    doubtful,
    parse,
    read_outcomes,
    read_records,
)
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

# A change to what `Lines` holds must change this, or old cached copies would be read as new ones.
_CACHE_VERSION = 1


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
            f"sentinels -1, {done[self.clean.sentinels]}: {listed(self.sentinels)}",
            f"impossible values, {done[self.clean.impossible]}: {listed(self.impossible)}",
            f"lines of unknown parameters, skipped: {listed(self.unknown)}",
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
    cache, so that the next call takes a second. Records without an outcome are kept, for prediction: their `died` is
    NaN. By default doubtful values become missing; `clean=PUBLISHED` keeps every one, as the published results do.
    """
    letters = _checked_sets(sets)
    _check_clean(clean)
    sources = {letter: _source(letter, data_dir) for letter in letters}
    raw = {letter: _lines(source, letter) for letter, source in sources.items()}
    ids, record = _merged_ids(raw)
    columns = zip(*((lines.minute, lines.variable, lines.value) for lines in raw.values()), strict=True)
    minute, variable, value = (np.concatenate(column) for column in columns)
    sentinel, impossible = doubtful(variable, value)
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
        malformed_examples=tuple(str(e) for lines in raw.values() for e in lines.examples)[:EXAMPLES],
    )
    return PhysioNet(panel, died, report)


def split(records: int | np.ndarray, seed: int = 42, validation: float | int = 0.1, labels=None) -> Split:
    """The division of the published results: a random fifth is the test set.

    `records` is their number, if they are sorted by id, or their ids. `validation` is the part of the training records
    that is set aside (the published division has none), with the same share of each of the `labels` if these are given
    (NaN for unknown). It does not change the test records.
    """
    from sklearn.model_selection import train_test_split  # slow to import

    # The division goes by the order of the ids, so that it does not depend on the order in which records were read.
    by_id = np.arange(records) if isinstance(records, int | np.integer) else np.argsort(records, kind="stable")
    n = len(by_id)
    if n < 2:
        raise ValueError(f"split: there are {n} records; expected at least 2.")
    if labels is not None and np.shape(labels) != (n,):
        raise ValueError(f"split: labels has shape {np.shape(labels)}; expected ({n},), one for each record.")
    train, test = train_test_split(np.arange(n), train_size=0.8, random_state=seed)
    train = np.sort(train)
    stratify = None if labels is None else np.asarray(labels)[by_id][train]
    inner = random_split(len(train), (1 - validation, validation, 0), seed, stratify)
    return Split(*(np.sort(by_id[part]) for part in (train[inner.train], train[inner.validation], test)))


# --- finding the files -----------------------------------------------------------------------------------------------


def official() -> tuple[Remote, ...]:
    """Records and outcomes of the three sets."""
    return tuple(Remote(name, URL + name, sha256=sha256) for name, sha256 in SHA256.items())


def _official(name: str, data_dir: Folder | None) -> Path:
    """An official file, from the cache or the site."""
    return files.find(NAME, Remote(name, URL + name, sha256=SHA256[name]), data_dir)


def present(data_dir: Folder | None = None) -> tuple[str, ...]:
    """The sets whose records are on this machine."""
    fetched = files.cache_folder() / NAME
    return tuple(letter for letter in "abc" if _own(letter, data_dir) or (fetched / f"set-{letter}.tar.gz").exists())


def _source(letter: str, data_dir: Folder | None) -> Path:
    """The folder or archive that holds a set."""
    return _own(letter, data_dir) or _official(f"set-{letter}.tar.gz", data_dir)


def _own(letter: str, data_dir: Folder | None) -> Path | None:
    """The user's own: rather a folder, rather an archive of one set than of several."""
    for place in files.user_folders(NAME, data_dir):
        matches = [(path, SOURCE.fullmatch(path.name)) for path in sorted(place.glob("set-*"))]
        held = [(path, match[1].split("-")) for path, match in matches if match]
        found = [(not path.is_dir(), len(letters), path) for path, letters in held if letter in letters]
        if found:
            return min(found)[2]
    return None


def _outcomes(letter: str, source: Path, data_dir: Folder | None) -> Path | None:
    """The file of outcomes of a set, fetched only if the records were: a user's own folder may well have none."""
    name = f"Outcomes-{letter}.txt"
    if source.is_relative_to(files.cache_folder()):
        return _official(name, data_dir)
    beside = source.parent / name
    return beside if beside.exists() else files.look(NAME, name, data_dir=data_dir)


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
    lines = parse(read_records(source, letter))
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
        if RECORD_FILE.fullmatch(path.name):
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


def _merged_repeats(
    n: int, record: np.ndarray, minute: np.ndarray, variable: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Record, minute, variable and mean value of each observation, in this order.

    Each of the `n` records begins with the variable `SKIPPED` at minute 0, so that it has a row there in any case.
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
    filled = variable != SKIPPED
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
            known |= read_outcomes(path)
    return np.asarray([known.get(int(i), np.nan) for i in ids])


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
