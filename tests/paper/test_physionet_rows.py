"""The rows of the PhysioNet and Human Activity tables: parameter counts, and that every row can be trained."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets.split import Split
from acenode.paper import activity, physionet, settings
from acenode.paper.baselines import Baseline
from acenode.paper.history_features import statistic_edges
from acenode.paper.latent import kinds
from acenode.paper.physionet import MORTALITY, QUERIES, SIZES, VALUES, mean_of, mortality_data, scaled
from acenode.paper.row import Prepared
from acenode.paper.tables import TABLES
from acenode.series import Panel, series, stack
from acenode.tasks import LabelledPoints
from acenode.train import parameter_count

FAMILY = kinds(SIZES)
LABEL_COUNTS = {
    "Latent-ODE (ODE Enc.)": 163_972,
    "Latent-ODE + Poisson": 181_723,
    # The published 126,572 have a second bias in the gates of the encoder, which adds nothing.
    "Latent-ODE (RNN Enc.)": 126_572 - 2 * 40,
    # g' = MLP(20, 400, 3, 50) beside f'
    "ACE-Latent-ODE (ODE Enc.)": 163_972 + 29_100,
    # f on 25 dimensions and a decoder that reads 25
    "Augmented-Latent-ODE (ODE Enc.)": 163_972 + 10 * 50 + 5 + 5 * 41,
}


def count(build, key) -> int:
    model = eqx.filter_eval_shape(build, key)
    return parameter_count(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype) if hasattr(x, "shape") else x, model))


@pytest.mark.parametrize("name", LABEL_COUNTS)
def test_parameters_for_a_label(key, name):
    assert count(physionet.mortality_model(FAMILY[name]), key) == LABEL_COUNTS[name]


def test_parameters_for_values(key):
    assert count(physionet.value_model(FAMILY["Latent-ODE (ODE Enc.)"]), key) == 67_071


def test_parameters_for_points(key):
    """The published 1,696,763 have 11 classes, four of them never used, and a decoder of values that serves nothing."""
    build = activity.point_model(kinds(activity.SIZES)["Latent-ODE (ODE Enc.)"])
    assert count(build, key) == 1_696_763 - 4 * 16 - (15 * 12 + 12)


def test_names_of_rows_are_unique():
    for rows in TABLES.values():
        assert len({(row.dataset, row.name) for row in rows}) == len(rows)


def records(count, variables):
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        rows = random.integers(1, 5)
        values = random.random((rows, variables)) * 10
        minutes = np.sort(random.choice(48 * 60, rows, replace=False))
        many.append(series(minutes / 60, values, random.random((rows, variables)) > 0.5))
    return Panel(stack(many), np.arange(count), tuple(f"v{i}" for i in range(variables)))


SPLIT = Split(np.arange(12), np.arange(12, 18), np.arange(18, 24))


def test_scaling_uses_training_records_only():
    query = mortality_data(records(24, 41), np.zeros(24, np.float32), SPLIT.train).query
    train = np.where(query.observed, query.values, np.nan)[:12]
    counted = np.sum(~np.isnan(train), axis=(0, 1)) > 1
    np.testing.assert_allclose(np.nanmean(train, axis=(0, 1))[counted], 0, atol=1e-5)
    np.testing.assert_allclose(np.nanstd(train, axis=(0, 1))[counted], 1, atol=1e-5)
    assert np.asarray(query.times).max() <= 1
    published = scaled(records(24, 41), SPLIT.train)
    train = np.asarray(published.values)[:12][np.asarray(published.observed)[:12]]
    assert train.min() == 0 and train.max() <= 1


@pytest.mark.slow
def test_bins_of_statistics_are_those_of_training_records(monkeypatch):
    panel = records(24, 41)

    def prepared(panel):
        data = mortality_data(panel, np.zeros(24, np.float32), SPLIT.train)
        return Prepared(data, SPLIT, "", {"mean": np.zeros(41)})

    def edges(panel):
        monkeypatch.setattr(physionet, "_mortality_once", lambda data_dir: prepared(panel))
        (row, *_) = [row for row in MORTALITY if "with statistics" in row.name]
        given = row.data(object(), [0]).given
        assert set(given) == {"mean", "edges"}
        return given["edges"]

    found = edges(panel)
    np.testing.assert_array_equal(found, statistic_edges(prepared(panel).data.query.context[SPLIT.train]))
    tested = np.isin(np.arange(24), SPLIT.test)[:, None, None]
    louder = eqx.tree_at(
        lambda s: s.values, panel.series, np.where(tested, 9 * panel.series.values, panel.series.values)
    )
    np.testing.assert_array_equal(edges(replace(panel, series=louder)), found)


def batch_of(row):
    if row.table == "activity":
        whole = records(6, 12).series
        labels = jnp.zeros(whole.times.shape, jnp.int32)
        return whole, LabelledPoints(whole, labels, jnp.ones(labels.shape, bool))
    if row.table == "physionet-classification":
        data = mortality_data(records(6, 41), np.zeros(6, np.float32), np.arange(4))
        return data.query.context, data
    whole = scaled(records(6, 41), np.arange(4))
    return whole, QUERIES[row.config["query"]](whole)


TRAINED = [
    row
    for row in (*MORTALITY, *VALUES, *activity.ROWS, *settings.ROWS)
    if not isinstance(row, Baseline) and row.config.get("queried") in (None, "extrapolation")
]


@pytest.mark.slow
@pytest.mark.parametrize("row", TRAINED, ids=lambda row: f"{row.table}-{row.name}")
def test_every_row_has_a_loss_and_metrics(row, key):
    """By shapes alone, so that all rows can be tried."""
    whole, batch = batch_of(row)
    edges = {"edges": statistic_edges(whole[:4])} if "with statistics" in row.name else {}
    batch = jax.tree.map(jnp.asarray, batch)

    def loss_and_metrics(key):
        model = row.build(key, mean=mean_of(whole, np.arange(4)), **edges)
        loss, _ = row.task.loss(model, batch, key, jnp.asarray(0))
        return loss, row.task.metrics(row.task.outputs(model, batch, key), batch, jnp.ones(6))

    loss, metrics = eqx.filter_eval_shape(loss_and_metrics, key)
    assert loss.shape == ()
    assert row.task.monitor in metrics


def test_windows_may_be_divided_as_published():
    rows = {row.name: row for row in activity.ROWS}
    cut = rows["ACE-Latent-ODE (ODE Enc.), split by window"]
    assert cut.protocol == "split by window" and rows["ACE-Latent-ODE (ODE Enc.)"].protocol == "split by sequence"
