"""Forecasts of climate without training: by hand, without leaks, and on the real state."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.datasets import ushcn
from acenode.datasets.ushcn import TIMES, Climate, Skipped, folds, load_maine, query
from acenode.paper.baselines import gaussian_scores, last_value
from acenode.paper.climate import baseline_scores, climatology, day_of_year
from acenode.series import Panel, Series, series as one_series, stack


def made(starts: list[str], days: list[list[int]], values: list[list[float]]) -> Climate:
    """Series of one variable, on some days of their windows."""
    parts = [one_series(TIMES[d], np.asarray(v, float)[:, None]) for d, v in zip(days, values, strict=True)]
    panel = Panel(stack(parts), np.arange(len(parts)), ("TMAX",))
    start = np.asarray(starts, "datetime64[D]")
    return Climate(panel, np.arange(len(parts)).astype(str), start, Skipped(), (), {})


def seasonal(n: int = 30, noise: float = 0.1, seed: int = 0) -> Climate:
    """Five stations whose one variable is a sine of the season, and noise."""
    random = np.random.default_rng(seed)
    start = np.datetime64("1990-01-01") + random.integers(0, 3000, n).astype("timedelta64[D]")
    days = [np.sort(random.choice(1491, 200, replace=False)) for _ in range(n)]
    values = [np.sin(2 * np.pi * (s + d).astype(int) / 365.25) for s, d in zip(start, days, strict=True)]
    values = [v + random.normal(0, noise, len(v)) for v in values]
    climate = made([str(s) for s in start], [d.tolist() for d in days], [v.tolist() for v in values])
    return replace(climate, station=np.repeat(["a", "b", "c", "d", "e"], n // 5))


def test_locf_by_hand():
    climate = made(["1996-12-02", "1996-12-02"], [[0, 1117, 1118], [1118, 1119, 1120]], [[1, 5, 9], [2, 4, 6]])
    queried = query(climate, np.asarray([0]))  # mean 5, deviation sqrt(32/3)
    given = last_value(queried, np.asarray([0]))
    # day 1,118 is the first after time 150; the second series has nothing before it
    np.testing.assert_allclose(given[..., 0], [[-4 / np.sqrt(32 / 3), 0, 0], [0, 0, 0]], atol=1e-6)
    queried = query(climate, np.asarray([1]))  # mean 4
    np.testing.assert_allclose(last_value(queried, np.asarray([1]))[0, 1:], (5 - 4) / np.sqrt(8 / 3), rtol=1e-6)


def test_climatology_by_hand():
    # 2 and 3 December of 1996; 2, 25 and 31 December of 1999 and 2 January of 2000
    climate = made(["1996-12-02"] * 2, [[0, 1, 1095, 1118, 1124], [1095, 1118, 1126]], [[1, 3, 2, 14, 30], [0, 0, 0]])
    queried, train = query(climate, np.asarray([0])), np.asarray([0])
    scaled = queried.values[0, :, 0]
    exact = climatology(climate.start, queried, train, window=1)
    # of 2 January 2000 nothing is known: the mean of all days
    np.testing.assert_allclose(exact[1, :3, 0], [(scaled[0] + scaled[2]) / 2, scaled[3], 0], atol=1e-6)
    wide = climatology(climate.start, queried, train, window=5)
    # around 2 December: three values; around 2 January: 31 December, across the end of the year
    np.testing.assert_allclose(wide[1, :3, 0], [scaled[:3].mean(), scaled[3], scaled[4]], atol=1e-6)


def test_the_end_of_february():
    """1 March is the same day in all years, and 29 February one of its own."""
    start = np.asarray(["2000-02-28", "1999-02-28"], "datetime64[D]")
    days = day_of_year(start, np.stack([TIMES[:3], TIMES[:3]]))
    np.testing.assert_array_equal(days, [[58, 59, 60], [58, 60, 61]])
    ends = day_of_year(np.asarray(["1999-12-31", "2000-12-31"], "datetime64[D]"), np.stack([TIMES[:2]] * 2))
    np.testing.assert_array_equal(ends, [[365, 0], [365, 0]])


def test_scores_by_hand():
    climate = made(["1996-12-02"] * 2, [[0, 1118, 1119], [0, 1118, 1119]], [[1, 2, 3], [4, 5, 9]])
    queried = query(climate, np.asarray([0, 1]))
    values = queried.values[..., 0].astype(float)
    given = gaussian_scores(queried, np.zeros((2, 3, 1)), np.asarray([0]), np.asarray([1]))
    error, variance = np.mean(values[1, 1:] ** 2), np.mean(values[0, 1:] ** 2)
    assert given["mse"] == pytest.approx(error)
    assert given["negll"] == pytest.approx(0.5 * np.log(2 * np.pi * variance) + error / variance / 2)


def test_climatology_finds_the_season():
    climate = seasonal()
    split = folds(climate)[0]
    given = baseline_scores(climate, split)
    # 31 days of a sine of deviation 0.71: the noise, and a little for the width of the window
    assert given["climatology"]["mse"] == pytest.approx(0.01 / 0.51, rel=0.35)
    assert given["LOCF"]["mse"] > given["climatology"]["mse"]
    variance = given["climatology"]["mse"]
    assert given["climatology"]["negll"] == pytest.approx(0.5 * np.log(2 * np.pi * variance) + 0.5, abs=0.15)


def with_values(climate: Climate, values: np.ndarray) -> Climate:
    series = climate.panel.series
    changed = Series(series.times, values.astype(np.float32), series.observed, series.length)
    return replace(climate, panel=Panel(changed, climate.panel.ids, climate.panel.variables))


def test_nothing_leaks_from_test_series():
    climate = seasonal()
    split, series = folds(climate)[0], climate.panel.series
    tested = np.isin(np.arange(len(climate)), split.test)[:, None, None] & series.observed
    later = tested & (series.times > 150)[..., None]
    queried = query(climate, split.train)
    usual = climatology(climate.start, queried, split.train)
    other = with_values(climate, np.where(tested, 1e5, series.values))
    np.testing.assert_array_equal(usual, climatology(other.start, query(other, split.train), split.train))
    third = with_values(climate, np.where(later, 1e5, series.values))
    np.testing.assert_array_equal(last_value(queried, split.train), last_value(query(third, split.train), split.train))


def test_a_variable_never_wrong_in_training_promises_no_certainty():
    climate = made(["1996-12-02"] * 2, [[0, 1118], [0, 1118]], [[0, 0], [0, 3]])
    queried = query(climate, np.asarray([0]))
    given = gaussian_scores(queried, np.zeros((2, 2, 1)), np.asarray([0]), np.asarray([1]))
    assert np.isfinite(given["negll"]) and given["negll"] > 1e6


@pytest.mark.parametrize("window", [0, 30, -1, 367])
def test_bad_window(window):
    climate = seasonal(5)
    with pytest.raises(ValueError, match="expected an odd number of days below 366"):
        climatology(climate.start, query(climate, np.arange(5)), np.arange(5), window)


def test_nothing_to_measure_on():
    climate = seasonal(5)
    queried = query(climate, np.arange(5))
    with pytest.raises(ValueError, match="there are no training series"):
        climatology(climate.start, queried, np.arange(0))
    with pytest.raises(ValueError, match="the test samples have no scored value"):
        gaussian_scores(queried, np.zeros(queried.values.shape), np.arange(5), np.arange(0))


# --- the real state --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maine() -> Climate:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    for place in [os.environ.get("ACENODE_DATA"), beside]:
        if place and (Path(place) / "ushcn" / ushcn.MAINE).exists():
            return load_maine(place)
    pytest.skip("state17_ME.txt.gz of USHCN is neither in $ACENODE_DATA nor in ../shared/data")


def test_real_errors(maine):
    """Mean over the five folds, as first measured; the season says more than the last value."""
    each = [baseline_scores(maine, split) for split in folds(maine)]
    found = {name: np.mean([list(scores[name].values()) for scores in each], axis=0) for name in each[0]}
    np.testing.assert_allclose(found["LOCF"], [1.560, 1.602], atol=0.002)
    np.testing.assert_allclose(found["climatology"], [0.757, 1.176], atol=0.002)


def test_real_climatology_is_that_of_maine(maine):
    """January is colder than July, by about three deviations of all days."""
    everything = np.arange(len(maine))
    queried = query(maine, everything)
    usual = climatology(maine.start, queried, everything)
    day = day_of_year(maine.start, np.asarray(queried.times))
    january, july = (usual[(day >= low) & (day < low + 31)].mean(0) for low in (0, 182))
    assert (july - january)[3:] == pytest.approx([2.6, 2.6], abs=0.3)
    assert (january[1:3] > 0.3).all() and (july[1:3] < -0.2).all()  # snow
