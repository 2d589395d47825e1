"""PhysioNet 2012: the division, predictions without training, and the facts of the real records."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from physionet_files import shut_off

from acenode.datasets import files, physionet, reference
from acenode.datasets.physionet import PUBLISHED, VARIABLES, Clean, load, split
from acenode.series import Series


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    shut_off(tmp_path, monkeypatch)


# --- the division ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "sizes"), [(4000, (2880, 320, 800)), (8000, (5760, 640, 1600)), (11, (7, 1, 3))])
def test_split_sizes(n, sizes):
    parts = split(n)
    assert tuple(len(part) for part in parts) == sizes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    published = split(n, protocol="published")
    assert len(published.validation) == 0
    assert np.array_equal(published.test, parts.test)
    assert np.array_equal(published.train, np.sort(np.concatenate(parts[:2])))


def test_split_equals_scikit_learn():
    model_selection = pytest.importorskip("sklearn.model_selection")
    train, test = model_selection.train_test_split(np.arange(4000), train_size=0.8, random_state=42, shuffle=True)
    ours = split(4000, protocol="published")
    assert np.array_equal(ours.train, np.sort(train))
    assert np.array_equal(ours.test, np.sort(test))


def test_split_goes_by_id_not_by_order():
    ids = np.random.default_rng(0).permutation(1000) + 132539
    ours, sorted_ = split(ids), split(np.sort(ids))
    for part, expected in zip(ours, sorted_, strict=True):
        assert set(ids[part]) == set(np.sort(ids)[expected])
    assert np.array_equal(sorted_.test, split(1000).test)


def test_split_is_stratified():
    died = (np.arange(4000) % 7 == 0).astype(float)
    parts = split(4000, labels=died)
    deaths = died[np.concatenate(parts[:2])].sum()
    assert abs(died[parts.validation].sum() - deaths / 10) < 1


def test_bad_split():
    with pytest.raises(ValueError, match="protocol is 'loud'"):
        split(100, protocol="loud")
    with pytest.raises(ValueError, match="there are 1 records"):
        split(1)
    with pytest.raises(ValueError, match=r"labels has shape \(3,\); expected \(4,\)"):
        split(4, labels=[0, 1, 0])


# --- reference predictions -------------------------------------------------------------------------------------------


def test_reference_predictions_by_hand():
    values = np.array([[[1.0, 0], [3, 5], [8, 0], [6, 0]], [[0, 2], [0, 0], [4, 0], [0, 0]]], np.float32)
    observed = np.array([[[1, 0], [1, 1], [1, 0], [1, 0]], [[0, 1], [0, 0], [1, 0], [0, 0]]], bool)
    times = np.array([[0, 10, 24, 30], [0, 5, 40, 40]], np.float32)
    series = Series(times, values, observed, np.array([4, 3], np.int32))
    mean = reference.variable_mean(series)
    assert mean == pytest.approx([22 / 5, 3.5])
    assert np.array_equal(reference.locf(series, 24, mean), [[3, 5], [mean[0], 2]])
    assert np.array_equal(reference.past_mean(series, 24, mean), [[2, 5], [mean[0], 2]])
    # Targets from 24 h: 8 and 6 of the first record, 4 of the second; nothing of the second variable.
    last = reference.locf(series, 24, mean)
    assert reference.mse_published(last, series, since=24) == pytest.approx(((25 + 9) / 2 + 0.4**2) / 4)
    assert reference.mse_per_observation(last, series, since=24) == pytest.approx((25 + 9 + 0.4**2) / 3)
    low, high = reference.observed_range(series)
    assert np.array_equal([low, high], [[1, 2], [8, 5]])
    assert reference.min_over_max(series, low, high).values[0, 2, 0] == pytest.approx(7 / 8)


# --- the real records ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Loads the real records, with a cache of their own."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folders = [Path(os.environ["ACENODE_DATA"])] if os.environ.get("ACENODE_DATA") else []
    for place in [*folders, beside]:
        letters = "".join(path.name.split(".")[0][4:] for path in (place / "physionet2012").glob("set-*"))
        if {"a", "b"} <= set(letters):
            break
    else:
        pytest.skip("the PhysioNet 2012 records of sets a and b are neither in $ACENODE_DATA nor in ../shared/data")
    cache = tmp_path_factory.mktemp("cache")

    def loader(sets: str, clean: Clean = PUBLISHED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "cache_folder", lambda: cache)
            return load(sets, data_dir=place, clean=clean)

    return loader


@pytest.fixture(scope="module")
def both(real):
    """Sets a and b as published."""
    return real("ab")


def test_real_counts(both):
    report = both.report
    assert report.records == {"a": 4000, "b": 4000}
    assert len(report.only_start) == 3 + 7
    assert report.sentinels == {"Gender": 3 + 5, "Height": 1894 + 1930, "Weight": 326 + 347}
    assert (report.unknown, report.malformed) == ({}, 0)
    length = both.panel.series.length
    assert (length.mean(), np.median(length), length.max()) == (pytest.approx(74.8, abs=0.05), 72, 203)
    assert report.observations / 8000 == pytest.approx(438, abs=0.5)
    assert 1 - report.observations / (41 * report.rows) == pytest.approx(0.86, abs=0.005)
    assert 1 - both.panel.series.observed.any(1).mean() == pytest.approx(0.25, abs=0.005)
    assert both.panel.series.observed[:, 0].any(-1).all()


def test_real_extremes(both):
    low, high = (dict(zip(VARIABLES, x, strict=True)) for x in reference.observed_range(both.panel.series))
    assert low["Temp"] == pytest.approx(-17.8)
    assert high["pH"] == 735
    assert high["WBC"] == pytest.approx(6251.9)
    assert low["MechVent"] == high["MechVent"] == 1


def test_real_set_a(real):
    data = real("a")
    assert data.report.records == {"a": 4000}
    assert (data.report.labelled, data.report.died) == (4000, 554)
    assert len(data.report.only_start) == 3
    assert data.report.sentinels == {"Gender": 3, "Height": 1894, "Weight": 326}
    parts = split(data.panel.ids, labels=data.died)
    assert [len(part) for part in parts] == [2880, 320, 800]


def test_real_cleaning(real):
    data = real("a", Clean())
    low, high = reference.observed_range(data.panel.series)
    limits = np.asarray(list(physionet.PLAUSIBLE.values()), np.float32)
    assert (low >= limits[:, 0]).all()
    assert (high <= limits[:, 1]).all()
    assert {"Temp", "pH", "Weight", "SysABP"} <= set(data.report.impossible)
    # What is dropped is rare: the ranges must not bite into the truth.
    assert sum(data.report.impossible.values()) < 0.002 * data.report.observations


def test_real_second_load_is_fast(real, both):
    start = time.perf_counter()
    real("ab")
    # A second on an idle machine; three times that leaves room for a busy one.
    assert time.perf_counter() - start < 3


def test_real_reference_errors(both):
    """The errors of trivial predictions, in thousandths, as measured when the protocol was written."""
    parts = split(both.panel.ids, protocol="published")
    assert (len(parts.train), len(parts.test)) == (6400, 1600)
    scaled = reference.min_over_max(both.panel.series, *reference.observed_range(both.panel.series))
    test, mean = scaled[parts.test], reference.variable_mean(scaled[parts.train])
    cases = [
        (mean, -np.inf, 14.68, 8.02),
        (mean, 24.0, 3.87, 6.46),
        (reference.past_mean(test, 24, mean), 24.0, 2.89, 4.58),
        (reference.locf(test, 24, mean), 24.0, 2.27, 4.15),
    ]
    for prediction, since, published, per_observation in cases:
        assert 1e3 * reference.mse_published(prediction, test, since) == pytest.approx(published, abs=0.005)
        assert 1e3 * reference.mse_per_observation(prediction, test, since) == pytest.approx(per_observation, abs=0.005)
