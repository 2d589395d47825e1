"""SVHN, cropped digits (Format 2): house numbers in colour, 32x32; 73,257 to train on and 26,032 to test on.

Two MATLAB files, each with `X` of shape (y, x, channels, images) and `y`, the labels 1 to 10, where 10 means the digit
0. The set `extra` is not used. See http://ufldl.stanford.edu/housenumbers (for non-commercial use).
"""

import math
import struct
import zlib
from pathlib import Path

import numpy as np

from . import files, images
from .files import DataCorrupted, Folder
from .images import ImageSet, Part

NAME = "svhn"
SHAPE = (32, 32, 3)
URL = "http://ufldl.stanford.edu/housenumbers/"
MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
# `ImageSet.sha256` of a copy cut anew from the pictures of whole house numbers: a few dozen of its 305 million grey
# levels may differ by 1 from the official files.
REGENERATED = "d52a7a0e5f72368c4e7d78d1c2f12867b882859d6064821d73bd4bae25324bdb"


def load(data_dir: Folder | None = None) -> ImageSet:
    """The images and the digits 0 to 9.

    Looks for `train_32x32.mat` and `test_32x32.mat` in `data_dir` and `$ACENODE_DATA`, and downloads them otherwise.
    The user's own files may hold fewer images.
    """
    # Both are found before either is read, which takes a while.
    train, test = [_find(name, data_dir) for name in MD5]
    return images.image_set(NAME, [_read(train)], [_read(test)])


def _find(name: str, data_dir: Folder | None) -> Path:
    url = URL + name
    return files.find(NAME, name, data_dir=data_dir, url=url, md5=MD5[name], steps=images.manual_steps(NAME, url))


def _read(path: Path) -> Part:
    """The images of one file."""
    try:
        variables = _variables(path.read_bytes())
    except (_Malformed, zlib.error) as error:
        raise DataCorrupted(f"{path} cannot be read as a MATLAB file ({error}). {_remedy(path)}") from error
    missing = [name for name in ("X", "y") if name not in variables]
    if missing:
        raise DataCorrupted(
            f"{path} has no array of numbers {' and no '.join(missing)}; expected X (images) and y (labels). "
            f"{_remedy(path)}"
        )
    pixels, labels = variables["X"], variables["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != SHAPE or pixels.shape[3] == 0:
        raise DataCorrupted(
            f"{path} has an X of {pixels.dtype} and shape {pixels.shape}; expected uint8 and (32, 32, 3, images), at "
            f"least one image. {_remedy(path)}"
        )
    count = pixels.shape[3]
    if labels.shape not in ((count, 1), (1, count)):
        raise DataCorrupted(
            f"{path} has a y of shape {labels.shape}, but an X of {count} images; expected a number for each, of shape "
            f"({count}, 1). {_remedy(path)}"
        )
    labels = labels.ravel()
    images.check_labels(str(path), labels, 1, 10, _remedy(path))
    return Part(pixels.transpose(3, 0, 1, 2), labels % 10)


def _remedy(path: Path) -> str:
    return images.remedy(URL + path.name, MD5[path.name])


# --- reading MATLAB files --------------------------------------------------------------------------------------------
#
# `scipy.io.loadmat` reads these files too, but some damaged ones crash the interpreter in it. The format (level 5, the
# one of MATLAB 5 to 7) is small: a header, then elements, each a tag (kind and size) with its content.

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX = 0x800


class _Malformed(ValueError):
    """Where a file is not as the format says."""


def _variables(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of real numbers in a MATLAB file; other variables are left out.

    They have the type in which they are stored, which may be a smaller one than in MATLAB.
    """
    mark = content[126:_HEADER]
    if mark not in (b"IM", b"MI"):
        raise _Malformed(f"its header begins with {content[:20]!r}, and is not one of MATLAB 5 to 7")
    order = "<" if mark == b"IM" else ">"
    (version,) = struct.unpack_from(f"{order}H", content, 124)
    if version != 0x100:
        raise _Malformed(f"it is of version {version:#x}; expected 0x100, as MATLAB writes with the option -v7")
    found: dict[str, np.ndarray] = {}
    view, at = memoryview(content), _HEADER
    while at < len(view):
        kind, data, at = _element(view, at, order)
        if kind == _COMPRESSED:
            kind, data, _ = _element(memoryview(zlib.decompress(data)), 0, order)
        if kind == _MATRIX:
            name, array = _matrix(data, order)
            if array is not None:
                found[name] = array
    return found


def _element(view: memoryview, at: int, order: str) -> tuple[int, memoryview, int]:
    """Kind and content of the element at a position, and the position of the next."""
    if at + 8 > len(view):
        raise _Malformed(f"it breaks off at byte {len(view):,}, within a tag")
    kind, size = struct.unpack_from(f"{order}2I", view, at)
    start, following = at + 8, at + 8 + size
    if kind >> 16:
        # A small element: kind and size share four bytes, the content has the other four.
        kind, size = kind & 0xFFFF, kind >> 16
        start, following = at + 4, at + 8
        if size > 4:
            raise _Malformed(f"a small element at byte {at:,} has {size:,} bytes; expected at most 4")
    elif kind != _COMPRESSED:
        following += -size % 8
    if start + size > len(view):
        raise _Malformed(f"an element at byte {at:,} has {size:,} bytes, of which {len(view) - start:,} are there")
    return kind, view[start : start + size], following


def _matrix(view: memoryview, order: str) -> tuple[str, np.ndarray | None]:
    """Name and values of a variable; None if it is not an array of real numbers."""
    _, flags, at = _element(view, 0, order)
    _, lengths, at = _element(view, at, order)
    _, name, at = _element(view, at, order)
    if len(flags) != 8 or len(lengths) % 4:
        raise _Malformed("a variable has no flags or no shape")
    (flag,) = struct.unpack_from(f"{order}I", flags)
    shape = struct.unpack(f"{order}{len(lengths) // 4}i", lengths)
    text = bytes(name).decode("latin-1")
    if flag & 0xFF not in _NUMERIC_CLASSES or flag & _COMPLEX:
        return text, None
    kind, values, _ = _element(view, at, order)
    if kind not in _NUMBERS:
        raise _Malformed(f"the variable {text!r} is of the unknown type {kind}")
    dtype = np.dtype(order + _NUMBERS[kind])
    if min(shape, default=-1) < 0 or len(values) != math.prod(shape) * dtype.itemsize:
        raise _Malformed(f"the variable {text!r} has {len(values):,} bytes, but shape {shape} of {dtype.name}")
    return text, np.frombuffer(values, dtype).reshape(shape, order="F")
