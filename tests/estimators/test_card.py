"""Model cards and what a notebook shows."""

import copy
import json
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from frames import labelled, machines
from untrained import untrained

from acenode.estimators import Classifier, Forecaster, load
from acenode.estimators.auto import leaderboard_frame
from acenode.estimators.budget import Budget
from acenode.estimators.card import CARD, card as card_of
from acenode.estimators.members import Members
from acenode.train import Bar, BudgetBar, Member, Recipe

SMALL = {"id": "machine", "time": "hour", "hidden": 4}


@pytest.fixture(scope="module")
def small():
    return untrained(Forecaster(**SMALL, model="gru-d"), machines(12))


# --- the card ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_card_is_one_for_the_hub(small, tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    folder = small.save(tmp_path / "model", metrics={"mse": 0.25, "negll": np.nan})
    card = hub.ModelCard.load(folder / CARD)
    assert card.data.library_name == "acenode" and "gru-d" in card.data.tags
    assert card.data.pipeline_tag == "time-series-forecasting"
    scores = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert scores == {("validation", small.summary_.metric): 0.5, ("test", "mse"): 0.25}
    assert "heat, flow" in card.text and "acenode.load(" in card.text
    np.testing.assert_array_equal(
        load(folder).predict(machines(3), at=[24.0])["mean"], small.predict(machines(3), at=[24.0])["mean"]
    )


def test_a_card_takes_any_name(tmp_path):
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    odd = {"heat": "a|b: \n---", "state": "l <b>", "machine": "---"}
    frame = labelled(machines(12)).rename(columns=odd)
    made = untrained(Classifier(id="---", time="hour", label="l <b>", hidden=4, model="gru-d"), frame)
    folder = made.save(tmp_path / "model")
    card = hub.ModelCard.load(folder / CARD)
    assert card.data.library_name == "acenode" and "good, worn" in card.text
    made.save(folder)  # over its own card
    assert load(folder).columns_.values == ("a|b: \n---", "flow")


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_a_fitted_estimator_is_a_table_in_a_notebook(small):
    shown = small._repr_html_()
    assert "<table>" in shown and "gru-d" in shown and "heat, flow" in shown
    assert f"{small.summary_.parameters:,}" in shown and "0.5" in shown
    assert small._repr_mimebundle_()["text/html"] == shown
    assert small._repr_mimebundle_()["text/plain"] == repr(small)


def test_an_ensemble_is_shown_whole_and_what_must_be_told_comes_first(small):
    made = copy.copy(small)
    made.members_ = Members(("gru-d", "statistics", "gru-d"), (0.4, 0.3, 0.3), (small.model_,) * 3)
    row = {"model": "gru-d", "mse": 0.5, "weight": 1.0, "epochs": 3, "seconds": 2.0, "note": ""}
    made.leaderboard_ = leaderboard_frame([row, {**row, "model": "last-value", "note": "<plain>"}])
    made.summary_ = replace(small.summary_, notes=("no model beats the plain baselines",))
    shown = made._repr_html_()
    assert "gru-d x 2 + statistics" in shown and "last-value" in shown and "&lt;plain&gt;" in shown
    assert shown.index("no model beats") < shown.index("<table>")
    text = card_of(made)
    assert "# Forecaster with gru-d x 2 + statistics" in text and "**Note:** no model beats" in text


def test_names_are_escaped_in_a_notebook():
    frame = machines(12).rename(columns={"heat": "<script>alert(1)</script>"})
    shown = untrained(Forecaster(**SMALL, model="gru-d"), frame)._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_an_estimator_that_is_not_fitted_is_shown_by_scikit_learn():
    shown = Forecaster(**SMALL)._repr_html_()
    assert "Forecaster" in shown and "(fitted)" not in shown


class Shown:
    """Stands for the cell of a notebook."""

    def __init__(self):
        self.html = []

    def display(self, html, display_id):
        self.update(html)
        return self

    def update(self, html):
        self.html.append(html.data)


@pytest.fixture
def cell(monkeypatch) -> Shown:
    shown = Shown()
    fake = types.ModuleType("IPython.display")
    fake.HTML, fake.display = lambda data: types.SimpleNamespace(data=data), shown.display
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    return shown


def test_the_bar_of_a_search_is_that_of_its_budget(cell):
    now = [0.0]
    bar = BudgetBar(Budget(300, lambda: now[0]))
    bar.start(Recipe(), [Member()], None, 0)
    now[0] = 75.2
    bar.epoch(0, {}, 10)
    bar.say("gru-d: <good>")
    assert 'value="75" max="300"' in cell.html[-1] and "gru-d: &lt;good&gt;" in cell.html[-1]
    now[0] = 310
    bar.epoch(1, {}, 10)
    bar.stop()
    assert 'value="300" max="300"' in cell.html[-1]


def test_without_anybody_watching_a_search_says_lines(capfd):
    bar = BudgetBar(Budget(300))
    bar.start(Recipe(), [Member()], None, 0)
    bar.say("gru-d: good")
    bar.stop()
    assert capfd.readouterr().err == "gru-d: good\n"


def test_bars_advance_in_a_notebook(cell):
    bar = Bar("<model>")
    recipe = Recipe(epochs=2, batch_size=4)
    bar.start(recipe, [Member(0, 0, 0.1, 0.0)], types.SimpleNamespace(monitor="mse"), 0)
    record = {name: np.ones(1) for name in ("loss", "attention_loss", "validation_mse", "nfe")}
    for epoch in range(2):
        bar.epoch(epoch, record, 10)
    bar.stop()
    assert 'value="0" max="2"' in cell.html[0] and "compiling" in cell.html[0]
    assert 'value="2" max="2"' in cell.html[-1] and "val mse 1.0000" in cell.html[-1]
    assert "&lt;model&gt;" in cell.html[-1] and "<model>" not in cell.html[-1]


def test_a_plot_is_a_figure_that_a_notebook_shows_once(small, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot", reason="needs acenode[report]")
    frame = machines(3)
    figure = small.plot(frame, "m01", at=[24.0, 25.0])
    assert figure.__class__.__name__ == "Figure" and plt.fignum_exists(figure.number)
    plt.close(figure)
    monkeypatch.setattr(plt, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    figure = small.plot(frame, "m01", at=[24.0, 25.0])
    assert not plt.get_fignums() and len(figure.axes) == 2


def test_the_head_of_a_card_is_yaml_of_json(small, tmp_path):
    """Each line of the head is a name and JSON, which any reader of YAML takes."""
    text = (small.save(tmp_path / "model") / CARD).read_text()
    _, head, _ = text.split("---\n", 2)
    for line in head.splitlines():
        name, _, value = line.partition(": ")
        assert name.replace("_", "").replace("-", "").isalpha() and json.loads(value) is not None
