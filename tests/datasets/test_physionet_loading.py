"""PhysioNet 2012: folders, archives and downloads, the outcomes beside the records, and the cache."""

import hashlib
import io
import os
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from physionet_files import ADMISSION, HEADER, STAY, observations, shut_off, write

from acenode.datasets import files, physionet
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.physionet import Clean, load
from acenode.series import Series

OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    shut_off(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path):
    """Writes records {id: text} as a set, and gives the folder for `data_dir`."""
    return partial(write, tmp_path / "data")


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

    def download(target, remote, sentence):
        content = site[remote.url.removeprefix(physionet.URL)]
        assert hashlib.sha256(content).hexdigest() == remote.sha256
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
