"""Classes of images: crops are windows, the loss is cross entropy, and a failed solve is wrong and left out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from acenode.models import ImageClassifier
from acenode.ode import NeuralODE, Solver
from acenode.tasks import ImageClassification, LabelledImages, Report, Task
from acenode.tasks.classification import random_crops, random_cutouts, random_flips

# --- crops ----------------------------------------------------------------------------------------------------


def numbered(side: int, channels: int) -> np.ndarray:
    """An image whose every number is another, and none of them zero."""
    return 1.0 + np.arange(side * side * channels, dtype=float).reshape(side, side, channels)


def corners(crops: np.ndarray, padded: np.ndarray) -> np.ndarray:
    """Where in the padded image each crop is from: (crops, 2). Fails for what is no window of it."""
    size = crops.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(0, 1))
    found = []
    for crop in crops:
        equal = (windows == np.moveaxis(crop, -1, 0)).all(axis=(2, 3, 4))
        assert equal.sum() == 1
        found.append(np.argwhere(equal)[0])
    return np.array(found)


@pytest.mark.parametrize("side, size, channels", [(28, 28, 1), (32, 32, 3), (32, 28, 3)])
def test_every_crop_is_a_window_of_the_padded_image(side, size, channels, key):
    image = numbered(side, channels)
    crops = random_crops(jnp.asarray(np.broadcast_to(image, (24, *image.shape))), key, size)
    assert crops.shape == (24, size, size, channels)
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    places = corners(np.asarray(crops), padded)
    assert places.min() >= 0 and places.max() <= side + 8 - size
    assert len(np.unique(places, axis=0)) > 12  # each image has its own


@pytest.mark.parametrize("side, size", [(3, 3), (5, 3)])
def test_every_place_is_as_likely_as_any_other(side, size, key):
    count, padding = 6000, 1
    places = side + 2 * padding - size + 1
    images = np.broadcast_to(numbered(side, 1), (count, side, side, 1))
    crops = np.asarray(random_crops(jnp.asarray(images), key, size, padding))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(images[0, ..., 0], padding), (size, size))
    counts = np.array([[(crops[..., 0] == window).all(axis=(1, 2)).sum() for window in row] for row in windows])
    assert counts.shape == (places, places) and counts.sum() == count
    spread = np.sqrt(count / places**2)
    assert np.abs(counts - count / places**2).max() < 4.5 * spread and counts.std() > 0.3 * spread


def test_crops_follow_their_key(key):
    images = jnp.asarray(np.broadcast_to(numbered(6, 1), (8, 6, 6, 1)))
    first, again, other = (random_crops(images, k, 6) for k in (key, key, jax.random.key(1)))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).any(axis=(1, 2, 3)).sum() >= 6


def test_half_of_the_images_are_mirrored(key):
    images = jnp.asarray(np.broadcast_to(numbered(4, 2), (400, 4, 4, 2)))
    flipped = np.asarray(random_flips(images, key))
    mirrored = (flipped == np.asarray(images)[:, :, ::-1]).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(flipped[~mirrored], images[~mirrored])
    assert 150 < mirrored.sum() < 250


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_cutout_blackens_a_square_around_any_pixel(size, key):
    height, width, count = 5, 6, 3000
    images = np.broadcast_to(1.0 + np.arange(height * width * 2.0).reshape(height, width, 2), (count, height, width, 2))
    cut = np.asarray(random_cutouts(jnp.asarray(images), key, size))
    gone = (cut == 0).all(axis=3)
    np.testing.assert_array_equal(cut[~gone], images[~gone])  # all channels of a pixel, or none
    middles = {}
    for y in range(height):
        for x in range(width):
            top, left = y - size // 2, x - size // 2
            square = np.zeros((height, width), bool)
            square[max(top, 0) : top + size, max(left, 0) : left + size] = True
            middles[y, x] = (gone == square).all(axis=(1, 2)).sum()
    assert sum(middles.values()) == count  # each image has one of these squares
    expected = count / len(middles)
    assert all(abs(n - expected) < 5 * np.sqrt(expected) for n in middles.values())


# --- loss and metrics -----------------------------------------------------------------------------------------

CLASSES, SIDE = 10, 6


class Breaks(eqx.Module):
    """A field with a parameter that a white image leaves at once, with all its slopes."""

    rate: Array

    def __call__(self, t, h):
        white = jnp.all(h > 0.9999)
        return self.rate * h + jnp.where(white, 1 / jnp.where(white, jnp.round(1 - h, 3), 1.0), 0.0)


@pytest.fixture(scope="module")
def model():
    """A classifier whose maps are the images, with two channels."""
    solver = Solver("euler", step=0.5, max_steps=2, checkpoints=2)
    return ImageClassifier(
        lambda image: image, NeuralODE(Breaks(jnp.asarray(0.3)), solver), 2, CLASSES, key=jax.random.key(1)
    )


def pictures(count: int = 5, white: tuple[int, ...] = ()) -> LabelledImages:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (count, SIDE, SIDE, 2), np.uint8)
    pixels[list(white)] = 255
    return LabelledImages(jnp.asarray(pixels), jnp.asarray(random.integers(0, CLASSES, count), jnp.int32))


UNCUT = ImageClassification(padding=0)  # so that a white image stays white
classify = eqx.filter_jit(lambda model, images: model(images))
outputs = eqx.filter_jit(lambda model, batch, key: ImageClassification().outputs(model, batch, key))


@eqx.filter_jit
def loss_and_gradient(task, model, batch, key):
    value = lambda model: task.loss(model, batch, key, jnp.asarray(0))  # noqa: E731
    return eqx.filter_value_and_grad(value, has_aux=True)(model)


def cross_entropy(logits, label) -> np.ndarray:
    logits = np.asarray(logits)
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), np.asarray(label)]


def test_pixels_are_seen_as_parts_of_one():
    batch = LabelledImages(np.array([[[[0], [51]], [[102], [255]]]], np.uint8), np.array([3], np.int32))
    np.testing.assert_allclose(batch.images[0, ..., 0], [[0.0, 0.2], [0.4, 1.0]])


def test_smoothed_labels_are_spread_over_all_classes(model, key):
    batch = pictures()
    (value, _), _ = loss_and_gradient(ImageClassification(padding=0, flip=True, smoothing=0.2), model, batch, key)
    logits = classify(model, batch.images).logits  # the mean over a map does not see a flip
    every = [cross_entropy(logits, np.full(len(batch.label), label)) for label in range(CLASSES)]
    expected = 0.8 * cross_entropy(logits, batch.label) + 0.2 * np.mean(every, axis=0)
    assert float(value) == pytest.approx(expected.mean(), rel=1e-10)


def test_training_sees_cutouts_and_evaluation_does_not(model, key):
    batch, task = pictures(), ImageClassification(padding=0, cutout=2 * SIDE)  # larger than the image wherever it is
    (value, _), _ = loss_and_gradient(task, model, batch, key)
    logits = classify(model, jnp.zeros_like(batch.images)).logits
    assert float(value) == pytest.approx(cross_entropy(logits, batch.label).mean(), rel=1e-10)
    for ours, usual in zip(task.outputs(model, batch, key), outputs(model, batch, key), strict=True):
        np.testing.assert_allclose(ours, usual, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [ImageClassification(), ImageClassification(crop=4, padding=1)], ids=["as large", "smaller"]
)
def test_the_loss_is_the_cross_entropy_of_the_crops(task, model, key):
    batch = pictures()
    (value, report), _ = loss_and_gradient(task, model, batch, key)
    crops = random_crops(batch.images, key, task.crop or SIDE, task.padding)
    verdict = classify(model, crops)
    assert not np.asarray(verdict.stats.failed).any()
    assert float(value) == pytest.approx(cross_entropy(verdict.logits, batch.label).mean(), rel=1e-10)
    assert int(report.failed) == 0
    assert (
        float(report.evaluations) == 3 and float(report.vjp_evaluations) == 2
    )  # two steps of Euler, and the last slope
    other, _ = loss_and_gradient(task, model, batch, jax.random.key(5))
    assert float(other[0]) != float(value)  # other crops


def test_evaluation_sees_the_images_as_they_are(model, key):
    batch = pictures()
    logits, failed, evaluations = outputs(model, batch, key)
    np.testing.assert_allclose(logits, classify(model, batch.images).logits, rtol=1e-12)
    np.testing.assert_array_equal(failed, False)
    np.testing.assert_array_equal(evaluations, 3)


@pytest.mark.slow
def test_a_failed_solve_is_left_out_of_the_loss(model, key):
    whole, few = pictures(white=(1, 3)), np.array([0, 2, 4])
    (value, report), gradient = loss_and_gradient(UNCUT, model, whole, key)
    assert int(report.failed) == 2
    left = jax.tree.map(lambda x: x[few], whole)
    (alone, _), gradient_alone = loss_and_gradient(UNCUT, model, left, key)
    assert float(value) == pytest.approx(float(alone), rel=1e-12)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_alone), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)
        assert np.abs(other).max() > 0


def test_nothing_solved_is_no_loss_and_no_gradient(model, key):
    (value, report), gradient = loss_and_gradient(UNCUT, model, pictures(white=range(5)), key)
    assert float(value) == 0 and int(report.failed) == 5
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient))


def test_a_failed_solve_counts_as_wrong(model, key):
    batch = pictures(white=(1, 3))
    logits, failed, evaluations = outputs(model, batch, key)
    np.testing.assert_array_equal(failed, [False, True, False, True, False])
    # Labels such that every answer would be right, were it not for the failures.
    lucky = LabelledImages(batch.pixels, jnp.argmax(logits, axis=1).astype(jnp.int32))
    metrics = ImageClassification().metrics((logits, failed, evaluations), lucky, jnp.ones(5))
    assert float(metrics["accuracy"]) == pytest.approx(3 / 5)


def test_metrics_against_numpy_without_the_rows_of_no_weight():
    random = np.random.default_rng(2)
    batch, logits = pictures(8), random.normal(size=(8, CLASSES))
    logits[np.arange(3), np.asarray(batch.label)[:3]] += 9.0  # three are right
    failed, evaluations, kept = np.arange(8) == 2, np.arange(8) * 6, np.arange(6)
    weight = jnp.asarray(np.arange(8) < 6, float)
    metrics = ImageClassification().metrics(
        (jnp.asarray(logits), jnp.asarray(failed), jnp.asarray(evaluations)), batch, weight
    )
    right = (logits.argmax(axis=1) == np.asarray(batch.label)) & ~failed
    assert float(metrics["accuracy"]) == pytest.approx(right[kept].mean()) and right[kept].sum() >= 2
    expected = cross_entropy(logits, batch.label)[kept].mean()
    assert float(metrics["cross_entropy"]) == pytest.approx(expected, rel=1e-10)
    assert float(metrics["nfe"]) == evaluations[kept].mean()
    # Whatever the other rows hold.
    logits[6:], failed[6:], evaluations[6:] = 100.0, True, 999
    again = ImageClassification().metrics(
        (jnp.asarray(logits), jnp.asarray(failed), jnp.asarray(evaluations)), batch, weight
    )
    assert {name: float(value) for name, value in again.items()} == {n: float(v) for n, v in metrics.items()}


def test_it_is_a_task_that_chooses_by_accuracy(model, key):
    task = ImageClassification()
    assert isinstance(task, Task) and (task.monitor, task.better) == ("accuracy", "higher")
    first, times = task.first_states(model, pictures(), key)
    np.testing.assert_array_equal(first, pictures().images)
    np.testing.assert_array_equal(times, [0.0, 1.0])


def test_a_report_is_the_failures_and_the_means(model):
    stats = classify(model, pictures(white=(0,)).images).stats
    report = Report.of(stats)
    assert int(report.failed) == 1
    assert float(report.evaluations) == pytest.approx(np.mean(np.asarray(stats.evaluations)))
    np.testing.assert_array_equal(stats.vjp_evaluations, [0, 2, 2, 2, 2])  # a solve that never began has none
    assert float(report.vjp_evaluations) == pytest.approx(8 / 5)
