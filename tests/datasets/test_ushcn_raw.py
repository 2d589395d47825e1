"""The raw daily records: every column, every kind of bad line, and the facts of a real state."""

import calendar
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.ushcn_raw import ELEMENTS, MISSING, date_of, parse, read


def record(values=(), station="170100", year=1996, month=12, element="TMAX", quality=(), width=264) -> bytes:
    """A line with {day: value} and {day: quality letter}, cut to `width`."""
    values, quality = dict(values), dict(quality)
    text = f"{station}{year:04d}{month:02d}{element}"
    for day in range(1, 32):
        marks = f" {quality.get(day, ' ')}{'6' if day in values else ' '}"
        text += f"{values.get(day, MISSING):5d}{marks}"
    return (text[:width] + "\n").encode()


def found(table) -> dict[tuple[str, str, str], int]:
    """{(station, element, date): value}."""
    return {
        (table.stations[s], ELEMENTS[e], str(date_of(d))): int(v)
        for s, e, d, v in zip(table.station, table.element, table.day, table.value, strict=True)
    }


def test_every_column():
    table, reading = parse(
        record({1: 70, 2: -3, 31: 100}, quality={2: "I"}) + record({5: 12345}, "179891", 1950, 1, "PRCP")
    )
    assert found(table) == {
        ("170100", "TMAX", "1996-12-01"): 70,
        ("170100", "TMAX", "1996-12-02"): -3,
        ("170100", "TMAX", "1996-12-31"): 100,
        ("179891", "PRCP", "1950-01-05"): 12345,
    }
    assert [chr(letter) for letter in table.flag] == [" ", "I", " ", " "]
    assert table.day[-1] == 4
    assert (reading.lines, reading.stations, reading.values) == (2, 2, 4)
    assert (reading.missing, reading.flagged, reading.malformed) == (28 + 30, {"I": 1}, 0)


def test_sorted_by_station_element_and_day():
    lines = record({3: 1, 1: 2}, "179891") + record({1: 3}, element="TMIN") + record({1: 4}, element="PRCP")
    table, _ = parse(lines + record({9: 5}, year=1886, element="TMIN"))
    assert list(found(table).values()) == [4, 5, 3, 2, 1]


def test_months_have_their_length():
    for year, month in [(1900, 2), (2000, 2), (1999, 2), (1999, 4), (1999, 12)]:
        days = calendar.monthrange(year, month)[1]
        table, reading = parse(record({days: 7}, year=year, month=month))
        assert list(found(table)) == [("170100", "TMAX", f"{year}-{month:02d}-{days}")]
        assert (reading.missing, reading.impossible_dates) == (days - 1, 0)


def test_impossible_dates_are_counted_named_and_left_out():
    table, reading = parse(record({28: 1, 29: 2, 30: 3}, year=1999, month=2) + record({31: 4}, month=4))
    assert list(found(table).values()) == [1]
    assert reading.impossible_dates == 3
    assert "170100 TMAX 1999-02-29: no such day" in reading.examples
    assert "days that do not exist, skipped: 3" in str(reading)


def test_unknown_elements_are_counted_and_skipped():
    table, reading = parse(record({1: 1}, element="TOBS") * 2 + record({1: 2}, element="WT01") + record({1: 3}))
    assert list(found(table).values()) == [3]
    assert (reading.unknown, reading.malformed) == ({"TOBS": 2, "WT01": 1}, 0)


def test_second_values_of_a_day_are_counted_and_skipped():
    table, reading = parse(record({1: 1, 2: 5}) + record({1: 9, 3: 2}))
    assert sorted(found(table).values()) == [1, 2, 5]
    assert reading.repeated == 1
    assert "170100 TMAX 1996-12-01: there twice" in reading.examples


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (record({1: 1}, width=260), "260 characters, expected 264"),
        (record({31: 1}, width=260), "260 characters, expected 264"),  # a cut value would be a wrong one
        (record({31: 1}, width=262), "262 characters, expected 264"),  # a lost quality mark would hide a fault
        (record({31: 1}, width=263).replace(b"\n", b"\r\n"), "263 characters, expected 264"),
        (record({31: 1}).rstrip() + b"x\n", "265 characters, expected 264"),
        (b"hello\n", "5 characters"),
        (record({1: 1}, station="17O100"), "the station, year or month is not a number"),
        (record({1: 1}).replace(b"1996", b"19 6"), "the station, year or month is not a number"),
        (record({1: 1}, month=13), "the month is not 1 to 12"),
        (record({1: 1}, month=0), "the month is not 1 to 12"),
        (record({1: 1}, year=196), "the year is impossible"),
        (record({1: 1}, year=9196), "the year is impossible"),
        (record({1: 1}, element="    "), "the element is not a code"),
        (record({1: 1}, element="tmax"), "the element is not a code"),
        (record({1: 1}).replace(b"    1", b"  1 1"), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b"   1 "), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b"  1.5"), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b" 1-23"), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b"  --1"), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b"    -"), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b"     "), "a value is not a whole number"),
        (record({1: 1}).replace(b"    1", b"  \xff\xfe1"), "a value is not a whole number"),
        (record({1: 1}, quality={1: "?"}), "a quality mark is not a letter"),
    ],
)
def test_malformed_lines_are_counted_named_and_left_out(line, why):
    table, reading = parse(record({2: 2}) + line + record({3: 3}))
    assert sorted(found(table).values()) == [2, 3]
    assert (reading.lines, reading.malformed) == (3, 1)
    assert reading.examples[0].startswith("line 2: ") and why in reading.examples[0]
    assert "malformed lines, skipped: 1" in str(reading)


def test_only_some_faults_are_shown_but_all_are_counted():
    _, reading = parse(b"nonsense\n" * 20 + record({1: 1}, month=13) * 20)
    assert (reading.malformed, len(reading.examples)) == (40, 5)


@pytest.mark.parametrize(
    "change", [bytes.strip, lambda line: line.replace(b"\n", b"   \r\n"), lambda line: line + b"\n\n"]
)
def test_blanks_at_the_end_do_not_matter(change):
    table, reading = parse(change(record({1: 1, 30: 2})))
    assert list(found(table).values()) == [1, 2]
    assert reading.malformed == 0


def test_nothing_at_all():
    table, reading = parse(b"")
    assert (len(table), reading.lines, reading.stations) == (0, 0, 0)


@settings(max_examples=60)
@given(
    st.dictionaries(st.integers(1, 31), st.integers(-9998, 99999)),
    st.integers(1800, 2099),
    st.integers(1, 12),
    st.sampled_from(ELEMENTS),
)
def test_what_is_written_is_read(values, year, month, element):
    table, reading = parse(record(values, year=year, month=month, element=element))
    days = calendar.monthrange(year, month)[1]
    kept = {f"{year}-{month:02d}-{day:02d}": value for day, value in values.items() if day <= days}
    assert found(table) == {("170100", element, date): value for date, value in kept.items()}
    assert reading.impossible_dates == len(values) - len(kept)
    assert reading.missing == days - len(kept)


@settings(max_examples=60)
@given(st.integers(0, 263), st.binary(min_size=1, max_size=1))
def test_a_spoilt_byte_never_passes_unseen_for_text(place, byte):
    """Whatever a byte becomes, the values of other days are what they were, or the line is gone."""
    line = bytearray(record({day: 111 for day in range(1, 32)}))
    line[place] = byte[0]
    table, reading = parse(bytes(line))
    day = (place - 16) // 8 + 1 if place >= 16 else 0
    wrong = {date: value for (_, _, date), value in found(table).items() if value != 111}
    assert reading.malformed + sum(reading.unknown.values()) + len(table) > 0
    if place >= 16:
        assert set(wrong) <= {f"1996-12-{day:02d}"}


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_packed_or_not(tmp_path, packed):
    path = tmp_path / "state17_ME.txt"  # what it is, not its name, decides
    path.write_bytes(gzip.compress(record({1: 1})) if packed else record({1: 1}))
    table, reading = read(path)
    assert len(table) == 1
    assert reading.source == "state17_ME.txt" and len(reading.sha256) == 64


@pytest.mark.parametrize("cut", [-9, 12])
def test_damaged_archive(tmp_path, cut):
    (tmp_path / "x.gz").write_bytes(gzip.compress(record({1: 1}) * 100)[:cut])
    with pytest.raises(DataCorrupted, match="x.gz cannot be unpacked.*Download it again"):
        read(tmp_path / "x.gz")


@pytest.mark.parametrize("content", [b"", b"Date,Value\n1996-12-01,7\n", record()])
def test_a_file_without_values_is_refused(tmp_path, content):
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(DataCorrupted, match="x.txt holds no daily values; expected lines of 264 characters"):
        read(tmp_path / "x.txt")


def test_no_file(tmp_path):
    with pytest.raises(DataNotFound, match="is not a file; expected raw daily records"):
        read(tmp_path)


# --- a real state ----------------------------------------------------------------------------------------------------


def test_real_maine():
    places = [os.environ.get("ACENODE_DATA", ""), Path(__file__).resolve().parents[2].parent / "shared" / "data"]
    found = [path for place in places if place and (path := Path(place) / "ushcn" / "state17_ME.txt.gz").exists()]
    if not found:
        pytest.skip("state17_ME.txt.gz of USHCN is neither in $ACENODE_DATA nor in ../shared/data")
    table, reading = read(found[0])
    assert (reading.lines, reading.stations, reading.values) == (57_610, 12, 1_683_742)
    assert reading.flagged == {"I": 8733, "D": 186, "S": 156, "L": 18, "G": 14, "X": 9, "O": 8, "R": 4}
    assert (reading.malformed, reading.unknown, reading.impossible_dates, reading.repeated) == (0, {}, 0, 0)
    assert [str(date_of(day)) for day in (table.day.min(), table.day.max())] == ["1886-09-01", "2014-12-31"]
    good = table[table.flag == ord(" ")]
    low = [int(good.value[good.element == i].min()) for i in range(5)]
    high = [int(good.value[good.element == i].max()) for i in range(5)]
    assert (low, high) == ([0, 0, 0, -22, -44], [1174, 340, 84, 107, 85])
    assert np.bincount(good.element).tolist() == [376_090, 312_660, 234_416, 375_837, 375_611]
