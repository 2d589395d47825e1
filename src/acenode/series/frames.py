"""Data frames in and out: pandas, polars and pyarrow tables to a `Panel` and back."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, cast, get_args

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float, Int

from .series import Panel, Series

Backend = Literal["pandas", "polars", "pyarrow"]
BACKENDS: tuple[str, ...] = get_args(Backend)


def from_long(
    frame: Any,
    *,
    id: str = "id",
    time: str = "time",
    variable: str = "variable",
    value: str = "value",
    variables: Sequence[str] | None = None,
) -> Panel:
    """A panel from a frame with one row a measurement.

    The rows of an id may lie anywhere in the frame, but in order of time. A row with a blank value says that nothing
    was observed at its time.

    **Arguments:**

    - `frame`: a pandas or polars data frame or a pyarrow table.
    - `id`, `time`, `variable`, `value`: names of the columns.
    - `variables`: the variables to keep, in this order; as they first appear if not given. Give it to read two frames
        alike, as one variable may be absent from one of them.
    """
    table = _table("from_long", frame, {"id": id, "time": time, "variable": variable, "value": value})
    codes, ids = _coded("from_long", table, id)
    times = _times("from_long", table, time, codes, ids)
    kinds, found = _coded("from_long", table, variable)
    found = [str(v) for v in found]
    names = _variables("from_long", found if variables is None else variables)
    numbers = _numbers("from_long", table, value, _Place(ids, codes, times))

    order = np.argsort(codes, kind="stable")
    codes, times, kinds, numbers = codes[order], times[order], kinds[order], numbers[order]
    _check_order("from_long", codes, times, ids, strict=False)
    new = np.ones(len(codes), bool)
    new[1:] = (np.diff(codes) > 0) | (np.diff(times) > 0)
    rows = np.cumsum(new) - 1
    _check_cells(rows * len(found) + kinds, _Place(ids, codes, times), kinds, found)

    values = np.full((rows[-1] + 1, len(names)), np.nan, np.float32)
    column = np.asarray([names.index(v) if v in names else -1 for v in found])[kinds]
    kept = column >= 0
    values[rows[kept], column[kept]] = numbers[kept]
    return _panel(codes[new], times[new], values, ids, names)


def from_wide(frame: Any, *, id: str = "id", time: str = "time", variables: Sequence[str] | None = None) -> Panel:
    """A panel from a frame with one row for each id and time, and one column for each variable; blanks are missing.

    The rows of an id may lie anywhere in the frame, but in order of time. A row of blanks only is kept: its time is
    known, and nothing was observed.

    **Arguments:**

    - `frame`: a pandas or polars data frame or a pyarrow table.
    - `id`, `time`: names of the columns.
    - `variables`: names of the columns of the variables; all others if not given.
    """
    table = _table("from_wide", frame, {"id": id, "time": time})
    columns = [c for c in table.columns if c not in (id, time)] if variables is None else variables
    names = _variables("from_wide", columns)
    _check_columns("from_wide", table, columns)
    for reserved in (id, time):
        if reserved in columns:
            raise ValueError(f"from_wide: variables has {reserved!r}, which is the id or time column.")
    codes, ids = _coded("from_wide", table, id)
    times = _times("from_wide", table, time, codes, ids)
    place = _Place(ids, codes, times)
    values = np.stack([_numbers("from_wide", table, c, place) for c in columns], axis=1)
    order = np.argsort(codes, kind="stable")
    _check_order("from_wide", codes[order], times[order], ids, strict=True)
    return _panel(codes[order], times[order], values[order], ids, names)


def to_long(
    panel: Panel,
    *,
    id: str = "id",
    time: str = "time",
    variable: str = "variable",
    value: str = "value",
    backend: str | None = None,
    like: Any = None,
) -> Any:
    """A frame with one row for each observed value of the panel, by id, then time, then variable.

    **Arguments:**

    - `panel`: what to write; an id or a time with nothing observed leaves no row.
    - `id`, `time`, `variable`, `value`: names for the columns.
    - `backend`: "pandas" (the default), "polars" or "pyarrow".
    - `like`: instead of `backend`, a frame to be of the same kind as.
    """
    _check_names("to_long", (id, time, variable, value))
    backend = _backend("to_long", backend, like)
    codes, times, values, observed = _real_rows(panel)
    rows, columns = np.nonzero(observed)
    names = np.asarray(panel.variables, object)
    data = {
        id: _id_column("to_long", panel.ids, codes[rows], backend),
        time: times[rows],
        variable: names[columns].tolist(),
        value: values[rows, columns],
    }
    return nw.from_dict(data, backend=backend).to_native()


def to_wide(panel: Panel, *, id: str = "id", time: str = "time", backend: str | None = None, like: Any = None) -> Any:
    """A frame with one row for each id and time of the panel and one column for each variable; null if not observed.

    **Arguments:**

    - `panel`: what to write; padding is left out, and so an id of no rows at all.
    - `id`, `time`: names for the columns.
    - `backend`: "pandas" (the default), "polars" or "pyarrow".
    - `like`: instead of `backend`, a frame to be of the same kind as.
    """
    _check_names("to_wide", (id, time, *panel.variables))
    backend = _backend("to_wide", backend, like)
    codes, times, values, observed = _real_rows(panel)
    values = np.where(observed, values, np.float32(np.nan))
    data = {id: _id_column("to_wide", panel.ids, codes, backend), time: times}
    data |= {name: values[:, i] for i, name in enumerate(panel.variables)}
    table = nw.from_dict(data, backend=backend)
    return table.with_columns(*(nw.col(name).fill_nan(None) for name in panel.variables)).to_native()


class _Place:
    """Says where in the frame a fault is, in words; built once, read only for an error."""

    def __init__(self, ids: np.ndarray, codes: Int[np.ndarray, " n"], times: Float[np.ndarray, " n"]):
        self.ids, self.codes, self.times = ids, codes, times

    def __call__(self, row: int) -> str:
        return f"id {_shown(self.ids[self.codes[row]])}, time {self.times[row]}"


def _shown(value: Any) -> str:
    """An id as a user would write it: 3 and not np.int64(3)."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _table(name: str, frame: Any, columns: dict[str, str]) -> nw.DataFrame:
    """The frame behind one interface, with at least one row and the named columns."""
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        given = type(frame).__name__
        advice = "collect it first" if given == "LazyFrame" else "expected a pandas, polars or pyarrow table"
        raise ValueError(f"{name}: the frame is a {given}; {advice}.") from error
    _check_names(name, tuple(columns.values()))
    _check_columns(name, table, tuple(columns.values()))
    if len(table) == 0:
        raise ValueError(f"{name}: the frame has no rows; expected at least one.")
    return table


def _check_names(name: str, columns: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    twice = [c for i, c in enumerate(columns) if c in columns[:i]]
    if twice:
        raise ValueError(f"{name}: two columns are named {twice[0]!r}; expected a different name for each.")


def _check_columns(name: str, table: nw.DataFrame, columns: Sequence[Any]) -> None:
    absent = [c for c in columns if c not in table.columns]
    if absent:
        raise ValueError(f"{name}: the frame has no column {absent[0]!r}; its columns are {list(table.columns)}.")


def _variables(name: str, columns: Sequence[Any]) -> tuple[str, ...]:
    """Names of the variables: at least one, no two alike."""
    if isinstance(columns, str):
        raise ValueError(f"{name}: variables is the string {columns!r}; expected a list of names.")
    if len(columns) == 0:
        raise ValueError(f"{name}: there are no variables; expected at least one.")
    names = tuple(str(c) for c in columns)
    twice = [v for i, v in enumerate(names) if v in names[:i]]
    if twice:
        raise ValueError(f"{name}: the variable {twice[0]!r} appears twice; expected each once.")
    return names


def _coded(name: str, table: nw.DataFrame, column: str) -> tuple[Int[np.ndarray, " n"], np.ndarray]:
    """The distinct values of a column as they first appear, and for each row which of them it has."""
    given = table.get_column(column)
    blank = given.is_null().to_numpy()
    if given.dtype.is_float():
        blank = blank | np.isnan(given.cast(nw.Float64).to_numpy())
    if blank.any():
        raise ValueError(f"{name}: column {column!r} is blank in row {int(np.argmax(blank))}; expected no blanks.")
    items = given.to_list()
    try:
        # A dictionary keeps the order of first appearance, takes any type, and is faster than sorting strings.
        codes_of = {item: code for code, item in enumerate(dict.fromkeys(items))}
    except TypeError as error:
        raise ValueError(
            f"{name}: column {column!r} has dtype {given.dtype}; expected plain values such as strings or integers."
        ) from error
    codes = np.fromiter(map(codes_of.__getitem__, items), np.int64, len(items))
    first = np.unique(codes, return_index=True)[1]
    distinct = given[first.tolist()].to_numpy()
    if distinct.dtype.kind in "OU":  # numpy's strings of one width lose trailing zero bytes
        distinct = np.fromiter(codes_of, object, len(codes_of))
    return codes, distinct


def _times(
    name: str, table: nw.DataFrame, column: str, codes: Int[np.ndarray, " n"], ids: np.ndarray
) -> Float[np.ndarray, " n"]:
    """The times, in double precision: what is equal only in single precision must be told from duplicates."""
    given = table.get_column(column)
    if given.dtype.is_temporal():
        raise ValueError(
            f"{name}: column {column!r} has dtype {given.dtype}; expected numbers. "
            "Convert it first, to hours since the first time for example."
        )
    if not given.dtype.is_numeric():
        raise ValueError(f"{name}: column {column!r} has dtype {given.dtype}; expected numbers.")
    times = given.cast(nw.Float64).to_numpy()
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(times.astype(np.float32))
    if bad.any():
        i = int(np.argmax(bad))
        fault = "blank" if np.isnan(times[i]) else times[i]
        raise ValueError(
            f"{name}: column {column!r} is {fault} in row {i}, id {_shown(ids[codes[i]])}; expected a finite number."
        )
    return times


def _numbers(name: str, table: nw.DataFrame, column: Any, place: _Place) -> Float[np.ndarray, " n"]:
    """A column of values in single precision, NaN where blank."""
    given = table.get_column(column)
    if given.null_count() == len(given):
        return np.full(len(given), np.nan, np.float32)  # a column of blanks has any dtype
    if given.dtype.is_numeric() or given.dtype == nw.Boolean:
        values = given.cast(nw.Float64).to_numpy()
    elif given.dtype == nw.Object and _all_real(objects := given.drop_nulls().to_numpy()):
        # pandas keeps booleans with blanks, for one, as objects
        values = np.full(len(given), np.nan)
        values[~given.is_null().to_numpy()] = objects.astype(np.float64)
    else:
        raise ValueError(f"{name}: column {column!r} has dtype {given.dtype}; expected numbers or booleans.")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused with the infinite
        single = values.astype(np.float32)
    bad = np.isinf(single)
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"{name}: column {column!r} is {values[i]} at {place(i)}; expected a finite number in single precision, "
            "or a blank."
        )
    return single


def _all_real(objects: np.ndarray) -> bool:
    """Whether these are all real numbers or booleans; strings of digits are not."""
    return all(issubclass(kind, Real | np.bool_) for kind in set(map(type, objects)))


def _check_order(
    name: str, codes: Int[np.ndarray, " n"], times: Float[np.ndarray, " n"], ids: np.ndarray, strict: bool
) -> None:
    """Refuse times of an id that go back, appear twice (if `strict`), or differ in double precision only."""
    same_id = np.diff(codes) == 0
    gaps = np.diff(times)
    back = same_id & ((gaps <= 0) if strict else (gaps < 0))
    if back.any():
        i = int(np.argmax(back))
        fault = "appears twice" if gaps[i] == 0 else f"comes after time {times[i]}"
        raise ValueError(
            f"{name}: id {_shown(ids[codes[i]])}: time {times[i + 1]} {fault}; expected the times of an id to increase."
        )
    lost = same_id & (gaps > 0) & (np.diff(times.astype(np.float32)) == 0)
    if lost.any():
        i = int(np.argmax(lost))
        raise ValueError(
            f"{name}: id {_shown(ids[codes[i]])}: times {times[i]} and {times[i + 1]} are the same number in single "
            "precision; subtract an origin or use a larger unit."
        )


def _check_cells(
    cells: Int[np.ndarray, " n"], place: _Place, kinds: Int[np.ndarray, " n"], found: Sequence[str]
) -> None:
    """Refuse two values of one variable at one time."""
    seen = np.zeros(cells.max() + 1, bool)
    seen[cells] = True
    if np.count_nonzero(seen) < len(cells):
        again = np.ones(len(cells), bool)
        again[np.unique(cells, return_index=True)[1]] = False
        i = int(np.argmax(again))
        raise ValueError(
            f"from_long: variable {found[kinds[i]]!r} appears twice at {place(i)}; expected each variable once a time."
        )


def _panel(
    codes: Int[np.ndarray, " n"],
    times: Float[np.ndarray, " n"],
    values: Float[np.ndarray, "n variables"],
    ids: np.ndarray,
    names: tuple[str, ...],
) -> Panel:
    """Rows sorted by id and time, NaN where missing, as a padded batch."""
    length = np.bincount(codes, minlength=len(ids))
    start = np.cumsum(length) - length
    rows = np.arange(length.max())
    # Padding repeats the last row of an id, of which only the time is kept.
    pick = start[:, None] + np.minimum(rows, length[:, None] - 1)
    padded = values[pick]
    observed = ~np.isnan(padded) & (rows < length[:, None])[..., None]
    series = Series(times.astype(np.float32)[pick], np.where(observed, padded, 0), observed, length.astype(np.int32))
    return Panel(series, ids, names)


def _real_rows(
    panel: Panel,
) -> tuple[
    Int[np.ndarray, " n"],
    Float[np.ndarray, " n"],
    Float[np.ndarray, "n variables"],
    Bool[np.ndarray, "n variables"],
]:
    """Which sample each real row belongs to, and its time, values and mask."""
    real = np.asarray(panel.series.real)
    codes = np.nonzero(real)[0]
    times, values, observed = (
        np.asarray(a)[real] for a in (panel.series.times, panel.series.values, panel.series.observed)
    )
    return codes, times, values, observed


def _backend(name: str, backend: str | None, like: Any) -> Backend:
    """The library to write a frame of."""
    if backend is not None and like is not None:
        raise ValueError(f"{name}: both backend and like are given; expected one of them.")
    if like is not None:
        try:
            backend = nw.from_native(like).implementation.value
        except TypeError as error:
            raise ValueError(f"{name}: like is a {type(like).__name__}; expected a data frame.") from error
    backend = "pandas" if backend is None else backend
    if backend not in BACKENDS:
        raise ValueError(f"{name}: backend is {backend!r}; expected one of {', '.join(BACKENDS)}.")
    return cast(Backend, backend)


def _id_column(name: str, ids: np.ndarray, codes: Int[np.ndarray, " n"], backend: Backend) -> Any:
    """The id of each row, as something every backend reads."""
    ids = np.asarray(ids)
    if ids.dtype.kind not in "OU":
        return ids[codes]
    types = sorted({type(i).__name__ for i in ids})
    if len(types) > 1 and backend != "pandas":
        raise ValueError(f"{name}: the ids are of types {', '.join(types)}, of which {backend} takes one in a column.")
    return ids[codes].tolist()
