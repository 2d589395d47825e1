"""MNIST: the IDX files, every bad input, downloads, and the facts of the real images."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pooch
import pytest

from acenode.datasets import files, mnist
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.images import validation_split

NAMES = tuple(mnist.MD5)
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = NAMES


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    """An array of bytes as an IDX file."""
    header = struct.pack(f">{1 + array.ndim}I", magic or 0x800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (9, 28, 28), np.uint8)
LABELS = np.arange(9) % 10
CONTENT = {
    TRAIN_IMAGES: idx(PIXELS[:6]),
    TRAIN_LABELS: idx(LABELS[:6]),
    TEST_IMAGES: idx(PIXELS[6:]),
    TEST_LABELS: idx(LABELS[6:]),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(mnist, "URL", "http://127.0.0.1:9/")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """Writes the four files, some of them changed (None: left out), and gives the folder for `data_dir`."""

    def write(changed: dict | None = None, packed: bool = True) -> Path:
        place = tmp_path / "data"
        place.mkdir(exist_ok=True)
        for name, content in (CONTENT | (changed or {})).items():
            if content is not None:
                path = place / (name if packed else name.removesuffix(".gz"))
                path.write_bytes(gzip.compress(content) if packed else content)
        return place

    return write


@pytest.fixture
def site(monkeypatch):
    """A site with the four files: what it serves, by name, and what was fetched from it."""
    served = {name: gzip.compress(content) for name, content in CONTENT.items()}
    fetched = []

    def download(url, part, owner):
        fetched.append(url.removeprefix(mnist.URL))
        Path(part).write_bytes(served[fetched[-1]])

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda **_: download)
    monkeypatch.setattr(mnist, "MD5", {name: hashlib.md5(content).hexdigest() for name, content in served.items()})
    return served, fetched


def kept(cache) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def assert_whole(data):
    assert (data.name, data.training) == ("mnist", 6)
    assert (data.pixels.dtype, data.labels.dtype) == (np.uint8, np.int32)
    assert np.array_equal(data.pixels, PIXELS[..., None])
    assert np.array_equal(data.labels, LABELS)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_own_files(folder, packed):
    assert_whole(mnist.load(folder(packed=packed)))


def test_file_that_a_browser_unpacked_but_did_not_rename(folder):
    place = folder()
    (place / TEST_IMAGES).write_bytes(CONTENT[TEST_IMAGES])
    assert_whole(mnist.load(place))


def test_environment_and_named_folder(folder, tmp_path, monkeypatch):
    folder().rename(tmp_path / "mnist")
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    assert_whole(mnist.load())


def test_given_folder_comes_first_packed_or_not(folder, tmp_path, monkeypatch):
    folder({TRAIN_LABELS: idx(np.full(6, 9))}).rename(tmp_path / "environment")
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "environment"))
    assert_whole(mnist.load(folder(packed=False)))


def test_files_are_fetched_once(site, cache):
    served, fetched = site
    assert_whole(mnist.load())
    assert_whole(mnist.load())
    assert fetched == list(NAMES)
    assert kept(cache) == sorted(served)


def test_own_part_and_fetched_part(site, folder):
    assert_whole(mnist.load(folder({TEST_IMAGES: None, TEST_LABELS: None})))
    assert site[1] == [TEST_IMAGES, TEST_LABELS]


# --- bad input -------------------------------------------------------------------------------------------------------


def test_missing_files_say_how_to_get_them(tmp_path, cache):
    with pytest.raises(DataNotFound) as caught:
        mnist.load(tmp_path)
    for part in (TRAIN_IMAGES, str(tmp_path), "ACENODE_DATA is not set", "by hand: download http", "named mnist"):
        assert part in str(caught.value)
    assert kept(cache) == []


@pytest.mark.parametrize("missing", NAMES)
def test_images_and_labels_come_from_one_place(site, folder, missing):
    place = folder({missing: None})
    with pytest.raises(DataNotFound) as caught:
        mnist.load(place)
    for part in (f"{missing} of the data set mnist was not found in {place}", f"Download {mnist.URL}{missing}"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_tampered_download_is_not_kept(site, cache, name):
    served, _ = site
    served[name] = gzip.compress(CONTENT[name][:-1] + bytes([CONTENT[name][-1] ^ 1]))
    with pytest.raises(DataCorrupted, match=rf"{name}, downloaded from .* has md5 .* expected {mnist.MD5[name]}"):
        mnist.load()
    assert name not in kept(cache)


@pytest.mark.parametrize("name", NAMES)
def test_tampered_file_in_the_cache(site, cache, name):
    mnist.load()
    (cache / "mnist" / name).write_bytes(gzip.compress(b"anything"))
    with pytest.raises(DataCorrupted, match=rf"{name}.* has md5 .* expected {mnist.MD5[name]}\. Delete it"):
        mnist.load()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: c[:12], lambda c: c[:30] + b"\xff" * 9 + c[39:]])
def test_damaged_gzip(folder, name, damage):
    place = folder()
    content = (place / name).read_bytes()
    (place / name).write_bytes(damage(content))
    with pytest.raises(DataCorrupted, match=rf"{name} cannot be unpacked \(.*\)\. Download http.*{mnist.MD5[name]}"):
        mnist.load(place)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        (TRAIN_IMAGES, idx(PIXELS[:6], magic=0x801), r"begins with the bytes 00000801; expected 00000803"),
        (TRAIN_LABELS, idx(LABELS[:6], magic=0xD01), r"begins with the bytes 00000d01; expected 00000801"),
        (TEST_LABELS, CONTENT[TEST_IMAGES], r"begins with the bytes 00000803; expected 00000801.* with 1 axis\."),
        (TEST_IMAGES, b"<html>not found</html>", r"begins with the bytes 3c68746d; expected 00000803.* with 3 axes\."),
        (TEST_IMAGES, b"", r"begins with the bytes of an empty file"),
        (TEST_IMAGES, CONTENT[TEST_IMAGES][:15], r"ends after 15 bytes; expected a header of 16"),
        (TEST_LABELS, CONTENT[TEST_LABELS][:7], r"ends after 7 bytes; expected a header of 8"),
        (TRAIN_IMAGES, CONTENT[TRAIN_IMAGES][:-1], r"has 4,719 bytes.* expected 4,720.* announces 6x28x28 values"),
        (TRAIN_LABELS, CONTENT[TRAIN_LABELS] + b"\0", r"has 15 bytes.* expected 14"),
        (TRAIN_IMAGES, struct.pack(">4I", 0x803, *[2**32 - 1] * 3), r"has 16 bytes.* expected 79,228,162,45"),
        (TRAIN_IMAGES, idx(PIXELS[:0]), r"holds nothing; expected at least one"),
        (TRAIN_IMAGES, idx(PIXELS[:6, :27]), r"has images of 27x28 pixels; expected 28x28"),
        (TEST_IMAGES, idx(PIXELS[6:, :, :20]), r"has images of 28x20 pixels; expected 28x28"),
        (TRAIN_LABELS, idx(LABELS[:5]), rf"has 5 labels, but .*{TRAIN_IMAGES.removesuffix('.gz')}.* has 6 images"),
        (TEST_LABELS, idx(np.array([6, 10, 8])), r"has the label 10 for image 1 .* from 0 to 9"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_wrong_content(folder, name, content, fault, packed):
    place = folder({name: content}, packed)
    written = name if packed else name.removesuffix(".gz")
    with pytest.raises(DataCorrupted, match=rf"{place / written} {fault}") as caught:
        mnist.load(place)
    assert f"Download {mnist.URL}{name} again (md5 {mnist.MD5[name]})" in str(caught.value)


# --- the real images -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    """The folder of the real images; found once, before `cache` hides it."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folders = [Path(os.environ["ACENODE_DATA"])] if os.environ.get("ACENODE_DATA") else []
    for place in [*folders, beside]:
        if all((place / "mnist" / name).is_file() for name in NAMES):
            return place
    pytest.skip("the MNIST files are neither in $ACENODE_DATA nor in ../shared/data")


def test_real_files_are_the_official_ones(real):
    assert {name: files.digest(real / "mnist" / name, "md5") for name in NAMES} == mnist.MD5


def test_real_images(real):
    data = mnist.load(real)
    assert (data.pixels.shape, data.training) == ((70_000, 28, 28, 1), 60_000)
    assert data.sha256 == "3c612e115f926da3b5e848dccf8aa943a1759ff6bbc19e470b04b582225c034c"
    train, test = data.labels[:60_000], data.labels[60_000:]
    assert np.bincount(train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert train[:5].tolist() == [5, 0, 4, 1, 9]
    pixels = data.pixels[:60_000] / 255
    assert (pixels.mean(), pixels.std()) == (pytest.approx(0.1307, abs=5e-5), pytest.approx(0.3081, abs=5e-5))
    split = validation_split(data, 0)
    assert [len(part) for part in split] == [55_000, 5_000, 10_000]
    assert np.bincount(train[split.validation]).tolist() == [494, 562, 496, 511, 487, 452, 493, 522, 487, 496]
