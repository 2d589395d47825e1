"""USHCN: each step of the processing, the published file, the windows of a state, the task, and the divisions."""

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.datasets import files, ushcn, ushcn_steps as steps
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.ushcn import (
    Climate,
    Skipped,
    folds,
    from_raw,
    load_maine,
    load_national,
    published_splits,
    question,
)
from acenode.datasets.ushcn_raw import ELEMENTS, EPOCH, Table
from acenode.series import Panel, Series

COLUMNS = "ID,Time," + ",".join(f"{what}_{i}" for what in ("Value", "Mask") for i in range(5)) + "\n"
REAL = "state17_ME.txt.gz of USHCN is neither in $ACENODE_DATA nor in ../shared/data"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(ushcn, "NATIONAL_URL", "http://127.0.0.1:9/national")
    monkeypatch.setattr(ushcn, "MAINE_URL", "http://127.0.0.1:9/maine")
    monkeypatch.delenv("ACENODE_DATA", raising=False)


def days(first: str, last: str) -> np.ndarray:
    start, stop = (np.asarray([first, last], "datetime64[D]") - EPOCH).astype(np.int32)
    return np.arange(start, stop + 1, dtype=np.int32)


def table(*parts: tuple[str, int, np.ndarray]) -> Table:
    """Values of (station, element, days); a value is the day's last three digits."""
    stations = tuple(sorted({name for name, _, _ in parts}))
    ordered = sorted(parts, key=lambda part: part[:2])
    day = np.concatenate([part[2] for part in ordered]).astype(np.int32)
    lengths = [len(part[2]) for part in ordered]
    station = np.repeat([stations.index(name) for name, _, _ in ordered], lengths).astype(np.int32)
    element = np.repeat([which for _, which, _ in ordered], lengths).astype(np.int8)
    return Table(stations, station, element, day, day % 1000, np.full(len(day), ord(" "), np.uint8))


def written(table: Table) -> bytes:
    """The table as raw lines."""
    date = EPOCH + table.day
    month = date.astype("datetime64[M]")
    lines = {}
    for i in range(len(table)):
        key = (table.stations[table.station[i]], str(month[i]).replace("-", ""), ELEMENTS[table.element[i]])
        cells = lines.setdefault(key, ["-9999   "] * 31)
        cells[(date[i] - month[i].astype("datetime64[D]")).astype(int)] = f"{table.value[i]:5d} {chr(table.flag[i])}6"
    return "".join("".join((*key, *cells)) + "\n" for key, cells in lines.items()).encode()


@pytest.fixture
def state(tmp_path):
    """Writes a table as the raw file of Maine, and gives its folder."""

    def write(table: Table) -> Path:
        (tmp_path / "data" / "ushcn").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "ushcn" / ushcn.MAINE).write_bytes(gzip.compress(written(table)))
        return tmp_path / "data"

    return write


def station(name: str, first="1996-12-02", last="2000-12-31", elements=range(5)) -> list:
    return [(name, element, days(first, last)) for element in elements]


# --- the steps -------------------------------------------------------------------------------------------------------


def test_the_published_clock():
    """The facts of the published set: its window, its scale, a time of its own for each day."""
    assert (EPOCH + steps.LAST_DAY, EPOCH + steps.FIRST_DAY) == (
        np.datetime64("2000-12-31"),
        np.datetime64("1996-12-02"),
    )
    assert steps.stamp(np.asarray([0, 1, 18_627])).tolist() == [0, 0.1, 2500]
    # Day 17,136 is the last that rounds below 2300.
    assert steps.stamp(np.asarray([17_136, 17_137])).tolist() == [2299.9, 2300]
    assert (steps.TIMES[0], steps.TIMES[-1], len(np.unique(steps.TIMES))) == (0, 200, 1491)
    assert EPOCH + steps.FIRST_DAY + int(np.argmax(steps.TIMES > 150)) == np.datetime64("1999-12-25")
    np.testing.assert_array_equal(
        steps.TIMES, np.round(np.round(2500 * np.arange(17_137, 18_628) / 18_627, 1) - 2300, 1)
    )


def test_a_time_tells_its_day():
    np.testing.assert_array_equal(steps.day_of(steps.TIMES.astype(np.float32)), np.arange(1491))
    with pytest.raises(ValueError, match=r"0\.1 is not the time of any day"):
        steps.day_of(np.asarray([0.0, 0.1]))


def test_flagged_values_are_dropped():
    values = table(("1", 0, np.arange(3)))
    values.flag[1] = ord("I")
    assert steps.drop_flagged(values).day.tolist() == [0, 2]


def test_long_lived_stations():
    early, late, both = ("1969-12-31", "2001-12-31"), ("1970-01-01", "2002-01-01"), ("1969-12-31", "2002-01-01")
    parts = [
        (name, 0, np.concatenate([days(d, d) for d in ends]))
        for name, ends in zip("abc", (early, late, both), strict=True)
    ]
    kept = steps.keep_long_lived(table(*parts))
    assert {kept.stations[i] for i in kept.station} == {"c"}


def test_years():
    kept = steps.keep_years(table(("1", 0, days("1949-12-01", "2001-02-01"))))
    assert [str(EPOCH + int(kept.day[i])) for i in (0, -1)] == ["1950-01-01", "2000-12-31"]


def test_a_part_of_every_station_and_element_is_kept():
    whole = table(("1", 0, np.arange(1000)), ("1", 3, np.arange(50)), ("2", 3, np.arange(1000)), ("3", 1, np.arange(5)))
    kept = steps.keep_part(whole, 0.05, seed=1)
    assert np.bincount(kept.station * 5 + kept.element, minlength=12)[[0, 3, 8, 11]].tolist() == [50, 2, 50, 0]
    assert set(zip(kept.station, kept.element, kept.day, kept.value, strict=True)) <= set(
        zip(whole.station, whole.element, whole.day, whole.value, strict=True)
    )
    assert kept.day[kept.station == 1].tolist() != kept.day[(kept.station == 0) & (kept.element == 0)].tolist()
    np.testing.assert_array_equal(steps.keep_part(whole, 0.05, seed=1).day, kept.day)
    assert not np.array_equal(steps.keep_part(whole, 0.05, seed=2).day, kept.day)
    np.testing.assert_array_equal(steps.keep_part(whole, 1).day, whole.day)


def test_what_is_kept_of_a_station_does_not_depend_on_the_others():
    alone, among = table(("2", 3, np.arange(1000))), table(("1", 0, np.arange(99)), ("2", 3, np.arange(1000)))
    kept = steps.keep_part(among)
    np.testing.assert_array_equal(steps.keep_part(alone).day, kept.day[kept.station == 1])


@pytest.mark.parametrize("part", [0, -0.1, 1.01, float("nan")])
def test_bad_part(part):
    with pytest.raises(ValueError, match="expected a part of the values, above 0 and at most 1"):
        steps.keep_part(table(("1", 0, np.arange(9))), part)


def test_joined_tables():
    joined = steps.join([table(("2", 0, np.arange(2)), ("4", 1, np.arange(1))), table(("1", 2, np.arange(1)))])
    assert [joined.stations[i] for i in joined.station] == ["1", "2", "2", "4"]
    assert joined.element.tolist() == [2, 0, 0, 1]
    with pytest.raises(ValueError, match="station 2 is in two of the files; leave one of them out"):
        steps.join([table(("2", 0, np.arange(2))), table(("2", 1, np.arange(2)))])


def test_windows_lie_one_after_the_other():
    found = steps.windows(table(("1", 0, days("1992-12-01", "2004-12-31"))))
    number, first, count = np.unique(found.number, return_index=True, return_counts=True)
    assert (number.tolist(), count.tolist()) == ([-1, 0, 1], [1491 - 29, 1491, 1461])
    assert found.time[first[1]] == found.time[first[2]] == 0 and found.time[first[2] - 1] == 200
    assert steps.starts(number).astype(str).tolist() == ["1992-11-02", "1996-12-02", "2001-01-01"]
    with pytest.raises(ValueError, match="days is 1492; expected 1 to 1491"):
        steps.windows(table(("1", 0, np.arange(9))), 1492)


def test_one_row_for_each_series_and_time():
    made = steps.rows(
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
    made = steps.Rows(series, time, np.zeros((len(time), 5)))
    assert steps.both_sides(made, 5).tolist() == [True, False, False, False, False]


# --- a state ---------------------------------------------------------------------------------------------------------


def test_every_window_of_a_station_is_a_series(state):
    given = table(
        *station("170100", "1992-11-02"),
        *station("170200", elements=range(4)),  # no TMIN
        *station("170300", last="1999-12-24"),  # ends at time 150
        *station("170400", "1999-12-25"),  # begins after it
        *station("170500", last="1999-12-28"),  # four rows after it
    )
    climate = load_maine(state(given), part=1)
    assert climate.panel.ids.tolist() == ["170100/1992-11-02", "170100/1996-12-02", "170500/1996-12-02"]
    assert climate.station.tolist() == ["170100", "170100", "170500"]
    assert climate.start.astype(str).tolist() == ["1992-11-02", "1996-12-02", "1996-12-02"]
    assert climate.skipped == Skipped(("170200/1996-12-02",), ("170300/1996-12-02", "170400/1996-12-02"))
    assert climate.panel.variables == ELEMENTS
    series = climate.panel.series
    assert (series.length.tolist(), series.times.dtype, series.values.dtype) == (
        [1491, 1491, 1122],
        np.float32,
        np.float32,
    )
    np.testing.assert_allclose(series.times[0], steps.TIMES, atol=1e-5)
    np.testing.assert_array_equal(series.values[1, :, 2], np.arange(17_137, 18_628) % 1000)
    assert climate.sha256 == {ushcn.MAINE: climate.readings[0].sha256}
    assert climate.readings[0].stations == 5


def test_flagged_values_do_not_complete_a_window(state):
    given = table(*station("170100"), *station("170200"))
    given.flag[(given.station == 1) & (given.element == 1)] = ord("X")
    assert load_maine(state(given)).skipped.incomplete == ("170200/1996-12-02",)


def test_seed_and_part(state):
    folder = state(table(*station("170100", "1988-10-03")))
    one, again, other = (load_maine(folder, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.panel.series.values, again.panel.series.values)
    assert not np.array_equal(one.panel.series.times, other.panel.series.times)
    # of each variable one in twenty of the whole record, of which a window has a little more or less
    assert one.panel.series.observed.sum() == pytest.approx(0.05 * 5 * 1491 * len(one), rel=0.02)
    more = load_maine(folder, part=0.5)
    assert more.panel.series.observed.sum() == pytest.approx(0.5 * 5 * 1491 * len(more), rel=0.02)


def test_windows_of_four_years_keep_the_season(state):
    climate = load_maine(state(table(*station("170100", "1991-01-01"))), days=1461, part=0.2)
    assert climate.start.astype(str).tolist() == ["1988-12-02", "1992-12-02", "1996-12-02"]
    assert climate.panel.series.times.max() < 196.1


def test_an_unpacked_file_will_do(tmp_path):
    (tmp_path / "state17_ME.txt").write_bytes(written(table(*station("170100"))))
    assert len(load_maine(tmp_path)) == 1


def test_missing_state_says_how_to_get_it(tmp_path):
    with pytest.raises(DataNotFound, match=r"state17_ME.txt.gz of the data set ushcn(.|\n)*ACENODE_DATA"):
        load_maine(tmp_path)


def test_nothing_left_is_refused(state):
    with pytest.raises(ValueError, match="no series is left.*1 windows lack a variable.*Keep a larger part"):
        load_maine(state(table(*station("170100", elements=range(1)))))


def test_published_processing_of_raw_files(tmp_path):
    def lived(name, first, last) -> list:
        """A station with one day in each of its first and last year, and all of 1996 to 2000."""
        ends = [days(f"{year}-06-01", f"{year}-06-01") for year in (first, last)]
        return [(name, i, np.unique(np.concatenate([*ends, days("1996-01-01", "2000-12-31")]))) for i in range(5)]

    outside = [("010200", 0, days("1969-12-01", "1969-12-31")), ("010200", 1, days("2002-01-01", "2002-01-31"))]
    here = table(*lived("170100", 1960, 2005), *lived("170200", 1970, 2005))
    there = table(*lived("010100", 1969, 2002), *outside)
    paths = [tmp_path / name for name in ("state17_ME.txt", "state01_AL.txt.gz")]
    paths[0].write_bytes(written(here))
    paths[1].write_bytes(gzip.compress(written(there)))
    climate = from_raw(paths, part=0.2)
    assert climate.panel.ids.tolist() == ["010100/1996-12-02", "170100/1996-12-02"]
    assert climate.skipped == Skipped(one_sided=("010200/1996-12-02",), short_lived=("170200",))
    assert list(climate.sha256) == ["state17_ME.txt", "state01_AL.txt.gz"]
    # a fifth of the values of 1950 to 2000, of which the window has about its share
    assert climate.panel.series.observed.sum((1, 2)) == pytest.approx([0.2 * 5 * 1491] * 2, rel=0.1)


def test_raw_files_without_a_series_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there are no paths"):
        from_raw([])
    (tmp_path / "late.txt").write_bytes(written(table(*station("170200", "1999-01-01", "2001-12-31"))))
    with pytest.raises(ValueError, match="no series is left: 1 stations began too late"):
        from_raw([tmp_path / "late.txt"])


# --- the published file ----------------------------------------------------------------------------------------------


def line(number, time, *observed: tuple[int, float]) -> str:
    values, mask = ["0.0"] * 5, ["0.0"] * 5
    for column, value in observed:
        values[column], mask[column] = str(value), "1.0"
    return ",".join([f"{number:.1f}", str(time), *values, *mask]) + "\n"


def series_lines(number) -> str:
    """A series out of order, as in the file."""
    later = "".join(line(number, time, (3, time / 100), (0, 1)) for time in (180.1, 150.1999999999, 170.1, 160.3))
    return later + line(number, 149.9, (4, -0.5)) + line(number, 0.0, (1, 0.25))


@pytest.fixture
def national(tmp_path):
    def write(text: str) -> Path:
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / ushcn.NATIONAL).write_text(text)
        return tmp_path / "own"

    return write


def test_the_published_file(national, monkeypatch):
    text = COLUMNS + series_lines(7) + series_lines(2) + line(4, 1.1, (0, 1)) + line(1113, 2.0, (0, 1))
    monkeypatch.setattr(ushcn, "NATIONAL_SHA256", hashlib.sha256(text.encode()).hexdigest())
    climate = load_national(national(text))
    assert climate.panel.ids.tolist() == climate.station.tolist() == ["2", "7"]
    assert climate.skipped.one_sided == ("4", "1113")
    assert (climate.start == np.datetime64("1996-12-02")).all()
    series = climate.panel.series
    np.testing.assert_allclose(series.times[0], [0, 149.9, 150.2, 160.3, 170.1, 180.1], rtol=1e-6)
    np.testing.assert_allclose(series.values[1, :3, [1, 4, 0]], [[0.25, 0, 0], [0, -0.5, 0], [0, 0, 1]])
    assert series.observed[0].sum(0).tolist() == [4, 1, 0, 4, 1]
    assert climate.sha256 == {ushcn.NATIONAL: ushcn.NATIONAL_SHA256}


def test_columns_in_another_order(national):
    names = COLUMNS.strip().split(",")
    shuffled = [names[i] for i in (1, 0, *range(7, 12), *range(2, 7))]
    rows = [r.split(",") for r in series_lines(7).split()]
    text = "\n".join(",".join(row[names.index(name)] for name in shuffled) for row in rows)
    with pytest.warns(UserWarning, match="is not the published file"):
        climate = load_national(national(",".join(shuffled) + "\n" + text))
    assert climate.panel.series.observed[0].sum(0).tolist() == [4, 1, 0, 4, 1]


def test_the_checksum_is_that_of_other_loaders():
    assert ushcn.NATIONAL_SHA256.startswith("671eb8d1") and ushcn.NATIONAL_SHA256.endswith("93ecf")
    assert len(ushcn.NATIONAL_SHA256) == 64


def test_another_file_in_the_cache_is_refused(tmp_path):
    (tmp_path / "cache" / "ushcn").mkdir(parents=True)
    (tmp_path / "cache" / "ushcn" / ushcn.NATIONAL).write_text(COLUMNS + series_lines(1))
    with pytest.raises(DataCorrupted, match="expected 671eb8d1.*Delete it"):
        load_national()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has the columns"),
        (COLUMNS.replace("Mask_4", "Mask_5"), "has the columns"),
        (COLUMNS, "has no rows"),
        (COLUMNS + "1.0,hello" + ",0" * 10 + "\n", "is not a table of numbers"),
        (COLUMNS + series_lines(1) + "1.0,2.0\n", "is not a table of numbers"),
        (COLUMNS + "1.0,2.0\n", "has 2 numbers in a line; expected 12"),
        (COLUMNS + line(1.5, 0, (0, 1)), "line 2: the ID is not a whole number"),
        (COLUMNS + line(1, 0, (0, 1)) + line(1, 200.1, (0, 1)), r"line 3: the time is not in \[0, 200\]"),
        (COLUMNS + line(1, "nan", (0, 1)), "line 2: the time"),
        (COLUMNS + line(1, 0.15, (0, 1)), "line 2: the time is not in tenths"),
        (COLUMNS + line(1, 0, (0, 1)).replace("1.0,0.0,0.0,0.0,0.0\n", "0.5,0.0,0.0,0.0,0.0\n"), "a mask is neither"),
        (COLUMNS + line(1, 0), "line 2: nothing is observed"),
        (COLUMNS + line(1, 0, (0, np.inf)), "line 2: a value is not a finite number"),
        (
            COLUMNS + line(1, 0, (0, 1)).replace(",1.0,0.0,0.0,0.0,0.0\n", ",0.0,1.0,0.0,0.0,0.0\n"),
            "there is a value where the mask is 0",
        ),
        (
            COLUMNS + line(1, 0, (0, 1)) + line(2, 0, (0, 1)) + line(1, 0, (1, 1)),
            "line 4: the ID and time are those of",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is not the published file")
def test_bad_file(national, text, why):
    with pytest.raises(DataCorrupted, match=rf"{ushcn.NATIONAL}.*{why}"):
        load_national(national(text))


def test_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(DataNotFound, match=r"small_chunked_sporadic.csv of the data set ushcn(.|\n)*by hand"):
        load_national(tmp_path)


# --- the task --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def climate() -> Climate:
    """Made-up series of 12 stations, three each."""
    random = np.random.default_rng(0)
    n, times = 36, np.sort(random.choice(steps.TIMES, (36, 40)), axis=1).astype(np.float32)
    times[:, -5:] = steps.TIMES[-5:]
    times[:, :35] = steps.TIMES[np.arange(35) * 30]
    observed = random.random((n, 40, 5)) < 0.4
    observed[..., 3] |= ~observed.any(-1)
    values = np.where(observed, random.normal([10, 3, 3, 50, 30], [30, 10, 7, 20, 20], (n, 40, 5)), 0).astype(
        np.float32
    )
    names = np.repeat([f"17{i:04d}" for i in range(12)], 3)
    panel = Panel(Series(times, values, observed, np.full(n, 40, np.int32)), np.arange(n), ELEMENTS)
    return Climate(panel, names, np.full(n, np.datetime64("1996-12-02")), Skipped(), (), {})


def test_the_question(climate):
    asked = question(climate, np.arange(20))
    assert asked.known.times.max() <= 150 < asked.times.max()
    scored = asked.scored.any(-1)
    assert (scored.sum(1) == 3).all()
    for i in range(len(climate)):
        later = np.flatnonzero(asked.times[i] > 150)
        assert np.flatnonzero(scored[i]).tolist() == later[:3].tolist()
        np.testing.assert_array_equal(asked.scored[i, later[:3]], asked.observed[i, later[:3]])
    train = asked.values[:20][asked.observed[:20][..., 1], 1]
    assert (train.mean(), train.std()) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-5))


def with_values(climate: Climate, values: np.ndarray) -> Climate:
    """The same series with other values where something was observed."""
    series = climate.panel.series
    values = np.where(series.observed, values, 0).astype(np.float32)
    changed = Series(series.times, values, series.observed, series.length)
    return replace(climate, panel=Panel(changed, climate.panel.ids, climate.panel.variables))


def test_nothing_leaks_from_test_stations(climate):
    split = folds(climate)[0]
    asked, values = question(climate, split.train), climate.panel.series.values
    rest = np.concatenate([split.train, split.validation])
    tested = np.isin(np.arange(len(climate)), split.test)[:, None, None]
    other = question(with_values(climate, np.where(tested, 1e6, values)), split.train)
    np.testing.assert_array_equal(asked.values[rest], other.values[rest])
    np.testing.assert_array_equal(asked.known.values[rest], other.known.values[rest])


def test_nothing_leaks_from_what_is_asked(climate):
    split = folds(climate)[0]
    asked, series = question(climate, split.train), climate.panel.series
    hidden = np.isin(np.arange(len(climate)), split.test)[:, None, None] & (series.times > 150)[..., None]
    other = question(with_values(climate, np.where(hidden, -1e6, series.values)), split.train)
    np.testing.assert_array_equal(asked.known.values, other.known.values)
    np.testing.assert_array_equal(asked.known.times, other.known.times)
    assert not np.array_equal(asked.values[split.test], other.values[split.test])


def test_no_training_series(climate):
    with pytest.raises(ValueError, match="there are no training series"):
        question(climate, np.arange(0))


def test_folds_are_disjoint_and_by_station(climate):
    parts = folds(climate)
    assert len(parts) == 5
    assert np.array_equal(np.sort(np.concatenate([part.test for part in parts])), np.arange(len(climate)))
    for part in parts:
        names = [set(climate.station[side]) for side in part]
        assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]
        assert len(names[1]) == 2 and len(names[2]) in (2, 3)
    assert not np.array_equal(parts[0].test, folds(climate, seed=1)[0].test)


@pytest.mark.parametrize("n", [10, 239, 1114])
def test_published_splits_equal_scikit_learn(n):
    model_selection = pytest.importorskip("sklearn.model_selection")
    random = np.random.RandomState(432)
    for ours in published_splits(n):
        rest, test = model_selection.train_test_split(np.arange(n), test_size=0.1, random_state=random)
        train, validation = model_selection.train_test_split(rest, test_size=0.2, random_state=random)
        for side, expected in zip(ours, (train, validation, test), strict=True):
            assert np.array_equal(side, np.sort(expected))


def test_published_splits_are_repeated_draws():
    parts = published_splits(1114)
    assert {tuple(len(side) for side in part) for part in parts} == {(801, 201, 112)}
    assert len(np.unique(np.concatenate([part.test for part in parts]))) < 5 * 112
    with pytest.raises(ValueError, match="n is 2; expected at least 3"):
        published_splits(2)


# --- the real state --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maine() -> Climate:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    for place in [os.environ.get("ACENODE_DATA"), beside]:
        if place and (Path(place) / "ushcn" / ushcn.MAINE).exists():
            return load_maine(place)
    pytest.skip(REAL)


def test_real_windows(maine):
    """239 windows of 12 stations hold all five variables and reach past time 150."""
    assert len(maine) == 239
    assert (len(maine.skipped.incomplete), len(maine.skipped.one_sided)) == (34, 10)
    assert all(name.endswith(("/2013-04-01", "/2009-03-02")) for name in maine.skipped.one_sided)  # the record ends
    assert len(set(maine.station)) == 12
    assert (maine.start.min(), maine.start.max()) == (np.datetime64("1886-09-13"), np.datetime64("2009-03-02"))
    assert np.isin(np.datetime64("1996-12-02"), maine.start)
    assert maine.sha256 == {ushcn.MAINE: ushcn.MAINE_SHA256}


def test_real_series(maine):
    series = maine.panel.series
    assert (series.length.min(), np.median(series.length), series.length.max()) == (47, 310, 373)
    assert series.observed.sum((0, 1)).tolist() == [16_718, 14_481, 11_397, 16_777, 16_743]
    assert (series.times.min(), series.times.max()) == (0, 200)
    assert series.observed.any(2)[series.real].all()
    asked = question(maine, np.arange(len(maine)))
    assert (asked.scored.any(2).sum(1) == 3).all()
    for part in folds(maine):
        assert [len({*maine.station[side]}) for side in part] in ([8, 2, 2], [7, 2, 3])
        assert 45 <= len(part.test) <= 51
