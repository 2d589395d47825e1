"""PhysioNet 2012: the division, and the facts of the real records."""

import os
from pathlib import Path

import numpy as np
import pytest
from physionet_files import shut_off

from acenode.datasets import files, physionet
from acenode.datasets.physionet import PUBLISHED, VARIABLES, Clean, load, split
from acenode.paper.baselines import last_value, mean_value, published_mse
from acenode.series import Scaler, forecast, reconstruct


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    shut_off(tmp_path, monkeypatch)


# --- the division ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "sizes"), [(4000, (2880, 320, 800)), (8000, (5760, 640, 1600)), (11, (7, 1, 3))])
def test_split_sizes(n, sizes):
    parts = split(n)
    assert tuple(len(part) for part in parts) == sizes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    published = split(n, validation=0)
    assert len(published.validation) == 0
    assert np.array_equal(published.test, parts.test)
    assert np.array_equal(published.train, np.sort(np.concatenate(parts[:2])))


def test_the_test_records_are_the_published_ones():
    """The first fifth of a permutation by the legacy generator with seed 42."""
    shuffled = np.random.RandomState(42).permutation(4000)
    assert np.array_equal(split(4000).test, np.sort(shuffled[:800]))


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
    with pytest.raises(ValueError, match="there are 1 records"):
        split(1)
    with pytest.raises(ValueError, match=r"labels has shape \(3,\); expected \(4,\)"):
        split(4, labels=[0, 1, 0])


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


def observed_range(series) -> tuple[np.ndarray, np.ndarray]:
    """The least and greatest observed value of each variable."""
    given = np.where(series.observed, series.values, np.nan)
    return np.nanmin(given, axis=(0, 1)), np.nanmax(given, axis=(0, 1))


@pytest.mark.slow
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
    low, high = (dict(zip(VARIABLES, x, strict=True)) for x in observed_range(both.panel.series))
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
    low, high = observed_range(data.panel.series)
    limits = np.asarray(list(physionet.PLAUSIBLE.values()), np.float32)
    assert (low >= limits[:, 0]).all()
    assert (high <= limits[:, 1]).all()
    assert {"Temp", "pH", "Weight", "SysABP"} <= set(data.report.impossible)
    # What is dropped is rare: the ranges must not bite into the truth.
    assert sum(data.report.impossible.values()) < 0.002 * data.report.observations


def test_real_second_load_does_not_parse_again(real, both, monkeypatch):
    monkeypatch.setattr(physionet, "parse", lambda texts: pytest.fail("parsed again"))
    assert len(real("ab")) == 8000


@pytest.mark.slow
def test_real_baseline_errors(both):
    """The errors of trivial predictions, in thousandths, as measured when the protocol was written."""
    parts = split(both.panel.ids, validation=0)
    assert (len(parts.train), len(parts.test)) == (6400, 1600)
    scaled = Scaler.fit(both.panel.series, "min_over_max").scale(both.panel.series)
    whole, later = reconstruct(scaled), forecast(scaled, after=23.999)  # times are whole minutes
    cases = [
        (whole, mean_value, 14.68, 8.02),
        (later, mean_value, 3.87, 6.46),
        (later, last_value, 2.27, 4.15),
    ]
    for query, predict, published, per_value in cases:
        got = published_mse(query, predict(query, parts.train), parts.test)
        assert 1e3 * got["mse"] == pytest.approx(published, abs=0.005)
        assert 1e3 * got["mse_per_value"] == pytest.approx(per_value, abs=0.005)
