"""PhysioNet 2012: parsing, every bad input, the cache, the division, and the facts of the real records."""

import hashlib
import io
import os
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from acenode.datasets import files, physionet, reference
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.physionet import PUBLISHED, VARIABLES, Clean, load, parse, split
from acenode.series import Series

HEADER = "Time,Parameter,Value\n"
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
ADMISSION = "00:00,RecordID,7\n00:00,Age,54\n00:00,Gender,0\n00:00,Height,170\n00:00,ICUType,4\n00:00,Weight,80\n"
STAY = ADMISSION + "00:07,HR,73\n00:07,GCS,15\n02:30,HR,77\n48:00,Urine,900\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(physionet, "URL", "http://127.0.0.1:9/")
    monkeypatch.delenv("ACENODE_DATA", raising=False)


@pytest.fixture
def folder(tmp_path):
    """Writes records {id: text} as a set, and gives the folder for `data_dir`."""

    def write(records: dict, letter: str = "a", header: str = HEADER) -> Path:
        place = tmp_path / "data" / f"set-{letter}"
        place.mkdir(parents=True, exist_ok=True)
        for record, text in records.items():
            content = text if isinstance(text, bytes) else (header + text).encode()
            (place / f"{record}.txt").write_bytes(content)
        return place.parent

    return write


def archive(path: Path, records: dict[str, str]) -> Path:
    """A tar archive of {path inside: text}, compressed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.lstrip(".")
    mode = "w" if kind == "tar" else f"w:{kind.replace('tgz', 'gz')}"
    with tarfile.open(path, mode) as tar:  # pyright: ignore[reportArgumentType, reportCallIssue]
        for name, text in records.items():
            info = tarfile.TarInfo(name)
            info.size = len(HEADER + text)
            tar.addfile(info, io.BytesIO((HEADER + text).encode()))
    return path


def observations(series: Series, record: int = 0) -> dict[tuple[int, str], float]:
    """{(minute, variable): value} of one record."""
    found = {}
    for row, column in np.argwhere(series.observed[record]):
        found[round(60 * float(series.times[record, row])), VARIABLES[column]] = float(
            series.values[record, row, column]
        )
    return found


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


@settings(max_examples=60, deadline=None)
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


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("set-a.tar.gz", "set-a/{}.txt"),
        ("set-a.tar.gz", "./set-a/{}.txt"),
        ("set-a.tar.xz", "download/set-a/{}.txt"),
        ("set-a.tar", "{}.txt"),
        ("set-a.tgz", "records/{}.txt"),
        ("set-a-b.tar.xz", "set-a/{}.txt"),
        ("physionet2012/set-a-b-c.tar.bz2", "set-a/{}.txt"),
    ],
)
def test_archives(tmp_path, name, inside):
    records = {inside.format(7): STAY, inside.format(8): ADMISSION, "set-b/9.txt": STAY, "set-a/readme.txt": "hello"}
    archive(tmp_path / "data" / name, records)
    data = load(data_dir=tmp_path / "data")
    assert np.array_equal(data.panel.ids, [7, 8])
    assert len(observations(data.panel.series)) == 9


def test_folder_before_archive_and_one_before_several(tmp_path, folder):
    archive(tmp_path / "data" / "set-a-b.tar.xz", {"set-a/1.txt": STAY, "set-b/4.txt": STAY})
    archive(tmp_path / "data" / "set-b.tar.gz", {"set-b/2.txt": STAY})
    archive(tmp_path / "data" / "set-a.tar.gz", {"set-a/2.txt": STAY})
    data = load("ab", data_dir=folder({3: STAY}))
    assert np.array_equal(data.panel.ids, [2, 3])


def test_other_files_in_the_folder_are_left_alone(folder):
    place = folder({7: STAY})
    for name in ("._7.txt", "readme.txt", "Outcomes-a.txt", "8.csv"):
        (place / "set-a" / name).write_text("anything")
    assert len(load(data_dir=place)) == 1


@pytest.mark.parametrize("name", ["set-a.tar.gz", "set-a.tar.xz", "set-a.tar"])
def test_damaged_archive(tmp_path, name):
    rng = np.random.default_rng(0)
    records = {f"set-a/{i}.txt": "".join(f"01:00,HR,{v}\n" for v in rng.random(300)) for i in range(20)}
    path = archive(tmp_path / "data" / name, records)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 100])
    with pytest.raises(DataCorrupted, match=f"{name} cannot be unpacked .* Download it again"):
        load(data_dir=tmp_path / "data")
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataCorrupted, match="cannot be unpacked"):
        load(data_dir=tmp_path / "data")


def test_folder_without_records(tmp_path):
    (tmp_path / "set-a").mkdir()
    with pytest.raises(DataNotFound, match="holds no records of set a"):
        load(data_dir=tmp_path)


def test_record_in_two_sets(folder):
    place = (folder({7: STAY}), folder({7: STAY}, "b"))[0]
    with pytest.raises(DataCorrupted, match="record 7 is there twice"):
        load("ab", data_dir=place)


def test_missing_set_says_how_to_get_it(tmp_path):
    with pytest.raises(DataNotFound, match=r"set-c.tar.gz of the data set physionet2012(.|\n)*ACENODE_DATA"):
        load("c", data_dir=tmp_path)


@pytest.mark.parametrize("sets", [(), ("a", "a"), ("d",), "abx"])
def test_bad_sets(sets):
    with pytest.raises(ValueError, match="expected one or more of 'a', 'b', 'c'"):
        load(sets)


def test_bad_clean():
    with pytest.raises(ValueError, match=r"clean\.impossible is 'wash'"):
        load(clean=Clean(impossible="wash"))  # pyright: ignore[reportArgumentType]


def test_environment(folder, monkeypatch):
    monkeypatch.setenv("ACENODE_DATA", str(folder({7: STAY})))
    assert len(load()) == 1


def test_official_files_are_fetched_with_their_outcomes(tmp_path, monkeypatch):
    archive(tmp_path / "site" / "set-a.tar.gz", {"set-a/7.txt": STAY})
    (tmp_path / "site" / "Outcomes-a.txt").write_text(OUTCOMES + "7,6,1,5,-1,1\n")
    site = {path.name: path.read_bytes() for path in (tmp_path / "site").iterdir()}
    fetched = []

    def download(target, url, sha256, md5, not_found):
        content = site[url.removeprefix(physionet.URL)]
        assert hashlib.sha256(content).hexdigest() == sha256
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        fetched.append(target.name)

    monkeypatch.setattr(files, "_download", download)
    monkeypatch.setattr(physionet, "SHA256", {k: hashlib.sha256(v).hexdigest() for k, v in site.items()})
    assert np.array_equal(load().died, [1])
    assert np.array_equal(load().died, [1])
    assert fetched == ["set-a.tar.gz", "Outcomes-a.txt"]


# --- outcomes --------------------------------------------------------------------------------------------------------


def test_outcomes_where_present(folder):
    place = folder({7: STAY, 8: STAY, 9: STAY})
    folder({10: STAY}, "b")
    (place / "Outcomes-a.txt").write_text(OUTCOMES + "8,6,1,5,-1,0\n7,16,8,8,-1,1\n99,1,1,1,1,1\n\n")
    data = load("ab", data_dir=place)
    assert np.array_equal(data.died, [1, 0, np.nan, np.nan], equal_nan=True)
    assert (data.report.labelled, data.report.died) == (2, 1)


def test_outcomes_of_every_set_are_read_where_the_user_has_them(folder):
    place = folder({7: STAY})
    folder({8: STAY, 9: STAY}, "b")
    folder({10: STAY}, "c")
    for letter, lines in (("b", "8,6,1,5,-1,0\n9,6,1,5,-1,1\n"), ("c", "10,6,1,5,-1,1\n")):
        (place / f"Outcomes-{letter}.txt").write_text(OUTCOMES + lines)
    data = load("abc", data_dir=place)
    assert np.array_equal(data.died, [np.nan, 0, 1, 1], equal_nan=True)  # record 7 is kept without an outcome
    assert (len(data), data.report.labelled, data.report.died) == (4, 3, 2)


def test_outcomes_beside_the_records_in_the_data_sets_folder(tmp_path):
    archive(tmp_path / "physionet2012" / "set-a.tar.gz", {"set-a/7.txt": STAY})
    (tmp_path / "physionet2012" / "Outcomes-a.txt").write_text(OUTCOMES + "7,6,1,5,-1,1\n")
    assert np.array_equal(load(data_dir=tmp_path).died, [1])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "expected RecordID and In-hospital_death"),
        ("RecordID,died\n7,1\n", "expected RecordID and In-hospital_death"),
        (OUTCOMES + "7,6,1,5,-1,2\n", "line 2"),
        (OUTCOMES + "7,6,1,5,-1,0\n8,6,1,5,-1\n", "line 3"),
        (OUTCOMES + "seven,6,1,5,-1,0\n", "line 2"),
    ],
)
def test_bad_outcomes(folder, content, fault):
    place = folder({7: STAY})
    (place / "Outcomes-a.txt").write_text(content)
    with pytest.raises(DataCorrupted, match=rf"Outcomes-a.txt.*{fault}"):
        load(data_dir=place)


# --- the cache -------------------------------------------------------------------------------------------------------


def same(first, second) -> bool:
    pairs = [(getattr(first.panel.series, name), getattr(second.panel.series, name)) for name in Series.__annotations__]
    return first.report == second.report and all(np.array_equal(one, two) for one, two in pairs)


def test_second_load_parses_nothing(folder, monkeypatch, tmp_path):
    place = folder({7: STAY + "03:00,Shoe,4\nnonsense\n", 8: ADMISSION})
    first = load(data_dir=place)
    monkeypatch.setattr(physionet, "parse", None)
    assert same(first, load(data_dir=place))
    assert [path.suffix for path in (tmp_path / "cache" / "physionet2012").iterdir()] == [".npz"]


def test_changed_content_is_parsed_again(folder):
    assert len(load(data_dir=folder({7: STAY}))) == 1
    assert len(load(data_dir=folder({8: STAY}))) == 2
    changed = load(data_dir=folder({8: ADMISSION}))
    assert np.array_equal(changed.panel.series.length, [4, 1])


@pytest.mark.parametrize("damage", [lambda content: content[:-200], lambda content: b"", lambda content: b"nonsense"])
def test_damaged_cache_is_made_anew(folder, tmp_path, damage):
    place = folder({7: STAY})
    first = load(data_dir=place)
    (kept,) = (tmp_path / "cache" / "physionet2012").iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    with pytest.warns(UserWarning, match="cannot be read"):
        assert same(first, load(data_dir=place))
    assert same(first, load(data_dir=place))


def test_cache_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    with pytest.warns(UserWarning, match="could not be kept"):
        assert len(load(data_dir=folder({7: STAY}))) == 1


def test_half_written_cache_is_removed(folder, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    place = folder({7: STAY})
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="no space left"):
        load(data_dir=place)
    assert list((tmp_path / "cache" / "physionet2012").iterdir()) == []


# --- the division ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "sizes"), [(4000, (2880, 320, 800)), (8000, (5760, 640, 1600)), (11, (7, 1, 3))])
def test_split_sizes(n, sizes):
    parts = split(n)
    assert tuple(len(part) for part in parts) == sizes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    published = split(n, protocol="published")
    assert len(published.validation) == 0
    assert np.array_equal(published.test, parts.test)
    assert np.array_equal(published.train, np.sort(np.concatenate(parts[:2])))


def test_split_equals_scikit_learn():
    model_selection = pytest.importorskip("sklearn.model_selection")
    train, test = model_selection.train_test_split(np.arange(4000), train_size=0.8, random_state=42, shuffle=True)
    ours = split(4000, protocol="published")
    assert np.array_equal(ours.train, np.sort(train))
    assert np.array_equal(ours.test, np.sort(test))


def test_split_goes_by_id_not_by_order():
    ids = np.random.default_rng(0).permutation(1000) + 132539
    ours, sorted_ = split(ids), split(np.sort(ids))
    for part, expected in zip(ours, sorted_, strict=True):
        assert set(ids[part]) == set(np.sort(ids)[expected])
    assert np.array_equal(sorted_.test, split(1000).test)


def test_split_is_stratified():
    died = (np.arange(4000) % 7 == 0).astype(float)
    parts = split(4000, labels=died)
    deaths = died[np.concatenate(parts[:2])].sum()
    assert abs(died[parts.validation].sum() - deaths / 10) < 1


def test_bad_split():
    with pytest.raises(ValueError, match="protocol is 'loud'"):
        split(100, protocol="loud")
    with pytest.raises(ValueError, match="there are 1 records"):
        split(1)
    with pytest.raises(ValueError, match=r"labels has shape \(3,\); expected \(4,\)"):
        split(4, labels=[0, 1, 0])


# --- reference predictions -------------------------------------------------------------------------------------------


def test_reference_predictions_by_hand():
    values = np.array([[[1.0, 0], [3, 5], [8, 0], [6, 0]], [[0, 2], [0, 0], [4, 0], [0, 0]]], np.float32)
    observed = np.array([[[1, 0], [1, 1], [1, 0], [1, 0]], [[0, 1], [0, 0], [1, 0], [0, 0]]], bool)
    times = np.array([[0, 10, 24, 30], [0, 5, 40, 40]], np.float32)
    series = Series(times, values, observed, np.array([4, 3], np.int32))
    mean = reference.variable_mean(series)
    assert mean == pytest.approx([22 / 5, 3.5])
    assert np.array_equal(reference.locf(series, 24, mean), [[3, 5], [mean[0], 2]])
    assert np.array_equal(reference.past_mean(series, 24, mean), [[2, 5], [mean[0], 2]])
    # Targets from 24 h: 8 and 6 of the first record, 4 of the second; nothing of the second variable.
    last = reference.locf(series, 24, mean)
    assert reference.mse_published(last, series, since=24) == pytest.approx(((25 + 9) / 2 + 0.4**2) / 4)
    assert reference.mse_per_observation(last, series, since=24) == pytest.approx((25 + 9 + 0.4**2) / 3)
    low, high = reference.observed_range(series)
    assert np.array_equal([low, high], [[1, 2], [8, 5]])
    assert reference.min_over_max(series, low, high).values[0, 2, 0] == pytest.approx(7 / 8)


# --- the real records ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Loads the real records, with a cache of their own."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folders = [Path(os.environ["ACENODE_DATA"])] if os.environ.get("ACENODE_DATA") else []
    for place in [*folders, beside]:
        letters = "".join(path.name.split(".")[0][4:] for path in (place / "physionet2012").glob("set-*"))
        if {"a", "b"} <= set(letters):
            break
    else:
        pytest.skip("the PhysioNet 2012 records of sets a and b are neither in $ACENODE_DATA nor in ../shared/data")
    cache = tmp_path_factory.mktemp("cache")

    def loader(sets: str, clean: Clean = PUBLISHED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "cache_folder", lambda: cache)
            return load(sets, data_dir=place, clean=clean)

    return loader


@pytest.fixture(scope="module")
def both(real):
    """Sets a and b as published."""
    return real("ab")


def test_real_counts(both):
    report = both.report
    assert report.records == {"a": 4000, "b": 4000}
    assert len(report.only_start) == 3 + 7
    assert report.sentinels == {"Gender": 3 + 5, "Height": 1894 + 1930, "Weight": 326 + 347}
    assert (report.unknown, report.malformed) == ({}, 0)
    length = both.panel.series.length
    assert (length.mean(), np.median(length), length.max()) == (pytest.approx(74.8, abs=0.05), 72, 203)
    assert report.observations / 8000 == pytest.approx(438, abs=0.5)
    assert 1 - report.observations / (41 * report.rows) == pytest.approx(0.86, abs=0.005)
    assert 1 - both.panel.series.observed.any(1).mean() == pytest.approx(0.25, abs=0.005)
    assert both.panel.series.observed[:, 0].any(-1).all()


def test_real_extremes(both):
    low, high = (dict(zip(VARIABLES, x, strict=True)) for x in reference.observed_range(both.panel.series))
    assert low["Temp"] == pytest.approx(-17.8)
    assert high["pH"] == 735
    assert high["WBC"] == pytest.approx(6251.9)
    assert low["MechVent"] == high["MechVent"] == 1


def test_real_set_a(real):
    data = real("a")
    assert data.report.records == {"a": 4000}
    assert (data.report.labelled, data.report.died) == (4000, 554)
    assert len(data.report.only_start) == 3
    assert data.report.sentinels == {"Gender": 3, "Height": 1894, "Weight": 326}
    parts = split(data.panel.ids, labels=data.died)
    assert [len(part) for part in parts] == [2880, 320, 800]


def test_real_cleaning(real):
    data = real("a", Clean())
    low, high = reference.observed_range(data.panel.series)
    limits = np.asarray(list(physionet.PLAUSIBLE.values()), np.float32)
    assert (low >= limits[:, 0]).all()
    assert (high <= limits[:, 1]).all()
    assert {"Temp", "pH", "Weight", "SysABP"} <= set(data.report.impossible)
    # What is dropped is rare: the ranges must not bite into the truth.
    assert sum(data.report.impossible.values()) < 0.002 * data.report.observations


def test_real_second_load_is_fast(real, both):
    start = time.perf_counter()
    real("ab")
    # A second on an idle machine; three times that leaves room for a busy one.
    assert time.perf_counter() - start < 3


def test_real_reference_errors(both):
    """The errors of trivial predictions, in thousandths, as measured when the protocol was written."""
    parts = split(both.panel.ids, protocol="published")
    assert (len(parts.train), len(parts.test)) == (6400, 1600)
    scaled = reference.min_over_max(both.panel.series, *reference.observed_range(both.panel.series))
    test, mean = scaled[parts.test], reference.variable_mean(scaled[parts.train])
    cases = [
        (mean, -np.inf, 14.68, 8.02),
        (mean, 24.0, 3.87, 6.46),
        (reference.past_mean(test, 24, mean), 24.0, 2.89, 4.58),
        (reference.locf(test, 24, mean), 24.0, 2.27, 4.15),
    ]
    for prediction, since, published, per_observation in cases:
        assert 1e3 * reference.mse_published(prediction, test, since) == pytest.approx(published, abs=0.005)
        assert 1e3 * reference.mse_per_observation(prediction, test, since) == pytest.approx(per_observation, abs=0.005)
