"""Tables from files and into them: CSV and Parquet, by polars."""

import csv
import gzip
import os
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..series.columns import read_ids
from ..series.table import frame_of
from ..series.times import read_times

_CODE = r"^[+-]?0[0-9xX][0-9a-fA-F]*$"  # 007 is a code and not the number 7
_COMMA = r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$"  # 1,5
_THOUSANDS, _HUNDREDS = r"^[+-]?[1-9]\d{0,2},\d{3}$", r"^[+-]?\d{1,3}$"  # 1,234 beside 987
_BLANKS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null")
_NUMBERS = (pl.Int64, pl.Float64)


class UnreadableFile(ValueError):
    """The file is not there or not a table; the message says which and what to do."""


def read_table(
    path: Path,
    id: str | None = None,
    labels: Collection[str] = (),
    text: Collection[str | None] = (),
    mixed: Collection[str] = (),
    like: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """A polars frame from a `.csv` (also `.csv.gz`) or `.parquet` file.

    Cells of a CSV are separated by commas, semicolons or tabs: whatever its first line has most of. Where they are not
    separated by commas, 1,5 is the number 1.5, unless the column has numbers with a point too. A column is of whole
    numbers, numbers or true and false where all its rows are, and of text otherwise; where a number has a leading zero,
    as in 007, the column is text. Dates stay text, which the reader of frames takes. Blank cells and words such as NA,
    N/A, NaN and null are blanks; spaces around cells do not count.

    **Arguments:**

    - `path`: the file.
    - `id`: the column of a CSV that names the series: whole numbers or text, as 3.1 and 3.10 are not the same.
    - `labels`: the columns of classes, in which 1,5 is a name.
    - `text`: columns that are text, whatever they hold.
    - `mixed`: columns of text and numbers: the values of a long table.
    - `like`: a table read before; what is text there is text here, so that ids can be compared.
    """
    _check_file(path)
    try:
        if path.name.lower().endswith(".parquet"):
            return _read_parquet(path)
        names, separator = _header(path)
        cells = _cells(path, names, separator)
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        fault = str(error).splitlines()[0]
        if isinstance(error, UnicodeDecodeError) or "utf-8" in fault:
            raise UnreadableFile(f"{path}: the text of the file is not UTF-8; save it as UTF-8.") from error
        raise UnreadableFile(
            f"{path}: the file could not be read as a table ({fault}); correct or remove it."
        ) from error
    worded = {*text, *(() if like is None else (c for c in like.columns if like[c].dtype == pl.String))}
    numbered = like is not None and id in like.columns and like[id].dtype.is_numeric()

    def typed(column: pl.Series) -> pl.Series:
        if column.name in worded:
            return column
        if column.name == id and not numbered:  # else 1.0 may be 1, as pandas writes it beside blanks
            return _as_numbers(column, (pl.Int64,))
        pointed = _with_points(column, path) if separator != "," and column.name not in labels else column
        made = _as_numbers(pointed, _NUMBERS)
        return made if made.dtype != pl.String else pointed if column.name in mixed else column

    return cells.with_columns(*map(typed, cells))


def pivoted(
    frame: pl.DataFrame,
    id: str,
    time: str,
    variable: str,
    value: str,
    others: Collection[str] = (),
    text: Collection[str] = (),
) -> pl.DataFrame:
    """A long table (a row for each value, with its id, time and variable) with a column for each variable.

    `others` are columns that are the same in all rows of an id and time, `text` variables that are text. The rows may
    have any order; they are then by id, as the ids first appear, and time.
    """
    for name in (id, time, variable, value, *others):
        if name not in frame.columns:
            raise ValueError(f"the table: there is no column {name!r}; there are {', '.join(frame.columns)}.")
    if frame[variable].null_count():
        row = int(frame[variable].is_null().arg_max() or 0) + 1
        raise ValueError(f"the table: {variable!r} is blank in row {row}; give every row its variable.")
    names = frame[variable].cast(pl.String).unique(maintain_order=True).to_list()
    frame = _in_order(frame, id, time)
    twice = frame.filter(frame.select(id, time, variable).is_duplicated())
    if len(twice):
        first = twice.row(0, named=True)
        raise ValueError(
            f"the table: {variable} {first[variable]!r} appears twice at {id} {first[id]!r}, {time} {first[time]!r}; "
            "merge the rows or drop all but one."
        )
    taken = [name for name in names if name in (id, time, *others)]
    if taken:
        raise ValueError(f"the table: a variable is named {taken[0]!r} as a column is; rename one of them.")
    index = [id, time, *others]
    named = frame.with_columns(pl.col(variable).cast(pl.String))
    differs = named.select(index).unique().select(id, time).is_duplicated()
    if differs.any():
        who = named.select(index).unique().filter(differs).row(0, named=True)
        raise ValueError(
            f"the table: {', '.join(others)} differ between the rows of {id} {who[id]!r}, {time} {who[time]!r}; give "
            "all rows of a time the same."
        )
    wide = named.pivot(on=variable, index=index, values=value, maintain_order=True)[[*index, *names]]
    if frame[value].dtype != pl.String:
        return wide
    return wide.with_columns(_as_numbers(wide[name], _NUMBERS) for name in names if name not in text)


def _in_order(frame: pl.DataFrame, id: str, time: str) -> pl.DataFrame:
    """The rows by id, as the ids first appear, and time; one moment that is written in several ways in one of them."""
    table = frame_of(frame, "the table")
    codes, _ = read_ids(table.get_column(id), "the table")
    times, _ = read_times(table.get_column(time), "the table")
    order = np.lexsort((times, codes))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(codes[order]) > 0) | (np.diff(times[order]) > 0)
    rows = frame[order]
    return rows.with_columns(rows[time].gather(np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))))


def write_table(frame: Any, path: Path) -> None:
    """A frame to a CSV or Parquet file, which appears only when it is complete."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix.lower() == ".parquet":
            table.write_parquet(part)
        else:
            table.write_csv(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read_parquet(path: Path) -> pl.DataFrame:
    """The file; dates in a zone that is an offset, such as +05:30, are text, as polars has no such zones."""
    os.environ.setdefault("POLARS_IGNORE_TIMEZONE_PARSE_ERROR", "1")  # else it ends the process on them
    _check_parquet(path)
    frame = pl.read_parquet(path)
    for column in frame:
        zone = getattr(column.dtype, "time_zone", None) or ""
        if zone.startswith(("+", "-")):
            utc = column.to_physical().cast(pl.Datetime(column.dtype.time_unit))  # pyright: ignore[reportAttributeAccessIssue]
            local = utc + datetime.strptime(zone, "%z").utcoffset()
            frame = frame.with_columns(local.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.f{zone}"))
    return frame


def _check_parquet(path: Path) -> None:
    """Refuse a damaged file before polars reads it, which ends the process on some."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:  # then another process reads it first
        code = "import sys, polars; polars.read_parquet(sys.argv[1])"
        tried = subprocess.run([sys.executable, "-c", code, path], capture_output=True)
        if tried.returncode:
            raise OSError("it is damaged or not Parquet") from None
        return
    try:
        with parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise UnreadableFile(f"{path}: there is no such file.")
    if not path.name.lower().endswith((".csv", ".csv.gz", ".parquet")):
        raise UnreadableFile(f"{path}: expected a file that ends with .csv, .csv.gz or .parquet.")
    if path.stat().st_size == 0:
        raise UnreadableFile(f"{path}: the file is empty; expected a line of column names and rows below it.")


def _opened(path: Path) -> Any:
    """The text of a file, compressed or not: as for polars its first bytes say which, and not its name."""
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return (gzip.open if compressed else open)(path, "rt", encoding="utf-8-sig", newline="")


def _header(path: Path) -> tuple[list[str], str]:
    """The names of the columns, and what stands between them; a comma where there is nothing."""
    with _opened(path) as file:
        line = re.sub(r'"[^"]*"', "", file.readline())
        separator = max("\t", ";", ",", key=line.count)  # of as many the comma last, as a name may hold it
        separator = separator if separator in line else ","
        file.seek(0)
        names = [name.strip() for name in next(csv.reader(file, delimiter=separator), [])]
    if not any(names):
        raise UnreadableFile(f"{path}: the first line is blank; expected the names of the columns in it.")
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise UnreadableFile(f"{path}: two columns are named {twice[0]!r}; rename or drop one of them.")
    return names, separator


def _cells(path: Path, names: list[str], separator: str) -> pl.DataFrame:
    """All cells as text, null where blank; lines of blanks are left out."""
    try:
        cells = pl.read_csv(path, separator=separator, infer_schema=False, encoding="utf8")
    except pl.exceptions.ComputeError:
        _check_lengths(path, names, separator)
        raise
    cells.columns = names
    if cells[names[-1]].null_count():  # polars fills up lines that are too short
        _check_lengths(path, names, separator)
    trimmed = cells.select(pl.all().str.strip_chars())
    blanked = trimmed.select(pl.when(~pl.all().is_in(_BLANKS)).then(pl.all()))
    return blanked.filter(~pl.all_horizontal(pl.all().is_null()))


def _check_lengths(path: Path, names: list[str], separator: str) -> None:
    """Refuse lines with more or fewer cells than there are columns."""
    with _opened(path) as file:
        lines = csv.reader(file, delimiter=separator)
        for cells in lines:
            if cells and len(cells) != len(names):
                raise UnreadableFile(
                    f"{path}: the file could not be read as a table: line {lines.line_num} has {len(cells)} cells, "
                    f"the first {len(names)}; give every line as many."
                )


def _with_points(column: pl.Series, path: Path) -> pl.Series:
    """A column of decimal commas with points. One with points and commas stays text, as one of them is no decimal."""
    commas = column.str.contains(_COMMA)
    if not commas.any() or column.str.contains(".", literal=True).any():
        return column
    whole = column.filter(~commas)
    if column.filter(commas).str.contains(_THOUSANDS).all() and len(whole) and whole.str.contains(_HUNDREDS).all():
        first = column.filter(commas)[0]
        warnings.warn(
            f"{path}: in column {column.name!r} {first} is taken for {first.replace(',', '.')}; if it stands for "
            f"{first.replace(',', '')}, write it so, without a thousands separator.",
            stacklevel=4,
        )
    return column.str.replace(_COMMA, "$1.$2")


def _as_numbers(column: pl.Series, kinds: tuple[Any, ...]) -> pl.Series:
    """A column of text as the first of these types that holds all of it, as true and false, or as it is."""
    if column.str.contains(_CODE).any():
        return column
    for kind in kinds:
        made = column.cast(kind, strict=False)
        if made.null_count() == column.null_count():
            return made
    lower = column.str.to_lowercase()
    return lower == "true" if kinds == _NUMBERS and lower.is_in(["true", "false"]).all() else column
