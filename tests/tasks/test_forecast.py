"""`Forecast`: its loss and metrics against numpy, what counts and what does not, samples that failed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import LatentODE, Trace
from acenode.ode import NeuralODE, Solver, Stats, Status
from acenode.ode.solver import status_where
from acenode.series import Query, Series
from acenode.tasks import Forecast, GaussianHead, Headed, RowHead, Task
from acenode.tasks.forecast import gaussian_negative_log_likelihood, mixture

DRAWS, BATCH, QUERIES, VARIABLES = 2, 4, 3, 2


class Given(eqx.Module):
    """A model that answers what it was given, so that the task alone is tested."""

    states: jax.Array
    penalty: jax.Array
    status: jax.Array

    def __call__(self, series, times, key):
        zero = jnp.zeros_like(self.status)
        status = status_where(self.status > 0, Status.not_finite, Status.solved)
        stats = Stats(zero, zero, zero + 7, zero + 5, status)
        return Trace(self.states, self.states[:, :, 0], self.penalty, None, stats, None, None)


class Halves(eqx.Module):
    """Mean and log variance are the halves of the state."""

    def __call__(self, state):
        mean, log_variance = jnp.split(state, 2)
        return mean, log_variance


def given(status=None, seed=0) -> Headed:
    random = np.random.default_rng(seed)
    states = jnp.asarray(random.normal(size=(DRAWS, BATCH, QUERIES, 2 * VARIABLES)))
    status = jnp.zeros(DRAWS * BATCH, jnp.int32) if status is None else jnp.asarray(status, jnp.int32)
    return Headed(Given(states, jnp.asarray([0.1, 0.2, 0.3, 0.8]), status), Halves())


def query(seed=1) -> Query:
    random = np.random.default_rng(seed)
    known = Series(np.zeros((BATCH, 1)), np.zeros((BATCH, 1, 2)), np.zeros((BATCH, 1, 2), bool), np.zeros(BATCH, int))
    values = random.normal(size=(BATCH, QUERIES, VARIABLES))
    observed = random.random(values.shape) < 0.7
    scored = observed & (random.random(values.shape) < 0.6)
    times = np.broadcast_to(np.arange(1.0, 1 + QUERIES), (BATCH, QUERIES))
    return jax.tree.map(jnp.asarray, Query(known, times, np.where(observed, values, 0), observed, scored))


def density(x, mean, log_variance):
    """-log of the Gaussian density, from its definition."""
    x, mean, sd = np.asarray(x), np.asarray(mean), np.exp(0.5 * np.asarray(log_variance))
    return -np.log(np.exp(-0.5 * ((x - mean) / sd) ** 2) / (np.sqrt(2 * np.pi) * sd))


def numpy_loss(model: Headed, batch: Query, penalty: float, solved=None) -> float:
    mean, log_variance = np.split(np.asarray(model.model.states), 2, axis=-1)
    counts = np.broadcast_to(np.asarray(batch.observed), mean.shape)
    if solved is not None:
        counts = counts & np.asarray(solved).reshape(DRAWS, BATCH, 1, 1)
    return density(batch.values, mean, log_variance)[counts].mean() + penalty * np.mean(model.model.penalty)


def test_forecast_is_a_task():
    assert isinstance(Forecast(), Task)


def test_the_likelihood_is_that_of_the_gaussian():
    x, mean, log_variance = np.random.default_rng(0).normal(size=(3, 20))
    np.testing.assert_allclose(
        gaussian_negative_log_likelihood(x, mean, log_variance), density(x, mean, log_variance), rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [1.0, 0.25])
def test_the_loss_is_the_mean_over_observed_values_and_samples_plus_the_penalty(penalty):
    model, batch = given(), query()
    value, report = Forecast(penalty).loss(model, batch, None, 0)
    np.testing.assert_allclose(value, numpy_loss(model, batch, penalty), rtol=1e-12)
    assert report.failed == 0 and report.evaluations == 7


def test_what_is_not_observed_has_no_influence_on_the_loss():
    model, batch = given(), query()
    other = eqx.tree_at(lambda q: q.values, batch, jnp.where(batch.observed, batch.values, 1e6))
    other = eqx.tree_at(lambda q: q.scored, other, ~batch.scored)
    assert Forecast().loss(model, batch, None, 0)[0] == Forecast().loss(model, other, None, 0)[0]


@pytest.mark.slow
def test_a_batch_without_any_observation_has_a_finite_loss():
    batch = eqx.tree_at(lambda q: q.observed, query(), jnp.zeros((BATCH, QUERIES, VARIABLES), bool))
    value, _ = Forecast(penalty=0.0).loss(given(), batch, None, 0)
    assert value == 0
    slope = eqx.filter_grad(lambda m: Forecast(0.0).loss(m, batch, None, 0)[0])(given())
    assert not np.asarray(slope.model.states).any()


def test_failed_solves_are_left_out_of_the_loss_and_counted():
    status = np.zeros((DRAWS, BATCH), int)
    status[0, 1], status[1, 3], status[1, 1] = 1, 2, 3
    model, batch = given(status.ravel()), query()
    value, report = Forecast().loss(model, batch, None, 0)
    np.testing.assert_allclose(value, numpy_loss(model, batch, 1.0, status == 0), rtol=1e-12)
    assert report.failed == 3
    slope = np.asarray(eqx.filter_grad(lambda m: Forecast().loss(m, batch, None, 0)[0])(model).model.states)
    assert not slope[status > 0].any() and slope[status == 0].any()


# --- metrics --------------------------------------------------------------------------------------------------


def test_metrics_are_means_over_scored_values():
    model, batch, weight = given(), query(), jnp.ones(BATCH)
    mean, log_variance = (np.asarray(x)[0] for x in np.split(np.asarray(model.model.states[:1]), 2, axis=-1))
    found = Forecast().metrics((jnp.asarray(mean), jnp.asarray(log_variance)), batch, weight)
    scored = np.asarray(batch.scored)
    error = (np.asarray(batch.values) - mean)[scored]
    np.testing.assert_allclose(found["mse"], np.mean(error**2), rtol=1e-12)
    np.testing.assert_allclose(found["negll"], density(batch.values, mean, log_variance)[scored].mean(), rtol=1e-12)
    np.testing.assert_allclose(
        found["coverage"], np.mean(np.abs(error) <= 1.6448536 * np.exp(log_variance / 2)[scored])
    )


@pytest.mark.slow
def test_coverage_of_a_gaussian_is_nine_tenths():
    values = np.random.default_rng(0).normal(3.0, 2.0, (500, 20, 2))
    batch = jax.tree.map(jnp.asarray, Query(query().context, values[..., 0], values, values < 99, values < 99))
    outputs = (jnp.full(values.shape, 3.0), jnp.full(values.shape, np.log(4.0)))
    assert float(Forecast().metrics(outputs, batch, jnp.ones(500))["coverage"]) == pytest.approx(0.9, abs=0.01)


@pytest.mark.slow
def test_rows_of_weight_zero_do_not_count():
    batch = query()
    mean, log_variance = np.split(np.asarray(given().model.states[0]), 2, axis=-1)
    part = jax.tree.map(lambda x: x[:2], batch)
    alone = Forecast().metrics((mean[:2], log_variance[:2]), part, jnp.ones(2))
    broken = np.where(np.arange(BATCH)[:, None, None] < 2, mean, np.nan)
    padded = Forecast().metrics((broken, log_variance), batch, jnp.asarray([1.0, 1.0, 0.0, 0.0]))
    for name, value in alone.items():
        np.testing.assert_allclose(padded[name], value, rtol=1e-12, err_msg=name)


def test_what_is_not_scored_has_no_influence_on_the_metrics():
    batch, weight = query(), jnp.ones(BATCH)
    outputs = tuple(jnp.split(given().model.states[0], 2, axis=-1))
    other = eqx.tree_at(lambda q: q.values, batch, jnp.where(batch.scored, batch.values, 1e6))
    other = eqx.tree_at(lambda q: q.observed, other, ~batch.observed)
    assert Forecast().metrics(outputs, batch, weight) == Forecast().metrics(outputs, other, weight)


def test_nothing_scored_is_zero_and_no_error():
    batch = eqx.tree_at(lambda q: q.scored, query(), jnp.zeros((BATCH, QUERIES, VARIABLES), bool))
    outputs = tuple(jnp.split(given().model.states[0], 2, axis=-1))
    assert set(map(float, Forecast().metrics(outputs, batch, jnp.ones(BATCH)).values())) == {0.0}


def test_several_samples_become_one_gaussian_with_their_mean_and_variance():
    model = given()
    mean, log_variance = Forecast().outputs(model, query(), None)
    means, log_variances = np.split(np.asarray(model.model.states), 2, axis=-1)
    random = np.random.default_rng(0)
    drawn = means[:, None] + np.exp(0.5 * log_variances)[:, None] * random.normal(size=(1, 100_000, *means.shape[1:]))
    drawn = drawn.reshape(-1, *means.shape[1:])
    np.testing.assert_allclose(mean, drawn.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(jnp.exp(log_variance), drawn.var(axis=0), rtol=0.03)


def test_one_sample_stays_as_it_is_also_far_from_zero_in_single_precision():
    mean, log_variance = jnp.full((1, 3), 1e4, jnp.float32), jnp.full((1, 3), np.log(1e-4), jnp.float32)
    centre, spread = mixture(mean, log_variance)
    np.testing.assert_allclose(centre, mean[0])
    np.testing.assert_allclose(spread, log_variance[0], rtol=1e-6)


# --- a solve that really fails --------------------------------------------------------------------------------


class Cubic(eqx.Module):
    """Diverges in finite time from a large state, and stays small from a small one."""

    rate: jax.Array

    def __call__(self, t, h):
        return self.rate * h**3


class FirstRow(eqx.Module):
    def __call__(self, series):
        return series.values[:, 0]


class Narrow(eqx.Module):
    def __call__(self, vector):
        return jnp.concatenate([vector, jnp.zeros_like(vector)])


@eqx.filter_jit
def slope(model, batch):
    return eqx.filter_value_and_grad(lambda m: Forecast().loss(m, batch, jax.random.key(0), 0), has_aux=True)(model)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e90, 1e3, 30.0])  # fails in the first step, or gets some way before
def test_a_solve_that_diverges_leaves_the_gradient_of_the_others_alone(size):
    head = Doubled()
    solver = Solver("rk4", step=0.25, max_steps=8, checkpoints=8)
    ode = NeuralODE(Cubic(jnp.asarray([0.3, 0.2])), solver)
    model = Headed(LatentODE(FirstRow(), Narrow(), ode, (2,), samples=0), head)
    times = np.broadcast_to([0.0, 0.5, 1.0], (3, 3)).astype(np.float64)

    def ask(last: float, observed: bool) -> Query:
        values = np.asarray([[[0.5, -0.3]], [[-0.2, 0.4]], [[last, last]]])
        known = Series(times[:, :1], values, np.ones((3, 1, 2), bool), np.ones(3, int))
        mask = np.ones((3, 3, 2), bool)
        mask[2] = observed
        return jax.tree.map(jnp.asarray, Query(known, times, np.full((3, 3, 2), 0.1), mask, mask))

    (value, report), gradient = slope(model, ask(size, True))
    (expected, whole), right = slope(model, ask(0.1, False))
    assert report.failed == 1 and whole.failed == 0
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient.model.ode.f.rate, right.model.ode.f.rate, rtol=1e-12)
    np.testing.assert_allclose(gradient.head.w, right.head.w, rtol=1e-12)
    assert np.abs(np.asarray(gradient.model.ode.f.rate)).min() > 1e-6


class Doubled(eqx.Module):
    """Mean and log variance, each a multiple of the state."""

    w: jax.Array = eqx.field(default_factory=lambda: jnp.asarray([1.0, 0.1]))

    def __call__(self, state):
        return self.w[0] * state, self.w[1] * state


# --- heads ----------------------------------------------------------------------------------------------------


@eqx.filter_jit
def read(kind, sizes, state, key):
    return kind(*sizes, key=key)(state)


@pytest.mark.slow
def test_heads_give_mean_and_log_variance_of_every_variable(key):
    mean, log_variance = read(GaussianHead, (5, 3), jnp.ones(5), key)
    assert mean.shape == log_variance.shape == (3,) and not np.allclose(mean, log_variance)
    rows = jnp.asarray([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    mean, log_variance = read(RowHead, (2,), rows, key)
    assert mean.shape == log_variance.shape == (3,)
    assert mean[0] == mean[2] and mean[0] != mean[1]  # row i alone gives variable i
    np.testing.assert_allclose(read(RowHead, (2,), rows.at[1].set(9.0), key)[0][0], mean[0], rtol=1e-14)


# --- augmentation ---------------------------------------------------------------------------------------------


def contexts() -> Series:
    """40 contexts of 30 rows between 0 and 1."""
    values = np.random.default_rng(0).normal(size=(40, 30, 2))
    times = np.broadcast_to(np.linspace(0, 1, 30), (40, 30))
    return Series(times, values, np.ones(values.shape, bool), np.full(40, 30))


def test_training_may_end_the_context_of_each_series_anywhere(key):
    context = contexts()
    cut = Forecast(cut=(0.3, 0.8))._augmented(context, key)
    last = np.max(np.where(cut.observed.any(-1), context.times, 0.0), axis=1)
    assert last.min() >= 0.25 and last.max() <= 0.8 and np.ptp(last) > 0.3
    np.testing.assert_array_equal(cut.observed[..., 0], context.times <= last[:, None])
    np.testing.assert_array_equal(cut.values, np.where(cut.observed, context.values, 0.0))


@pytest.mark.slow
def test_training_may_hide_a_part_of_the_context(key):
    context = contexts()
    hidden = Forecast(hide=0.3)._augmented(context, key)
    assert 1 - np.mean(hidden.observed) == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(hidden.values, np.where(hidden.observed, context.values, 0.0))
    assert Forecast()._augmented(context, key) is context
