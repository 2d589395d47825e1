"""The table of Physiome-ODE: every model takes any packed set, and nothing of the test part teaches it."""

import csv
from importlib.resources import files

import equinox as eqx
import jax
import numpy as np
import pytest
from physiome_sets import clean, pack

from acenode.datasets import physiome as data, physiome_raw
from acenode.paper import physiome
from acenode.paper.baselines import Baseline
from acenode.paper.published import published
from acenode.paper.row import Row
from acenode.paper.tables import TABLES, rows_of
from acenode.tasks import Headed

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def packed(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    pack(tmp_path / "physiome")
    return tmp_path


PARAMETERS = {  # with five channels, as LI01
    "GRU-D": 72_089,
    "LinODENet": 200_105,
    "CRU": 27_956,
    "Neural Flows": 203_780,
    "GraFITi": 248_642,
    "GraFITi-C": 248_642,
    "mTAN": 316_042,
    "GRU-ODE-Bayes": 152_836,
    "Augmented-GRU-ODE-Bayes": 162_076,
    "GRU-ODE-Bayes, as many weights": 223_828,
    "GRU-ODE-Bayes, frozen covariance": 155_017,
    "ACE-GRU-ODE-Bayes, covariance": 157_066,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", physiome.MODELS)
def test_every_model_forecasts_a_set_of_any_shape(name, packed):
    row = physiome.row(name, "TOY")
    shapes = eqx.filter_eval_shape(row.build, KEY, variables=5, moments=100)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "size")) == PARAMETERS[name]
    prepared = row.data(packed, [0])
    few = jax.tree.map(lambda leaf: leaf[:2], prepared.data)

    def forecast(key, query):
        return row.task.outputs(row.build(key, **prepared.given), query, key)

    mean, log_variance = eqx.filter_eval_shape(forecast, KEY, few)
    assert mean.shape == log_variance.shape == few.values.shape and few.values.shape[2] == 3


def test_only_causal_models_see_whole_training_series(packed):
    for name, model in physiome.MODELS.items():
        row = physiome.row(name, "TOY")
        built = eqx.filter_eval_shape(row.build, KEY, variables=3, moments=20).model
        assert getattr(built, "causal", True) == model.causal
        context = row.data(packed, [0]).data.context
        assert (np.where(context.observed, context.times[..., None], 0).max() > physiome.SPAN / 2) == model.causal
        assert (row.task.cut is not None) == model.causal


def test_folds_follow_each_other_and_keep_their_parts_apart(packed):
    prepared = physiome.row("GRU-D", "TOY").data(packed, [0, 7])
    assert len(prepared.data) == 80 and prepared.given == {"variables": 3, "moments": 20}
    every = np.concatenate([np.concatenate(split) for split in prepared.splits])
    assert sorted(every) == list(range(80))
    alone = data.fold(data.load("TOY", packed), 7, causal=True).query
    np.testing.assert_array_equal(prepared.data.values[40:], alone.values)
    np.testing.assert_allclose(prepared.data.times[40:], physiome.SPAN * alone.times)


@pytest.mark.parametrize("moments", [4, 60, 100, 130])
def test_steps_end_at_every_moment(moments):
    solver = physiome.solver(moments)
    gap = physiome.SPAN / (moments - 1)
    steps = gap / solver.step
    assert abs(steps - round(steps)) < 1e-9 and solver.step <= physiome.SPAN / physiome.STEPS + 1e-9
    assert round(steps) * (moments - 1) < solver.max_steps


@pytest.mark.slow
def test_no_series_of_another_number_of_moments_runs_out_of_steps(monkeypatch):
    query = data.fold(clean(moments=30), 0, causal=True).query
    few = jax.tree.map(lambda leaf: leaf[:2], physiome._scaled(query))
    model: Headed = physiome._bayes(physiome.plain(3), 3)(KEY, 3, 30)
    trace = eqx.filter_jit(model.model)(jax.tree.map(jax.numpy.asarray, few.context), few.times, KEY)
    assert not trace.stats.failed.any() and np.ptp(np.asarray(trace.states[0, 0]), axis=0).max() > 0


@pytest.mark.slow
def test_a_constant_forecast_does_not_depend_on_the_query_time():
    query = physiome._scaled(data.fold(clean(), 0).query)
    few = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[:2]), query)
    model = physiome.constant_grafiti(3, dim=4, heads=1, layers=1, time_scale=physiome.SPAN, key=KEY)
    task = physiome.row("GraFITi-C", "TOY").task
    mean, _ = eqx.filter_jit(task.outputs)(Headed(model, None), few, KEY)
    assert mean.shape == few.values.shape and np.ptp(np.asarray(mean), axis=1).max() == 0
    assert np.ptp(np.asarray(mean[:, 0]), axis=0).min() > 0  # but on the context


def test_baselines_are_scored_by_fold_on_the_targets(packed):
    for name, low, high in (("training mean", 0.6, 1.6), ("LOCF", 0.6, 5.0)):
        one, other = physiome.baseline(name, "TOY").score(packed, [0, 1])
        assert low < one["mse"] < high and one["mse"] != other["mse"]
    query, split = data.fold(data.load("TOY", packed), 1)
    later, seen = query.values[split.train], query.observed[split.train]
    mean = [later[..., c][seen[..., c]].mean(dtype=float) for c in range(3)]
    error = np.square(query.values - mean)[split.test][query.scored[split.test]]
    np.testing.assert_allclose(physiome.baseline("training mean", "TOY").score(packed, [1])[0]["mse"], error.mean())


def test_the_table_has_every_row_on_every_published_set():
    rows = TABLES["physiome"]
    assert len(rows) == 50 * len(physiome.rows("LI01")) == len(rows_of("physiome"))
    for row in physiome.rows("LI01"):
        assert rows_of("physiome")[f"LI01, {row.name}"].dataset == "LI01"
    assert {type(row) for row in rows} == {Row, Baseline}
    bases = {row.base for row in rows if isinstance(row, Row)} | {
        c for m in physiome.MODELS.values() for c in m.controls
    }
    assert bases - {""} <= set(physiome.MODELS)


def test_the_published_numbers_are_of_our_sets_and_rows():
    numbers = {(p.dataset, p.row): p for p in published() if p.table == "physiome"}
    assert len(numbers) == 300 and {name for name, _ in numbers} == set(physiome_raw.known())
    assert numbers["LI01", "LinODENet"].mean == 0.084
    text = files("acenode.paper").joinpath("physiome.csv").read_text()
    assert len(list(csv.reader(text.splitlines()))) == 301
    assert {p.ours_row for p in numbers.values()} <= set(physiome.MODELS)
    assert not any(p.dataset for p in published() if p.table != "physiome")
