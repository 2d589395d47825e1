"""The generated regions: the truth obeys its own equation, and the observations are of that truth."""

import numpy as np
import pytest

from acenode.datasets import regions


@pytest.fixture(scope="module")
def made() -> regions.Regions:
    return regions.generate(samples=6, regions=5, until=4.0, rows=12, seed=3)


def at(made: regions.Regions, i: int) -> np.ndarray:
    """Which moments of the grid sample i was observed at."""
    index = np.rint(made.series.times[i] / (made.grid[1] - made.grid[0])).astype(int)
    np.testing.assert_allclose(made.grid[index], made.series.times[i], atol=1e-6)
    return index


def test_the_slope_is_that_of_the_text():
    random = np.random.default_rng(0)
    x, w = random.normal(size=(2, 3, 2)), random.random((3, 3))
    found = regions.slope(x, w, speed=0.7)
    for s in range(2):
        for i in range(3):
            level, momentum = (sum(w[i, j] * x[s, j, c] for j in range(3)) for c in (0, 1))
            np.testing.assert_allclose(found[s, i], [0.7 * momentum, -0.7 * level])


def test_the_truth_satisfies_its_differential_equation(made):
    """Finite differences of the level against the momentum heard; the momentum by adding up its own slope."""
    step, level = float(made.grid[1] - made.grid[0]), made.truth.astype(float)
    w, none = made.influence.astype(float), np.zeros_like(level[:, 0])
    pull = np.stack(
        [regions.slope(np.stack([level[:, k], none], -1), w[k])[..., 1] for k in range(len(made.grid))], axis=1
    )
    gained = np.cumsum(0.5 * step * (pull[:, 1:] + pull[:, :-1]), axis=1)
    # What the momentum was in the beginning follows from how the levels began to move.
    begin = (-1.5 * level[:, 0] + 2 * level[:, 1] - 0.5 * level[:, 2]) / step
    speed = regions.slope(np.asarray([[[0.0, 1.0]]]), np.ones((1, 1)))[0, 0, 0]
    first = np.linalg.solve(w[0], begin.T / speed).T
    momentum = first[:, None] + np.concatenate([np.zeros_like(gained[:, :1]), gained], axis=1)
    for k in range(1, len(made.grid) - 1):
        central = (level[:, k + 1] - level[:, k - 1]) / (2 * step)
        expected = regions.slope(np.stack([level[:, k], momentum[:, k]], -1), w[k])[..., 0]
        np.testing.assert_allclose(central, expected, atol=0.01)
    assert np.abs(momentum).max() > 0.5  # so that the tolerance means something


def test_influence_is_a_share_of_attention_that_moves(made):
    np.testing.assert_allclose(made.influence.sum(axis=-1), 1, rtol=1e-6)
    assert (made.influence > 0).all() and made.influence.shape == (len(made.grid), 5, 5)
    assert np.abs(made.influence - made.influence[0]).max() > 0.2
    np.testing.assert_allclose(made.influence, regions.influence(made.grid, 5), atol=1e-5)
    # the ring looks the same from every region
    np.testing.assert_allclose(np.roll(made.influence, (1, 1), axis=(1, 2)), made.influence, atol=1e-6)


def test_without_noise_the_observations_are_the_truth():
    made = regions.generate(samples=4, rows=9, noise=0.0, seed=1)
    for i in range(4):
        seen, truth = made.series.observed[i], made.truth[i][at(made, i)]
        np.testing.assert_array_equal(made.series.values[i][seen], truth[seen])
        assert not made.series.values[i][~seen].any()


def test_the_noise_is_as_large_as_asked():
    made = regions.generate(samples=40, noise=0.3, seed=1)
    errors = [
        (made.series.values[i] - made.truth[i][at(made, i)])[made.series.observed[i]] for i in range(len(made.series))
    ]
    errors = np.concatenate(errors)
    assert abs(errors.mean()) < 0.01 and errors.std() == pytest.approx(0.3, rel=0.05)


def test_observations_are_irregular_and_no_row_is_empty(made):
    assert made.truth.shape == (6, len(made.grid), 5) and len(made.names) == len({*made.names}) == 5
    assert (made.series.length >= 12).all() and made.series.observed.any(axis=2)[made.series.real].all()
    assert len({t.tobytes() for t in made.series.times}) == 6
    assert made.series.times.min() >= 0 and made.series.times.max() <= 4.0


@pytest.mark.parametrize("missing", [0.0, 0.8])
def test_about_as_much_is_missing_as_asked(missing):
    made = regions.generate(samples=30, regions=6, missing=missing, seed=2)
    seen = made.series.observed[:, 1:].mean()
    assert seen == pytest.approx(1 - missing * 5 / 6, abs=0.05)  # one in each row is always seen


def test_the_seed_decides_everything():
    one, again, other = (regions.generate(samples=3, rows=5, seed=seed) for seed in (7, 7, 8))
    for get in (lambda r: r.truth, lambda r: r.series.values, lambda r: r.series.times, lambda r: r.series.observed):
        np.testing.assert_array_equal(get(one), get(again))
    assert not np.array_equal(one.truth, other.truth)


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0},
        {"regions": 1},
        {"rows": 0},
        {"missing": 1.0},
        {"missing": -0.1},
        {"until": 0.0},
        {"noise": -1.0},
        {"until": 1.0, "rows": 51},
    ],
)
def test_arguments_that_make_no_data_are_refused_by_name(wrong):
    name, value = [*wrong.items()][-1]
    with pytest.raises(ValueError, match=rf"generate\(.*{name}={value}"):
        regions.generate(**wrong)
