"""What image classifiers learned: features, clusters, attention, and models that come back from a checkpoint."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import ImageClassifier, Stem
from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, NeuralODE, Solver
from acenode.paper import image_analysis as analysis
from acenode.paper.image_analysis import silhouettes
from acenode.paper.images import SETTINGS, classifier
from acenode.tasks import ImageClassification, LabelledImages

WIDTH = 4
STEPS = Solver("euler", step=0.5)


def attentive(key, solver=STEPS):
    one, two, three = jax.random.split(key, 3)
    fields = ConvField(WIDTH, 1, key=one), ConvField(WIDTH, 1, key=two)
    return CoEvolvingODE(*fields, Elementwise(), ConvInitial(WIDTH, 1, key=three), solver)


def plain(key):
    return NeuralODE(ConvField(WIDTH, 1, key=key), STEPS)


build = classifier(SETTINGS["mnist"], attentive, WIDTH)


@pytest.fixture(scope="module")
def model():
    return build(jax.random.key(1))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((7, 16, 16, 1))


# --- features ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_features_in_batches_are_the_features_at_once(model, images):
    whole, parts = (analysis.features(model, images, batch) for batch in (100, 3))
    np.testing.assert_allclose(parts.pooled, whole.pooled, rtol=1e-10)
    np.testing.assert_allclose(parts.maps, whole.maps, rtol=1e-10)


@pytest.mark.slow
def test_features_are_what_the_head_sees_and_the_last_state(model, images):
    found = analysis.features(model, images)
    verdict = eqx.filter_jit(model)(jnp.asarray(images))
    h = eqx.filter_jit(model.path)(jnp.asarray(images), jnp.array([0.0, 1.0])).h[:, -1]
    np.testing.assert_allclose(found.pooled, verdict.features, rtol=1e-10)
    np.testing.assert_allclose(found.maps, h.reshape(7, -1), rtol=1e-10)


def test_images_that_are_not_from_0_to_1_are_refused(model, images):
    with pytest.raises(
        ValueError, match=r"images are uint8; give numbers from 0 to 1, e.g. LabelledImages\(...\).images"
    ):
        analysis._in_batches("features", lambda some: some, (images * 255).astype(np.uint8), 3)
    with pytest.raises(ValueError, match="7 images in batches of 0"):
        analysis.features(model, images, batch=0)


@pytest.mark.slow
def test_a_failed_solve_is_not_taken_for_a_feature(images):
    impatient = Solver("euler", step=0.5, max_steps=1)
    model = classifier(SETTINGS["mnist"], lambda key: attentive(key, impatient), WIDTH)(jax.random.key(1))
    with pytest.raises(ValueError, match=r"the solve failed for image 0 .*max_steps"):
        analysis.features(model, images[:2])


# --- clusters ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blobs():
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 6)
    centres = random.normal(size=(10, 5)) * 100
    return centres[labels] + random.normal(size=(60, 5)), labels


def test_separated_clusters_have_a_silhouette_near_one(blobs):
    features, labels = blobs
    scores = analysis.silhouette(features, labels, seed=0)
    assert set(scores) == {"kmeans", "classes"}
    assert 0.95 < scores["classes"] <= scores["kmeans"] + 1e-12 <= 1


@pytest.mark.slow
def test_a_result_keeps_the_silhouettes_of_both_features(model):
    pixels = np.random.default_rng(2).integers(0, 256, (40, 16, 16, 1), np.uint8)
    data, tested = LabelledImages(pixels, np.arange(40, dtype=np.int32) % 10), np.arange(5, 40)
    kept = silhouettes(model, ImageClassification(), data, tested)
    found = analysis.features(model, pixels[tested] / 255.0)
    for name, numbers in (("silhouette", found.pooled), ("silhouette_maps", found.maps)):
        expected = analysis.silhouette(numbers, data.label[tested], seed=0)
        assert kept[name] == pytest.approx(expected["kmeans"], abs=1e-6)
        assert kept[f"{name}_classes"] == pytest.approx(expected["classes"], abs=1e-6)


def test_labels_that_are_no_clusters_have_a_silhouette_below_zero(blobs):
    features, labels = blobs
    scores = analysis.silhouette(features, np.random.default_rng(1).permutation(labels), seed=0)
    assert scores["classes"] < 0 < 0.95 < scores["kmeans"]


@pytest.mark.slow
def test_embedding_takes_some_samples_and_keeps_clusters_together(blobs):
    features, labels = blobs
    rows, places = analysis.embedding(features, seed=0, samples=50)
    assert len(set(rows.tolist())) == 50 and places.shape == (50, 2)
    np.testing.assert_array_equal(places, analysis.embedding(features, seed=0, samples=50).places)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    same = labels[rows][:, None] == labels[rows]
    assert np.median(distance[same]) < np.median(distance[~same]) / 2


def test_too_few_vectors_for_an_embedding():
    with pytest.raises(ValueError, match="30 vectors; t-SNE with perplexity 30 needs more"):
        analysis.embedding(np.zeros((30, 2)), seed=0)


# --- attention --------------------------------------------------------------------------------------------------

TIMES = [0.0, 0.5, 1.0]


@pytest.mark.slow
def test_attention_is_the_sigmoid(model, images):
    found = analysis.attention_weights(model, images, TIMES, batch=4)
    a = eqx.filter_jit(model.path)(jnp.asarray(images), jnp.asarray(TIMES)).a
    assert a is not None and found.shape == (7, 3, *a.shape[2:])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.asarray(a))), rtol=1e-10)
    assert 0 < found.min() and found.max() < 1 and np.ptp(found, axis=1).max() > 1e-3


def test_attention_of_a_model_without_any(images):
    model = classifier(SETTINGS["mnist"], plain, WIDTH)(jax.random.key(0))
    with pytest.raises(ValueError, match="ODE is NeuralODE, which has no elementwise attention"):
        analysis.attention_weights(model, images, TIMES)


def test_attention_is_asked_from_time_zero_on(model, images):
    with pytest.raises(ValueError, match="the first time must be 0"):
        analysis.attention_weights(model, images, [0.5, 1.0])


def test_summary_of_known_attention():
    weights = np.full((2, 2, 3, 3, 4), 0.5)
    weights[:, 1, 0] = 1.0  # the first row of places opens, in every channel and image
    found = analysis.attention_summary(weights)
    np.testing.assert_allclose(found["mean"], [0.5, 2 / 3])
    np.testing.assert_allclose(found["entropy"], [1, 2 / 3], atol=1e-5)
    np.testing.assert_allclose(found["moved"], [0, 1 / 6])
    np.testing.assert_allclose(found["places_moved"], [0, 1 / 6])
    np.testing.assert_allclose(found["over_channels"], [0, 0], atol=1e-12)
    np.testing.assert_allclose(found["over_places"], [0, 18**-0.5], atol=1e-12)
    np.testing.assert_allclose(found["same_for_all"], [0, 1], atol=1e-12)
    assert found["q50"] == [0.5, 0.5] and found["q95"] == [0.5, 1.0]


# --- where on the image -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding, size, first", [(0, 28, 1.0), (1, 32, 0.0)])
def test_cells_lie_around_what_they_see(key, padding, size, first):
    stem = Stem(1, WIDTH, padding, key=key)
    model = ImageClassifier(stem, plain(key), WIDTH, key=key)
    edges = analysis.cell_edges(model, size)
    places = eqx.filter_eval_shape(stem, jnp.zeros((size, size, 1))).shape[0]
    np.testing.assert_allclose(edges, first + 4.0 * np.arange(places + 1))

    # Without norms, which look at everything, a cell depends on a square of pixels, whose middle is that of the cell.
    linear = eqx.tree_at(lambda s: s.norms, stem, (lambda x: x, lambda x: x))
    grad = jax.jit(jax.grad(lambda x: linear(x)[2, 2].sum()))(jax.random.uniform(key, (size, size, 1)))
    seen = np.flatnonzero(np.abs(np.asarray(grad)).sum(axis=(1, 2)))
    assert (seen[0] + seen[-1] + 1) / 2 == (edges[2] + edges[3]) / 2


def test_brightness_and_contrast_of_cells(model):
    image = np.zeros((1, 28, 28, 1))
    image[0, 1:5, 5:9] = 1.0  # all of cell (0, 1)
    image[0, 5:9, 5:7] = 1.0  # half of cell (1, 1)
    brightness, contrast = analysis.cells(model, image)
    expected = np.zeros((6, 6))
    expected[0, 1], expected[1, 1] = 1.0, 0.5
    np.testing.assert_allclose(brightness[0], expected, atol=1e-12)
    np.testing.assert_allclose(contrast[0], np.where(expected == 0.5, 0.5, 0), atol=1e-12)


def test_attention_by_a_quantity_of_places():
    random = np.random.default_rng(0)
    quantity = random.random((3, 4, 4))
    attention = np.stack([2 - quantity, np.full_like(quantity, 0.5)], axis=1)
    found = analysis.attention_by(attention, quantity)
    np.testing.assert_allclose(found["correlation"], [-1, 0], atol=1e-12)
    np.testing.assert_allclose(found["own_correlation"], [-1, 0], atol=1e-12)
    assert found["high"][0] < found["low"][0] and found["high"][1] == found["low"][1] == 0.5
    everywhere = np.broadcast_to(quantity[:1], quantity.shape)
    assert analysis.attention_by(attention, everywhere)["own_correlation"] == [0, 0]
