"""The rows of the USHCN and of the double Ornstein-Uhlenbeck tables: each has a loss; the known optimum is reached by
its filter and by no constant."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.paper import bayes, climate, double_ou
from acenode.paper.baselines import Baseline
from acenode.series import forecast, series, stack


def query(variables: int, span: float):
    random = np.random.default_rng(0)
    many = [
        series(
            np.sort(random.choice(np.arange(1, 40), 6, replace=False)) * span / 40, random.normal(size=(6, variables))
        )
        for _ in range(4)
    ]
    return jax.tree.map(jnp.asarray, forecast(stack(many), 0.75 * span))


TRAINED = [row for row in (*climate.ROWS, *double_ou.ROWS) if not isinstance(row, Baseline)]


@pytest.mark.slow
@pytest.mark.parametrize("row", TRAINED, ids=lambda row: f"{row.table}-{row.name}")
def test_every_row_has_a_loss_and_metrics(row, key):
    """By shapes alone."""
    batch = query(5, 200.0) if row.table == "ushcn" else query(2, 10.0)

    def loss_and_metrics(key):
        model = row.build(key)
        loss, _ = row.task.loss(model, batch, key, jnp.asarray(0))
        return loss, row.task.metrics(row.task.outputs(model, batch, key), batch, jnp.ones(4))

    loss, metrics = eqx.filter_eval_shape(loss_and_metrics, key)
    assert loss.shape == () and {"mse", "negll"} <= set(metrics)


def test_a_seed_is_a_fold():
    with pytest.raises(ValueError, match="the folds are 0 to 4"):
        climate.prepared(True, None, [5])


def test_the_optimum_of_the_generated_process(monkeypatch):
    monkeypatch.setattr(double_ou, "SAMPLES", 1000)
    double_ou._generated.cache_clear()
    (best,) = double_ou._optimum(None, [0])
    made, split, queried = double_ou._generated()
    double_ou._generated.cache_clear()
    scored = np.asarray(queried.scored)[split.test]
    spread = np.asarray(made.panel.series.values)[split.test][scored].var()
    assert 0 < best["mse"] < 0.1 * spread
    assert best["negll"] < 0.5 * np.log(2 * np.pi * spread) + 0.5 - 1
    # Nothing after time 4 is known of a test series, and only the first row after it is queried.
    known = np.asarray(queried.context.times)[split.test][np.asarray(queried.context.real)[split.test]]
    assert known.max() <= 4 and (scored.any(-1).sum(1) <= 1).all()


@pytest.mark.slow
def test_the_learning_rate_of_double_ou_has_fallen_at_the_end():
    recipe, (_, split, _) = double_ou.recipe(3), double_ou._generated()
    double_ou._generated.cache_clear()
    last = 3 * (len(split.train) // recipe.batch_size)
    assert float(recipe.schedule(0)) == 1 and float(recipe.schedule(last)) == pytest.approx(0.01)
    assert float(recipe.schedule(last - 1)) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in TRAINED if "variables" in row.name and row.table == "double-ou"])
def test_variables_know_of_each_other_by_their_attention_alone(row, key):
    batch = query(2, 10.0)
    model = eqx.nn.inference_mode(row.build(key))
    other = eqx.tree_at(lambda q: q.context.values, batch, batch.context.values + jnp.array([0.0, 1.0]))
    answer = eqx.filter_jit(lambda batch: row.task.outputs(model, batch, key))
    first, second = (jnp.abs(answer(batch)[0] - answer(other)[0])[..., v].max() for v in (0, 1))
    assert second > 1e-3
    assert (first > 1e-6) == ("apart" not in row.name)


@pytest.mark.slow
def test_variables_mixed_evenly_see_the_mean_of_all(key):
    ode = bayes.uniform_attention(3)(key)
    h = jax.random.normal(key, (2, 3, bayes.CHANNELS))
    moved, still = ode.slope(jnp.zeros(2), ode.begin(h))
    mean = jnp.broadcast_to(h.mean(axis=1, keepdims=True), h.shape)
    np.testing.assert_allclose(moved, jax.vmap(ode.f, (None, 0, 0))(0.0, mean, h), rtol=1e-12)
    assert not still.any()
