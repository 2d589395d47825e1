"""The noisy Brusselator: its equation, how its integration converges, its noise, and what is seen of it."""

import numpy as np
import pytest

from acenode.datasets import brusselator
from acenode.datasets.brusselator import Reaction, generate, step
from acenode.series import forecast


@pytest.fixture(scope="module")
def made() -> brusselator.Brusselator:
    return generate(samples=200, seed=1)


def run(start: np.ndarray, shocks: np.ndarray, reaction: Reaction, until: float) -> np.ndarray:
    """The end of paths that receive `shocks` (steps, samples, 2)."""
    for shock in shocks:
        start = step(start, shock, reaction, until / len(shocks))
    return start


def test_the_drift_is_that_of_the_text():
    reaction = Reaction(a=0.5, b=2.0)
    np.testing.assert_allclose(reaction.drift(np.asarray([[1.0, 4.0]])), [[0, 0]], atol=1e-12)  # (1, b/a)
    x, y = 0.7, 3.0
    expected = [1 - 3 * x + 0.5 * x**2 * y, 2 * x - 0.5 * x**2 * y]
    np.testing.assert_allclose(reaction.drift(np.asarray([x, y])), expected)


def test_without_noise_the_error_falls_with_the_fourth_power_of_the_step():
    start, reaction = np.asarray([[1.3, 4.0]]), Reaction(volatility=0.0)
    ends = [run(start, np.zeros((n, 1, 2)), reaction, 10.0) for n in (100, 200, 6400)]
    coarse, fine = (np.abs(end - ends[2]).max() for end in ends[:2])
    assert 12 < coarse / fine < 20
    assert fine < 1e-5


def test_without_noise_it_is_an_accurate_solution():
    integrate = pytest.importorskip("scipy.integrate")
    made = generate(samples=3, reaction=Reaction(volatility=0.0), seed=2)
    for path in made.truth:
        solved = integrate.solve_ivp(
            lambda _, state: made.reaction.drift(state),
            (0, 50),
            path[0].astype(float),
            t_eval=made.grid,
            rtol=1e-9,
            atol=1e-9,
        )
        np.testing.assert_allclose(path, solved.y.T, atol=2e-5)


def test_with_noise_the_error_falls_with_the_step():
    """The same noise, added up over coarser steps, leads to the same path in the limit."""
    random, reaction = np.random.default_rng(0), Reaction(volatility=0.1)
    finest, start = 1024, np.tile([1.0, 4.7], (50, 1))
    shocks = reaction.shocks(random.normal(0.0, 1.0, (finest, 50, 2)), 5.0 / finest)
    ends = [run(start, shocks.reshape(n, -1, 50, 2).sum(1), reaction, 5.0) for n in (32, 128, finest)]
    coarse, fine = (np.abs(end - ends[2]).mean() for end in ends[:2])
    assert 3 < coarse / fine < 7  # by four, and a little for what the finest lacks
    assert fine < 0.005


def test_the_noise_is_as_large_and_as_correlated_as_asked():
    random, reaction = np.random.default_rng(0), Reaction(volatility=0.2, rho=-0.7)
    shocks = reaction.shocks(random.normal(0.0, 1.0, (100_000, 2)), 0.25)
    np.testing.assert_allclose(np.cov(shocks.T), 0.01 * np.asarray([[1, -0.7], [-0.7, 1]]), atol=2e-4)


def test_the_published_noise(made):
    """Between moments 0.1 apart, what the drift does not explain has the deviation 0.01 sqrt(0.1)."""
    here, there = made.truth[:, :-1].astype(float), made.truth[:, 1:].astype(float)
    quiet = here
    for _ in range(10):
        quiet = step(quiet, np.zeros(2), made.reaction, 0.01)
    left = (there - quiet).reshape(-1, 2) / np.sqrt(0.1)
    # the dynamics turns and shrinks the noise a little within the tenth
    np.testing.assert_allclose(left.std(0), 0.01, rtol=0.1)
    assert np.corrcoef(left.T)[0, 1] == pytest.approx(-0.99, abs=0.01)


def test_it_goes_around(made):
    """The fixed point repels: far from it in the end, on both sides, and never off to infinity."""
    late = made.truth[:, 250:]
    assert np.abs(made.truth).max() < 10
    assert (late[..., 0].max(1) > 1.2).mean() > 0.9 and (late[..., 0].min(1) < 0.9).mean() > 0.9


def test_the_observations_are_sporadic_and_of_the_truth(made):
    series = made.panel.series
    assert len(made) == 200 and made.panel.variables == ("x", "y")
    assert (series.times.dtype, series.values.dtype, made.truth.dtype) == (np.float32,) * 3
    assert (series.length.min(), series.length.max()) == (20, 29)
    assert series.observed.all(2)[series.real].mean() == pytest.approx(0.8, abs=0.03)
    assert series.observed.any(2)[series.real].all()
    for i in range(5):
        at = np.rint(series.times[i] / 0.1).astype(int)
        np.testing.assert_array_equal(series.values[i], np.where(series.observed[i], made.truth[i, at], 0))
    queried = forecast(series, after=brusselator.AFTER, rows=brusselator.ROWS)
    assert (queried.scored.any(2).sum(1) <= 3).all() and queried.context.times.max() <= 35


def test_the_seed_decides_everything():
    one, again, other = (generate(samples=3, until=5.0, steps=50, rows=10, seed=seed) for seed in (7, 7, 8))
    for get in (lambda m: m.truth, lambda m: m.panel.series.times, lambda m: m.panel.series.values):
        np.testing.assert_array_equal(get(one), get(again))
    assert not np.array_equal(one.truth, other.truth)


@pytest.mark.parametrize(
    "wrong", [{"samples": 0}, {"until": 0.0}, {"steps": 0}, {"finer": 0}, {"rows": 0}, {"rows": 500}, {"both": -0.1}]
)
def test_arguments_that_make_no_data_are_refused_by_name(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"\(.*{name}={value}.*needs"):
        generate(**{"samples": 2, "finer": 1, **wrong})


@pytest.mark.parametrize("wrong", [{"a": 0.0}, {"b": -1.0}, {"volatility": -0.1}, {"rho": 1.1}])
def test_a_reaction_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="needs a positive a and b"):
        Reaction(**wrong)
