"""Frames of any kind become series; every fault is one sentence with its place and the fix."""

import datetime as dt
from contextlib import nullcontext
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from frames import KINDS, VALUES, dated, labelled, machines, of_kind, refused

from acenode.series.table import Columns, absent_codes, read, value_columns
from acenode.series.times import Clock

COLUMNS = Columns("machine", "hour", VALUES)


def small(**changes) -> pd.DataFrame:
    data = {"machine": ["a", "a", "b", "b"], "hour": [0.0, 1.0, 0.0, 2.0], "heat": [1.0, 2.0, 3.0, 4.0]}
    return pd.DataFrame({**data, "flow": [1.0, np.nan, 0.5, 2.0], **changes})


# --- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_is_read_alike(kind):
    frame = machines(4)
    table, plain = read(of_kind(frame, kind), COLUMNS), read(frame, COLUMNS)
    assert table.backend == kind
    assert table.ids.tolist() == ["m00", "m01", "m02", "m03"]
    np.testing.assert_array_equal(table.times, plain.times)
    np.testing.assert_array_equal(table.values, plain.values)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_stand_for_a_blank_are_blanks(kind):
    single = np.array([-999.0, -99.9, 3.0, 2.0], np.float32)
    values = {"heat": [1.0, -999.0, 1e39, -99.9], "flow": [-999, 7, 8, -1], "slow": single}
    frame = of_kind(small(machine=[-999, -999, 2, 2], **values), kind)
    columns = Columns("machine", "hour", ("heat", "flow", "slow"), missing=(-999.0, -99.9, 1e39, 0.25))
    table, gap = read(frame, columns), np.nan
    np.testing.assert_array_equal(table.values, [[1, gap, gap], [gap, 7, gap], [gap, 8, 3], [gap, -1, 2]])
    assert table.ids.tolist() == [-999, 2] and absent_codes(frame, columns, "it") == [0.25]


def test_interleaved_ids_become_series_in_the_order_of_appearance():
    frame = small().iloc[[2, 0, 3, 1]]
    table = read(frame, COLUMNS)
    assert table.ids.tolist() == ["b", "a"]
    panel = table.panel()
    np.testing.assert_array_equal(panel.series.values[1, :, 0], [1, 2])
    np.testing.assert_array_equal(panel.series.times[0], [0, 2])
    np.testing.assert_array_equal(table.order, [0, 2, 1, 3])


def test_panel_pads_with_the_last_time_and_nothing_observed():
    frame = machines(6)
    table = read(frame, COLUMNS)
    series = table.panel().series
    for k, id in enumerate(table.ids):
        own = frame[frame["machine"] == id]
        n = len(own)
        assert series.length[k] == n
        np.testing.assert_allclose(series.times[k, :n], own["hour"] - own["hour"].iloc[0])
        np.testing.assert_array_equal(series.times[k, n:], series.times[k, n - 1])
        np.testing.assert_array_equal(series.observed[k, :n], own[list(VALUES)].notna())
        assert not series.observed[k, n:].any() and not series.values[k, n:].any()
        np.testing.assert_allclose(series.values[k, :n], own[list(VALUES)].fillna(0), rtol=1e-6)


def test_first_last_and_rows():
    table = read(small(), COLUMNS)
    np.testing.assert_array_equal(table.first, [0, 0])
    np.testing.assert_array_equal(table.last, [1, 2])
    np.testing.assert_array_equal(table.rows, [0, 1, 0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_true_and_false_are_values(kind):
    frame = of_kind(small(flow=[True, False, True, True]), kind)
    np.testing.assert_array_equal(read(frame, COLUMNS).values[:, 1], [1, 0, 1, 1])


def test_true_and_false_with_blanks_are_values():
    np.testing.assert_array_equal(read(small(flow=[True, None, False, True]), COLUMNS).values[:, 1], [1, np.nan, 0, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York"])
def test_points_in_time_come_back_as_they_were(kind, zone):
    frame = of_kind(dated(machines(3), zone), kind)
    table = read(frame, COLUMNS)
    assert table.clock == Clock("datetime", zone)
    back = table.clock.write(table.times, kind).to_list()
    assert back == list(frame["hour"].to_pylist() if kind == "pyarrow" else frame["hour"])


def test_hours_across_a_change_of_the_clock_are_real_hours():
    night = pd.to_datetime(["2021-03-28 01:30", "2021-03-28 03:30"]).tz_localize("Europe/Berlin")
    table = read(small(hour=[*night, *night]), COLUMNS)
    np.testing.assert_array_equal(np.diff(table.times[:2]), [3600])


def test_an_offset_is_a_zone():
    when = pd.to_datetime(["2021-03-28 01:30+05:30", "2021-03-28 03:30+05:30"] * 2)
    table = read(small(hour=when), COLUMNS)
    assert table.clock.write(table.times, "pandas").to_list() == list(when)
    assert table.clock.show(table.times[0]) == "2021-03-28 01:30:00+05:30"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dates_are_points_in_time(library):
    days = [dt.date(2020, 2, 28), dt.date(2020, 3, 1)] * 2
    frame = small(hour=days)
    if library == "polars":
        frame = pl.from_pandas(frame.drop(columns="hour")).with_columns(pl.Series("hour", days))
    table = read(frame, COLUMNS)
    assert table.clock == Clock("datetime")
    np.testing.assert_array_equal(np.diff(table.times[:2]), [2 * 86400])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("offsets", "zone"), [(("", ""), None), (("Z", "Z"), "UTC"), (("+0530", "+05:30"), "+05:30"), (("+01", "Z"), "UTC")]
)
def test_dates_as_text_are_dates(kind, offsets, zone):
    texts = [f"2024-03-30T10:43:12{offsets[0]}", f" 2024-04-01 10:43{offsets[1]}"] * 2
    several = pytest.warns(UserWarning, match="several offsets") if offsets[0] == "+01" else nullcontext()
    with several:
        table = read(of_kind(small(hour=texts), kind), COLUMNS)
    assert table.clock == Clock("datetime", zone)
    moments = [dt.datetime.fromisoformat(text.strip()) for text in texts]
    aware = [m if m.tzinfo else m.replace(tzinfo=dt.UTC) for m in moments]
    np.testing.assert_array_equal(table.times, [m.timestamp() for m in aware])
    back = table.clock.write(table.times, kind).to_list()
    assert [dt.datetime.fromisoformat(b) if isinstance(b, str) else b for b in back] == moments
    assert table.clock.read(["2024-03-30T10:43:12"], "at")[0] == table.times[0] or offsets[0] == "+01"


def test_two_names_of_one_zone_are_one_offset():
    hours = [dt.datetime(2024, 1, day, tzinfo=dt.UTC if day % 2 else ZoneInfo("UTC")) for day in (1, 2, 1, 2)]
    assert read(small(hour=pd.Series(hours, dtype=object)), COLUMNS).clock.zone == "UTC"


def test_a_time_zone_in_some_rows_only_is_refused():
    hours = ["2024-01-01T12:00Z", "2024-01-02T12:00", "2024-01-01T12:00Z", "2024-01-02T12:00Z"]
    refused(lambda: read(small(hour=hours), COLUMNS), "'hour' has a time zone in some rows, and none in row 2")


def test_numbers_of_numpy_as_ids_become_plain_ones():
    frame = small(machine=np.asarray([np.int64(3), np.int64(3), np.int64(5), np.int64(5)], object))
    assert [type(i) for i in read(frame, COLUMNS).ids] == [int, int]


def test_values_default_to_all_other_columns():
    assert value_columns(labelled(machines(2)), "machine", "hour", "state", None, what="t") == VALUES
    assert value_columns(machines(2), "machine", "hour", None, "flow", what="t") == ("flow",)


# --- query times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "2021-03-27T07:00",
        "2021-03-27T06:00:00Z",
        np.datetime64("2021-03-27T07:00"),
        dt.datetime(2021, 3, 27, 7),
        dt.datetime(2021, 3, 27, 6, tzinfo=dt.UTC),
        pd.Timestamp("2021-03-27 07:00"),
        pd.Timestamp("2021-03-27 01:00", tz="America/New_York") + pd.Timedelta(hours=1),
    ],
)
def test_a_moment_in_any_form_is_read_in_the_zone_of_the_table(given):
    truth = pd.Timestamp("2021-03-27 07:00", tz="Europe/Berlin").timestamp()
    assert Clock("datetime", "Europe/Berlin").read([given], "at")[0] == truth


def test_a_day_without_a_zone_is_its_midnight():
    truth = dt.datetime(2021, 3, 27, tzinfo=dt.UTC).timestamp()
    for given in ("2021-03-27", dt.date(2021, 3, 27), np.datetime64("2021-03-27")):
        assert Clock("datetime", None).read([given], "at")[0] == truth


@pytest.mark.parametrize("given", ["noon", 3, pd.NaT, np.datetime64("NaT", "s"), None])
def test_what_is_no_date_is_refused(given):
    refused(lambda: Clock("datetime", None).read([given], "at"), "at: ")


@pytest.mark.parametrize("given", ["3", dt.date(2020, 1, 1), np.datetime64("2020-01-01"), np.timedelta64(3, "h"), None])
def test_what_is_no_number_is_refused(given):
    refused(lambda: Clock("number").read([given], "at"), "not a number")


def test_infinite_times_are_refused():
    refused(lambda: Clock("number").read([1.0, np.inf], "at"), "inf", "finite")


def test_a_zone_where_the_table_has_none_is_refused():
    refused(lambda: Clock("datetime", None).read(["2021-03-27T06:00Z"], "at"), "has a time zone")


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_column_is_named(kind):
    said = refused(lambda: read(of_kind(small().drop(columns="heat"), kind), COLUMNS), "'heat'", "'flow'")
    assert "Rename" in said


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_table_is_refused(kind):
    refused(lambda: read(of_kind(small().iloc[:0], kind), COLUMNS), "empty")


def test_what_is_no_frame_is_refused():
    refused(lambda: read({"machine": [1]}, COLUMNS), "dict", "pandas")
    refused(lambda: read(pl.from_pandas(small()).lazy(), COLUMNS), "LazyFrame", "collect")


@pytest.mark.parametrize("kind", KINDS)
def test_unsorted_times_name_both_rows(kind):
    frame = of_kind(small(hour=[0.0, 1.0, 5.0, 2.0]), kind)
    refused(lambda: read(frame, COLUMNS), "machine 'b'", "row 3", "row 4", "sort")


def test_duplicate_times_name_both_rows():
    frame = small(machine=["a", "b", "a", "b"], hour=[1.0, 0.0, 1.0, 2.0])
    refused(lambda: read(frame, COLUMNS), "machine 'a'", "rows 1 and 3", "merge")


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_among_numbers_is_found(kind):
    frame = of_kind(small(flow=["1.5", "2", "n/a", "3"]), kind)
    refused(lambda: read(frame, COLUMNS), "'flow'", "'n/a'", "row 3")


def test_numbers_as_text_are_refused():
    refused(lambda: read(small(flow=["1", "2", "3", "4"]), COLUMNS), "'flow'", "'1'", "row 1")


@pytest.mark.parametrize("kind", KINDS)
def test_categories_are_refused_with_the_way_out(kind):
    frame = of_kind(small(flow=pd.Categorical(["low", "high", "low", "low"])), kind)
    refused(lambda: read(frame, COLUMNS), "'flow'", "'low'", "code categories")


def test_infinite_values_name_row_and_column():
    refused(lambda: read(small(heat=[1, 2, np.inf, 3]), COLUMNS), "'heat'", "row 3", "finite")
    refused(lambda: read(small(heat=[1, 1e300, 2, 3]), COLUMNS), "'heat'", "row 2", "finite")


@pytest.mark.parametrize("column", ["machine", "hour"])
@pytest.mark.parametrize("kind", KINDS)
def test_blank_ids_and_times_name_the_row(column, kind):
    values = small()[column].astype(object).tolist()
    frame = of_kind(small(**{column: [values[0], None, *values[2:]]}), kind)
    refused(lambda: read(frame, COLUMNS), f"'{column}'", "row 2")


def test_not_a_number_counts_as_blank_in_polars_too():
    frame = pl.from_pandas(small()).with_columns(pl.Series("machine", [1.0, float("nan"), 2.0, 2.0]))
    refused(lambda: read(frame, COLUMNS), "'machine'", "row 2", "blank")
    frame = pl.from_pandas(small()).with_columns(pl.Series("state", [1.0, 1.0, float("nan"), 2.0]))
    refused(lambda: read(frame, COLUMNS._replace(label="state")), "'state'", "row 3", "blank")


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_spaces_is_blank(kind):
    frame = of_kind(small(machine=["a", "a", "  ", "b"], state=["good", "", "worn", "worn"]), kind)
    refused(lambda: read(frame, COLUMNS), "'machine'", "row 3", "blank")
    labelled = COLUMNS._replace(id="state", label="machine")
    refused(lambda: read(frame, labelled), "'state'", "row 2", "blank")


def test_numbers_of_time_as_text_are_refused():
    refused(lambda: read(small(hour=["1", "2", "3", "4"]), COLUMNS), "'hour'", "'1'", "dates")


def test_a_label_that_varies_names_both_rows():
    frame = small(state=["x", "y", "x", "x"])
    refused(lambda: read(frame, COLUMNS._replace(label="state")), "machine 'a'", "'x' in row 1", "'y' in row 2")


def test_a_label_that_is_neither_text_nor_number_is_refused():
    frame = small(state=pd.to_datetime(["2020-01-01"] * 4))
    refused(lambda: read(frame, COLUMNS._replace(label="state")), "'state'", "row 1", "text")


def test_two_columns_of_one_name_are_refused():
    frame = small()
    frame.columns = ["machine", "hour", "heat", "heat"]
    refused(lambda: read(frame, Columns("machine", "hour", ("heat",))), "two columns", "rename")


def test_a_column_has_one_role():
    frame = machines(2)
    refused(lambda: value_columns(frame, "machine", "hour", None, ["hour", "heat"], what="t"), "'hour'")
    refused(lambda: value_columns(frame, "machine", "hour", None, ["heat", "heat"], what="t"), "'heat'", "twice")
    refused(lambda: value_columns(frame, "machine", "machine", None, None, what="t"), "'machine'")
    refused(lambda: value_columns(frame[["machine", "hour"]], "machine", "hour", None, None, what="t"), "no column")


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_a_column_without_a_name_is_no_variable_unless_asked_for(kind, name):
    frame = machines(2)
    frame.insert(0, name, range(len(frame)))
    frame = of_kind(frame, kind)
    refused(
        lambda: value_columns(frame, "machine", "hour", None, None, what="t"), "column 1 has no name", "index=False"
    )
    assert value_columns(frame, "machine", "hour", None, VALUES, what="t") == VALUES
    assert value_columns(frame, "machine", "hour", None, [name], what="t") == (name,)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_with_leading_zeros_are_refused_with_the_way_out(kind):
    frame = of_kind(small(flow=["12", "13", "007", "14"]), kind)
    refused(lambda: read(frame, COLUMNS), "'flow' holds '007' in row 3", "without leading zeros")
    frame = of_kind(small(hour=["00", "01", "00", "02"]), kind)
    refused(lambda: read(frame, COLUMNS), "'hour'", "'00'", "without leading zeros")


def test_times_that_single_precision_confuses_are_named():
    frame = small(hour=[0.0, 1.0, 0.0, 2.0])
    frame = pd.concat([frame, pd.DataFrame({"machine": "b", "hour": [1e9, 1e9 + 1], "heat": 1.0, "flow": 2.0})])
    refused(lambda: read(frame, COLUMNS).panel(), "machine 'b'", "1000000000 and 1000000001")


def test_ids_of_a_part_of_a_larger_table_are_those_in_it():
    """The dictionary of an Arrow column knows the ids of all rows that there once were."""
    whole = pa.table({"id": pa.array(["a", "b", "c", "b"]).dictionary_encode(), "time": [1, 1, 1, 2], "x": [1.0] * 4})
    part = whole.filter(pa.array([False, True, True, True]))
    read_back = read(part, Columns("id", "time", ("x",)))
    assert list(read_back.ids) == ["b", "c"]
    assert list(np.diff(read_back.starts)) == [2, 1]


# --- times that are none, or other than they look ---------------------------------------------------------------------


def test_the_one_text_that_is_no_time_is_shown():
    hours = ["0.11", "1.5", "12:30 h", "2"]
    refused(lambda: read(small(hour=hours), COLUMNS), "such as '12:30 h' in row 3; expected numbers or dates")
    days = ["2024-02-28", "2024-02-30", "2024-02-28", "2024-03-01"]
    refused(lambda: read(small(hour=days), COLUMNS), "such as '2024-02-30' in row 2")
    refused(lambda: read(small(hour=list("abcd")), COLUMNS), "such as 'a' in row 1")


@pytest.mark.parametrize("below", [1, 10_000, 1_000_000])
def test_days_written_as_one_number_are_not_taken_for_a_count(below):
    days = np.asarray([20231231, 20240101, 20231230, 20240229]) * below
    refused(lambda: read(small(hour=days), COLUMNS), f"such as {days[0]}, look like dates")
    days[1] = 20231232 * below  # no such day
    assert read(small(hour=days), COLUMNS).clock.kind == "number"
    within = 20240101 * below + np.asarray([0, 1, 0, 1]) * (below > 1) + np.asarray([0, 1, 0, 1]) * 99 * (below == 1)
    assert read(small(hour=within), COLUMNS).clock.kind == "number"  # hours of one day, or 20240200, which is none


def test_a_long_table_is_told_of_the_pivot():
    refused(lambda: read(small(hour=[0.0, 0.0, 0.0, 2.0]), COLUMNS), "in rows 1 and 2; merge", "(a pivot)")
