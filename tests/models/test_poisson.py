"""Latent-ODE + Poisson: the integral of the intensity, the likelihood of observation times, a rate that is found."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from acenode.datasets.split import Split
from acenode.layers import mlp
from acenode.models import GRUEncoder, LatentPoisson
from acenode.ode import MLPField, Solver
from acenode.series import reconstruct, series, stack
from acenode.tasks import Headed, PoissonHead, Reconstruction
from acenode.tasks.reconstruction import negative_elbo
from acenode.train import Member, Recipe, fit

VARIABLES, SIZE = 2, 6
SOLVER = Solver("rk4", step=0.05, max_steps=32, checkpoints=4)


def build(key, samples: int = 2) -> Headed:
    one, two, three, four, five = jax.random.split(key, 5)
    model = LatentPoisson(
        GRUEncoder(VARIABLES, 4, key=one),
        mlp(4, 2 * SIZE, 5, 1, key=two),
        MLPField(SIZE, 8, 1, key=three),
        SIZE,
        VARIABLES,
        width=8,
        solver=SOLVER,
        samples=samples,
        key=four,
    )
    return Headed(model, PoissonHead(eqx.nn.Linear(SIZE // 2, VARIABLES, key=five), None, SIZE // 2, VARIABLES))


def batch():
    random = np.random.default_rng(0)
    many = [series(np.sort(random.random(n)), random.normal(size=(n, 2)), random.random((n, 2)) < 0.6) for n in (5, 3)]
    many[1].observed[:, 1] = False
    many[1].values[:, 1] = 0
    return jax.tree.map(jnp.asarray, reconstruct(stack(many)))


@pytest.fixture(scope="module")
def case():
    key = jax.random.key(0)
    headed, query = build(key), batch()
    trace = eqx.filter_jit(headed.model)(query.context, query.times, key)
    return headed, query, trace


@pytest.mark.slow
def test_the_state_holds_the_intensity_and_its_integral(case):
    headed, query, trace = case
    states = trace.states[0, 0]
    field = headed.model.latent.ode.f
    path = eqx.filter_jit(headed.model.latent.ode)(trace.h0[:1], jnp.linspace(0, query.times[0, -1], 201))
    z = path.h[0, :, : -field.variables]
    rates = np.exp(jax.vmap(field.log_rate)(z))
    log_rate, integral = headed.head.events(states[-1])
    np.testing.assert_allclose(np.exp(log_rate), rates[-1], rtol=1e-4)
    for v in range(VARIABLES):
        expected = quad(lambda t, v=v: np.interp(t, np.asarray(path.times[0]), rates[:, v]), 0, query.times[0, -1])
        np.testing.assert_allclose(integral[v], expected[0], rtol=1e-3)


def test_the_bound_has_the_likelihood_of_the_observation_times(case):
    headed, query, trace = case
    epoch = jnp.asarray(0)
    bound = eqx.filter_jit(negative_elbo)
    both = bound(headed.head, query, trace, epoch, 0.5, 10, event_weight=1.0)
    values = bound(headed.head, query, trace, epoch, 0.5, 10, event_weight=0.0)
    told = np.zeros((2, 2))
    for k in range(2):
        for b in range(2):
            terms = []
            logs, integrals = (np.asarray(x) for x in jax.vmap(headed.head.events)(trace.states[k, b]))
            for v in range(VARIABLES):
                seen = np.asarray(query.observed)[b, 1:, v]
                terms.append(float(logs[1:][seen, v].sum() - (integrals[-1, v] - integrals[0, v])))
            told[k, b] = np.mean(terms)
    np.testing.assert_allclose(values - both, told.mean(), rtol=1e-5)


@pytest.mark.slow
def test_it_finds_how_often_a_variable_is_observed():
    """One variable is seen at every row, the other at a quarter of them; nothing else tells the two apart."""
    random = np.random.default_rng(1)
    many = []
    for _ in range(48):
        seen = np.stack([np.ones(8, bool), random.random(8) < 0.25], axis=1)
        many.append(series(np.sort(random.random(8)), np.zeros((8, 2)), seen))
    query = reconstruct(stack(many))
    split = Split(np.arange(32), np.arange(32, 48), np.arange(0))
    task = Reconstruction(noise=1.0)
    done = fit(build, task, query, split, Recipe(epochs=40, batch_size=16), [Member(learning_rate=0.02)])
    model = done.model()
    trace = eqx.filter_jit(model.model)(query.context[:16], jnp.ones((16, 1)), jax.random.key(0))
    _, integral = model.head.events(trace.states.mean((0, 1, 2)))
    assert 6 < integral[0] < 10 and 1 < integral[1] < 3


def test_a_state_that_cannot_be_halved_is_refused(key):
    with pytest.raises(ValueError, match="odd"):
        LatentPoisson(lambda s: s, lambda v: v, lambda t, z: z, 5, 2, key=key)
