"""Scores are not made of answers that there are none of."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets.split import Split
from acenode.models import Trace
from acenode.ode import CoEvolvingODE, Correlation, MLPField, Pairwise, Stats, Status, pairwise_field
from acenode.ode.solver import status_where
from acenode.series import Query, Series
from acenode.tasks import Forecast, Headed, LabelledSeries, SeriesClassification
from acenode.train import Recipe, fit
from acenode.train.evaluate import metrics_of

BATCH = 3


class Given(eqx.Module):
    """A model of states of zeros, as a failed solve leaves them."""

    status: jax.Array

    def __call__(self, series, times, key):
        zero = jnp.zeros_like(self.status)
        status = status_where(self.status > 0, Status.not_finite, Status.solved)
        states = jnp.zeros((1, BATCH, times.shape[1], 2))
        return Trace(
            states, states[:, :, 0], zero.astype(float), None, Stats(zero, zero, zero, zero, status), None, None
        )


def halves(state):
    return state[:1], state[1:]


def known() -> Series:
    times = jnp.broadcast_to(jnp.arange(2.0), (BATCH, 2))
    return Series(times, jnp.ones((BATCH, 2, 1)), jnp.ones((BATCH, 2, 1), bool), jnp.full(BATCH, 2))


def scores(task, head, data, status, weight=(1, 1, 1)):
    model = Headed(Given(jnp.asarray(status, jnp.int32)), head)
    rows = jnp.arange(BATCH)
    return metrics_of(model, task, BATCH, rows, jnp.asarray(weight, float), data, jax.random.key(0))


FORECAST = (Forecast(), halves, Query(known(), known().times, known().values, known().observed, known().observed))
CLASSES = (SeriesClassification(), lambda summary: summary, LabelledSeries(known(), jnp.asarray([0, 1, 0])))


@pytest.mark.slow
@pytest.mark.parametrize("queried", [FORECAST, CLASSES], ids=["values", "labels"])
def test_a_failed_solve_has_no_score(queried):
    well = scores(*queried, [0, 0, 0])
    assert all(np.isfinite(value) for value in well.values())
    assert all(np.isnan(value) for value in scores(*queried, [0, 1, 0]).values())


@pytest.mark.slow
def test_a_sample_that_does_not_count_may_fail():
    padding = scores(*FORECAST, [0, 1, 0], weight=(1, 0, 1))
    assert all(np.isfinite(value) for value in padding.values())


@pytest.mark.slow
def test_an_attention_that_cannot_be_measured_is_refused_before_training():
    class Attentive(eqx.Module):
        ode: CoEvolvingODE

        def __call__(self, series, times, key):
            path = self.ode(series.values[:, 0], times)
            empty = jnp.zeros(len(series))
            return Trace(path.finite[None], path.finite[None, :, -1], empty, None, path.stats, None, None)

    def build(key):
        ode = CoEvolvingODE(MLPField(1, key=key), pairwise_field("linear_h2", 1, key=key), Pairwise(), Correlation(1))
        return Headed(Attentive(ode), lambda state: (state, state))

    split = Split(np.arange(2), np.arange(2, 3), np.zeros(0, int))
    with pytest.raises(ValueError, match="first_states gave none"):
        fit(build, Forecast(), FORECAST[2], split, Recipe(epochs=1, batch_size=2))
