"""The Latent-ODE rows of the mortality table: parameter counts, and that a row trains, resumes and is written down."""

import equinox as eqx
import jax
import numpy as np
import pytest

from acenode.datasets.split import Split
from acenode.ode import MLPField, NeuralODE, Solver
from acenode.paper import results
from acenode.paper.physionet import ODES, ROWS, mortality_data, mortality_model
from acenode.paper.reproduce import reproduce
from acenode.paper.row import Prepared, Row
from acenode.series import Panel, series, stack
from acenode.tasks import LabelSeries
from acenode.train import Quiet, Recipe, parameter_count

COUNTS = {
    "Latent-ODE (ODE Enc.)": 163_972,
    # g' = MLP(20, 400, 3, 50) beside f': 29,100 more
    "ACE-Latent-ODE (ODE Enc.)": 163_972 + 29_100,
    # f on 25 dimensions and a decoder that reads 25
    "Augmented-Latent-ODE (ODE Enc.)": 163_972 + 10 * 50 + 5 + 5 * 41,
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(key, name):
    model = eqx.filter_eval_shape(mortality_model(*ODES[name]), key)
    model = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype) if hasattr(x, "shape") else x, model)
    assert parameter_count(model) == COUNTS[name]


def test_names_of_rows_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)


def records(count):
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        rows = random.integers(1, 5)
        values = random.random((rows, 41)) * 10
        many.append(
            series(np.sort(random.choice(48 * 60, rows, replace=False)) / 60, values, random.random((rows, 41)) > 0.5)
        )
    return Panel(stack(many), np.arange(count), tuple(f"v{i}" for i in range(41)))


@pytest.fixture(scope="module")
def prepared():
    died = (np.arange(24) % 3 == 0).astype(np.float32)
    split = Split(np.arange(12), np.arange(12, 18), np.arange(18, 24))
    return Prepared(mortality_data(records(24), died, split.train), split, "made up")


def test_scaling_uses_training_records_only(prepared):
    question = prepared.data.question
    train = np.asarray(question.values)[:12][np.asarray(question.observed)[:12]]
    assert train.min() == 0 and train.max() <= 1
    assert np.asarray(question.times).max() <= 1


def test_a_row_is_trained_once_and_written_down(prepared, tmp_path):
    def small(key):  # compiles quickly
        return NeuralODE(MLPField(20, 4, 1, key=key), Solver("euler", step=0.5))

    def recipe(epochs):
        return Recipe(epochs=epochs, batch_size=6, eval_batch=6)

    build, asked = mortality_model(small, 20, "end"), []

    def data(data_dir, seeds):
        asked.append((data_dir, list(seeds)))
        return prepared

    row = Row("toy", "a small one", data, LabelSeries("end"), build, recipe, epochs=1, learning_rate=1e-3, penalty=1e-2)
    done = reproduce(row, [0, 1], tmp_path / "results", tmp_path / "runs", progress=Quiet())
    assert [r.seed for r in done] == [0, 1]
    assert all(0 <= r.metrics["auc"] <= 1 and r.epochs == 1 for r in done)
    assert results.load(tmp_path / "results") == done
    assert all(r.config["learning_rate"] == 1e-3 and r.config["penalty"] == 1e-2 for r in done)
    assert reproduce(row, [0, 1], tmp_path / "results", tmp_path / "runs", progress=Quiet()) == []
    assert asked == [(None, [0, 1])]  # nothing is loaded where nothing is missing
