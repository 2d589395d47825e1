"""PhysioNet 2012: what is read from a record, and every kind of bad line and value."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from physionet_files import ADMISSION, HEADER, STAY, observations, shut_off, write

from acenode.datasets import physionet
from acenode.datasets.physionet import PUBLISHED, VARIABLES, Clean, load, parse


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    shut_off(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path):
    """Writes records {id: text} as a set, and gives the folder for `data_dir`."""
    return partial(write, tmp_path / "data")


def one(folder, text: str | bytes, **options):
    """The data set of one record."""
    return load(data_dir=folder({7: text}), **options)


# --- records ---------------------------------------------------------------------------------------------------------


def test_variables():
    assert len(VARIABLES) == 41
    assert VARIABLES[:5] == ("Age", "Gender", "Height", "ICUType", "Weight")
    assert VARIABLES[5:13] == ("Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine")
    assert VARIABLES[-3:] == ("TroponinT", "Urine", "WBC")
    assert all(low < high for low, high in physionet.PLAUSIBLE.values())


def test_record(folder):
    data = one(folder, STAY)
    series = data.panel.series
    assert np.array_equal(data.panel.ids, [7])
    assert data.panel.variables == VARIABLES
    assert series.times.dtype == series.values.dtype == np.float32
    assert np.allclose(series.times, [[0, 7 / 60, 2.5, 48]])
    assert observations(series) == {
        (0, "Age"): 54,
        (0, "Gender"): 0,
        (0, "Height"): 170,
        (0, "ICUType"): 4,
        (0, "Weight"): 80,
        (7, "HR"): 73,
        (7, "GCS"): 15,
        (150, "HR"): 77,
        (2880, "Urine"): 900,
    }
    assert (data.report.rows, data.report.observations, data.report.repeated) == (4, 9, 0)


def test_every_minute_has_its_own_time(folder):
    text = "".join(f"{m // 60:02d}:{m % 60:02d},HR,70\n" for m in range(2881))
    series = one(folder, text).panel.series
    assert (np.diff(series.times[0]) > 0).all()
    assert np.array_equal(np.round(60 * series.times[0]), np.arange(2881))


def test_records_are_sorted_and_padded(folder):
    data = load("ab", data_dir=(folder({300: STAY, 100: ADMISSION}), folder({200: STAY}, "b"))[0])
    series = data.panel.series
    assert np.array_equal(data.panel.ids, [100, 200, 300])
    assert np.array_equal(series.length, [1, 4, 4])
    assert np.array_equal(series.times[0], [0, 0, 0, 0])
    assert not series.observed[0, 1:].any()
    assert data.report.records == {"a": 2, "b": 1}


def test_repeats_in_a_minute_are_averaged(folder):
    data = one(folder, "00:24,Urine,900\n00:24,HR,60\n00:24,Urine,420\n00:24,Urine,60\n")
    assert observations(data.panel.series) == {(24, "Urine"): 460, (24, "HR"): 60}
    assert data.report.repeated == 2


def test_impossible_values_do_not_enter_an_average(folder):
    text = "01:00,WBC,12500\n01:00,WBC,3.5\n"
    assert observations(one(folder, text).panel.series) == {(60, "WBC"): 3.5}
    assert observations(one(folder, text, clean=PUBLISHED).panel.series) == {(60, "WBC"): 6251.75}


def test_lines_out_of_order_are_sorted(folder):
    data = one(folder, "05:00,HR,3\n01:00,HR,1\n05:00,GCS,4\n03:00,HR,2\n")
    assert np.array_equal(data.panel.series.times, [[0, 1, 3, 5]])
    assert list(observations(data.panel.series).values()) == [1, 2, 4, 3]


@pytest.mark.parametrize(
    "content",
    [
        STAY.encode(),
        (HEADER + STAY).replace("\n", "\r\n").encode(),
        (HEADER + STAY).encode("utf-8-sig"),
        (HEADER + STAY).replace("\n", "\n\n").encode(),
        (HEADER + STAY).replace(",", " , ").encode(),
        (HEADER + STAY).rstrip("\n").encode(),
    ],
    ids=["no header", "windows", "byte order mark", "blank lines", "spaces", "no last newline"],
)
def test_harmless_forms(folder, content):
    data = one(folder, content)
    assert len(observations(data.panel.series)) == 9
    assert data.report.malformed == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([0, 1, 59, 60, 61, 2879, 2880]),
                st.sampled_from([*VARIABLES, "RecordID", "Shoe"]),
                st.floats(-2, 500, width=32),
            ),
            max_size=20,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([Clean(), PUBLISHED, Clean(sentinels="keep"), Clean(impossible="keep")]),
)
def test_agrees_with_a_plain_loop(tmp_path_factory, records, clean):
    place = tmp_path_factory.mktemp("loop")
    (place / "set-a").mkdir()
    for i, lines in enumerate(records):
        text = "".join(f"{m // 60:02d}:{m % 60:02d},{name},{value!r}\n" for m, name, value in lines)
        (place / "set-a" / f"{i}.txt").write_text(HEADER + text)
    data = load(data_dir=place, clean=clean)
    for i, lines in enumerate(records):
        cells: dict = {}
        for minute, name, value in lines:
            if name not in VARIABLES:
                continue
            low, high = (np.float32(limit) for limit in physionet.PLAUSIBLE[name])
            sentinel = value == -1 and name in ("Gender", "Height", "Weight")
            doubt = clean.sentinels if sentinel else "keep" if low <= value <= high else clean.impossible
            if doubt == "keep":
                cells.setdefault((minute, name), []).append(value)
        expected = {cell: np.mean(values) for cell, values in cells.items()}
        assert observations(data.panel.series, i) == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert data.panel.series.length[i] == len({0} | {minute for minute, _ in cells})
    assert data.report.unknown.get("Shoe", 0) == sum(name == "Shoe" for lines in records for _, name, _ in lines)


# --- bad input -------------------------------------------------------------------------------------------------------


def test_sentinels(folder):
    text = "00:00,Age,60\n00:00,Height,-1\n00:00,Gender,-1\n00:00,Weight,-1\n02:00,Weight,-1\n02:00,HR,-1\n"
    data = one(folder, text)
    assert observations(data.panel.series) == {(0, "Age"): 60}
    assert data.report.sentinels == {"Gender": 1, "Height": 1, "Weight": 2}
    assert data.report.impossible == {"HR": 1}
    data = one(folder, text, clean=Clean(sentinels="keep"))
    assert observations(data.panel.series)[0, "Height"] == -1
    assert observations(data.panel.series)[120, "Weight"] == -1
    assert data.report.sentinels == {"Gender": 1, "Height": 1, "Weight": 2}


def test_impossible_values(folder):
    text = "01:00,Temp,-17.8\n01:00,Temp,36.6\n02:00,pH,735\n03:00,Weight,0\n"
    data = one(folder, text)
    assert observations(data.panel.series) == {(60, "Temp"): pytest.approx(36.6)}
    assert data.report.impossible == {"Weight": 1, "Temp": 1, "pH": 1}
    data = one(folder, text, clean=Clean(impossible="keep"))
    assert observations(data.panel.series)[120, "pH"] == 735
    assert data.report.impossible == {"Weight": 1, "Temp": 1, "pH": 1}


def test_values_at_the_limits_are_possible(folder):
    text = "".join(f"00:0{i},{name},{limits[i]!r}\n" for name, limits in physionet.PLAUSIBLE.items() for i in (0, 1))
    data = one(folder, text)
    assert data.report.impossible == {}
    assert data.report.observations == 82


def test_row_without_values_goes_except_the_first(folder):
    data = one(folder, "00:00,Weight,-1\n02:00,Weight,0\n03:00,HR,80\n")
    assert np.array_equal(data.panel.series.times, [[0, 3]])
    assert np.array_equal(data.panel.series.observed.sum(-1), [[0, 1]])


@pytest.mark.parametrize("text", ["", ADMISSION, "00:00,RecordID,7\n", b""])
def test_nothing_after_admission(folder, text):
    data = load(data_dir=folder({7: text, 8: STAY}))
    assert np.array_equal(data.panel.series.length, [1, 4])
    assert data.report.only_start == (7,)


def test_only_empty_records(folder):
    data = one(folder, "")
    assert data.panel.series.values.shape == (1, 1, 41)
    assert not data.panel.series.observed.any()


def test_unknown_parameters(folder):
    data = one(folder, STAY + "03:00,Shoe,44\n04:00,Shoe,45\n04:00,Hat,\n")
    assert data.report.unknown == {"Shoe": 2, "Hat": 1}
    assert data.report.malformed == 0
    assert len(observations(data.panel.series)) == 9


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("03:00,HR", "2 fields"),
        ("03:00,HR,7,3", "4 fields"),
        ("three,HR,70", "the time is not hh:mm"),
        ("03:60,HR,70", "the time is not hh:mm"),
        ("-1:00,HR,70", "the time is not hh:mm"),
        ("03:00,,70", "no parameter is named"),
        ("03:00,HR,", "not a finite number"),
        ("03:00,HR,fast", "not a finite number"),
        ("03:00,HR,nan", "not a finite number"),
        ("03:00,HR,-inf", "not a finite number"),
        ("03:00,HR,1e300", "not a finite number"),
        ("\x00\x01", "1 fields"),
    ],
)
def test_malformed_lines(folder, line, why):
    # Warnings are errors here, so this also shows that no overflow is let slip.
    data = one(folder, STAY + line + "\n04:00,HR,90\n")
    assert data.report.malformed == 1
    assert data.report.malformed_examples[0].startswith("7.txt line 12: ")
    assert why in data.report.malformed_examples[0]
    assert len(observations(data.panel.series)) == 10


def test_bytes_that_are_no_text(folder):
    data = one(folder, (HEADER + STAY).encode() + b"\xff\xfe,HR,70\n04:00,HR,90\n")
    assert data.report.malformed == 1
    assert len(observations(data.panel.series)) == 10


def test_faults_that_make_up_for_each_other(folder):
    data = one(folder, "01:00,HR\n02:00,HR,7,3\n03:00,HR,70\n")
    assert data.report.malformed == 2
    assert observations(data.panel.series) == {(180, "HR"): 70}


def test_few_malformed_lines_are_named(folder):
    data = one(folder, "nonsense\n" * 20)
    assert data.report.malformed == 20
    assert len(data.report.malformed_examples) == 5


def test_times_after_two_days_are_kept(folder):
    assert observations(one(folder, "72:10,HR,70\n").panel.series) == {(4330, "HR"): 70}


def test_report_in_words(folder):
    text = str(one(folder, STAY + "01:00,pH,735\n02:00,Shoe,1\nnonsense\n03:00,Weight,-1\n").report)
    for part in ("records: 1 (set a 1)", "Weight 1", "pH 1", "Shoe 1", "malformed lines, skipped: 1", "nonsense"):
        assert part in text


def test_parse_of_nothing():
    assert all(np.size(part) == 0 for name, part in parse([])._asdict().items() if name != "malformed")
