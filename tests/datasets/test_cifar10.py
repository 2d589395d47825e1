"""CIFAR-10: the binary batches, every bad input, downloads, and the facts of the real images."""

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pooch
import pytest

from acenode.datasets import cifar10, files
from acenode.datasets.cifar10 import ARCHIVE, FOLDER, TEST, TRAINING
from acenode.datasets.files import DataCorrupted, DataNotFound
from acenode.datasets.images import validation_split

NAMES = (*TRAINING, TEST)
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (18, 32, 32, 3), np.uint8)
LABELS = np.arange(18) % 10


def batch(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """Images in the binary format: label, red, green, blue."""
    return b"".join(
        bytes([label]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))
        for image, label in zip(pixels, labels, strict=True)
    )


CONTENT = {name: batch(PIXELS[3 * i : 3 * i + 3], LABELS[3 * i : 3 * i + 3]) for i, name in enumerate(NAMES)}


def archive(contents: dict[str, bytes], inside: str = FOLDER) -> bytes:
    """A packed archive of files that lie in the folder `inside`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in {"readme.html": b"hello", **contents}.items():
            info = tarfile.TarInfo(f"{inside}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


PACKED = archive(CONTENT)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(cifar10, "URL", f"http://127.0.0.1:9/{ARCHIVE}")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """Writes the six files, some of them changed (None: left out), and gives the folder for `data_dir`."""

    def write(changed: dict | None = None, inside: str = FOLDER) -> Path:
        place = tmp_path / "data"
        (place / inside).mkdir(parents=True, exist_ok=True)
        for name, content in (CONTENT | (changed or {})).items():
            if content is not None:
                (place / inside / name).write_bytes(content)
        return place

    return write


@pytest.fixture
def packed(tmp_path):
    """Writes the archive, and gives the folder for `data_dir`."""

    def write(content: bytes) -> Path:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / ARCHIVE).write_bytes(content)
        return tmp_path / "data"

    return write


@pytest.fixture
def site(monkeypatch):
    """A site with the archive: what it serves, and what was fetched from it."""
    served, fetched = {cifar10.URL: PACKED}, []

    def download(url, part, owner):
        fetched.append(url)
        Path(part).write_bytes(served[url])

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda **_: download)
    monkeypatch.setattr(cifar10, "MD5", hashlib.md5(PACKED).hexdigest())
    return served, fetched


def kept(cache) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def assert_whole(data):
    assert (data.name, data.training) == ("cifar10", 15)
    assert (data.pixels.dtype, data.labels.dtype) == (np.uint8, np.int32)
    assert np.array_equal(data.pixels, PIXELS)
    assert np.array_equal(data.labels, LABELS)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [FOLDER, ".", "cifar10", f"cifar10/{FOLDER}"])
def test_own_folder(folder, inside):
    assert_whole(cifar10.load(folder(inside=inside)))


@pytest.mark.parametrize("inside", [FOLDER, ".", "download/batches"])
def test_own_archive(packed, inside):
    assert_whole(cifar10.load(packed(archive(CONTENT, inside))))


def test_environment(folder, monkeypatch):
    monkeypatch.setenv("ACENODE_DATA", str(folder(inside="cifar10")))
    assert_whole(cifar10.load())


def test_given_archive_comes_before_a_folder_in_the_environment(folder, packed, tmp_path, monkeypatch):
    folder({TEST: CONTENT[TRAINING[0]]}).rename(tmp_path / "environment")
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "environment"))
    assert_whole(cifar10.load(packed(PACKED)))


def test_folder_comes_before_archive(folder, packed):
    packed(b"damaged")
    assert_whole(cifar10.load(folder()))


def test_batches_of_unequal_length(folder):
    data = cifar10.load(folder({TRAINING[1]: CONTENT[TRAINING[1]][:3073]}))
    assert (data.training, len(data)) == (13, 16)
    assert np.array_equal(data.pixels, PIXELS[[0, 1, 2, 3, *range(6, 18)]])


def test_archive_is_fetched_once(site, cache):
    assert_whole(cifar10.load())
    assert_whole(cifar10.load())
    assert site[1] == [cifar10.URL]
    assert kept(cache) == [ARCHIVE]


# --- bad input -------------------------------------------------------------------------------------------------------


def test_missing_archive_says_how_to_get_it(tmp_path, cache):
    with pytest.raises(DataNotFound) as caught:
        cifar10.load(tmp_path)
    for part in (ARCHIVE, str(tmp_path), "ACENODE_DATA is not set", f"by hand: download {cifar10.URL}", "cifar10"):
        assert part in str(caught.value)
    assert kept(cache) == []


@pytest.mark.parametrize("missing", NAMES)
def test_missing_file_is_named(folder, missing):
    place = folder({missing: None})
    with pytest.raises(DataNotFound, match=rf"{missing} of .* not found in {place / FOLDER}.* all six\. Unpack http"):
        cifar10.load(place)


@pytest.mark.parametrize("missing", NAMES)
def test_archive_without_a_file(packed, missing):
    contents = {name: content for name, content in CONTENT.items() if name != missing}
    with pytest.raises(DataCorrupted, match=rf"{ARCHIVE} has no {missing}; expected all six.*{cifar10.MD5}"):
        cifar10.load(packed(archive(contents)))


def test_tampered_download_is_not_kept(site, cache):
    site[0][cifar10.URL] = PACKED[:-1]
    with pytest.raises(DataCorrupted, match=rf"{ARCHIVE}, downloaded from .* has md5 .* expected {cifar10.MD5}"):
        cifar10.load()
    assert kept(cache) == []


def test_tampered_archive_in_the_cache(site, cache):
    cifar10.load()
    (cache / "cifar10" / ARCHIVE).write_bytes(PACKED + b"\0")
    with pytest.raises(DataCorrupted, match=rf"{ARCHIVE}.* has md5 .* expected {cifar10.MD5}\. Delete it"):
        cifar10.load()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>not found</html>",
        PACKED[:20],
        PACKED[: len(PACKED) // 2],
        PACKED[: len(PACKED) // 2] + b"\xff" * 50 + PACKED[len(PACKED) // 2 + 50 :],
        # Random pixels cannot be compressed, so this is another pixel and nothing else.
        PACKED[:30_000] + bytes([PACKED[30_000] ^ 1]) + PACKED[30_001:],
        gzip.decompress(PACKED)[:20_000],
    ],
    ids=["empty", "page", "head only", "half", "damaged", "one bit", "unpacked half"],
)
def test_damaged_archive(packed, content):
    place = packed(content)
    with pytest.raises(DataCorrupted, match=rf"{place / ARCHIVE} cannot be unpacked \((.|\n)*\)\. Download http"):
        cifar10.load(place)


def test_archive_that_ends_between_two_files(packed):
    # Cut before the header of the last file: nothing but its absence tells.
    content = gzip.decompress(PACKED)
    cut = content.index(f"{FOLDER}/{TEST}".encode())
    with pytest.raises(DataCorrupted, match=f"{ARCHIVE} has no {TEST}"):
        cifar10.load(packed(gzip.compress(content[:cut])))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "has 0 bytes, .*at least one"),
        (
            CONTENT[TEST][:-1],
            r"has 9,218 bytes, which is 2 images and 3,072 bytes; expected whole images of 3,073 bytes",
        ),
        (CONTENT[TEST] + b"\0", "has 9,220 bytes, which is 3 images and 1 bytes"),
        (b"\1" + CONTENT[TEST], "has 9,220 bytes"),
        (bytes(2 * (1 + 28 * 28 * 3)), "has 4,706 bytes.* 32x32 pixels in 3 channels"),
        (bytes(2 * (1 + 32 * 32)), "has 2,050 bytes.* 32x32 pixels in 3 channels"),
        (batch(PIXELS[:3], np.array([0, 9, 10])), "has the label 10 for image 2 .* from 0 to 9"),
    ],
)
@pytest.mark.parametrize("name", [TRAINING[3], TEST])
def test_wrong_content(folder, packed, tmp_path, name, content, fault):
    place = folder({name: content})
    with pytest.raises(DataCorrupted, match=rf"{place / FOLDER / name} {fault}") as caught:
        cifar10.load(place)
    assert f"Download {cifar10.URL} again (md5 {cifar10.MD5})" in str(caught.value)
    place.rename(tmp_path / "unpacked")
    with pytest.raises(DataCorrupted, match=rf"{ARCHIVE}/{name} {fault}"):
        cifar10.load(packed(archive(CONTENT | {name: content})))


# --- the real images -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    """The folder of the real images; found once, before `cache` hides it."""
    given = os.environ.get("ACENODE_DATA")
    if given:
        for place in (Path(given) / "cifar10", Path(given)):
            if any((place / name).is_file() for name in (f"{FOLDER}/{TEST}", TEST, ARCHIVE)):
                return place
    pytest.skip("the CIFAR-10 files are not in $ACENODE_DATA")


def test_real_images(real):
    data = cifar10.load(real)
    assert (data.pixels.shape, data.training) == ((60_000, 32, 32, 3), 50_000)
    assert data.sha256 == "13621170becd688ea0fbd277d384698c000b61eebef36e40cad67fe976345110"
    assert np.bincount(data.labels[:50_000]).tolist() == [5000] * 10
    assert np.bincount(data.labels[50_000:]).tolist() == [1000] * 10
    assert data.labels[:5].tolist() == [6, 9, 9, 4, 1]
    mean = data.pixels[:50_000].mean((0, 1, 2)) / 255
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    split = validation_split(data, 0)
    assert [len(part) for part in split] == [45_000, 5_000, 10_000]
    assert np.bincount(data.labels[split.validation]).tolist() == [500] * 10
