"""Data frames in and out: pandas, polars and pyarrow tables to a `Panel` and back."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, cast, get_args

import narwhals as nw
import numpy as np
from jaxtyping import Int

from .columns import missing_codes, read_codes, read_ids, read_numbers, shown
from .series import Panel, Series
from .table import Columns, Table, check_times, column_of, frame_of, named_once, read, value_columns
from .times import read_times

Backend = Literal["pandas", "polars", "pyarrow"]
Missing = int | float | Sequence[int | float] | None

BACKENDS: tuple[str, ...] = get_args(Backend)
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def from_wide(
    frame: Any,
    *,
    id: str = "id",
    time: str = "time",
    variables: Sequence[str] | None = None,
    missing: Missing = None,
    unit: str = "hours",
) -> Panel:
    """A panel from a frame with one row for each id and time, and one column for each variable; blanks are missing.

    The rows of an id may lie anywhere in the frame, but in order of time. A row of blanks only is kept, as
    a time at which nothing was observed.

    **Arguments:**

    - `frame`: a pandas or polars data frame or a pyarrow table.
    - `id`, `time`: names of the columns. Times are numbers, or dates, also as text in ISO 8601.
    - `variables`: names of the columns of the variables; all others if not given.
    - `missing`: a number such as -999 that stands for a blank, or several.
    - `unit`: "seconds", "minutes", "hours" or "days": in what dates are counted, from the earliest of the frame.
        Numbers stay as they are.
    """
    chosen = value_columns(frame, id, time, None, variables, what="from_wide")
    table = read(frame, Columns(id, time, chosen, missing=missing_codes(missing)), what="from_wide")
    return _panel(table, unit, "from_wide")


def from_long(
    frame: Any,
    *,
    id: str = "id",
    time: str = "time",
    variable: str = "variable",
    value: str = "value",
    variables: Sequence[str] | None = None,
    missing: Missing = None,
    unit: str = "hours",
) -> Panel:
    """A panel from a frame with one row a measurement.

    The rows of an id may lie anywhere in the frame, but in order of time. A row with a blank value says that nothing
    was observed at its time.

    **Arguments:**

    - `frame`, `missing`, `unit`: as for `from_wide`.
    - `id`, `time`, `variable`, `value`: names of the columns.
    - `variables`: the variables to keep, in this order; as they first appear if not given. Give it to read two frames
        the same way, as one variable may be absent from one of them.
    """
    what = "from_long"
    whole = frame_of(frame, what)
    _check_names(what, (id, time, variable, value))
    given = {name: column_of(whole, name, what) for name in (id, time, variable, value)}
    codes, ids = read_ids(given[id], what)
    times, clock = read_times(given[time], what)
    kinds, found = read_codes(given[variable], f"{what}: {variable!r}", "give every row its variable")
    found = [str(each) for each in found]
    names = named_once(found if variables is None else variables, what)
    numbers = read_numbers(given[value], what, missing_codes(missing))

    order = np.argsort(codes, kind="stable")
    codes, times, kinds, numbers = codes[order], times[order], kinds[order], numbers[order]
    columns = Columns(id, time, names)
    check_times(times, codes, order, ids, columns, what, once=False)
    new = np.ones(len(codes), bool)
    new[1:] = (np.diff(codes) > 0) | (np.diff(times) > 0)
    rows = np.cumsum(new) - 1
    _, first, count = np.unique(rows * len(found) + kinds, return_index=True, return_counts=True)
    if (count > 1).any():
        k = int(first[count > 1].min())
        raise ValueError(
            f"{what}: variable {found[kinds[k]]!r} appears twice at {id} {shown(ids[codes[k]])}, {time} "
            f"{clock.show(times[k])}; expected each variable once a time. Merge the rows or drop all but one."
        )
    values = np.full((rows[-1] + 1, len(names)), np.nan)
    column = np.asarray([names.index(each) if each in names else -1 for each in found])[kinds]
    kept = column >= 0
    values[rows[kept], column[kept]] = numbers[kept]
    backend = str(whole.implementation.value)
    return _panel(Table(ids, codes[new], times[new], values, None, clock, columns, backend, order[new]), unit, what)


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
    - `backend`: "pandas" (the default where it is installed), "polars" or "pyarrow".
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
    - `id`, `time`, `backend`, `like`: as for `to_long`.
    """
    _check_names("to_wide", (id, time, *panel.variables))
    backend = _backend("to_wide", backend, like)
    codes, times, values, observed = _real_rows(panel)
    values = np.where(observed, values, np.float32(np.nan))
    data = {id: _id_column("to_wide", panel.ids, codes, backend), time: times}
    data |= {name: values[:, i] for i, name in enumerate(panel.variables)}
    table = nw.from_dict(data, backend=backend)
    return table.with_columns(*(nw.col(name).fill_nan(None) for name in panel.variables)).to_native()


def default_backend() -> str:
    """The library of a frame where none is given."""
    return "pandas" if find_spec("pandas") is not None else "polars"


def write_frame(data: dict[str, Any], backend: Any) -> Any:
    """A frame of these columns. Series join it last, as `from_dict` drops the time zone of one in pandas."""
    plain = {name: column for name, column in data.items() if not isinstance(column, nw.Series)}
    more = [column.alias(name) for name, column in data.items() if isinstance(column, nw.Series)]
    return nw.from_dict(plain, backend=backend).with_columns(*more).select(*data).to_native()


def _panel(table: Table, unit: str, what: str) -> Panel:
    """The panel of a table in single precision, its numbers of time as they are."""
    if unit not in SECONDS:
        raise ValueError(f"{what}: unit is {unit!r}; expected one of {', '.join(SECONDS)}.")
    dates = table.clock.kind == "datetime"
    try:
        made = table.panel(SECONDS[unit], float(table.times.min())) if dates else table.panel(origin=0.0)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    series = made.series
    return Panel(
        Series(series.times, series.values.astype(np.float32), series.observed, series.length), made.ids, made.variables
    )


def _check_names(what: str, columns: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    twice = [c for i, c in enumerate(columns) if c in columns[:i]]
    if twice:
        raise ValueError(f"{what}: two columns are named {twice[0]!r}; expected a different name for each.")


def _real_rows(panel: Panel) -> tuple[np.ndarray, ...]:
    """Which sample each real row belongs to, and its time, values and mask."""
    real, series = np.asarray(panel.series.real), panel.series
    return np.nonzero(real)[0], *(np.asarray(a)[real] for a in (series.times, series.values, series.observed))


def _backend(name: str, backend: str | None, like: Any) -> Backend:
    """The library to write a frame of."""
    if backend is not None and like is not None:
        raise ValueError(f"{name}: both backend and like are given; expected one of them.")
    if like is not None:
        try:
            backend = nw.from_native(like).implementation.value
        except TypeError as error:
            raise ValueError(f"{name}: like is a {type(like).__name__}; expected a data frame.") from error
    backend = default_backend() if backend is None else backend
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
