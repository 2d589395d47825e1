"""A number for each series: loss and metrics against scikit-learn, failed solves, and a small problem learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from acenode.datasets.split import Split
from acenode.models import Filter, RNNDt, Trace
from acenode.ode import Stats, Status
from acenode.ode.solver import status_where
from acenode.series import series, stack
from acenode.tasks import Headed, Regression, SeriesTarget, Task
from acenode.train import Member, Recipe, fit


def targets(count: int) -> SeriesTarget:
    """The target is the sum of the two last values."""
    random = np.random.default_rng(0)
    whole = stack([series(np.sort(random.random(4)), random.normal(size=(4, 2))) for _ in range(count)])
    return SeriesTarget(whole, whole.values[:, -1].sum(-1))


class Last(eqx.Module):
    """Answers with the last values, twice; of the first series the solve failed the second time."""

    def __call__(self, series, times, key):
        last = jnp.asarray(series.values)[:, -1]
        summary, batch = jnp.stack([last, 2 * last]), len(times)
        status = status_where(jnp.arange(2 * batch) == batch, Status.not_finite, Status.solved)
        stats = eqx.tree_at(lambda s: s.status, Stats.none(2 * batch), status)
        return Trace(summary[:, :, None], summary, jnp.full(batch, 3.0), None, stats, None, None)


def total(x):
    return x.sum(keepdims=True)


def test_it_is_a_task():
    assert isinstance(Regression(), Task)


@pytest.mark.slow
def test_the_loss_is_the_squared_error_of_solved_samples(key):
    batch = jax.tree.map(jnp.asarray, targets(5))
    value, report = Regression(penalty=0.1).loss(Headed(Last(), total), batch, key, jnp.asarray(0))
    # The first sample of the model is exact, the second twice too large, and of series 0 it has none.
    assert float(value) == pytest.approx(float(np.square(batch.target[1:]).sum() / 9 + 0.1 * 3), rel=1e-5)
    assert report.failed == 1


def test_outputs_are_means_over_samples_and_nothing_for_a_failed_solve(key):
    batch = targets(5)
    predicted = Regression().outputs(Headed(Last(), total), batch, key)
    assert np.isnan(predicted[0])
    np.testing.assert_allclose(predicted[1:], 1.5 * batch.target[1:], rtol=1e-5)


def test_metrics_equal_scikit_learn():
    batch, weight = targets(20), np.arange(20) < 15
    predicted = batch.target + np.random.default_rng(1).normal(size=20)
    got = Regression().metrics(jnp.asarray(predicted), batch, jnp.asarray(weight, float))
    truth, answer = batch.target[:15], predicted[:15]
    np.testing.assert_allclose(got["mse"], mean_squared_error(truth, answer), rtol=1e-6)
    np.testing.assert_allclose(got["mae"], mean_absolute_error(truth, answer), rtol=1e-6)
    np.testing.assert_allclose(got["r2"], r2_score(truth, answer), rtol=1e-6)


def test_equal_targets_have_no_coefficient_of_determination():
    batch = eqx.tree_at(lambda b: b.target, targets(3), np.ones(3, np.float32))
    got = Regression().metrics(jnp.zeros(3), batch, jnp.ones(3))
    assert np.isnan(got["r2"]) and got["mse"] == got["mae"] == 1


@pytest.mark.slow
def test_it_learns_the_sum():
    def build(key):
        one, two = jax.random.split(key)
        return Headed(Filter(RNNDt(2, 8, key=one), including=True), eqx.nn.Linear(8, 1, key=two))

    split = Split(np.arange(64), np.arange(64, 96), np.arange(0))
    done = fit(build, Regression(), targets(96), split, Recipe(epochs=40, batch_size=16), [Member(learning_rate=0.03)])
    assert done.best_score[0] < 0.3  # the variance of the target is 2
