"""What the tests of the modern baselines share: what a prediction may see, single precision, ensembles, learning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sines import KEY, answer, batch_of, rows, sines

from acenode.datasets.split import Split
from acenode.tasks import Forecast, Headed
from acenode.train import Member, Recipe, fit


def seen(model) -> list[bool]:
    """Which rows change the prediction at the time of the third of five rows."""
    times, values, observed = rows()[0]
    observed = observed | True
    queries = times[None, 2:3]
    base = answer(model, batch_of([(times, values, observed)]), queries).states

    def changes(row):
        other = values.copy()
        other[row] += 1
        return not np.array_equal(answer(model, batch_of([(times, other, observed)]), queries).states, base)

    return [changes(row) for row in range(len(times))]


def assert_queries_do_not_interact(model):
    """A prediction does not depend on the other queried times."""
    batch = batch_of(rows()[:1])
    together = answer(model, batch, np.asarray([[0.5, 1.0, 1.5, 2.0]])).states
    alone = answer(model, batch, np.asarray([[1.5]])).states
    np.testing.assert_allclose(alone[0, 0, 0], together[0, 0, 2], rtol=1e-10, atol=1e-12)


def assert_ensemble_in_single_precision(model):
    """Two members under `vmap` in single precision give what each gives alone in double precision."""
    other = jax.tree.map(lambda x: 0.9 * x if eqx.is_inexact_array(x) else x, model)
    both = jax.tree.map(
        lambda a, b: jnp.stack([a, b]).astype(jnp.float32), *(eqx.filter(m, eqx.is_array) for m in (model, other))
    )
    rest = eqx.filter(model, eqx.is_array, inverse=True)
    batch, times = jax.tree.map(jnp.asarray, batch_of(rows())), jnp.asarray([[0.5, 1.5, 3.0]] * 3, jnp.float32)

    @eqx.filter_jit
    def run(arrays):
        return jax.vmap(lambda a: eqx.combine(a, rest)(batch, times, KEY))(arrays)

    found = run(both)
    assert found.states.dtype == found.summary.dtype == found.penalty.dtype == jnp.float32
    for k, member in enumerate((model, other)):
        expected = answer(member, batch, times)
        for name in ("states", "summary", "penalty"):
            np.testing.assert_allclose(getattr(found, name)[k], getattr(expected, name), rtol=2e-3, atol=2e-4)


def assert_learns(make, below: float = 0.5, learning_rate: float = 0.01):
    """120 steps on the model's own emission bring the error of forecasts under a part of that of the best constant."""
    data = sines()
    split = Split(np.arange(64), np.arange(64, 96), np.arange(0))
    if not eqx.filter_eval_shape(make, KEY).causal:  # it sees the context: only what comes later is to be predicted
        data = eqx.tree_at(lambda q: q.observed, data, data.scored)
    recipe = Recipe(epochs=15, batch_size=8)
    build = lambda key: Headed(make(key), None)  # noqa: E731
    done = fit(build, Forecast(monitor="mse"), data, split, recipe, [Member(learning_rate=learning_rate)])
    spread = data.values[split.validation][data.scored[split.validation]].var()
    assert done.best_score[0] < below * spread, (done.history["validation_mse"][:, 0], spread)
