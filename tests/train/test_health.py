"""Numbers that tell an active attention from one that training has switched off."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets.split import Split
from acenode.models import gru_ode_bayes
from acenode.models.unit_filter import WEIGHTS, unit_filter
from acenode.ode import CoEvolvingODE, GRUField, GRULinear, Identity, NeuralODE, Pairwise, Solver
from acenode.series import Query, series, stack
from acenode.tasks import (
    Ensemble,
    EnsembleTask,
    Forecast,
    Headed,
    LabelledPoints,
    LabelledSeries,
    PointClassification,
    Regression,
    SeriesClassification,
    SeriesTarget,
)
from acenode.train import Member, Recipe, fit
from acenode.train.health import INACTIVE, attention_health, has_health

KEYS = jax.random.split(jax.random.key(0), 3)
EULER = Solver("euler", step=0.5, max_steps=16)
SERIES = stack([series(np.arange(1.0, 4.0), np.sin(np.arange(1.0, 4.0) + k)[:, None]) for k in range(8)])
QUERY = Query(SERIES, SERIES.times, SERIES.values, SERIES.observed, SERIES.observed)
SPLIT = Split(np.arange(6), np.arange(6, 8), np.zeros(0, int))


def model(scale: float = 1.0, logit: float = 1.0) -> Headed:
    g = GRULinear(4, key=KEYS[1])
    g = eqx.tree_at(lambda g: g.linear.weight, g, scale * g.linear.weight)
    ode = CoEvolvingODE(GRUField(4, True, key=KEYS[0]), g, Pairwise(), Identity(logit), EULER)
    return Headed(gru_ode_bayes(1, ode, 4, dropout=0.0, key=KEYS[2]), None)


def health(**options) -> dict[str, float]:
    found = eqx.filter_jit(attention_health)(model(**options), Forecast(), QUERY, jax.random.key(0))
    return {name: float(value) for name, value in found.items()}


@pytest.mark.slow
def test_a_g_without_weights_changes_nothing():
    still, moving = health(scale=0.0), health(scale=50.0)
    assert still["attention_change"] == 0.0 < INACTIVE < moving["attention_change"] <= 1.0


@pytest.mark.slow
def test_entropy_and_variance_of_attentions_that_are_known():
    uniform, own = health(scale=0.0, logit=0.0), health(scale=0.0, logit=1e3)
    np.testing.assert_allclose([uniform["attention_entropy"], own["attention_entropy"]], [1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(uniform["attended_variance"], 0.0, atol=1e-12)  # all dimensions see the same mean
    np.testing.assert_allclose(own["attended_variance"], 1.0, rtol=1e-12)


@pytest.mark.slow
def test_history_has_the_health_of_attentive_runs_and_a_note_of_an_inactive_one():
    recipe = Recipe(epochs=2, batch_size=3, validate_every=2)
    names = {"attention_change", "attention_entropy", "attended_variance"}
    names |= {"attention_gradient", "penalty_gradient", "attention_norm"}
    with pytest.warns(UserWarning, match="attention inactive.*norm of theta_g [0-9.]+;.*smaller penalty"):
        done = fit(lambda key: model(scale=0.0), Forecast(), QUERY, SPLIT, recipe, [Member(0, 0, 1e-9, 0.1)])
    assert names <= set(done.history) and np.isnan(done.history["attention_change"][0, 0])
    assert done.inactive.tolist() == [True]
    assert done.history["attention_change"][1, 0] < INACTIVE
    assert any("attention inactive" in note for note in done.notes)
    active = fit(lambda key: model(scale=50.0), Forecast(), QUERY, SPLIT, recipe, [Member(0, 0, 1e-9, 0.1)])
    assert not any("attention inactive" in note for note in active.notes)


@pytest.mark.slow
def test_a_run_without_attention_has_no_health():
    def plain(key):
        ode = NeuralODE(GRUField(4, key=KEYS[0]), EULER)
        return Headed(gru_ode_bayes(1, ode, 4, dropout=0.0, key=KEYS[2]), None)

    done = fit(plain, Forecast(), QUERY, SPLIT, Recipe(epochs=1, batch_size=3), [Member()])
    assert "attention_change" not in done.history and "attention_norm" not in done.history
    assert jnp.isfinite(done.best_score).all()


@pytest.mark.parametrize("kind", ["series", "points", "number", "ensemble"])
def test_tasks_of_series_show_the_attention_too(kind):
    """A label or a number is read from a summary: the attention has to be asked for at the times of the rows."""
    classes = np.arange(8) % 2
    rows = np.broadcast_to(classes[:, None], SERIES.times.shape)
    head = eqx.nn.Linear(4, 1 if kind == "number" else 2, key=KEYS[0])
    moving = eqx.tree_at(lambda m: m.head, model(scale=50.0), head, is_leaf=lambda x: x is None)
    task, data = {
        "series": (SeriesClassification(), LabelledSeries(SERIES, classes)),
        "points": (PointClassification(), LabelledPoints(SERIES, rows, np.ones(rows.shape, bool))),
        "number": (Regression(), SeriesTarget(SERIES, classes.astype(float))),
        "ensemble": (EnsembleTask(SeriesClassification()), LabelledSeries(SERIES, classes)),
    }[kind]
    if kind == "ensemble":
        moving = Ensemble(jax.tree.map(lambda x: jnp.stack([x, x]) if eqx.is_array(x) else x, moving))
    assert has_health(moving, task)
    found = eqx.filter_jit(attention_health)(moving, task, data, jax.random.key(0))
    assert INACTIVE < found["attention_change"] <= 1 and 0 < found["attended_variance"] < 1


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_that_are_constant_on_purpose_have_no_health(weights):
    made = Headed(unit_filter(3, 2, weights, key=KEYS[0]), None)
    assert has_health(made, Forecast()) == (weights in ("least squares", "additive"))
