"""Labels of series: metrics against scikit-learn, the loss against plain numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from acenode.models import FirstLook
from acenode.ode import MLPField, NeuralODE, Solver
from acenode.series import reconstruct, series, stack
from acenode.tasks import Headed, LabelHead, Labelled, LabelSeries
from acenode.tasks.metrics import average_precision, calibration_error, roc_auc


@pytest.mark.parametrize("seed", range(3))
def test_areas_equal_scikit_learn_with_ties_and_padding(seed):
    random = np.random.default_rng(seed)
    score = np.round(random.random(60), 1)
    label = (random.random(60) < 0.3).astype(float)
    weight = (np.arange(60) < 50).astype(float)
    args = jnp.asarray(score), jnp.asarray(label), jnp.asarray(weight)
    np.testing.assert_allclose(roc_auc(*args), roc_auc_score(label[:50], score[:50]), rtol=1e-9)
    np.testing.assert_allclose(average_precision(*args), average_precision_score(label[:50], score[:50]), rtol=1e-9)


def test_one_class_alone_has_no_area():
    ones = jnp.ones(4)
    assert roc_auc(jnp.arange(4.0), ones, ones) == 0.5


def test_calibration_of_a_perfect_and_of_a_wrong_forecast():
    label = jnp.asarray([0.0, 1.0, 0.0, 1.0])
    assert calibration_error(jnp.full(4, 0.5), label, jnp.ones(4)) == 0
    np.testing.assert_allclose(calibration_error(jnp.full(4, 0.9), label, jnp.ones(4)), 0.4, rtol=1e-6)


@pytest.fixture
def case(key):
    random = np.random.default_rng(1)
    records = [
        series(np.sort(random.random(4)), random.normal(size=(4, 2)), random.random((4, 2)) > 0.3) for _ in range(5)
    ]
    batch = Labelled(reconstruct(stack(records)), np.array([0, 1, 0, 1, 1], np.float32))
    batch = jax.tree.map(jnp.asarray, batch)
    model = _Flat(FirstLook(NeuralODE(MLPField((2, 2), 8, 1, key=key), Solver("rk4", step=0.25)), 2))
    return Headed(model, LabelHead(eqx.nn.Linear(4, 2, key=key), 4, width=8, key=key)), batch


class _Flat(eqx.Module):
    """Rows of the state joined, so that one vector reaches the head."""

    model: FirstLook

    def __call__(self, series, times, key):
        trace = self.model(series, times, key)
        states = trace.states.reshape(*trace.states.shape[:3], -1)
        return eqx.tree_at(lambda t: (t.states, t.summary), trace, (states, states[:, :, 0]))


@pytest.mark.parametrize("read", ["start", "end"])
def test_loss_equals_plain_numpy(case, key, read):
    model, batch = case
    task = LabelSeries(read=read, label_weight=10.0, noise=0.5)
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


def test_outputs_are_probabilities_and_metrics_use_them(case, key):
    model, batch = case
    task = LabelSeries(read="end")
    p = task.outputs(model, batch, key)
    assert p.shape == (5,) and np.all((p > 0) & (p < 1))
    metrics = task.metrics(p, batch, jnp.ones(5))
    np.testing.assert_allclose(metrics["auc"], roc_auc_score(np.asarray(batch.label), np.asarray(p)), rtol=1e-6)
