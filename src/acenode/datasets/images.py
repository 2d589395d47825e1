"""LabelledQuery images: their arrays, the division for training, and what the loaders of image files share."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .files import DataCorrupted
from .split import Split, _shares


@dataclass(frozen=True, eq=False)
class ImageSet:
    """LabelledQuery images, those for training first, then those for testing.

    `pixels` are uint8 of shape (images, y, x, channels), `labels` int32 from 0, and `training` is how many of the
    images are for training. `sha256` is the checksum of the bytes of `pixels` followed by those of `labels` (little
    end first).
    """

    name: str
    pixels: np.ndarray
    labels: np.ndarray
    training: int
    sha256: str

    def __post_init__(self):
        if self.pixels.dtype != np.uint8 or self.pixels.ndim != 4:
            raise ValueError(
                f"ImageSet {self.name}: pixels are {self.pixels.dtype} of shape {self.pixels.shape}; expected uint8 of "
                "shape (images, y, x, channels)."
            )
        if self.labels.dtype != np.int32 or self.labels.shape != (len(self.pixels),):
            raise ValueError(
                f"ImageSet {self.name}: labels are {self.labels.dtype} of shape {self.labels.shape}; expected int32 of "
                f"shape ({len(self.pixels)},), one for each image."
            )
        if not 1 <= self.training <= len(self.pixels):
            raise ValueError(
                f"ImageSet {self.name}: training is {self.training}; expected 1 to {len(self.pixels)}, the number of "
                "images."
            )

    def __len__(self) -> int:
        return len(self.pixels)


class Part(NamedTuple):
    """The images of one file: pixels of shape (images, y, x, channels), and a label for each."""

    pixels: np.ndarray
    labels: np.ndarray


def image_set(name: str, train: Iterable[Part], test: Iterable[Part]) -> ImageSet:
    """The image set of some parts, whose images are all of one size."""
    train, test = list(train), list(test)
    everything = [part.pixels for part in train + test]
    # The parts may be views with their axes in any order; in `pixels` each image lies in one piece.
    pixels = np.empty((sum(map(len, everything)), *everything[0].shape[1:]), np.uint8)
    np.concatenate(everything, out=pixels)
    labels = np.concatenate([part.labels for part in train + test]).astype(np.int32)
    return ImageSet(name, pixels, labels, sum(len(part.pixels) for part in train), checksum(pixels, labels))


def checksum(pixels: np.ndarray, labels: np.ndarray) -> str:
    """The SHA-256 of the bytes of `pixels`, then those of `labels` as 32-bit integers, little end first."""
    total = hashlib.sha256(np.ascontiguousarray(pixels).data)
    total.update(np.ascontiguousarray(labels, "<i4").data)
    return total.hexdigest()


def validation_split(images: ImageSet, seed: int, validation: int = 5000) -> Split:
    """Sets `validation` of the training images aside, with the same share of each label; tests all test images.

    The shares are rounded such that they sum to `validation`: the largest remainders are rounded up.
    """
    if not 0 <= validation < images.training:
        raise ValueError(
            f"validation_split: validation is {validation}, but {images.name} has {images.training} training images; "
            f"expected 0 to {images.training - 1}, so that images remain to train on."
        )
    # Not `random_split`: it rounds within each label, so that the total would be missed by a few images.
    rng = np.random.default_rng(seed)
    labels = images.labels[: images.training]
    distinct, counts = np.unique(labels, return_counts=True)
    held = np.zeros(images.training, bool)
    for label, share in zip(distinct, _shares(validation, counts / images.training), strict=True):
        held[rng.permutation(np.flatnonzero(labels == label))[:share]] = True
    return Split(np.flatnonzero(~held), np.flatnonzero(held), np.arange(images.training, len(images)))


# --- what the loaders share ------------------------------------------------------------------------------------------


def check_labels(where: str, labels: np.ndarray, least: int, greatest: int, remedy: str) -> None:
    """Raise `DataCorrupted` about the file `where` unless every label is a whole number in the range."""
    wrong = np.flatnonzero(~np.isin(labels, np.arange(least, greatest + 1)))
    if len(wrong):
        raise DataCorrupted(
            f"{where} has the label {labels[wrong[0]]} for image {wrong[0]} (counted from 0); expected whole numbers "
            f"from {least} to {greatest}. {remedy}"
        )


def remedy(url: str, md5: str) -> str:
    """What to do about a file that is not right."""
    return (
        f"Download {url} again (md5 {md5}), or take the files of this data set out of your folder: they are then "
        "fetched for you."
    )
