"""SVHN, cropped digits (Format 2): house numbers in colour, 32x32; 73,257 to train on and 26,032 to test on.

Two MATLAB files, each with `X` of shape (y, x, channels, images) and `y`, the labels 1 to 10, where 10 means the digit
0. The set `extra` is not used. See http://ufldl.stanford.edu/housenumbers (for non-commercial use).
"""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from . import files, images
from .files import DataCorrupted, Folder, Remote
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

_COMPRESSED = 15  # the kind of a compressed element of a MATLAB file
_UNREADABLE = (MatReadError, ValueError, TypeError, LookupError, OSError, NotImplementedError, struct.error, zlib.error)


def load(data_dir: Folder | None = None) -> ImageSet:
    """The images and the digits 0 to 9.

    Looks for `train_32x32.mat` and `test_32x32.mat` in `data_dir` and `$ACENODE_DATA`, and downloads them otherwise.
    The user's own files may hold fewer images.
    """
    # Both are found before either is read, which takes a while.
    train, test = [files.find(NAME, remote, data_dir) for remote in official()]
    return images.image_set(NAME, [_read(train)], [_read(test)])


def official() -> tuple[Remote, ...]:
    """The two files."""
    return tuple(Remote(name, URL + name, md5=md5) for name, md5 in MD5.items())


def _read(path: Path) -> Part:
    """The images of one file."""
    try:
        variables = _variables(path.read_bytes())
    except _UNREADABLE as error:
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


def _variables(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of real numbers X and y, as far as the file has them."""
    at = 128  # bytes of the header of MATLAB 5 to 7
    while at < len(content):
        kind, size = struct.unpack_from("<2I", content, at)
        # The checksum of a compressed variable is what protects the reader: damage elsewhere can crash scipy.
        if kind != _COMPRESSED:
            raise ValueError(
                f"there is no compressed variable at byte {at:,}; save with -v7, or with savemat(do_compression=True)"
            )
        at += 8 + size
    found = loadmat(BytesIO(content), variable_names=["X", "y"])
    return {name: found[name] for name in ("X", "y") if name in found and found[name].dtype.kind in "iuf"}
