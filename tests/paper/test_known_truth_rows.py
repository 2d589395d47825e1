"""The table of systems with known influence: every row has a loss and metrics; the oracle sees the truth, no other."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets.known_truth import Rows
from acenode.models.unit_filter import unit_filter
from acenode.ode import Solver
from acenode.paper import known_truth

SYSTEM = "springs"


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A few short series in place of the table's."""
    generate, _ = known_truth.SYSTEMS[SYSTEM]
    rows = Rows(context=8, query=4, noise=0.02)
    monkeypatch.setitem(
        known_truth.SYSTEMS, SYSTEM, (lambda **given: generate(**{**given, "rows": rows, "bodies": 3}), 10.0)
    )
    for name, count in (("TRAINING", 6), ("VALIDATION", 2), ("TEST", 2)):
        monkeypatch.setattr(known_truth, name, count)
    short = ft.partial(known_truth.match_slopes, steps=(10, 10, 10), starts=1)
    monkeypatch.setattr(known_truth, "match_slopes", short)
    known_truth.generated.cache_clear()
    yield
    known_truth.generated.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", [known_truth.ATTENTIVE, "static graph", "oracle", known_truth.PLAIN])
def test_a_row_has_a_loss_metrics_and_a_recovery(name):
    row = known_truth.row(name, SYSTEM)
    prepared = row.data(None, [0])
    model = row.build(jax.random.key(0), **prepared.given)
    test = np.asarray(prepared.splits.test)
    batch = jax.tree.map(lambda x: x[test], prepared.data)

    @jax.jit
    def measured(key):
        return row.task.loss(model, batch, key, 0)[0], row.task.outputs(model, batch, key)

    loss, outputs = measured(jax.random.key(1))
    assert np.isfinite(loss) and np.isfinite(row.task.metrics(outputs, batch, jnp.ones(2))["mse"])
    if row.measures is not None:
        found = row.measures(model, row.task, prepared.data, test)
        assert set(found) == {"edge_auc", "edge_auc_ahead", "influence_correlation"}
        assert (found["edge_auc"] > 0.95) == (name == "oracle")  # all but the moments before the first row


def test_the_oracle_alone_is_told_the_influence():
    told, others = (known_truth.row(name, SYSTEM).data(None, [0]).data for name in ("oracle", known_truth.ATTENTIVE))
    variables = others.context.values.shape[2]
    assert told.context.values.shape[2] == variables + 9
    truth = known_truth.generated(SYSTEM)[0].influence[:, 0].reshape(-1, 1, 9)
    real = np.asarray(told.context.real)
    given = np.asarray(told.context.values)[..., variables:]
    np.testing.assert_array_equal(given[real], np.broadcast_to(truth, given.shape)[real])
    np.testing.assert_array_equal(told.values, others.values)


def test_weights_of_the_filter_by_name():
    with pytest.raises(ValueError, match="choose from least squares, additive, frozen"):
        unit_filter(3, 2, "none of these", key=jax.random.key(0))
    uniform = unit_filter(3, 2, "uniform", solver=Solver("euler", step=0.5), key=jax.random.key(0))
    a = uniform.ode.initial(jnp.zeros((1, 3, 2)))
    np.testing.assert_allclose(uniform.ode.attention.weights(a)[0], 0.5 * (1 - np.eye(3)))
