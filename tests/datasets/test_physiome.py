"""Physiome-ODE: packed sets are read whole or refused; folds have the noise, masks and parts of the benchmark."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from physiome_sets import clean, pack

from acenode.datasets import files, physiome
from acenode.datasets.files import DataCorrupted, DataNotFound


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(physiome, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ACENODE_DATA", raising=False)


def of_number(series: int = 50, moments: int = 40, channels: int = 4):
    """Series k is k / 5 everywhere, so that a noisy series tells which it is."""
    values = np.broadcast_to(np.arange(series)[:, None, None] / 5, (series, moments, channels))
    return physiome.PhysiomeSet("TOY", values.astype(np.float32), np.asarray([1, 3]), 1.0)


def seen(fold) -> list[dict]:
    """Of each series, the values that are scored, by row time and channel."""
    query = fold.query
    return [
        {(float(t[q]), int(c)): float(v[q, c]) for q, c in np.argwhere(s)}
        for t, v, s in zip(query.times, query.values, query.scored, strict=True)
    ]


# --- files -----------------------------------------------------------------------------------------------------------


def test_sets_are_found_by_name(tmp_path, monkeypatch):
    pack(tmp_path / "data" / "physiome")
    pack(tmp_path / "own", "OWN")
    pack(tmp_path / "cache" / "physiome", "LI01")
    assert physiome.names(tmp_path / "data") == ["LI01", "TOY"]
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "own"))
    assert physiome.names(tmp_path / "data") == ["LI01", "OWN", "TOY"]
    read = physiome.load("TOY", tmp_path / "data")
    assert (read.name, read.span, read.targets.tolist()) == ("TOY", 15.0, [0, 2])
    np.testing.assert_allclose(read.values, clean().values, atol=1e-3)
    assert read.panel.series.times[3, -1] == 15 and read.panel.variables == ("channel_0", "channel_1", "channel_2")


@pytest.mark.parametrize("name", ["LI02", "../TOY", ""])
def test_a_set_that_is_not_there(name, tmp_path):
    pack(tmp_path / "physiome")
    with pytest.raises(
        DataNotFound, match=r"(?s)no packed set .*physiome.*there: TOY.*acenode data get physiome --from"
    ):
        physiome.load(name, tmp_path)


SHAPES = {"a table": (40, 60), "three moments": (40, 3, 2), "no series": (0, 20, 2)}
BAD = {
    **{name: ({"x": np.zeros(shape)}, "x has shape .* expected floats of shape") for name, shape in SHAPES.items()},
    "whole numbers": ({"x": np.zeros((40, 20, 2), int)}, "type int64; expected floats"),
    "NaN": ({"x": np.full((40, 20, 3), np.nan)}, "x holds NaN"),
    "no targets": ({"targets": None}, "not a packed set"),
    "names as targets": ({"targets": np.asarray([0.5])}, "targets has shape .* expected whole numbers"),
    "a target beyond x": ({"targets": np.asarray([3])}, "targets names channels 3 to 3; x has 0 to 2"),
    "a negative target": ({"targets": np.asarray([-1])}, "targets names channels -1"),
    "span 0": ({"span": np.float64(0)}, "span is 0.0; expected a positive number"),
    "span in words": ({"span": np.asarray("long")}, "span is long"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_packed_sets_are_refused_with_their_file(case, tmp_path):
    changes, told = BAD[case]
    path = pack(tmp_path, **changes)
    with pytest.raises(DataCorrupted, match=f"{path}.*{told}.*Make it again"):
        physiome.load("TOY", tmp_path)


def test_a_damaged_file_is_refused(tmp_path):
    path = pack(tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataCorrupted, match=f"{path} is not a packed set"):
        physiome.load("TOY", tmp_path)


def test_an_entry_that_is_no_array_is_refused(tmp_path):
    path = tmp_path / "LI01.npz"
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("x", "targets", "span"):
            packed.writestr(f"{name}.npy", b"no array")
    with pytest.raises(DataCorrupted, match=f"{path}: x has shape"):
        physiome.read(path)


# --- folds -----------------------------------------------------------------------------------------------------------


def test_noise_and_masks_have_the_published_statistics():
    quiet = physiome.PhysiomeSet("TOY", np.zeros((300, 40, 5), np.float32), np.arange(5), 1.0)
    whole = physiome.fold(quiet, 0, causal=True, odd_rows=False).query
    values = whole.values[whole.observed]
    assert abs(values.std() - 0.05) < 1e-3 and abs(values.mean()) < 1e-3
    assert abs(whole.observed.sum() / quiet.values.size - 0.2) < 0.01
    assert whole.observed.any(axis=2).sum() == whole.context.length.sum()  # rows without a value are not there
    assert 0 < (whole.observed.sum(axis=2) == 2).sum()
    odd = physiome.fold(quiet, 0, causal=True).query
    count = odd.observed.sum(axis=2)[odd.context.real]
    assert set(np.unique(count)) <= {1, 3, 5}
    share = 0.2 * (1 + (1 - 2 * 0.2) ** 4) / 2  # kept itself, and an even number of the four others
    assert abs(odd.observed.sum() / quiet.values.size - share) < 0.01


def test_folds_are_drawn_by_their_number():
    one, again, other = (physiome.fold(clean(), k) for k in (1, 1, 2))
    for name in ("times", "values", "observed", "scored"):
        np.testing.assert_array_equal(getattr(one.query, name), getattr(again.query, name))
    assert not np.array_equal(one.query.values, other.query.values)


@pytest.mark.parametrize("causal", [False, True])
def test_the_parts_share_no_series(causal):
    query, split = physiome.fold(of_number(), 3, causal=causal)
    assert [len(part) for part in split] == [35, 10, 5]
    sums = np.where(query.observed, query.values, 0).sum((1, 2)) / np.maximum(query.observed.sum((1, 2)), 1)
    which = np.round(5 * sums).astype(int)
    assert sorted(which) == list(range(50)) and list(which) != sorted(which)
    assert sorted(np.concatenate(split)) == list(range(50))


@pytest.mark.parametrize("moments", [20, 21])
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_after_the_cut_is_in_the_context_of_what_is_scored(causal, moments):
    query, split = physiome.fold(clean(moments=moments), 0, causal=causal)
    context = query.context
    late = context.times > 0.5
    held = np.concatenate([split.validation, split.test])
    chosen = held if causal else np.arange(40)
    assert not context.observed[chosen][late[chosen]].any() and not context.values[chosen][late[chosen]].any()
    assert context.observed[held].any(axis=(1, 2)).all()
    if causal:  # a training series is all context: a causal model learns from every row
        np.testing.assert_array_equal(context.observed[split.train], query.observed[split.train])
        assert late[split.train].any()
    scored = query.scored
    assert (query.times[np.nonzero(scored)[:2]] > 0.5).all()
    assert scored[..., 0].any() and scored[..., 2].any() and not scored[..., 1].any()  # targets alone
    assert query.observed[..., 1].any()


def test_causal_or_not_the_same_values_are_scored():
    plain, causal = (seen(physiome.fold(clean(), 4, causal=causal)) for causal in (False, True))
    assert plain == causal and sum(map(len, plain)) > 40


def test_padding_repeats_the_last_time():
    context = physiome.fold(clean(), 0).query.context
    for times, length in zip(context.times, context.length, strict=True):
        assert (np.diff(times[:length]) > 0).all() and (times[length:] == times[max(length - 1, 0)]).all()


def test_extreme_series_are_left_out():
    values = clean().values.copy()
    values[[3, 5], 0, 0] = [10.5, -11]
    fold = physiome.fold(clean()._replace(values=values), 0)
    assert len(fold.query) == 38 and np.abs(fold.query.context.values).max() < 10
    with pytest.raises(DataCorrupted, match="TOY has 5 series whose values are at most 10; too few"):
        physiome.fold(clean()._replace(values=clean().values[:5]), 0)


def test_a_published_set():
    folder = next((Path(f) for f in (os.environ.get("ACENODE_DATA"),) if f), None)
    path = files.look("physiome", "LI01.npz", data_dir=folder) if folder else None
    if path is None:
        pytest.skip("ACENODE_DATA has no physiome/LI01.npz")
    read = physiome.read(path)
    assert read.values.shape == (2000, 100, 5)
    np.testing.assert_allclose(read.values.std((0, 1)), 1, atol=1e-2)
