"""CIFAR-10 (binary version): photographs of ten kinds of things, 32x32; 50,000 to train on and 10,000 to test on.

Six files of 10,000 images, each a byte for the label and 3,072 for the pixels: first all the red ones, row by row, then
the green, then the blue. See https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import gzip
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np

from . import files, images
from .files import DataCorrupted, DataNotFound, Folder, Remote
from .images import ImageSet, Part

NAME = "cifar10"
SHAPE = (32, 32, 3)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = "cifar-10-binary.tar.gz"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
FOLDER = "cifar-10-batches-bin"
TRAINING = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = "test_batch.bin"

_RECORD = 1 + 32 * 32 * 3


def load(data_dir: Folder | None = None) -> ImageSet:
    """The images and labels 0 to 9.

    Looks for the folder `cifar-10-batches-bin`, for its six files themselves, and for `cifar-10-binary.tar.gz` in
    `data_dir` and `$ACENODE_DATA`, and downloads the archive otherwise. The user's own files may hold fewer images.
    """
    source = _source(data_dir)
    contents = _unpacked(source) if source.is_dir() else _archived(source)
    parts = {name: _read(source / name, contents[name]) for name in (*TRAINING, TEST)}
    return images.image_set(NAME, [parts[name] for name in TRAINING], [parts[TEST]])


def _source(data_dir: Folder | None) -> Path:
    """The folder or archive that holds the six files: rather a folder."""
    for place in files.user_folders(NAME, data_dir):
        for folder in (place / FOLDER, place):
            if any((folder / name).is_file() for name in (*TRAINING, TEST)):
                return folder
        if (place / ARCHIVE).is_file():
            return place / ARCHIVE
    return files.find(NAME, official()[0], data_dir)


def official() -> tuple[Remote, ...]:
    """The archive."""
    return (Remote(ARCHIVE, URL, md5=MD5),)


def _unpacked(folder: Path) -> dict[str, bytes]:
    """The content of each of the six files of a folder."""
    missing = [name for name in (*TRAINING, TEST) if not (folder / name).is_file()]
    if missing:
        raise DataNotFound(
            f"{missing[0]} of the data set {NAME} was not found in {folder}, which holds others of its files; expected "
            f"all six. Unpack {URL} there again, or empty that folder: the archive is then fetched for you."
        )
    return {name: (folder / name).read_bytes() for name in (*TRAINING, TEST)}


def _archived(archive: Path) -> dict[str, bytes]:
    """The content of each of the six files of an archive."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                file = tar.extractfile(member) if name in (*TRAINING, TEST) else None
                if file is not None:
                    contents[name] = file.read()
            # The checksum of a compressed file stands at its very end, which nobody has read so far.
            while tar.fileobj is not None and tar.fileobj.read(2**20):
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataCorrupted(f"{archive} cannot be unpacked ({error}). {images.remedy(URL, MD5)}") from error
    missing = [name for name in (*TRAINING, TEST) if name not in contents]
    if missing:
        raise DataCorrupted(
            f"{archive} has no {' and no '.join(missing)}; expected all six files of the binary version. "
            f"{images.remedy(URL, MD5)}"
        )
    return contents


def _read(path: Path, content: bytes) -> Part:
    """The images of one file."""
    count, rest = divmod(len(content), _RECORD)
    if rest or count == 0:
        raise DataCorrupted(
            f"{path} has {len(content):,} bytes, which is {count:,} images and {rest:,} bytes; expected whole images "
            f"of {_RECORD:,} bytes (a label, and 32x32 pixels in 3 channels), at least one. {images.remedy(URL, MD5)}"
        )
    records = np.frombuffer(content, np.uint8).reshape(count, _RECORD)
    labels = records[:, 0]
    images.check_labels(str(path), labels, 0, 9, images.remedy(URL, MD5))
    return Part(records[:, 1:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1), labels)
