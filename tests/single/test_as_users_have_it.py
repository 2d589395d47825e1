"""Single precision and an optimising compiler: what the other tests, in double precision without it, do not see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode import AugmentedODE, CoEvolvingODE, Correlation, Elementwise, NeuralODE, Pairwise, Recipe, Solver, fit
from acenode.datasets.split import Split
from acenode.models import gru_ode_bayes
from acenode.ode import ConditionedGRUField, DeltaRule, DeltaRuleUpdate, FastWeights, GRUField, MLPField, Zeros
from acenode.ode.pairwise_fields import pairwise_field
from acenode.series import Query, series, stack
from acenode.tasks import Forecast, Headed
from acenode.train import Member, evaluate

KEYS = jax.random.split(jax.random.key(0), 4)


def test_the_precision_is_single():
    assert jnp.zeros(1).dtype == jnp.float32 and jnp.asarray(np.float64(1.0)).dtype == jnp.float32


@pytest.mark.parametrize("method", ["dopri5", "tsit5"])
def test_an_adaptive_solve_meets_its_tolerance(method):
    class Oscillator(eqx.Module):
        def __call__(self, t, h):
            return jnp.stack([h[1], -h[0]])

    times = jnp.linspace(0.0, 5.0, 11)
    path = eqx.filter_jit(NeuralODE(Oscillator(), Solver(method, rtol=1e-5, atol=1e-6)))(jnp.ones((2, 2)), times)
    assert not np.asarray(path.stats.failed).any()
    np.testing.assert_allclose(path.h[0, :, 0], np.cos(times) + np.sin(times), atol=2e-4)


ODES = {
    "plain": lambda: NeuralODE(MLPField(3, 8, 1, key=KEYS[0])),
    "augmented": lambda: AugmentedODE(MLPField(5, 8, 1, key=KEYS[0]), 2),
    "pairwise": lambda: CoEvolvingODE(
        MLPField(3, 8, 1, key=KEYS[0]), pairwise_field("linear_h2", 3, 8, 1, key=KEYS[1]), Pairwise(), Correlation(3)
    ),
    "elementwise": lambda: CoEvolvingODE(
        MLPField(3, 8, 1, key=KEYS[0]), MLPField(3, 8, 1, key=KEYS[1]), Elementwise(), Zeros((3,))
    ),
}


@pytest.mark.parametrize("name", ODES)
def test_single_precision_follows_double(name):
    """The forward pass and the gradient, within what single precision allows at the default tolerance."""
    ode, h0 = ODES[name](), jax.random.normal(KEYS[2], (4, 3))
    times = jnp.linspace(0.0, 1.0, 4)

    def both(ode, h0, times):
        loss = lambda ode: jnp.sum(jnp.square(ode(h0, times).h))  # noqa: E731
        return ode(h0, times).h, eqx.filter_grad(loss)(ode)

    found, gradient = eqx.filter_jit(both)(ode, h0, times)
    with jax.enable_x64(True):
        wide = lambda tree: jax.tree.map(  # noqa: E731
            lambda x: jnp.asarray(np.asarray(x), jnp.float64) if eqx.is_inexact_array(x) else x, tree
        )
        exact, exact_gradient = eqx.filter_jit(both)(wide(ode), wide(h0), wide(times))
    np.testing.assert_allclose(found, exact, atol=1e-4)
    largest = max(np.abs(np.asarray(g)).max() for g in jax.tree.leaves(exact_gradient))
    for one, two in zip(*map(jax.tree.leaves, (gradient, exact_gradient)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-3 * largest)


def test_an_ensemble_trains_and_its_members_are_those_of_a_run_alone():
    many = [series(np.arange(1.0, 9.0) / 2, np.sin(np.arange(1.0, 9.0) / 2 + k)[:, None]) for k in range(24)]
    whole = stack(many)
    query = Query(whole, whole.times, whole.values, whole.observed, whole.observed)
    solver = Solver("euler", step=0.25, max_steps=24)

    def build(key):
        one, two, three, four, five = jax.random.split(key, 5)
        ode = CoEvolvingODE(
            ConditionedGRUField(8, attended=8, key=one),
            DeltaRule(8, 2, 4, key=two),
            FastWeights(8, 2, 4, key=three),
            Zeros((2, 4, 4)),
            solver,
            update=DeltaRuleUpdate(8, 2, 4, key=four),
        )
        return Headed(gru_ode_bayes(1, ode, 8, dropout=0.0, mixing=0.0, key=five), None)

    split = Split(np.arange(16), np.arange(16, 24), np.zeros(0, int))
    recipe = Recipe(epochs=30, batch_size=8, validate_every=10, optimiser="adamw", weight_decay=0.01)
    task = Forecast(penalty=0.0, hide=0.1, cut=(1.0, 4.0), monitor="mse")
    members = [Member(seed, 0, 2e-2) for seed in (0, 1)]
    together = fit(build, task, query, split, recipe, members)
    alone = fit(build, task, query, split, recipe, members[1:])
    assert np.nanmin(together.history["validation_mse"]) < 0.4 * np.var(whole.values)
    np.testing.assert_allclose(together.best_score[1], alone.best_score[0], rtol=0.05)
    scores = evaluate(together.models, task, query, split.validation)
    np.testing.assert_allclose(scores["mse"], together.best_score, rtol=1e-4)


def test_plain_gru_ode_stays_inside_its_bounds():
    ode = NeuralODE(GRUField(6, key=KEYS[0]), Solver("euler", step=0.1, max_steps=600))
    path = eqx.filter_jit(ode)(jnp.ones((2, 6)), jnp.linspace(0.0, 50.0, 5))
    assert np.abs(np.asarray(path.h)).max() <= 1.0 + 1e-6
