"""USHCN: each step of the processing, from daily values to rows."""

import numpy as np
import pytest
from ushcn_tables import days, table

from acenode.datasets import ushcn
from acenode.datasets.ushcn_raw import date_of


def test_the_published_clock():
    """The facts of the published set: its window, its scale, a time of its own for each day."""
    assert (date_of(ushcn.LAST_DAY), date_of(ushcn.FIRST_DAY)) == (
        np.datetime64("2000-12-31"),
        np.datetime64("1996-12-02"),
    )
    assert ushcn.stamp(np.asarray([0, 1, 18_627])).tolist() == [0, 0.1, 2500]
    # Day 17,136 is the last that rounds below 2300.
    assert ushcn.stamp(np.asarray([17_136, 17_137])).tolist() == [2299.9, 2300]
    assert (ushcn.TIMES[0], ushcn.TIMES[-1], len(np.unique(ushcn.TIMES))) == (0, 200, 1491)
    assert date_of(ushcn.FIRST_DAY + int(np.argmax(ushcn.TIMES > 150))) == np.datetime64("1999-12-25")
    np.testing.assert_array_equal(
        ushcn.TIMES, np.round(np.round(2500 * np.arange(17_137, 18_628) / 18_627, 1) - 2300, 1)
    )


def test_a_time_tells_its_day():
    np.testing.assert_array_equal(ushcn.day_of(ushcn.TIMES.astype(np.float32)), np.arange(1491))
    with pytest.raises(ValueError, match=r"0\.1 is not the time of any day"):
        ushcn.day_of(np.asarray([0.0, 0.1]))


def test_flagged_values_are_dropped():
    values = table(("1", 0, np.arange(3)))
    values.flag[1] = ord("I")
    assert ushcn.drop_flagged(values).day.tolist() == [0, 2]


def test_a_part_of_every_station_and_element_is_kept():
    whole = table(("1", 0, np.arange(1000)), ("1", 3, np.arange(50)), ("2", 3, np.arange(1000)), ("3", 1, np.arange(5)))
    kept = ushcn.keep_part(whole, 0.05, seed=1)
    assert np.bincount(kept.station * 5 + kept.element, minlength=12)[[0, 3, 8, 11]].tolist() == [50, 2, 50, 0]
    assert set(zip(kept.station, kept.element, kept.day, kept.value, strict=True)) <= set(
        zip(whole.station, whole.element, whole.day, whole.value, strict=True)
    )
    assert kept.day[kept.station == 1].tolist() != kept.day[(kept.station == 0) & (kept.element == 0)].tolist()
    np.testing.assert_array_equal(ushcn.keep_part(whole, 0.05, seed=1).day, kept.day)
    assert not np.array_equal(ushcn.keep_part(whole, 0.05, seed=2).day, kept.day)
    np.testing.assert_array_equal(ushcn.keep_part(whole, 1).day, whole.day)


def test_what_is_kept_of_a_station_does_not_depend_on_the_others():
    alone, among = table(("2", 3, np.arange(1000))), table(("1", 0, np.arange(99)), ("2", 3, np.arange(1000)))
    kept = ushcn.keep_part(among)
    np.testing.assert_array_equal(ushcn.keep_part(alone).day, kept.day[kept.station == 1])


@pytest.mark.parametrize("part", [0, -0.1, 1.01, float("nan")])
def test_bad_part(part):
    with pytest.raises(ValueError, match="expected a part of the values, above 0 and at most 1"):
        ushcn.keep_part(table(("1", 0, np.arange(9))), part)


def test_windows_lie_one_after_the_other():
    found = ushcn.windows(table(("1", 0, days("1992-12-01", "2004-12-31"))))
    number, first, count = np.unique(found.number, return_index=True, return_counts=True)
    assert (number.tolist(), count.tolist()) == ([-1, 0, 1], [1491 - 29, 1491, 1461])
    assert found.time[first[1]] == found.time[first[2]] == 0 and found.time[first[2] - 1] == 200
    assert ushcn.starts(number).astype(str).tolist() == ["1992-11-02", "1996-12-02", "2001-01-01"]
    with pytest.raises(ValueError, match="days is 1492; expected 1 to 1491"):
        ushcn.windows(table(("1", 0, np.arange(9))), 1492)


def test_one_row_for_each_series_and_time():
    made = ushcn.rows_of(
        np.asarray([1, 0, 1, 1]), np.asarray([2.0, 5, 2, 1]), np.asarray([0, 3, 4, 0]), np.asarray([7, 8, 9, 6])
    )
    assert (made.series.tolist(), made.time.tolist()) == ([0, 1, 1], [5, 1, 2])
    nan = np.nan
    np.testing.assert_array_equal(
        made.values, [[nan, nan, nan, 8, nan], [6, nan, nan, nan, nan], [7, nan, nan, nan, 9]]
    )


def test_both_sides():
    times = {0: [150, 150.1, 150.2, 150.3, 150.4], 1: [1, 150.1, 150.2, 150.3], 2: [151, 152, 153, 154], 3: [1, 2, 150]}
    series = np.repeat(list(times), [len(t) for t in times.values()])
    time = np.concatenate([np.asarray(t, float) for t in times.values()])
    made = ushcn.Rows(series, time, np.zeros((len(time), 5)))
    assert ushcn.both_sides(made, 5).tolist() == [True, False, False, False, False]
