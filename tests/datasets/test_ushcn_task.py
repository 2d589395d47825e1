"""USHCN: what is queried and scored, that nothing leaks, the divisions, and the facts of the real state."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.datasets import ushcn
from acenode.datasets.ushcn import Climate, Skipped, folds, load_maine, published_splits, query
from acenode.datasets.ushcn_raw import ELEMENTS
from acenode.series import Panel, Series

REAL = "state17_ME.txt.gz of USHCN is neither in $ACENODE_DATA nor in ../shared/data"


# --- the task --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def climate() -> Climate:
    """Made-up series of 12 stations, three each."""
    random = np.random.default_rng(0)
    n, times = 36, np.sort(random.choice(ushcn.TIMES, (36, 40)), axis=1).astype(np.float32)
    times[:, -5:] = ushcn.TIMES[-5:]
    times[:, :35] = ushcn.TIMES[np.arange(35) * 30]
    observed = random.random((n, 40, 5)) < 0.4
    observed[..., 3] |= ~observed.any(-1)
    values = np.where(observed, random.normal([10, 3, 3, 50, 30], [30, 10, 7, 20, 20], (n, 40, 5)), 0).astype(
        np.float32
    )
    names = np.repeat([f"17{i:04d}" for i in range(12)], 3)
    panel = Panel(Series(times, values, observed, np.full(n, 40, np.int32)), np.arange(n), ELEMENTS)
    return Climate(panel, names, np.full(n, np.datetime64("1996-12-02")), Skipped(), (), {})


def test_the_query(climate):
    queried = query(climate, np.arange(20))
    assert queried.context.times.max() <= 150 < queried.times.max()
    scored = queried.scored.any(-1)
    assert (scored.sum(1) == 3).all()
    for i in range(len(climate)):
        later = np.flatnonzero(queried.times[i] > 150)
        assert np.flatnonzero(scored[i]).tolist() == later[:3].tolist()
        np.testing.assert_array_equal(queried.scored[i, later[:3]], queried.observed[i, later[:3]])
    train = queried.values[:20][queried.observed[:20][..., 1], 1]
    assert (train.mean(), train.std()) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-5))


def with_values(climate: Climate, values: np.ndarray) -> Climate:
    """The same series with other values where something was observed."""
    series = climate.panel.series
    values = np.where(series.observed, values, 0).astype(np.float32)
    changed = Series(series.times, values, series.observed, series.length)
    return replace(climate, panel=Panel(changed, climate.panel.ids, climate.panel.variables))


def test_nothing_leaks_from_test_stations(climate):
    split = folds(climate)[0]
    queried, values = query(climate, split.train), climate.panel.series.values
    rest = np.concatenate([split.train, split.validation])
    tested = np.isin(np.arange(len(climate)), split.test)[:, None, None]
    other = query(with_values(climate, np.where(tested, 1e6, values)), split.train)
    np.testing.assert_array_equal(queried.values[rest], other.values[rest])
    np.testing.assert_array_equal(queried.context.values[rest], other.context.values[rest])


def test_nothing_leaks_from_query_values(climate):
    split = folds(climate)[0]
    queried, series = query(climate, split.train), climate.panel.series
    hidden = np.isin(np.arange(len(climate)), split.test)[:, None, None] & (series.times > 150)[..., None]
    other = query(with_values(climate, np.where(hidden, -1e6, series.values)), split.train)
    np.testing.assert_array_equal(queried.context.values, other.context.values)
    np.testing.assert_array_equal(queried.context.times, other.context.times)
    assert not np.array_equal(queried.values[split.test], other.values[split.test])


def test_no_training_series(climate):
    with pytest.raises(ValueError, match="there are no training series"):
        query(climate, np.arange(0))


def test_folds_are_disjoint_and_by_station(climate):
    parts = folds(climate)
    assert len(parts) == 5
    assert np.array_equal(np.sort(np.concatenate([part.test for part in parts])), np.arange(len(climate)))
    for part in parts:
        names = [set(climate.station[side]) for side in part]
        assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]
        assert len(names[1]) == 2 and len(names[2]) in (2, 3)
    assert not np.array_equal(parts[0].test, folds(climate, seed=1)[0].test)


@pytest.mark.parametrize("n", [10, 239, 1114])
def test_published_splits_are_those_of_the_published_program(n):
    """Seed 432 once, a tenth to test, a fifth of the rest to validate, five times."""
    random = np.random.RandomState(432)
    for ours in published_splits(n):
        test, rest = np.split(random.permutation(n), [math.ceil(0.1 * n)])
        validation, train = np.split(rest[random.permutation(len(rest))], [math.ceil(0.2 * len(rest))])
        for side, expected in zip(ours, (train, validation, test), strict=True):
            assert np.array_equal(side, np.sort(expected))


def test_published_splits_are_repeated_draws():
    parts = published_splits(1114)
    assert {tuple(len(side) for side in part) for part in parts} == {(801, 201, 112)}
    assert len(np.unique(np.concatenate([part.test for part in parts]))) < 5 * 112
    with pytest.raises(ValueError, match="n is 2; expected at least 3"):
        published_splits(2)


# --- the real state --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maine() -> Climate:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    for place in [os.environ.get("ACENODE_DATA"), beside]:
        if place and (Path(place) / "ushcn" / ushcn.MAINE).exists():
            return load_maine(place)
    pytest.skip(REAL)


def test_real_windows(maine):
    """239 windows of 12 stations hold all five variables and reach past time 150."""
    assert len(maine) == 239
    assert (len(maine.skipped.incomplete), len(maine.skipped.one_sided)) == (34, 10)
    assert all(name.endswith(("/2013-04-01", "/2009-03-02")) for name in maine.skipped.one_sided)  # the record ends
    assert len(set(maine.station)) == 12
    assert (maine.start.min(), maine.start.max()) == (np.datetime64("1886-09-13"), np.datetime64("2009-03-02"))
    assert np.isin(np.datetime64("1996-12-02"), maine.start)
    assert maine.sha256 == {ushcn.MAINE: ushcn.MAINE_SHA256}


def test_real_series(maine):
    series = maine.panel.series
    assert (series.length.min(), np.median(series.length), series.length.max()) == (47, 310, 373)
    assert series.observed.sum((0, 1)).tolist() == [16_718, 14_481, 11_397, 16_777, 16_743]
    assert (series.times.min(), series.times.max()) == (0, 200)
    assert series.observed.any(2)[series.real].all()
    queried = query(maine, np.arange(len(maine)))
    assert (queried.scored.any(2).sum(1) == 3).all()
    for part in folds(maine):
        assert [len({*maine.station[side]}) for side in part] in ([8, 2, 2], [7, 2, 3])
        assert 45 <= len(part.test) <= 51
