"""USHCN: the series of a state, and the published file with everything that can be wrong in it."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from ushcn_tables import days, table

from acenode.datasets import files, ushcn
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.ushcn import Skipped, load_maine, load_national
from acenode.datasets.ushcn_raw import ELEMENTS, Table, date_of

COLUMNS = "ID,Time," + ",".join(f"{what}_{i}" for what in ("Value", "Mask") for i in range(5)) + "\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(ushcn, "NATIONAL_URL", "http://127.0.0.1:9/national")
    monkeypatch.setattr(ushcn, "MAINE_URL", "http://127.0.0.1:9/maine")
    monkeypatch.delenv("ACENODE_DATA", raising=False)


def written(table: Table) -> bytes:
    """The table as raw lines."""
    date = date_of(table.day)
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
    np.testing.assert_allclose(series.times[0], ushcn.TIMES, atol=1e-5)
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
