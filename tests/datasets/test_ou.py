"""The double Ornstein-Uhlenbeck process: its statistics, and its exact filter against the joint Gaussian."""

import math

import numpy as np
import pytest

from acenode.datasets import ou
from acenode.datasets.ou import Process, exact_filter, generate, negll, paths
from acenode.series import Series, forecast, series as one_series, stack


@pytest.fixture(scope="module")
def made() -> ou.DoubleOU:
    return generate(samples=2000, seed=1)


def covariance(process: Process, times: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """The covariance of values at some times, of some variables, from the solution of the equation."""
    s, t = times[:, None], times[None, :]
    same = variables[:, None] == variables[None, :]
    levels = np.where(same, process.spread**2, 0) * np.expm1(-process.theta * s) * np.expm1(-process.theta * t)
    decay = np.exp(-process.theta * np.abs(t - s)) - np.exp(-process.theta * (t + s))
    return levels + process.sigma**2 / (2 * process.theta) * np.where(same, 1, process.rho) * decay


@pytest.mark.parametrize(
    "process", [Process(), Process(theta=0.4, sigma=0.3, rho=-0.5, means=(2.0, 0.5), spread=0.7), Process(spread=0.0)]
)
def test_the_filter_is_the_conditional_of_the_joint_gaussian(process):
    series = generate(samples=4, process=process, rows=10, both=0.4, seed=3).panel.series
    predicted = exact_filter(series, process)
    for i in range(len(series)):
        rows, variables = np.nonzero(series.observed[i])
        times = series.times[i].astype(np.float64)[rows]
        values = series.values[i].astype(np.float64)[rows, variables]
        mean = np.asarray(process.means)[variables] * -np.expm1(-process.theta * times)
        joint = covariance(process, times, variables)
        for row in range(series.length[i]):
            past = rows < row
            for variable in (0, 1):
                time = np.asarray([float(series.times[i, row])])
                cross = covariance(process, np.append(times[past], time), np.append(variables[past], variable))[-1]
                weights = np.linalg.solve(joint[np.ix_(past, past)], cross[:-1]) if past.any() else np.zeros(0)
                own = process.means[variable] * -np.expm1(-process.theta * time[0])
                expected = own + weights @ (values[past] - mean[past])
                assert predicted.mean[i, row, variable] == pytest.approx(expected, abs=1e-8)
                assert predicted.variance[i, row, variable] == pytest.approx(cross[-1] - weights @ cross[:-1], rel=1e-6)


def test_the_filter_is_calibrated(made):
    series = made.panel.series
    predicted = exact_filter(series)
    seen = series.observed
    standardised = (series.values[seen] - predicted.mean[seen]) / np.sqrt(predicted.variance[seen])
    assert abs(standardised.mean()) < 0.02
    assert standardised.std() == pytest.approx(1, abs=0.01)
    # the likelihood that is expected of a calibrated Gaussian
    expected = np.mean(0.5 * np.log(2 * np.pi * predicted.variance[seen])) + 0.5
    assert negll(series, predicted) == pytest.approx(expected, abs=0.01)


def test_no_other_variance_or_mean_does_better(made):
    series = made.panel.series
    best = exact_filter(series)
    least = negll(series, best)
    for candidate in [
        best._replace(variance=1.1 * best.variance),
        best._replace(variance=0.9 * best.variance),
        best._replace(mean=best.mean + 0.01),
        exact_filter(series, Process(rho=0.0)),
        exact_filter(series, Process(theta=1.3)),
    ]:
        assert negll(series, candidate) > least


def test_a_prediction_does_not_know_its_own_row(made):
    series = made.panel.series[:5]
    values = series.values.copy()
    values[:, 7:] += np.where(series.observed[:, 7:], 3, 0)
    changed = exact_filter(Series(series.times, values, series.observed, series.length))
    np.testing.assert_array_equal(changed.mean[:, :8], exact_filter(series).mean[:, :8])
    assert not np.array_equal(changed.mean[:, 8], exact_filter(series).mean[:, 8])


def test_a_forecast_of_one_row_is_that_of_the_filter(made):
    queried = forecast(made.panel.series, after=ou.AFTER, rows=ou.ROWS)
    hidden = made.panel.series.observed & (made.panel.series.times <= ou.AFTER)[..., None]
    series = made.panel.series
    ahead = exact_filter(Series(series.times, np.where(hidden, series.values, 0), hidden, series.length))
    both = exact_filter(series)
    np.testing.assert_allclose(ahead.mean[queried.scored], both.mean[queried.scored])
    assert negll(series, both, queried.scored) == pytest.approx(-1.28, abs=0.03)


def test_the_stationary_statistics():
    level = np.tile([1.0, -1.0], (20_000, 1))
    away = paths(level, 0.5, 24, np.random.default_rng(5), Process(rho=0.6)) - level[:, None]
    np.testing.assert_allclose(away[:, -1].mean(0), 0, atol=0.002)
    np.testing.assert_allclose(np.cov(away[:, -1].T), 0.005 * np.asarray([[1, 0.6], [0.6, 1]]), atol=2e-4)
    assert np.mean(away[:, -1] * away[:, -3]) == pytest.approx(0.005 * math.exp(-1), abs=2e-4)  # one unit apart


@pytest.mark.parametrize("steps", [1, 40])
def test_the_transition_is_exact_for_any_step(steps):
    level = np.tile([1.0, -1.0], (20_000, 1))
    end = paths(level, 2.0 / steps, steps, np.random.default_rng(steps))[:, -1]
    np.testing.assert_allclose(end.mean(0), np.asarray([1, -1]) * -np.expm1(-2.0), atol=0.002)
    expected = covariance(Process(spread=0.0), np.asarray([2.0, 2.0]), np.asarray([0, 1]))
    np.testing.assert_allclose(np.cov(end.T), expected, atol=2e-4)


@pytest.mark.parametrize("levels", ["normal", "uniform"])
def test_levels(levels):
    level = generate(samples=2000, steps=10, rows=2, levels=levels).level
    np.testing.assert_allclose(level.mean(0), [1, -1], atol=0.02)
    np.testing.assert_allclose(level.std(0), 1 / math.sqrt(12), rtol=0.05)
    inside = (np.abs(level - [1, -1]) <= 0.5).all()
    assert inside == (levels == "uniform")


def test_the_observations_are_sporadic_and_of_the_truth(made):
    series = made.panel.series
    assert len(made) == 2000 and made.panel.variables == ("Y1", "Y2")
    assert (series.times.dtype, series.values.dtype) == (np.float32, np.float32)
    assert (series.length.min(), series.length.max()) == (16, 23)
    assert series.length.mean() == pytest.approx(19.5, abs=0.2)
    both = series.observed.all(2)[series.real].mean()
    assert both == pytest.approx(0.2, abs=0.01) and series.observed.any(2)[series.real].all()
    assert series.observed[..., 0].sum() == pytest.approx(series.observed[..., 1].sum(), rel=0.03)
    assert series.times.min() > 0 and series.times.max() <= 10
    for i in range(5):
        at = np.rint(series.times[i] / 0.05).astype(int) - 1
        np.testing.assert_array_equal(series.values[i], np.where(series.observed[i], made.truth[i, at], 0))


def test_the_seed_decides_everything():
    one, again, other = (generate(samples=3, seed=seed) for seed in (7, 7, 8))
    for get in (lambda m: m.truth, lambda m: m.level, lambda m: m.panel.series.times, lambda m: m.panel.series.values):
        np.testing.assert_array_equal(get(one), get(again))
    assert not np.array_equal(one.truth, other.truth)


@pytest.mark.parametrize(
    "wrong",
    [{"samples": 0}, {"until": 0.0}, {"steps": 0}, {"rows": 0}, {"rows": 200}, {"both": 1.5}],
)
def test_arguments_that_make_no_data_are_refused_by_name(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"\(.*{name}={value}.*needs"):
        generate(**{"samples": 2, **wrong})


@pytest.mark.parametrize("wrong", [{"theta": 0.0}, {"sigma": -1.0}, {"rho": 1.0}, {"spread": -0.1}])
def test_a_process_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="needs a positive theta and sigma, rho between -1 and 1"):
        Process(**wrong)


def test_a_value_at_time_zero_is_refused():
    with pytest.raises(ValueError, match="observed at time 0 or before"):
        exact_filter(stack([one_series([0.0, 1.0], [[0.0, 0.0], [1.0, 1.0]])]))


def test_nothing_to_score(made):
    series = made.panel.series[:2]
    with pytest.raises(ValueError, match="no observed value is chosen"):
        negll(series, exact_filter(series), np.zeros_like(series.observed))
