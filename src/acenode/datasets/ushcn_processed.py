"""The processed national file of GRU-ODE-Bayes, `small_chunked_sporadic.csv`: one row for each station and time.

Columns: ID, Time in [0, 200], Value_0 to Value_4 (0 where not observed) and Mask_0 to Mask_4, for the elements in the
order of `ushcn_raw.ELEMENTS`. The values were scaled with the mean and deviation of all stations; scaled again with
those of the training stations, they are what raw values scaled with these would be, and the leak is gone.
"""

from pathlib import Path

import numpy as np

from .files import DataCorrupted
from .ushcn_raw import ELEMENTS
from .ushcn_steps import Rows

COLUMNS = ("ID", "Time", *(f"{what}_{i}" for what in ("Value", "Mask") for i in range(len(ELEMENTS))))


def read_processed(path: Path) -> tuple[np.ndarray, Rows]:
    """The stations' numbers in the file, sorted, and the rows; a series is the place of its number among these.

    The numbers may have gaps, so they cannot serve as places. Whatever is not as described above raises
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
