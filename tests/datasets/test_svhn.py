"""SVHN: the MATLAB files, every bad input, downloads, and the facts of the real images."""

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pooch
import pytest
from scipy.io import savemat

from acenode.datasets import files, svhn
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.images import validation_split

TRAIN, TEST = svhn.MD5

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (14, 32, 32, 3), np.uint8)
LABELS = np.r_[np.arange(1, 11), [10, 1, 2, 10]].astype(np.uint8)


def mat(compressed: bool = True, **variables) -> bytes:
    """A MATLAB file."""
    file = io.BytesIO()
    savemat(file, variables, do_compression=compressed)
    return file.getvalue()


def images_mat(chosen: slice, compressed: bool = True) -> bytes:
    """Some of the images as a MATLAB file like the official ones."""
    return mat(compressed, X=PIXELS[chosen].transpose(1, 2, 3, 0), y=LABELS[chosen, None])


CONTENT = {TRAIN: images_mat(slice(10)), TEST: images_mat(slice(10, None))}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(svhn, "URL", "http://127.0.0.1:9/")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """Writes the two files, some of them changed (None: left out), and gives the folder for `data_dir`."""

    def write(changed: dict | None = None) -> Path:
        place = tmp_path / "data"
        place.mkdir(exist_ok=True)
        for name, content in (CONTENT | (changed or {})).items():
            if content is not None:
                (place / name).write_bytes(content)
        return place

    return write


@pytest.fixture
def site(monkeypatch):
    """A site with the two files: what it serves, by name, and what was fetched from it."""
    served, fetched = dict(CONTENT), []

    def download(url, part, owner):
        fetched.append(url.removeprefix(svhn.URL))
        Path(part).write_bytes(served[fetched[-1]])

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda **_: download)
    monkeypatch.setattr(svhn, "MD5", {name: hashlib.md5(content).hexdigest() for name, content in served.items()})
    return served, fetched


def kept(cache) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def assert_whole(data):
    assert (data.name, data.training) == ("svhn", 10)
    assert (data.pixels.dtype, data.labels.dtype) == (np.uint8, np.int32)
    assert np.array_equal(data.pixels, PIXELS)
    assert data.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 1, 2, 0]


# --- files -----------------------------------------------------------------------------------------------------------


def test_own_files(folder):
    assert_whole(svhn.load(folder()))


def test_environment_and_named_folder(folder, tmp_path, monkeypatch):
    folder().rename(tmp_path / "svhn")
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    assert_whole(svhn.load())


@pytest.mark.parametrize("labels", [LABELS[10:, None].astype(float), LABELS[None, 10:], LABELS[10:, None].astype(int)])
def test_labels_as_matlab_may_save_them(folder, labels):
    assert_whole(svhn.load(folder({TEST: mat(X=PIXELS[10:].transpose(1, 2, 3, 0), y=labels)})))


def test_other_variables_are_left_alone(folder):
    content = mat(note="hello", X=PIXELS[10:].transpose(1, 2, 3, 0), y=LABELS[10:, None])
    assert_whole(svhn.load(folder({TEST: content})))


def test_files_are_fetched_once(site, cache):
    assert_whole(svhn.load())
    assert_whole(svhn.load())
    assert site[1] == [TRAIN, TEST]
    assert kept(cache) == [TEST, TRAIN]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [TRAIN, TEST])
def test_missing_file_says_how_to_get_it(folder, cache, missing):
    place = folder({missing: None})
    with pytest.raises(DataNotFound) as caught:
        svhn.load(place)
    for part in (f"{missing} of the data set svhn", str(place), f"by hand: download {svhn.URL}{missing}", "named svhn"):
        assert part in str(caught.value)
    assert kept(cache) == []


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_tampered_download_is_not_kept(site, cache, name):
    site[0][name] = CONTENT[name][:-1]
    with pytest.raises(DataCorrupted, match=rf"{name}, downloaded from .* has md5 .* expected {svhn.MD5[name]}"):
        svhn.load()
    assert name not in kept(cache)


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_tampered_file_in_the_cache(site, cache, name):
    svhn.load()
    (cache / "svhn" / name).write_bytes(images_mat(slice(3)))
    with pytest.raises(DataCorrupted, match=rf"{name}.* has md5 .* expected {svhn.MD5[name]}\. Delete it"):
        svhn.load()


@pytest.mark.parametrize("kept_bytes", [0, 3, 100, 127, 130, 200, 5000, -1])
def test_truncated_file(folder, kept_bytes):
    place = folder({TEST: CONTENT[TEST][:kept_bytes]})
    with pytest.raises(
        DataCorrupted, match=rf"{place / TEST} (cannot be read as a MATLAB file|has no array of numbers)"
    ):
        svhn.load(place)


def test_file_that_ends_after_the_images(folder):
    pixels_only = mat(X=PIXELS[10:].transpose(1, 2, 3, 0))
    place = folder({TEST: CONTENT[TEST][: len(pixels_only)]})
    with pytest.raises(
        DataCorrupted, match=rf"{TEST} has no array of numbers y; expected X \(images\) and y \(labels\)"
    ):
        svhn.load(place)


@pytest.mark.parametrize("content", [b"<html>not found</html>" * 20, b"\0" * 500, b"MATLAB 7.3 MAT-file" + b" " * 500])
def test_not_a_matlab_file(folder, content):
    place = folder({TRAIN: content})
    with pytest.raises(
        DataCorrupted, match=rf"{place / TRAIN} (cannot be read as a MATLAB file|has no array of numbers)"
    ):
        svhn.load(place)


def test_an_uncompressed_file_is_refused_with_the_remedy(folder):
    """Without the checksum of the compression, damage would reach a reader that it can crash."""
    with pytest.raises(DataCorrupted, match=r"no compressed variable at byte 128; save with -v7, or with savemat"):
        svhn.load(folder({TEST: images_mat(slice(10, None), compressed=False)}))


def test_damaged_bytes_never_end_in_another_error(folder):
    rng = np.random.default_rng(1)
    whole = np.frombuffer(CONTENT[TEST], np.uint8)
    for _ in range(80):
        damaged = whole.copy()
        damaged[rng.integers(128, len(whole), 4)] = rng.integers(0, 256, 4)
        with pytest.raises(DataCorrupted, match=TEST):
            svhn.load(folder({TEST: damaged.tobytes()}))


@pytest.mark.parametrize(
    ("x", "y", "fault"),
    [
        (
            PIXELS[:, :28, :28],
            LABELS,
            r"X of uint8 and shape \(28, 28, 3, 14\); expected uint8 and \(32, 32, 3, images\)",
        ),
        (PIXELS[..., :1], LABELS, r"X of uint8 and shape \(32, 32, 1, 14\)"),
        (PIXELS.astype(float), LABELS, r"X of float64"),
        (PIXELS[:0], LABELS[:0], r"X of uint8 and shape \(32, 32, 3, 0\).* at least one image"),
        (PIXELS, LABELS[:-1], r"y of shape \(13, 1\), but an X of 14 images; .* shape \(14, 1\)"),
        (PIXELS, np.array(["a"] * 14), r"no array of numbers y;"),
        (PIXELS, LABELS + 0j, r"no array of numbers y;"),
        (PIXELS, LABELS % 10, r"has the label 0 for image 9 .* from 1 to 10"),
        (PIXELS, LABELS + 1, r"has the label 11 for image 9"),
        (PIXELS, np.r_[2.5, LABELS[1:]], r"has the label 2.5 for image 0 .* whole numbers from 1 to 10"),
        (PIXELS, np.r_[np.nan, LABELS[1:]], r"has the label nan for image 0"),
    ],
)
def test_wrong_content(folder, x, y, fault):
    place = folder({TRAIN: mat(X=x.transpose(1, 2, 3, 0), y=y[:, None])})
    with pytest.raises(DataCorrupted, match=rf"{place / TRAIN} has .*{fault.removeprefix('has ')}") as caught:
        svhn.load(place)
    assert f"Download {svhn.URL}{TRAIN} again (md5 {svhn.MD5[TRAIN]})" in str(caught.value)


@pytest.mark.parametrize("missing", ["X", "y"])
def test_missing_variable(folder, missing):
    variables = {"X": PIXELS.transpose(1, 2, 3, 0), "y": LABELS[:, None]}
    del variables[missing]
    with pytest.raises(DataCorrupted, match=rf"{TRAIN} has no array of numbers {missing};"):
        svhn.load(folder({TRAIN: mat(**variables)}))


# --- the real images -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    """The folder of the real images; found once, before `cache` hides it."""
    given = os.environ.get("ACENODE_DATA")
    if given:
        for place in (Path(given) / "svhn", Path(given)):
            if all((place / name).is_file() for name in (TRAIN, TEST)):
                return place
    pytest.skip("the SVHN files are not in $ACENODE_DATA")


def test_real_images(real):
    data = svhn.load(real)
    assert (data.pixels.shape, data.training) == ((99_289, 32, 32, 3), 73_257)
    train, test = data.labels[:73_257], data.labels[73_257:]
    assert np.bincount(train).tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert np.bincount(test).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    mean = data.pixels[:73_257].mean((0, 1, 2)) / 255
    assert mean == pytest.approx([0.4377, 0.4438, 0.4728], abs=5e-5)
    assert [len(part) for part in validation_split(data, 0)] == [68_257, 5_000, 26_032]
