"""Covariance attention against plain loops and the exact Kalman filter, by finite differences, and inside a model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import noise

from acenode.models import gru_ode_bayes
from acenode.ode import Covariance, GRUField, KalmanUpdate, NeuralODE, Solver, covariance_attention
from acenode.series import Series
from acenode.train import groups

SIZE, RANK, VARIABLES, BATCH = 5, 2, 3, 2
KEYS = jax.random.split(jax.random.key(0), 3)
EULER = Solver("euler", step=0.25, max_steps=40)


def made(evolves=True):
    f = GRUField(SIZE, key=KEYS[0])
    return covariance_attention(f, SIZE, VARIABLES, RANK, solver=EULER, evolves=evolves, key=KEYS[1])


def jacobian(function, h, step=1e-6):
    """By differences, a column at a time."""
    return np.stack([(function(h + step * e) - function(h - step * e)) / (2 * step) for e in np.eye(len(h))], axis=1)


def read(h):
    return jnp.tanh(jnp.asarray(READ) @ h)


READ = np.asarray(noise(VARIABLES, SIZE, seed=5))


def test_the_attention_follows_the_tangent_of_the_flow():
    ode, h, a = made(), np.asarray(noise(SIZE)), np.asarray(noise(SIZE, RANK, seed=1))
    dh, da = ode.slope(jnp.zeros(1), (jnp.asarray(h)[None], jnp.asarray(a.T)[None]))
    along = jacobian(lambda h: np.asarray(ode.f(jnp.zeros(()), jnp.asarray(h))), h) @ a
    by_hand = along + np.exp(float(ode.g.log_rate)) * (np.asarray(ode.g.rest).T - a)
    np.testing.assert_allclose(dh[0], ode.f(jnp.zeros(()), jnp.asarray(h)), rtol=1e-9)
    np.testing.assert_allclose(da[0].T, by_hand, rtol=1e-6)
    assert ode.attention.shape((SIZE,)) == (RANK, SIZE)
    np.testing.assert_allclose(ode.attention.weights(jnp.asarray(a.T)), a @ a.T, rtol=1e-9)


def kalman(update, h, a, x, observed):
    """The extended Kalman filter with matrices: h and P after the values observed."""
    seen = np.flatnonzero(observed)
    jac = jacobian(lambda h: np.asarray(read(jnp.asarray(h))), h)[seen]
    p, noise = a @ a.T, np.diag(np.exp(np.asarray(update.log_noise))[seen])
    gain = p @ jac.T @ np.linalg.inv(jac @ p @ jac.T + noise)
    after = h + np.asarray(update.gamma) * (gain @ (x - np.asarray(read(jnp.asarray(h))))[seen])
    return after, p - gain @ jac @ p


@pytest.mark.parametrize("observed", [[True, False, False], [False, True, True], [True, True, True]])
def test_a_correction_is_that_of_the_kalman_filter(observed):
    update = eqx.tree_at(lambda u: u.gamma, KalmanUpdate(VARIABLES, SIZE), 1 + 0.1 * noise(SIZE, seed=4))
    h, a, x = (np.asarray(noise(*shape, seed=s)) for s, shape in enumerate([(SIZE,), (SIZE, RANK), (VARIABLES,)]))
    new, narrowed = update(jnp.asarray(h), jnp.asarray(a.T), jnp.asarray(x), jnp.asarray(observed), read)
    after, p = kalman(update, h, a, x, observed)
    np.testing.assert_allclose(new, after, rtol=1e-5, atol=1e-8)
    ours = np.asarray(narrowed).T @ np.asarray(narrowed)
    if sum(observed) == 1:
        np.testing.assert_allclose(ours, p, rtol=1e-5, atol=1e-8)
    else:  # between the exact one and the one before
        assert np.linalg.eigvalsh(ours - p).min() > -1e-8 and np.linalg.eigvalsh(a @ a.T - ours).min() > -1e-8
        assert np.trace(ours) < 0.99 * np.trace(a @ a.T)


def test_without_an_observed_value_nothing_changes_and_the_gradient_is_finite():
    ode, state = made(), (noise(BATCH, SIZE), noise(BATCH, RANK, SIZE, seed=1))
    observed = jnp.asarray([[True, False, True], [False] * 3])

    def corrected(update, x):
        return eqx.tree_at(lambda o: o.update, ode, update).correct(
            state, x, observed, lambda h, k: read(h), jnp.ones((BATCH, 1))
        )

    x = noise(BATCH, VARIABLES, seed=2)
    h, a = corrected(ode.update, x)
    np.testing.assert_array_equal(h[1], state[0][1])
    np.testing.assert_array_equal(a[1], state[1][1])
    assert not np.array_equal(h[0], state[0][0]) and not np.array_equal(a[0], state[1][0])
    grads = jax.grad(lambda u, x: sum(part.sum() for part in corrected(u, x)), argnums=(0, 1))(ode.update, x)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.slow
def test_gradients_against_finite_differences():
    ode = made()

    def after(theta):
        of = eqx.tree_at(lambda o: (o.update.log_noise, o.g.log_rate, o.initial.value), ode, theta)
        h, a = of.begin(noise(1, SIZE))
        for seed in range(2):
            dh, da = of.slope(jnp.zeros(1), (h, a))
            state, x = (h + 0.3 * dh, a + 0.3 * da), noise(1, VARIABLES, seed=seed)
            h, a = of.correct(state, x, jnp.asarray([[True, True, False]]), lambda h, k: read(h), jnp.ones((1, 1)))
        return jnp.sum(jnp.sin(h)) + jnp.sum(jnp.cos(a))

    theta = (ode.update.log_noise, ode.g.log_rate, ode.initial.value)
    value, step = jax.jit(after), 1e-5
    for k, (slope, part) in enumerate(zip(jax.jit(jax.grad(after))(theta), theta, strict=True)):
        way = noise(*part.shape, seed=k)
        ahead, behind = (value((*theta[:k], part + s * way, *theta[k + 1 :])) for s in (step, -step))
        np.testing.assert_allclose(jnp.sum(slope * way), (ahead - behind) / (2 * step), rtol=1e-5)


def filled(ode):
    return gru_ode_bayes(VARIABLES, ode, SIZE, width=4, dropout=0.0, key=KEYS[2])


def context(rows=4):
    times = np.tile(np.linspace(0.5, 2.0, rows), (BATCH, 1))
    values = np.asarray(noise(BATCH, rows, VARIABLES))
    observed = np.asarray(noise(BATCH, rows, VARIABLES, seed=3)) > 0
    return Series(times, np.where(observed, values, 0.0), observed, np.full(BATCH, rows))


def test_without_a_covariance_the_model_is_gru_ode_bayes():
    ode = made(evolves=False)
    nothing = eqx.tree_at(lambda o: o.initial.value, ode, jnp.zeros((RANK, SIZE)))
    times = jnp.full((BATCH, 1), 3.0)
    one = filled(nothing)
    other = filled(NeuralODE(ode.f, EULER))
    traces = [model(context(), times, KEYS[0]).states for model in (one, other)]
    np.testing.assert_array_equal(traces[0][..., :SIZE], traces[1])
    mean, log_variance = one.emission(traces[0][0, 0, 0])
    plain_mean, plain_log_variance = other.emission(traces[1][0, 0, 0])
    np.testing.assert_array_equal(mean, plain_mean)
    np.testing.assert_allclose(log_variance, plain_log_variance, atol=1e-6)


def test_the_variance_has_that_of_the_state():
    model, h, a = filled(made()), np.asarray(noise(SIZE)), np.asarray(noise(SIZE, RANK, seed=1))
    output = Covariance(RANK).output(jnp.asarray(h), jnp.asarray(a.T))
    mean, log_variance = model.emission(output)
    inner = model.emission.emission
    own_mean, own = inner(jnp.asarray(h))
    along = jacobian(lambda h: np.asarray(inner(jnp.asarray(h))[0]), h) @ a
    np.testing.assert_array_equal(mean, own_mean)
    np.testing.assert_allclose(np.exp(log_variance), np.exp(own) + (along**2).sum(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(model.emission(jnp.asarray(h))[1], own)


def test_one_observation_at_a_time_is_the_whole_series():
    model, series = eqx.nn.inference_mode(filled(made())), context()
    times = jnp.full((BATCH, 1), 3.0)
    whole = model(series, times, KEYS[0]).states[0, :, 0]
    memory = model.begin(BATCH)
    for k in range(series.times.shape[1]):
        memory = model.advance(memory, jnp.asarray(series.times[:, k]))
        memory = model.observe(memory, jnp.asarray(series.values[:, k]), jnp.asarray(series.observed[:, k]))
    memory = model.advance(memory, times[:, 0])
    np.testing.assert_allclose(model.ode.output(memory.state), whole, rtol=1e-6, atol=1e-9)


def test_its_parameters_are_those_of_the_attention():
    found = groups(made())
    assert found.g.rest == found.g.log_rate == found.update.gamma == found.update.log_noise == "attention"
    assert found.initial.value == "initial" and found.f.reset.weight == "main"


def test_a_frozen_covariance_stays_as_it_is():
    ode = made(evolves=False)
    state = ode.begin(noise(BATCH, SIZE))
    assert not np.any(ode.slope(jnp.zeros(BATCH), state)[1])
    observed = jnp.ones((BATCH, VARIABLES), bool)
    h, a = ode.correct(state, noise(BATCH, VARIABLES), observed, lambda h, k: read(h), jnp.ones((BATCH, 1)))
    np.testing.assert_array_equal(a, state[1])
    assert not np.array_equal(h, state[0])
