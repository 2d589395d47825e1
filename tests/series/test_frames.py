"""Frames of three libraries to panels and back, and every refusal."""

from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from acenode.series import Panel, from_long, from_wide, series, stack, to_long, to_wide
from acenode.series.columns import missing_codes

quick = settings(max_examples=25)
makers = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
types = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
names = ("x", "y")


@pytest.fixture(params=list(makers))
def backend(request) -> str:
    return request.param


def same(a: Panel, b: Panel) -> None:
    """Panels are equal in everything, up to the dtype that a backend gives to ids."""
    assert a.ids.tolist() == b.ids.tolist() and a.variables == b.variables
    np.testing.assert_array_equal(a.series.length, b.series.length)
    np.testing.assert_array_equal(a.series.observed, b.series.observed)
    np.testing.assert_array_equal(a.series.values, b.series.values)
    np.testing.assert_array_equal(a.series.times, b.series.times)


@st.composite
def panels(draw, least: int = 1, full: bool = False) -> tuple[list, list]:
    """Distinct string or integer ids and a series for each, for `panel_of`.

    No series has fewer rows than `least`; with `full`, no row is entirely unobserved.
    """
    words = st.text(max_size=3).filter(str.strip)  # a blank is no id
    any_id = draw(st.sampled_from([words, st.integers(-(2**40), 2**40)]))
    ids = draw(st.lists(any_id, min_size=1, max_size=4, unique=True))
    numbers = st.floats(-1e6, 1e6, width=32)
    many = []
    for _ in ids:
        n = draw(st.integers(least, 4))
        times = sorted(draw(st.lists(numbers, min_size=n, max_size=n, unique=True)))
        values = draw(hnp.arrays(np.float32, (n, 2), elements=numbers))
        observed = draw(hnp.arrays(bool, (n, 2)))
        observed[:, 0] |= full & ~observed.any(1)
        many.append((np.asarray(times), values, observed))
    return ids, many


def panel_of(raw: tuple[list, list]) -> Panel:
    # Not a part of the strategy: the run-time type checks draw random numbers, which hypothesis does not allow there.
    ids, many = raw
    kept = np.empty(len(ids), object)
    kept[:] = ids
    return Panel(stack([series(*m) for m in many]), kept, names)


@pytest.mark.slow
@quick
@given(raw=panels(), name=st.sampled_from(list(makers)))
def test_wide_round_trip(raw, name):
    panel = panel_of(raw)
    frame = to_wide(panel, backend=name)
    assert isinstance(frame, types[name]) and len(frame) == panel.series.length.sum()
    same(from_wide(frame), panel)


@quick
@given(raw=panels(full=True), name=st.sampled_from(list(makers)))
def test_long_round_trip(raw, name):
    panel = panel_of(raw)
    frame = to_long(panel, backend=name)
    assert isinstance(frame, types[name]) and len(frame) == panel.series.observed.sum()
    same(from_long(frame, variables=names), panel)


@quick
@given(raw=panels(), data=st.data())
def test_rows_of_ids_may_be_mixed(raw, data):
    """Dealing the rows out between the ids, each in its order, changes at most which id comes first."""
    panel = panel_of(raw)
    frame = to_wide(panel)
    deal = data.draw(hnp.arrays(np.float64, len(frame), elements=st.floats(0, 1), unique=True))
    ids = frame["id"].tolist()  # numpy would compare without trailing zero bytes
    for i in panel.ids:
        own = np.asarray([each == i for each in ids])
        deal[own] = np.sort(deal[own])
    mixed = from_wide(frame.iloc[np.argsort(deal)])
    places = [panel.ids.tolist().index(i) for i in mixed.ids.tolist()]
    same(mixed, panel[places])
    assert mixed.ids.tolist() == list(dict.fromkeys(frame["id"].iloc[np.argsort(deal)].tolist()))


@quick
@given(raw=panels())
def test_long_with_blanks_reads_as_wide(raw):
    panel = panel_of(raw)
    frame = to_wide(panel).melt(["id", "time"])
    frame = frame.assign(place=frame["id"].map(panel.ids.tolist().index)).sort_values(["place", "time"], kind="stable")
    same(from_long(frame), panel)


@quick
@given(raw=panels(least=0), name=st.sampled_from(list(makers)))
def test_series_without_rows_leave_none(raw, name):
    panel = panel_of(raw)
    kept = panel.series.length > 0
    frame = to_wide(panel, backend=name)
    assert len(frame) == panel.series.length.sum()
    if not kept.any():
        with pytest.raises(ValueError, match="the table is empty"):
            from_wide(frame)
        return
    again = from_wide(frame)
    assert again.ids.tolist() == panel.ids[kept].tolist()
    np.testing.assert_array_equal(again.series.length, panel.series.length[kept])


def test_wide_by_hand(backend):
    frame = makers[backend](
        {"who": ["b", "a", "b"], "when": [0, 5, 2], "hr": [1.5, None, None], "on": [None, True, False], "n": [1, 2, 3]}
    )
    panel = from_wide(frame, id="who", time="when", variables=["on", "hr"])
    assert panel.ids.tolist() == ["b", "a"] and panel.variables == ("on", "hr")
    np.testing.assert_array_equal(panel.series.length, [2, 1])
    np.testing.assert_array_equal(panel.series.times, [[0, 2], [5, 5]])  # padding repeats the last time
    np.testing.assert_array_equal(panel.series.values, [[[0, 1.5], [0, 0]], [[1, 0], [0, 0]]])
    np.testing.assert_array_equal(
        panel.series.observed, [[[False, True], [True, False]], [[True, False], [False, False]]]
    )
    assert from_wide(frame, id="who", time="when", variables=["n", "hr"]).variables == ("n", "hr")


def test_long_by_hand(backend):
    frame = makers[backend](
        {"id": [7, 3, 7, 7], "time": [0.0, 1.0, 0.0, 4.0], "variable": ["y", "x", "x", "y"], "value": [1, 2, 3, None]}
    )
    panel = from_long(frame)
    assert panel.ids.tolist() == [7, 3] and panel.variables == ("y", "x")
    np.testing.assert_array_equal(panel.series.times, [[0, 4], [1, 1]])
    np.testing.assert_array_equal(panel.series.values, [[[1, 3], [0, 0]], [[0, 2], [0, 0]]])
    np.testing.assert_array_equal(panel.series.length, [2, 1])
    assert panel.series.observed.sum() == 3  # the blank keeps its time only
    chosen = from_long(frame, variables=["x", "z"])
    np.testing.assert_array_equal(chosen.series.times, panel.series.times)
    np.testing.assert_array_equal(chosen.series.values[..., 0], panel.series.values[..., 1])
    assert not chosen.series.observed[..., 1].any()


def test_a_row_or_column_of_blanks_is_kept(backend):
    frame = makers[backend]({"id": ["a", "a"], "time": [0.0, 1.0], "x": [1.0, None], "y": [None, None]})
    panel = from_wide(frame)
    np.testing.assert_array_equal(panel.series.observed, [[[True, False], [False, False]]])
    np.testing.assert_array_equal(panel.series.length, [2])


def test_nan_and_null_are_both_blank():
    frame = pl.DataFrame({"id": ["a", "a"], "time": [0, 1], "x": [float("nan"), None]})
    assert not from_wide(frame).series.observed.any()


def test_written_blanks_are_null_and_floats_single(backend):
    panel = Panel(stack([series([0.0], [[1.0, np.nan]])]), np.array(["a"]), names)
    frame = to_wide(panel, id="who", time="when", backend=backend)
    table = frame if backend == "pyarrow" else frame.to_arrow() if backend == "polars" else pa.Table.from_pandas(frame)
    assert table.column_names == ["who", "when", "x", "y"]
    assert table["y"].null_count == 1 and table["x"].to_pylist() == [1.0]
    assert all(table.schema.field(c).type == pa.float32() for c in ("when", "x", "y"))
    renamed = to_long(panel, id="who", time="when", variable="what", value="much", backend=backend)
    assert list(renamed.column_names if backend == "pyarrow" else renamed.columns) == ["who", "when", "what", "much"]
    same(from_long(renamed, id="who", time="when", variable="what", value="much", variables=names), panel)


def test_like_gives_the_same_kind_of_frame(backend):
    panel = Panel(stack([series([0.0], [[1.0, 2.0]])]), np.array(["a"]), names)
    like = makers[backend]({"a": [1]})
    assert isinstance(to_wide(panel, like=like), types[backend])
    assert isinstance(to_long(panel, like=like), types[backend])
    assert isinstance(to_wide(panel), pd.DataFrame) and isinstance(to_long(panel), pd.DataFrame)


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b\0"],
        [True, False],
        [1.5, 2.5],
        np.array([3, 1], np.int32),
        [date(2020, 1, 1), date(2021, 1, 1)],
        pd.Categorical(["b", "a"]),
        pl.Series(["b", "a"], dtype=pl.Categorical),
        pd.array([2, 1], dtype="Int64"),
    ],
    ids=lambda ids: str(getattr(ids, "dtype", type(ids[0]).__name__)),
)
def test_ids_of_any_type(ids):
    make = pl.DataFrame if isinstance(ids, pl.Series) else pd.DataFrame
    panel = from_wide(make({"id": ids, "time": [0, 0], "x": [1.0, 2.0]}))
    assert panel.ids.tolist() == list(ids)
    for name in makers:
        same(from_wide(to_wide(panel, backend=name)), panel)


def test_numbers_of_any_type(backend):
    frame = makers[backend](
        {"id": [0, 0], "time": np.array([0, 1], np.uint8), "x": np.array([2, 1], np.uint16), "y": [True, None]}
    )
    if backend == "pandas":
        frame = frame.astype({"y": "boolean", "x": "Int8"})
    panel = from_wide(frame)
    np.testing.assert_array_equal(panel.series.values, [[[2, 1], [1, 0]]])
    np.testing.assert_array_equal(panel.series.observed, [[[True, True], [True, False]]])


def test_columns_named_by_numbers():
    frame = pd.DataFrame({"id": ["a"], "time": [0], 0: [1.0], 1: [2.0]})
    assert from_wide(frame).variables == ("0", "1")
    assert from_long(pd.DataFrame({"id": [0], "time": [0], "variable": [7], "value": [1.0]})).variables == ("7",)


wide = {"id": ["a", "b", "a"], "time": [0.0, 1.0, 2.0], "x": [1.0, 2.0, 3.0]}
tall = {"id": ["a", "b", "a"], "time": [0.0, 1.0, 0.0], "variable": ["x", "x", "y"], "value": [1.0, 2.0, 3.0]}
days = [datetime(2020, 1, 1) + timedelta(days=i) for i in range(3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "there is no column 'id'; the columns are 'time', 'x'"),
        ({"time": None}, "there is no column 'time'; the columns are 'id', 'x'"),
        ({"x": None}, "there is no column of values beside 'id' and 'time'"),
        ({"id": ["a", None, "b"]}, "'id' is blank in row 2"),
        ({"id": ["a", " ", "b"]}, "'id' is blank in row 2"),
        ({"id": [1.0, 2.0, float("nan")]}, "'id' is blank in row 3"),
        ({"id": [[1], [2], [3]]}, "'id' holds .*; expected text or numbers"),
        ({"time": [0.0, None, 1.0]}, "'time' is blank in row 2"),
        ({"time": [0.0, float("inf"), 1.0]}, "'time' is not a finite number in row 2"),
        ({"time": [0.0, 1e39, 1.0]}, r"id 'b': the time 1e\+39 is too large; use a larger unit"),
        (
            {"time": [20231231, 20240101, 20240102]},
            "the numbers of the time column 'time', such as 20231231, look like dates",
        ),
        (
            {"time": ["0", "1", "2"]},
            "the time column 'time' holds String, such as '0' in row 1; expected",
        ),
        ({"time": [True, True, False]}, "the time column 'time' holds Boolean"),
        ({"time": [2.0, 0.0, 1.0]}, "id 'a' goes back in time from row 1 to row 3; sort"),
        ({"time": [2.0, 0.0, 2.0]}, "id 'a' has the same 'time' in rows 1 and 3; merge"),
        ({"id": [5, 6, 5], "time": [2.0, 0.0, 2.0]}, "id 5 has the same 'time'"),
        (
            {"time": [2.0**24, 0.0, 2.0**24 + 1]},
            "id 'a': the times .* are the same number.*; subtract an origin",
        ),
        ({"x": ["1", "2", "3"]}, "column 'x' holds '1' in row 1; expected numbers or true and false"),
        ({"x": days}, "column 'x' holds .* in row 1; expected numbers or true and false"),
        ({"x": [1.0, 2.0, float("-inf")]}, "column 'x' is -inf in row 3; expected a finite number"),
        ({"x": [1.0, 1e39, 1.0]}, r"column 'x' is 1e\+39 in row 2; expected a finite number in single precision"),
        ({"id": [], "time": [], "x": []}, "the table is empty; expected at least one row"),
    ],
)
def test_from_wide_refuses(backend, change, message):
    data = {k: v for k, v in (wide | change).items() if v is not None}
    with pytest.raises(ValueError, match=f"from_wide: {message}"):
        from_wide(makers[backend](data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": None}, "there is no column 'value'; the columns are 'id', 'time', 'variable'"),
        ({"id": ["a", None, "a"]}, "'id' is blank in row 2"),
        ({"variable": ["x", "x", None]}, "'variable' is blank in row 3"),
        ({"time": [0.0, None, 0.0]}, "'time' is blank in row 2"),
        ({"time": [1.0, 0.0, 0.0]}, "id 'a' goes back in time from row 1 to row 3"),
        ({"time": [2.0**24, 0.0, 2.0**24 + 1]}, "id 'a': the times .* are the same number in single precision"),
        ({"variable": ["x", "x", "x"]}, "variable 'x' appears twice at id 'a', time 0; expected each variable once"),
        ({"value": ["1", "2", "3"]}, "column 'value' holds '1' in row 1; expected numbers or true and false"),
        ({"value": [1.0, float("inf"), 2.0]}, "column 'value' is inf in row 2"),
        ({"id": [], "time": [], "variable": [], "value": []}, "the table is empty"),
    ],
)
def test_from_long_refuses(backend, change, message):
    data = {k: v for k, v in (tall | change).items() if v is not None}
    with pytest.raises(ValueError, match=f"from_long: {message}"):
        from_long(makers[backend](data))


def test_names_refused():
    frame = pd.DataFrame(wide)
    with pytest.raises(ValueError, match="from_wide: id, time and label are 'id', 'id'; name a column for each"):
        from_wide(frame, time="id")
    with pytest.raises(ValueError, match="from_wide: there is no column 'q'"):
        from_wide(frame, variables=["q"])
    with pytest.raises(ValueError, match="from_wide: 'time' is named as a value and as id, time or label"):
        from_wide(frame, variables=["x", "time"])
    with pytest.raises(ValueError, match="from_wide: the variable 'x' is named twice"):
        from_wide(frame, variables=["x", "x"])
    with pytest.raises(ValueError, match="from_wide: column 4 has no name and may be a row number"):
        from_wide(frame.assign(**{"Unnamed: 0": 1}))
    with pytest.raises(ValueError, match="from_long: two columns are named 'id'"):
        from_long(pd.DataFrame(tall), time="id")
    with pytest.raises(ValueError, match="from_long: no variable is named"):
        from_long(pd.DataFrame(tall), variables=[])
    assert from_wide(frame, variables="x").variables == ("x",)


def test_dates_are_counted_from_the_earliest(backend):
    frame = makers[backend](wide | {"time": days})
    np.testing.assert_array_equal(from_wide(frame).series.times, [[0, 48], [24, 24]])
    np.testing.assert_array_equal(from_wide(frame, unit="days").series.times, [[0, 2], [1, 1]])
    text = makers[backend](tall | {"time": ["2020-01-02", "2020-01-01", "2020-01-02"]})
    np.testing.assert_array_equal(from_long(text, unit="minutes").series.times, [[1440], [0]])
    with pytest.raises(ValueError, match="from_wide: unit is 'weeks'; expected one of seconds, minutes, hours, days"):
        from_wide(frame, unit="weeks")


def test_a_number_may_stand_for_a_blank(backend):
    numbers = [1.0, -999.0, -9.0]
    panel = from_wide(makers[backend](wide | {"x": numbers}), missing=[-999, -9])
    np.testing.assert_array_equal(panel.series.observed[..., 0], [[True, False], [False, False]])
    long = from_long(makers[backend](tall | {"value": numbers}), missing=-999)
    assert long.series.observed.sum() == 2
    with pytest.raises(ValueError, match="missing='NA': expected a number"):
        missing_codes("NA")


def test_what_is_no_frame_is_refused():
    with pytest.raises(ValueError, match="from_wide: a dict was given; expected a pandas or polars data frame"):
        from_wide(wide)
    with pytest.raises(ValueError, match="from_long: a LazyFrame was given; collect it first"):
        from_long(pl.DataFrame(tall).lazy())


def test_writing_refuses():
    panel = from_wide(pd.DataFrame(wide))
    with pytest.raises(ValueError, match="to_wide: two columns are named 'x'"):
        to_wide(panel, id="x")
    with pytest.raises(ValueError, match="to_long: two columns are named 'id'"):
        to_long(panel, value="id")
    with pytest.raises(ValueError, match="to_wide: backend is 'excel'; expected one of pandas, polars, pyarrow"):
        to_wide(panel, backend="excel")
    with pytest.raises(ValueError, match="to_long: both backend and like are given"):
        to_long(panel, backend="polars", like=pd.DataFrame())
    with pytest.raises(ValueError, match="to_long: like is a dict; expected a data frame"):
        to_long(panel, like={})
    mixed = from_wide(pd.DataFrame(wide | {"id": ["a", 1, "a"]}))
    assert mixed.ids.tolist() == ["a", 1]
    same(from_wide(to_wide(mixed)), mixed)
    with pytest.raises(ValueError, match="to_wide: the ids are of types int, str, of which polars takes one"):
        to_wide(mixed, backend="polars")
