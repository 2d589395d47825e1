"""Image sets: their arrays and checksum, and the division for training."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from acenode import datasets
from acenode.datasets.files import DataCorrupted
from acenode.datasets.images import ImageSet, Part, check_labels, checksum, image_set, validation_split


def made(labels, training: int) -> ImageSet:
    """An image set with these labels, of one pixel an image."""
    labels = np.asarray(labels, np.int32)
    pixels = np.zeros((len(labels), 1, 1, 1), np.uint8)
    return ImageSet("dots", pixels, labels, training, checksum(pixels, labels))


# --- the arrays ------------------------------------------------------------------------------------------------------


def test_modules_are_registered():
    for name in ("cifar10", "images", "mnist", "svhn"):
        assert name in dir(datasets)
        assert getattr(datasets, name).__name__ == f"acenode.datasets.{name}"


def test_image_set_of_parts():
    rng = np.random.default_rng(0)
    one, two, three = (rng.integers(0, 256, (n, 4, 5, 3), np.uint8) for n in (2, 3, 1))
    # Stored with the axes in another order, as some files have them.
    two_turned = np.asfortranarray(two)
    data = image_set(
        "dots",
        [Part(one, np.array([1, 2], np.uint8)), Part(two_turned, np.array([3, 4, 5], np.uint8))],
        [Part(three, np.array([6], np.uint8))],
    )
    assert (data.name, data.training, len(data)) == ("dots", 5, 6)
    assert (data.pixels.dtype, data.labels.dtype) == (np.uint8, np.int32)
    assert data.pixels.flags.c_contiguous
    assert np.array_equal(data.pixels, np.concatenate([one, two, three]))
    assert np.array_equal(data.labels, [1, 2, 3, 4, 5, 6])
    content = data.pixels.tobytes() + data.labels.astype("<i4").tobytes()
    assert data.sha256 == hashlib.sha256(content).hexdigest()


def test_checksum_sees_every_pixel_and_label():
    pixels, labels = np.zeros((2, 2, 2, 1), np.uint8), np.zeros(2, np.int32)
    brighter, relabelled = pixels.copy(), labels.copy()
    brighter[1, 1, 1, 0] = relabelled[1] = 1
    assert len({checksum(pixels, labels), checksum(brighter, labels), checksum(pixels, relabelled)}) == 3
    # The layout in memory does not matter.
    assert checksum(np.asfortranarray(brighter), labels.astype(">i8")) == checksum(brighter, labels)


@pytest.mark.parametrize(
    ("pixels", "labels", "training", "fault"),
    [
        (np.zeros((2, 3, 3), np.uint8), np.zeros(2, np.int32), 1, r"shape \(2, 3, 3\); expected uint8"),
        (np.zeros((2, 3, 3, 1)), np.zeros(2, np.int32), 1, "pixels are float64"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(3, np.int32), 1, r"shape \(3,\); expected int32 of shape \(2,\)"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(2), 1, "labels are float64"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(2, np.int32), 3, "training is 3; expected 1 to 2"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(2, np.int32), 0, "training is 0; expected 1 to 2"),
    ],
)
def test_bad_arrays(pixels, labels, training, fault):
    with pytest.raises(ValueError, match=fault):
        ImageSet("dots", pixels, labels, training, "")


@pytest.mark.parametrize("wrong", [-1, 10, 2.5, np.nan, np.inf])
def test_labels_out_of_range(wrong):
    check_labels("file", np.arange(10), 0, 9, "")
    with pytest.raises(DataCorrupted, match=rf"file has the label {wrong}.* for image 2 .*from 0 to 9\. Mend it\."):
        check_labels("file", np.asarray([0, 9, wrong, 11]), 0, 9, "Mend it.")


# --- the division ----------------------------------------------------------------------------------------------------


@given(st.data())
def test_validation_split_is_stratified_and_exact(data):
    labels = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=120))
    training = data.draw(st.integers(1, len(labels)))
    validation = data.draw(st.integers(0, training - 1))
    images = made(labels, training)
    split = validation_split(images, data.draw(st.integers(0, 9)), validation)
    assert len(split.validation) == validation
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(len(labels)))
    assert np.array_equal(split.test, np.arange(training, len(labels)))
    assert all((np.diff(part) > 0).all() for part in split)
    all_of = np.bincount(images.labels[:training], minlength=5)
    held = np.bincount(images.labels[split.validation], minlength=5)
    assert (np.abs(held - validation * all_of / training) < 1).all()


def test_validation_split_of_the_usual_size():
    # Rounded label by label, the shares of these counts would sum to 5,001.
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    labels = np.r_[np.repeat(np.arange(10), counts), np.zeros(10_000, int)]
    images = made(np.random.default_rng(0).permutation(labels), 60_000)
    split = validation_split(images, 2018)
    assert [len(part) for part in split] == [55_000, 5_000, 10_000]
    assert split.test.min() == 60_000


def test_validation_split_rounds_the_largest_remainders_up():
    # Shares of 3: 1.5, 0.9, 0.6.
    split = validation_split(made([0] * 5 + [1] * 3 + [2] * 2, 10), 0, 3)
    assert sorted(np.searchsorted([5, 8], split.validation, side="right")) == [0, 1, 2]


def test_validation_split_depends_on_the_seed_only():
    images = made(np.arange(1000) % 10, 800)
    first, same, other = (validation_split(images, seed, 100) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first.validation, other.validation)
    assert np.array_equal(first.test, other.test)


def test_validation_split_does_not_look_at_the_test_images():
    labels = np.arange(100) % 3
    one, two = made(np.r_[labels, np.zeros(50)], 100), made(np.r_[labels, np.ones(20)], 100)
    assert np.array_equal(validation_split(one, 0, 10).validation, validation_split(two, 0, 10).validation)


@pytest.mark.parametrize("validation", [-1, 8, 9, 5000])
def test_bad_validation(validation):
    with pytest.raises(
        ValueError, match=rf"validation is {validation}, but dots has 8 training images; expected 0 to 7"
    ):
        validation_split(made(np.zeros(10), 8), 0, validation)


def test_too_few_images_for_the_usual_size():
    with pytest.raises(ValueError, match="validation is 5000, but dots has 8 training images"):
        validation_split(made(np.zeros(10), 8), 0)
