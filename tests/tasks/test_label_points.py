"""A class for every point: metrics against scikit-learn, the loss against plain numpy, and a small problem learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from acenode.datasets.split import Split
from acenode.models import Filter, RNNDt
from acenode.series import series, stack
from acenode.tasks import Headed, LabelPoints, PointLabels
from acenode.train import Member, Recipe, fit

CLASSES = 3


def build(key) -> Headed:
    one, two = jax.random.split(key)
    return Headed(Filter(RNNDt(1, 8, key=one), including=True), eqx.nn.Linear(8, CLASSES, key=two))


def points(count: int) -> PointLabels:
    """Values that wander over the line; the class says in which third of it they are."""
    random = np.random.default_rng(0)
    many = [series(np.sort(random.random(6)), random.normal(size=(6, 1))) for _ in range(count)]
    whole = stack(many)
    label = np.digitize(whole.values[..., 0], [-0.5, 0.5])
    return PointLabels(whole, label.astype(np.int32), random.random(label.shape) < 0.8)


@pytest.fixture(scope="module")
def case():
    batch = jax.tree.map(jnp.asarray, points(20))
    model = build(jax.random.key(0))
    p = eqx.filter_jit(LabelPoints().outputs)(model, batch, jax.random.key(1))
    return model, batch, p


def test_metrics_equal_scikit_learn(case):
    _, batch, p = case
    weight = jnp.asarray(np.arange(20) < 15, float)
    got = LabelPoints().metrics(p, batch, weight)
    counted = np.asarray(batch.labelled)[:15]
    label, chance = np.asarray(batch.label)[:15][counted], np.asarray(p, np.float64)[:15][counted]
    chance = chance / chance.sum(1, keepdims=True)
    np.testing.assert_allclose(got["accuracy"], accuracy_score(label, chance.argmax(1)), rtol=1e-6)
    np.testing.assert_allclose(got["auc"], roc_auc_score(label, chance, multi_class="ovr", average="macro"), rtol=1e-5)
    np.testing.assert_allclose(got["cross_entropy"], log_loss(label, chance), rtol=1e-5)


def test_a_class_that_is_absent_has_no_part_in_the_area(case):
    _, batch, p = case
    without = eqx.tree_at(lambda b: b.labelled, batch, batch.labelled & (batch.label != 2))
    got = LabelPoints().metrics(p, without, jnp.ones(20))
    counted = np.asarray(without.labelled)
    label, chance = np.asarray(batch.label)[counted], np.asarray(p)[counted]
    areas = [roc_auc_score(label == c, chance[:, c]) for c in (0, 1)]
    np.testing.assert_allclose(got["auc"], np.mean(areas), rtol=1e-5)


def test_points_without_a_label_do_not_count_in_the_loss(case):
    model, batch, p = case
    loss, _ = LabelPoints().loss(model, batch, jax.random.key(1), jnp.asarray(0))
    counted = np.asarray(batch.labelled)
    chosen = np.take_along_axis(np.asarray(p), np.asarray(batch.label)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(loss, -np.log(chosen[counted]).mean(), rtol=1e-5)


def test_it_learns_where_a_value_lies():
    split = Split(np.arange(64), np.arange(64, 96), np.arange(0))
    recipe = Recipe(epochs=40, batch_size=16)
    done = fit(build, LabelPoints(), points(96), split, recipe, [Member(learning_rate=0.03)])
    assert done.best_score[0] > 0.9
