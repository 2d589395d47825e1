"""Columns of data frames as arrays: ids, values and labels, and the sentences where they are none."""

import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np

_BLANK_WORDS = "in a file, words such as NA and null are blanks too"
_CODE = re.compile(r"[+-]?0\d")  # 007 is a code and no number


def shown(value: Any) -> str:
    """A value as a user would write it: 3 and not np.int64(3)."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def is_blank(given: nw.Series) -> np.ndarray:
    """Where there is nothing, not a number, or a text of spaces only."""
    blank = given.is_null().to_numpy().astype(bool)
    if given.dtype.is_float():
        return blank | np.isnan(given.cast(nw.Float64).to_numpy())
    if given.dtype == nw.String:
        return blank | (given.str.strip_chars().str.len_chars() == 0).fill_null(True).to_numpy().astype(bool)
    return blank


def row_of(fault: np.ndarray) -> int:
    """The row of the first fault, counted from 1 below the column names."""
    return int(np.argmax(fault)) + 1


def read_codes(given: nw.Series, name: str, fix: str) -> tuple[np.ndarray, list[Any]]:
    """The distinct values of a column as they first appear, and for each row which of them it has; no row is blank."""
    blank = is_blank(given)
    if blank.any():
        raise ValueError(f"{name} is blank in row {row_of(blank)} ({_BLANK_WORDS}); {fix}.")
    if given.dtype.is_nested():
        raise ValueError(f"{name} holds {given.dtype}; expected text or numbers.")
    if given.dtype == nw.Categorical and not given.implementation.is_pandas():  # those of pandas may be numbers
        given = given.cast(nw.String)
    if given.implementation.is_pandas() or given.dtype == nw.Object:  # may hold values of several types
        items = given.to_list()
        try:
            places = {item: place for place, item in enumerate(dict.fromkeys(items))}
        except TypeError as error:
            raise ValueError(f"{name} holds lists or the like; expected text or numbers.") from error
        return np.fromiter(map(places.__getitem__, items), np.int64, len(items)), [_plain(item) for item in places]
    # Without an object of Python's for each of what may be millions of rows.
    distinct = given.unique(maintain_order=True).to_list()
    return given.replace_strict(distinct, list(range(len(distinct))), return_dtype=nw.Int64).to_numpy(), distinct


def read_ids(given: nw.Series, what: str) -> tuple[np.ndarray, np.ndarray]:
    """For each row the place of its id, and the ids."""
    codes, distinct = read_codes(given, f"{what}: {given.name!r}", "give every row its id")
    ids = np.empty(len(distinct), object)
    ids[:] = distinct
    return codes, ids


def read_labels(given: nw.Series, codes: np.ndarray, ids: np.ndarray, id: str, what: str) -> np.ndarray:
    """One label for each id."""
    kinds, distinct = read_codes(given, f"{what}: the label {given.name!r}", "give every row its label")
    odd = [not isinstance(label, str | bool | int | float) for label in distinct]
    if any(odd):
        kind = int(np.argmax(odd))
        raise ValueError(
            f"{what}: the label {given.name!r} is {distinct[kind]!r} in row {row_of(kinds == kind)}; expected text, "
            "numbers or true and false. Write it as text."
        )
    first = np.unique(codes, return_index=True)[1]
    differs = kinds != kinds[first][codes]
    if differs.any():
        row = int(np.argmax(differs))
        one = int(first[codes[row]])
        raise ValueError(
            f"{what}: the label {given.name!r} of {id} {shown(ids[codes[row]])} is {distinct[kinds[one]]!r} in row "
            f"{one + 1} and {distinct[kinds[row]]!r} in row {row + 1}; a series has one label in all its rows."
        )
    labels = np.empty(len(ids), object)
    labels[:] = [distinct[kind] for kind in kinds[first]]
    return labels


def read_numbers(given: nw.Series, what: str, missing: Sequence[float] = ()) -> np.ndarray:
    """A column of values in double precision, NaN where blank or where a number stands for that."""
    if given.null_count() == len(given):  # of any type
        return np.full(len(given), np.nan)
    if given.dtype.is_numeric() or given.dtype == nw.Boolean:
        values = given.cast(nw.Float64).to_numpy()
    else:  # pandas keeps true and false with blanks, for one, as objects
        items, blank = given.to_list(), given.is_null().to_numpy()
        fault = [not b and not isinstance(item, Real | np.bool_) for item, b in zip(items, blank, strict=True)]
        if any(fault):
            # The one word or code among texts of numbers, where there is one.
            words = [f and not reads_as_number(item) for item, f in zip(items, fault, strict=True)]
            row = row_of(np.asarray(words if any(words) else fault))
            raise ValueError(
                f"{what}: column {given.name!r} holds {items[row - 1]!r} in row {row}; expected numbers or true and "
                "false. Correct or leave out the column; code categories as numbers without leading zeros, or as a "
                "column of true and false for each."
            )
        values = np.asarray([np.nan if b else float(item) for item, b in zip(items, blank, strict=True)])
    values = np.where(stands_for_blank(values, missing, given.dtype == nw.Float32), np.nan, values)
    with np.errstate(over="ignore"):
        bad = np.isinf(values.astype(np.float32))
    if bad.any():
        raise ValueError(
            f"{what}: column {given.name!r} is {values[int(np.argmax(bad))]} in row {row_of(bad)}; expected a finite "
            "number in single precision, or a blank."
        )
    return values


def reads_as_number(item: Any) -> bool:
    """Whether a text is a number, which 1.5 is, and 007 is not."""
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return not (isinstance(item, str) and _CODE.match(item))


def missing_codes(given: Any) -> tuple[float, ...]:
    """One number or several that stand for a missing value, or none."""
    try:
        return tuple(float(each) for each in np.atleast_1d(() if given is None else given))
    except (TypeError, ValueError) as error:
        raise ValueError(f"missing={given!r}: expected a number such as -999, or several.") from error


def stands_for_blank(values: Any, missing: Sequence[float], single: bool = False) -> np.ndarray:
    """Which numbers are among those that stand for a blank; -99.9 is another number in single precision."""
    with np.errstate(over="ignore"):
        marks = np.asarray(missing, np.float32 if single else np.float64)
    return np.isin(values, marks.astype(np.float64))
