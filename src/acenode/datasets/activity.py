"""Human Activity: what a person is doing, moment by moment, from tags on both ankles, the chest and the belt.

Five people (A to E) each did the same round of activities five times. A tag answers every 0.1 s or so, in turn with the
others, with its place in the room in metres. The task is to name the activity of every moment.

As in the Latent-ODE paper: time in bins of 10 ms, the mean of a tag in a bin, 12 variables (tag by tag, x y z each), 11
named activities in 7 classes, the lowest of which counts where a bin has several; windows of 50 moments, every 25
moments, while one more moment follows. Values are not scaled.

Times are seconds since the first moment of the window. For training they are divided by the longest training window:
`series.times / series.times[split.train].max()`.

See https://archive.ics.uci.edu/dataset/196/localization+data+for+person+activity (CC BY 4.0, as the site says).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..series import Series
from . import files
from .activity_raw import CLASSES, SENSORS, TICKS, UNLABELLED, Reading, Table, read_quantised, read_text
from .files import DataNotFound, Folder, Remote
from .split import Split, random_split

NAME = "activity"
WINDOW, STRIDE = 50, 25
VARIABLES = tuple(f"{sensor} {axis}" for sensor in SENSORS.values() for axis in "xyz")
URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/00196/ConfLongDemo_JSI.txt"
# The site names no checksum. This one is what another project's loader expects of the file; the sha256 of whatever was
# read stands in the result.
MD5 = "280a677ae0d673ec9a50ada480d8a529"
FILES = {
    "original": "ConfLongDemo_JSI.txt",
    "0.1 m": "all_sequences_quantised.parquet",
    "A01-A04": "ConfLongDemo_JSI_A01-A04_full_precision.csv",
}
# Of the whole set.
LINES, SEQUENCES = 164_860, 25


@dataclass(frozen=True, eq=False)
class Activity:
    """Windows of the recordings: `series` is (windows, 50, 12) and `label` (windows, 50), one of `classes`.

    `labelled` is false, and the label -1, where no activity is known. `sequence` and `person` name the recording and
    the person of each window. `variant` is how results on the data are to be called: "Activity" for the whole original
    file, "Activity (0.1 m)" for the degraded copy, "Activity (part)" for some of the original. `short` names the
    sequences with too few moments for a window, `merged` counts the lines averaged with another of their bin.
    """

    series: Series
    label: np.ndarray
    labelled: np.ndarray
    sequence: np.ndarray
    person: np.ndarray
    variant: str
    reading: Reading
    merged: int
    short: tuple[str, ...]
    variables: tuple[str, ...] = VARIABLES
    classes: tuple[str, ...] = CLASSES

    def __len__(self) -> int:
        return len(self.series)

    @property
    def sha256(self) -> str:
        """The checksum of the file that was read."""
        return self.reading.sha256


def load(data_dir: Folder | None = None, *, variant: str | None = None, bin: float | int = 0.01) -> Activity:
    """The windows of the recordings, in the order of the file.

    Looks in `data_dir` and `$ACENODE_DATA`. A line with a fault is left out or mended, and counted; `activity_raw` says
    which.

    **Arguments:**

    - `variant`: "original" is `ConfLongDemo_JSI.txt`, downloaded if it is not found. "0.1 m" is a copy whose
        coordinates were cut to 0.1 m (and a few dozen heights near 0 spoilt), with times rebuilt from the order of the
        tags, right to 0.3 s. "A01-A04" is the original of the first four sequences. If not given, the first of these
        that the user has.
    - `bin`: seconds; moments nearer to each other than this are one.
    """
    if not (math.isfinite(bin) and bin > 0):
        raise ValueError(f"load: bin is {bin}; expected a positive number of seconds.")
    path = _find(data_dir, variant)
    quantised = path.suffix == ".parquet"
    table, reading = read_quantised(path) if quantised else read_text(path)
    moments = _moments(table, bin)
    starts = [_starts(int(count)) for count in np.bincount(moments.sequence, minlength=len(table.sequences))]
    short = tuple(name for name, mine in zip(table.sequences, starts, strict=True) if len(mine) == 0)
    if len(short) == len(starts):
        raise ValueError(f"{path}: no sequence has more than {WINDOW} moments, so there is no window. {reading}")
    before = np.searchsorted(moments.sequence, np.arange(len(starts)))
    rows = np.concatenate([first + mine for first, mine in zip(before, starts, strict=True)])[:, None]
    series, label = _windows(moments, rows + np.arange(WINDOW), bin, path)
    sequence = np.asarray(table.sequences, np.str_)[moments.sequence[rows[:, 0]]]
    whole = (reading.lines, len(reading.sequences)) == (LINES, SEQUENCES)
    return Activity(
        series=series,
        label=label,
        labelled=label != UNLABELLED,
        sequence=sequence,
        person=np.asarray([name[:1] for name in sequence], np.str_),
        variant="Activity (0.1 m)" if quantised else "Activity" if whole else "Activity (part)",
        reading=reading,
        merged=reading.kept - int(moments.observed.sum()),
        short=short,
    )


def split(data: Activity, by: str = "sequence", seed: int = 42) -> Split:
    """A division of the windows.

    By "sequence" it divides the sequences of each person, of five three for training and one each for validation and
    test, so that no moment is on two sides. By "window" it draws a fifth of the windows for testing, as published, and
    a tenth of the others for validation: since windows overlap, most test moments are training moments too.
    """
    if by not in ("sequence", "window"):
        raise ValueError(f"split: by is {by!r}; expected 'sequence' or 'window'.")
    if by == "window":
        from sklearn.model_selection import train_test_split  # slow to import

        train, test = (
            np.sort(part) for part in train_test_split(np.arange(len(data)), train_size=0.8, random_state=seed)
        )
        inner = random_split(len(train), (0.9, 0.1, 0.0), seed)
        return Split(train[inner.train], train[inner.validation], test)
    names, first = np.unique(data.sequence, return_index=True)
    parts = random_split(len(names), (0.6, 0.2, 0.2), seed, stratify=data.person[first])
    if any(len(part) == 0 for part in parts):
        raise ValueError(
            f"split: there are {len(names)} sequences; expected four or more of a person, to have some for each of "
            "training, validation and test."
        )
    return Split(*(np.flatnonzero(np.isin(data.sequence, names[part])) for part in parts))


# --- from lines to windows -------------------------------------------------------------------------------------------


class _Moments(NamedTuple):
    """The bins that hold something: their sequence, number, values (moments, 4, 3), tags seen (moments, 4), label."""

    sequence: np.ndarray
    number: np.ndarray
    values: np.ndarray
    observed: np.ndarray
    label: np.ndarray


def _moments(table: Table, bin: float | int) -> _Moments:
    first = table.ticks[np.searchsorted(table.sequence, np.arange(len(table.sequences)))]
    number = np.rint((table.ticks - first[table.sequence]) / (bin * TICKS)).astype(np.int64)
    new = (np.diff(table.sequence, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)
    moment = np.cumsum(new) - 1
    shape = (int(new.sum()), len(SENSORS))
    cell = moment * len(SENSORS) + table.sensor
    size = shape[0] * shape[1]
    count = np.bincount(cell, minlength=size)
    total = np.stack([np.bincount(cell, column, size) for column in table.position.T], axis=-1)
    values = total / np.maximum(count, 1)[:, None]
    label = np.full(shape[0], len(CLASSES))
    known = table.label != UNLABELLED
    np.minimum.at(label, moment[known], table.label[known])
    label[label == len(CLASSES)] = UNLABELLED
    observed = (count > 0).reshape(shape)
    return _Moments(table.sequence[new], number[new], values.reshape(*shape, 3), observed, label)


def _starts(moments: int) -> np.ndarray:
    """The first moment of each window of a sequence."""
    return np.arange(0, max(moments - WINDOW, 0), STRIDE)


def _windows(moments: _Moments, rows: np.ndarray, bin: float | int, path: Path) -> tuple[Series, np.ndarray]:
    """The series and labels of the windows that hold the moments `rows` (windows, 50)."""
    number = moments.number[rows]
    times = ((number - number[:, :1]) * bin).astype(np.float32)
    equal = (np.diff(times) <= 0).any(1)
    if equal.any():
        raise ValueError(
            f"{path}: some moments of a window are {times[equal][0].max():,.0f} s apart, so that others are the same "
            "number in single precision. A timestamp is wrong, or the bin too small."
        )
    shape = (*rows.shape, len(VARIABLES))
    values = moments.values[rows].reshape(shape).astype(np.float32)
    observed = np.repeat(moments.observed[rows], 3, axis=-1)
    length = np.full(len(rows), WINDOW, np.int32)
    return Series(times, values, observed, length), moments.label[rows].astype(np.int32)


# --- finding the file ------------------------------------------------------------------------------------------------


def _find(data_dir: Folder | None, variant: str | None) -> Path:
    if variant is not None and variant not in FILES:
        raise ValueError(f"load: variant is {variant!r}; expected one of {', '.join(map(repr, FILES))}.")
    for name in FILES if variant is None else (variant,):
        path = files.look(NAME, FILES[name], data_dir=data_dir)
        if path is not None:
            return path
    if variant not in (None, "original"):
        places = "".join(f"\n  {place}" for place in files.user_folders(NAME, data_dir))
        raise DataNotFound(
            f"{FILES[variant]} of the data set {NAME} was not found. Looked in:{places}\n{files.by_hand(NAME, URL)}"
        )
    return files.find(NAME, official()[0], data_dir)


def official() -> tuple[Remote, ...]:
    """The original file."""
    return (Remote(FILES["original"], URL, md5=MD5),)
