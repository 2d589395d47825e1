"""MNIST: handwritten digits, 60,000 to train on and 10,000 to test on, grey and 28x28, in four IDX files.

An IDX file is a magic number, the length of each axis (32 bits, big end first), and the values, one byte each.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Literal

import numpy as np

from . import files, images
from .files import DataCorrupted, DataNotFound, Folder, Remote
from .images import ImageSet, Part

NAME = "mnist"
SHAPE = (28, 28, 1)
# A mirror of the official files: the site they come from refuses programs.
URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}

_UNSIGNED_BYTES = 0x08
_GZIP = b"\x1f\x8b"


def load(data_dir: Folder | None = None) -> ImageSet:
    """The images and labels 0 to 9.

    Looks for the four files, as they are or unpacked (without .gz), in `data_dir` and `$ACENODE_DATA`, and downloads
    them otherwise. The user's own files may hold fewer images.
    """
    return images.image_set(NAME, [_part("train", data_dir)], [_part("t10k", data_dir)])


def _part(part: Literal["train", "t10k"], data_dir: Folder | None) -> Part:
    """The training or the test images."""
    image_file, label_file = _pair(f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz", data_dir)
    pixels = _read_idx(image_file, axes=3)
    if pixels.shape[1:] != SHAPE[:2]:
        raise DataCorrupted(
            f"{image_file} has images of {pixels.shape[1]}x{pixels.shape[2]} pixels; expected 28x28. "
            f"{_remedy(image_file)}"
        )
    labels = _read_idx(label_file, axes=1)
    if len(labels) != len(pixels):
        raise DataCorrupted(
            f"{label_file} has {len(labels):,} labels, but {image_file} has {len(pixels):,} images; expected one label "
            f"for each image. {_remedy(label_file)}"
        )
    images.check_labels(str(label_file), labels, 0, 9, _remedy(label_file))
    return Part(pixels[..., None], labels)


def _pair(image_name: str, label_name: str, data_dir: Folder | None) -> list[Path]:
    """The files of images and of their labels.

    Both come from one place: a user's own images may be in another order than the official labels.
    """
    names = (image_name, label_name)
    for place in files.user_folders(NAME, data_dir):
        own = [_own(place, name) for name in names]
        found = [path for path in own if path is not None]
        if len(found) == 2:
            return found
        if found:
            missing = names[own.index(None)]
            raise DataNotFound(
                f"{missing} of the data set {NAME} was not found in {place}, which holds {found[0].name}; expected "
                f"both. Download {URL}{missing} into that folder, or take {found[0].name} out of it: both are then "
                "fetched for you."
            )
    remotes = {remote.name: remote for remote in official()}
    return [files.find(NAME, remotes[name], data_dir) for name in names]


def official() -> tuple[Remote, ...]:
    """The four files."""
    return tuple(Remote(name, URL + name, md5=md5) for name, md5 in MD5.items())


def _own(place: Path, name: str) -> Path | None:
    """The file in a user's folder, compressed or not."""
    for path in (place / name, place / name.removesuffix(".gz")):
        if path.is_file():
            return path
    return None


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """The array of bytes in an IDX file, which must have so many axes."""
    content = path.read_bytes()
    # Told by the content: browsers like to unpack a file and leave its name as it was.
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataCorrupted(f"{path} cannot be unpacked ({error}). {_remedy(path)}") from error
    magic, header = bytes([0, 0, _UNSIGNED_BYTES, axes]), 4 * (1 + axes)
    if content[:4] != magic:
        raise DataCorrupted(
            f"{path} begins with the bytes {content[:4].hex() or 'of an empty file'}; expected {magic.hex()}, the "
            f"magic number of an IDX file of bytes with {axes} {'axis' if axes == 1 else 'axes'}. {_remedy(path)}"
        )
    if len(content) < header:
        raise DataCorrupted(f"{path} ends after {len(content)} bytes; expected a header of {header}. {_remedy(path)}")
    shape = struct.unpack_from(f">{axes}I", content, 4)
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataCorrupted(
            f"{path} has {len(content):,} bytes, unpacked; expected {expected:,}, since its header announces "
            f"{'x'.join(map(str, shape))} values. {_remedy(path)}"
        )
    if shape[0] == 0:
        raise DataCorrupted(f"{path} holds nothing; expected at least one image or label. {_remedy(path)}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _remedy(path: Path) -> str:
    name = path.name if path.name in MD5 else f"{path.name}.gz"
    return images.remedy(URL + name, MD5[name])
