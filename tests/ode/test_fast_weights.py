"""Fast weights against plain loops, by finite differences, and trained by observations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Wave, noise, solve

from acenode.ode import (
    CoEvolvingODE,
    ConditionedGRUField,
    DeltaRule,
    DeltaRuleUpdate,
    FastWeights,
    Identity,
    NeuralODE,
    Pairwise,
    Residual,
    Solver,
    Zeros,
)
from acenode.train import groups

SIZE, HEADS, WIDTH, BATCH = 4, 2, 3, 2
KEYS = jax.random.split(jax.random.key(0), 4)
EULER = Solver("euler", step=0.25, max_steps=8)


def phi(x):
    x = (x / (1 + np.exp(-x))).reshape(HEADS, WIDTH)
    return np.stack([row / np.sqrt(np.sum(row**2) + 1e-6) for row in x])


def written(module, a, key_from, value_from, beta_from):
    """beta (v - A phi(k)) phi(k)^T, head by head."""
    key = phi(np.asarray(module.keys.weight) @ key_from)
    value = (np.asarray(module.values.weight) @ value_from).reshape(HEADS, WIDTH)
    beta = 1 / (1 + np.exp(-(np.asarray(module.rate.weight) @ beta_from + np.asarray(module.rate.bias))))
    return np.stack([beta[k] * np.outer(value[k] - a[k] @ key[k], key[k]) for k in range(HEADS)])


def fast() -> CoEvolvingODE:
    return CoEvolvingODE(
        ConditionedGRUField(SIZE, 1.0, attended=HEADS * WIDTH, key=KEYS[0]),
        DeltaRule(SIZE, HEADS, WIDTH, key=KEYS[1]),
        FastWeights(SIZE, HEADS, WIDTH, key=KEYS[2]),
        Zeros((HEADS, WIDTH, WIDTH)),
        EULER,
        update=DeltaRuleUpdate(SIZE, HEADS, WIDTH, key=KEYS[3]),
    )


def test_the_delta_rule_and_its_reading_by_hand():
    ode, h, a = fast(), np.asarray(noise(SIZE)), np.asarray(noise(HEADS, WIDTH, WIDTH, seed=1))
    x, y = jnp.asarray(h), jnp.asarray(a)
    forgotten = np.exp(np.asarray(ode.g.log_forgetting))[:, None, None] * a
    np.testing.assert_allclose(ode.g(0.0, x, y), written(ode.g, a, h, h, h) - forgotten, rtol=1e-9)
    query = phi(np.asarray(ode.attention.query.weight) @ h)
    read = np.concatenate([a[k] @ query[k] for k in range(HEADS)])
    np.testing.assert_allclose(ode.attention(x, y), read, rtol=1e-9)
    assert ode.attention.shape((SIZE,)) == (HEADS, WIDTH, WIDTH)


@pytest.mark.slow
def test_an_observation_writes_into_those_that_jumped_alone():
    ode = fast()
    h, a = noise(BATCH, SIZE), noise(BATCH, HEADS, WIDTH, WIDTH, seed=1)
    after = noise(BATCH, SIZE, seed=2)
    new_h, new_a = ode.jump((h, a), after, jnp.asarray([True, False]))
    np.testing.assert_array_equal(new_h, jnp.stack([after[0], h[1]]))
    change = np.asarray(after[0] - h[0])
    by_hand = np.asarray(a[0]) + written(ode.update, np.asarray(a[0]), np.asarray(h[0]), change, change)
    np.testing.assert_allclose(new_a[0], by_hand, rtol=1e-9)
    np.testing.assert_array_equal(new_a[1], a[1])


def test_the_path_is_eulers():
    ode, h0 = fast(), noise(BATCH, SIZE)
    path = solve(ode, h0, jnp.asarray([0.0, 0.25, 0.5]))
    h, a = np.asarray(h0[0]), np.zeros((HEADS, WIDTH, WIDTH))
    for k in range(3):
        np.testing.assert_allclose(path.h[0, k], h, rtol=1e-8)
        np.testing.assert_allclose(path.a[0, k], a, rtol=1e-8, atol=1e-12)
        x, y, now = jnp.asarray(h), jnp.asarray(a), jnp.zeros(())
        h = h + 0.25 * np.asarray(ode.f(now, ode.attention(x, y), x))
        a = a + 0.25 * np.asarray(ode.g(now, x, y))


@pytest.mark.slow
def test_the_gradient_of_every_part_by_finite_differences():
    ode, h0 = fast(), noise(BATCH, SIZE)
    moving, still = eqx.partition(ode, eqx.is_inexact_array)

    @eqx.filter_jit
    @jax.value_and_grad
    def loss(moving):
        ode = eqx.combine(moving, still)
        path = ode(h0, jnp.asarray([0.0, 0.5, 1.0]))
        state = ode.jump((path.h[:, -1], path.a[:, -1]), 0.5 * path.h[:, -1], jnp.asarray([True, True]))
        return jnp.sum(jnp.sin(path.h)) + jnp.sum(jnp.cos(state[1]))

    _, gradient = loss(moving)
    for part in ("f", "g", "attention", "update"):
        direction = jax.tree.map(jnp.zeros_like, moving)
        ones = jax.tree.map(lambda x: noise(*x.shape, seed=3), getattr(moving, part))
        direction = eqx.tree_at(lambda m, part=part: getattr(m, part), direction, ones)
        step = lambda s, d=direction: jax.tree.map(lambda m, x: m + s * x, moving, d)  # noqa: E731
        slope = (loss(step(1e-5))[0] - loss(step(-1e-5))[0]) / 2e-5
        found = sum(float(jnp.sum(g * d)) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
        assert found == pytest.approx(float(slope), rel=1e-5), part
        assert abs(found) > 1e-4, part


def test_what_observations_write_belongs_to_theta_g():
    labels = groups(fast())
    assert set(jax.tree.leaves((labels.g, labels.update))) == {"attention"}
    assert set(jax.tree.leaves((labels.f, labels.attention))) == {"main"}


def test_updating_and_renewing_exclude_each_other():
    ode = fast()
    with pytest.raises(ValueError, match="either renews the attention or updates it"):
        CoEvolvingODE(ode.f, ode.g, ode.attention, ode.initial, EULER, renew=True, update=ode.update)


@pytest.mark.slow
def test_residual_mixing_begins_as_the_plain_ode_to_the_bit():
    f = Wave(SIZE, (SIZE,))
    h0, times = noise(BATCH, SIZE), jnp.asarray([0.0, 0.5, 1.0])
    mixed = CoEvolvingODE(f, Wave(SIZE, (SIZE, SIZE), 1), Residual(Pairwise()), Identity(1.0), EULER)
    np.testing.assert_array_equal(solve(mixed, h0, times).h, solve(NeuralODE(f, EULER), h0, times).h)
    moved = eqx.tree_at(lambda o: o.attention.gamma, mixed, jnp.asarray(0.5))
    h, a = h0[0], jnp.eye(SIZE)
    np.testing.assert_allclose(moved.attention(h, a), 0.5 * (h + Pairwise()(h, a)), rtol=1e-12)
    assert np.abs(np.asarray(solve(moved, h0, times).h - solve(mixed, h0, times).h)).max() > 1e-3
