"""Classes of series and of points: metrics against scikit-learn, losses against numpy, a small problem learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from acenode.datasets.split import Split
from acenode.models import Filter, RNNDt, Trace
from acenode.ode import Stats
from acenode.series import reconstruct, series, stack
from acenode.tasks import (
    BinaryClassification,
    ClassificationHead,
    Headed,
    LabelledPoints,
    LabelledQuery,
    PointClassification,
)
from acenode.tasks.classification import hide_variables
from acenode.train import Member, Recipe, fit

# --- two classes ----------------------------------------------------------------------------------------------


class Line(eqx.Module):
    """A model without parameters: the first values, and how far they would come at that speed."""

    def __call__(self, series, times, key):
        first = jnp.asarray(series.values)[:, :1]
        states = jnp.concatenate([jnp.broadcast_to(first, (*times.shape, 2)), first * times[..., None]], axis=-1)
        batch = len(times)
        return Trace(states[None], states[None, :, 0], jnp.zeros(batch), None, Stats.none(batch), None, None)


@pytest.fixture
def case(key):
    random = np.random.default_rng(1)
    records = [
        series(np.sort(random.random(4)), random.normal(size=(4, 2)), random.random((4, 2)) > 0.3) for _ in range(5)
    ]
    batch = LabelledQuery(reconstruct(stack(records)), np.array([0, 1, 0, 1, 1], np.float32))
    batch = jax.tree.map(jnp.asarray, batch)
    return Headed(Line(), ClassificationHead(eqx.nn.Linear(4, 2, key=key), 4, width=8, key=key)), batch


@pytest.mark.slow
@pytest.mark.parametrize("read", ["start", "end"])
def test_loss_equals_plain_numpy(case, key, read):
    model, batch = case
    task = BinaryClassification(read=read, label_weight=10.0, noise=0.5)
    value, report = task.loss(model, batch, key, jnp.asarray(0))
    states = np.asarray(model.model(batch.query.context, batch.query.times, key).states[0])
    decoder = model.head.decoder
    decoded = states @ np.asarray(decoder.weight).T + np.asarray(decoder.bias)
    each = -0.5 * (((np.asarray(batch.query.values) - decoded) / 0.5) ** 2 + np.log(2 * np.pi * 0.25))
    fits = []
    for b in range(5):
        per_variable = []
        for v in range(2):
            seen = np.asarray(batch.query.observed)[b, :, v]
            per_variable.append(each[b, seen, v].mean() if seen.any() else 0.0)
        fits.append(np.mean(per_variable))
    features = states[:, 0] if read == "start" else states[:, -1]
    logits = np.asarray(jax.vmap(model.head.classifier)(jnp.asarray(features)))[:, 0]
    entropy = np.mean(np.log1p(np.exp(logits)) - np.asarray(batch.label) * logits)
    np.testing.assert_allclose(value, 10 * entropy - np.mean(fits), rtol=1e-5)
    assert report.failed == 0


@pytest.mark.slow
def test_outputs_are_probabilities_and_metrics_use_them(case, key):
    model, batch = case
    task = BinaryClassification(read="end")
    p = task.outputs(model, batch, key)
    assert p.shape == (5,) and np.all((p > 0) & (p < 1))
    metrics = task.metrics(p, batch, jnp.ones(5))
    np.testing.assert_allclose(metrics["auc"], roc_auc_score(np.asarray(batch.label), np.asarray(p)), rtol=1e-6)


def test_a_part_of_the_variables_of_each_series_is_hidden_anew_every_time(key):
    values = np.random.default_rng(0).normal(size=(40, 3, 20))
    whole = stack([series(np.arange(3.0), np.where(v > 1, np.nan, v)) for v in values])
    measured = whole.observed.any(axis=1)
    one, two = (hide_variables(whole, 0.3, k) for k in jax.random.split(key))
    for given in (one, two):
        left = np.asarray(given.observed).any(axis=1)
        assert 0.25 < 1 - left.sum() / measured.sum() < 0.35
        np.testing.assert_array_equal(given.observed, whole.observed & left[:, None])  # a variable as a whole
        np.testing.assert_array_equal(given.values, np.where(given.observed, whole.values, 0))
        np.testing.assert_array_equal(given.times, whole.times)
        assert np.any(left[0] != left[1])
    assert np.any(one.observed != two.observed)


def test_no_part_hides_nothing(key):
    whole = stack([series([0.0, 1.0], [[1.0], [2.0]])])
    assert hide_variables(whole, 0.0, key) is whole


# --- points ---------------------------------------------------------------------------------------------------

CLASSES = 3


def build(key) -> Headed:
    one, two = jax.random.split(key)
    return Headed(Filter(RNNDt(1, 8, key=one), including=True), eqx.nn.Linear(8, CLASSES, key=two))


def points(count: int) -> LabelledPoints:
    """Values that wander over the line; the class says in which third of it they are."""
    random = np.random.default_rng(0)
    many = [series(np.sort(random.random(6)), random.normal(size=(6, 1))) for _ in range(count)]
    whole = stack(many)
    label = np.digitize(whole.values[..., 0], [-0.5, 0.5])
    return LabelledPoints(whole, label.astype(np.int32), random.random(label.shape) < 0.8)


@pytest.fixture(scope="module")
def scored():
    batch = jax.tree.map(jnp.asarray, points(20))
    model = build(jax.random.key(0))
    p = eqx.filter_jit(PointClassification().outputs)(model, batch, jax.random.key(1))
    return model, batch, p


@pytest.mark.slow
def test_metrics_equal_scikit_learn(scored):
    _, batch, p = scored
    weight = jnp.asarray(np.arange(20) < 15, float)
    got = PointClassification().metrics(p, batch, weight)
    counted = np.asarray(batch.labelled)[:15]
    label, chance = np.asarray(batch.label)[:15][counted], np.asarray(p, np.float64)[:15][counted]
    chance = chance / chance.sum(1, keepdims=True)
    np.testing.assert_allclose(got["accuracy"], accuracy_score(label, chance.argmax(1)), rtol=1e-6)
    np.testing.assert_allclose(got["auc"], roc_auc_score(label, chance, multi_class="ovr", average="macro"), rtol=1e-5)
    np.testing.assert_allclose(got["cross_entropy"], log_loss(label, chance), rtol=1e-5)


def test_a_class_that_is_absent_has_no_part_in_the_area(scored):
    _, batch, p = scored
    without = eqx.tree_at(lambda b: b.labelled, batch, batch.labelled & (batch.label != 2))
    got = PointClassification().metrics(p, without, jnp.ones(20))
    counted = np.asarray(without.labelled)
    label, chance = np.asarray(batch.label)[counted], np.asarray(p)[counted]
    areas = [roc_auc_score(label == c, chance[:, c]) for c in (0, 1)]
    np.testing.assert_allclose(got["auc"], np.mean(areas), rtol=1e-5)


@pytest.mark.slow
def test_points_without_a_label_do_not_count_in_the_loss(scored):
    model, batch, p = scored
    loss, _ = PointClassification().loss(model, batch, jax.random.key(1), jnp.asarray(0))
    counted = np.asarray(batch.labelled)
    chosen = np.take_along_axis(np.asarray(p), np.asarray(batch.label)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(loss, -np.log(chosen[counted]).mean(), rtol=1e-5)


@pytest.mark.slow
def test_it_learns_where_a_value_lies():
    split = Split(np.arange(64), np.arange(64, 96), np.arange(0))
    recipe = Recipe(epochs=40, batch_size=16)
    done = fit(build, PointClassification(), points(96), split, recipe, [Member(learning_rate=0.03)])
    assert done.best_score[0] > 0.9
