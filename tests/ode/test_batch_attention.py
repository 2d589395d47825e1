"""Attention of a whole batch: `fixed` (a correlation at every moment) and `shared` (one a for all)."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import FromState, Wave, coevolving, noise, solve

from acenode.ode import CoEvolvingODE, Correlation, Dense, Identity, Pairwise, Solver

SIZE, BATCH, STEP = 3, 4, 0.125
H0 = noise(BATCH, SIZE)
TIMES = jnp.asarray(np.linspace(0.0, 1.0, 9))  # every step
euler = Solver("euler", step=STEP, max_steps=32)

fit_reference_statistics = eqx.filter_jit(lambda ode, h0, times: ode.fit_reference_statistics(h0, times))


def wave(field, t, h):
    out = np.tanh(np.asarray(field.weight) @ h + np.asarray(field.bias) * np.sin(3 * t))
    return out.reshape(field.out)


def weights(a):
    e = np.exp(a)
    return e / e.sum(axis=1, keepdims=True)


def batch_ode(evolution: str, solver: Solver) -> CoEvolvingODE:
    return coevolving(Pairwise(), SIZE, solver, initial=Correlation(SIZE), evolution=evolution)


def test_fixed_is_the_correlation_of_the_moment():
    ode = batch_ode("fixed", euler)
    path = solve(ode, H0, TIMES)
    h = np.asarray(H0)
    for k, t in enumerate(np.asarray(TIMES)):
        c = np.corrcoef(h.T)
        np.testing.assert_allclose(path.h[:, k], h, rtol=1e-9)
        np.testing.assert_allclose(path.a[:, k], np.broadcast_to(c, (BATCH, SIZE, SIZE)), rtol=1e-7)
        h = np.stack([x + STEP * wave(ode.f, t, weights(c) @ x) for x in h])


def test_shared_is_driven_by_the_mean_of_g():
    ode = batch_ode("shared", euler)
    path = solve(ode, H0, TIMES)
    h, a = np.asarray(H0), np.corrcoef(np.asarray(H0).T)
    for k, t in enumerate(np.asarray(TIMES)):
        np.testing.assert_allclose(path.h[:, k], h, rtol=1e-9)
        np.testing.assert_allclose(path.a[:, k], np.broadcast_to(a, (BATCH, SIZE, SIZE)), rtol=1e-9)
        seen = [weights(a) @ x for x in h]
        h = np.stack([x + STEP * wave(ode.f, t, s) for x, s in zip(h, seen, strict=True)])
        a = a + STEP * np.mean([wave(ode.g, t, s) for s in seen], axis=0)


def test_shared_starts_from_the_mean_of_what_each_sample_has(key):
    ode = coevolving(Pairwise(), SIZE, euler, initial=Dense(SIZE, key=key), evolution="shared")
    path = solve(ode, H0, TIMES)
    np.testing.assert_allclose(path.a, np.broadcast_to(path.a[:1], path.a.shape), rtol=1e-9)
    np.testing.assert_allclose(path.a[0, 0], ode.initial(H0).mean(axis=0), rtol=1e-9)
    again = solve(eqx.nn.inference_mode(fit_reference_statistics(ode, H0, TIMES)), H0, TIMES)
    np.testing.assert_allclose(again.h, path.h, atol=0.02)  # of every sample: the knots lie between the steps


def test_another_solver_in_the_place_of_the_one_it_was_made_with():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("shared", euler), H0, TIMES))
    finer = replace(ode, solver=Solver("rk4", step=STEP / 4))
    path, again = solve(ode, H0, TIMES), solve(finer, H0, TIMES)
    np.testing.assert_array_equal(again.a, path.a)  # what was remembered is still there
    np.testing.assert_allclose(again.h, path.h, atol=0.1)
    assert np.abs(np.asarray(again.h - path.h)).max() > 1e-4


@pytest.mark.parametrize("evolution", ["fixed", "shared"])
def test_evaluation_follows_what_training_data_did(evolution):
    # Four steps from knot to knot, and questions between the knots, where straight lines are off by a'' / 8 / 32^2.
    ode = fit_reference_statistics(batch_ode(evolution, Solver("euler", step=1 / 128)), H0, TIMES)
    times = jnp.asarray(np.linspace(0.0, 0.99, 9))
    path, again = solve(ode, H0, times), solve(eqx.nn.inference_mode(ode), H0, times)
    np.testing.assert_allclose(again.a, path.a, atol=2e-3)
    np.testing.assert_allclose(again.h, path.h, atol=2e-4)
    assert np.abs(np.asarray(again.a - path.a)).max() > 1e-9  # it is the remembered one that was followed


def test_evaluation_beyond_the_remembered_times_keeps_the_last_attention():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("shared", euler), H0, TIMES))
    a = np.asarray(solve(ode, H0, jnp.array([-1.0, 0.0, 1.0, 5.0])).a)
    np.testing.assert_array_equal(a[:, 0], a[:, 1])
    np.testing.assert_array_equal(a[:, 2], a[:, 3])
    assert np.abs(a[:, 1] - a[:, 2]).max() > 0.01


def test_remembering_one_moment_is_enough_for_that_moment():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("fixed", euler), H0, jnp.array([0.5])))
    path = solve(ode, H0, TIMES)
    np.testing.assert_allclose(path.a, np.broadcast_to(np.corrcoef(np.asarray(H0).T), path.a.shape), rtol=1e-9)
    assert np.isfinite(path.h).all()


@pytest.mark.parametrize("evolution", ["fixed", "shared"])
def test_inference_needs_something_remembered(evolution):
    with pytest.raises(
        ValueError, match=r"inference mode follows an attention remembered.*call ode\.fit_reference_statistics\(h0"
    ):
        eqx.nn.inference_mode(batch_ode(evolution, euler))(H0, TIMES)


def test_remembering_changes_no_training():
    ode = batch_ode("shared", euler)
    one, two = solve(ode, H0, TIMES), solve(fit_reference_statistics(ode, 3 * H0, TIMES), H0, TIMES)
    np.testing.assert_array_equal(one.h, two.h)


def test_what_is_remembered_is_not_trained():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("shared", euler), H0, TIMES))
    grads = eqx.filter_jit(eqx.filter_grad(lambda ode: jnp.sum(ode(H0, TIMES).h ** 2)))(ode)
    for leaf in jax.tree.leaves((grads.reference, grads.initial)):
        np.testing.assert_array_equal(leaf, 0.0)
    assert np.abs(grads.f.weight).max() > 0


def test_remembering_without_a_statistic_is_nothing():
    ode = coevolving(Pairwise(), SIZE, Solver())
    assert ode.fit_reference_statistics(H0, TIMES) is ode
    frozen = CoEvolvingODE(Wave(SIZE, (SIZE,)), None, Pairwise(), Identity(), evolution="frozen")
    assert frozen.fit_reference_statistics(H0, TIMES) is frozen


def test_gradient_of_a_shared_attention_through_samples_that_ended_earlier():
    """A sample that has reached its end still counts in the mean, and so in the gradient of the others."""
    ode = coevolving(Pairwise(), SIZE, Solver("midpoint", step=0.1, max_steps=16), evolution="shared")
    ode = eqx.tree_at(lambda o: o.initial, ode, FromState(SIZE, (SIZE, SIZE), 5))
    times = jnp.array([[0.0, 0.5, 1.0], [0.0, 0.15, 0.3], [0.0, 0.2, 0.65], [0.0, 0.0, 0.0]])

    @eqx.filter_jit
    @jax.value_and_grad
    def value_and_gradient(h0):
        path = ode(h0, times)
        return jnp.sum(noise(*path.h.shape) * jnp.sin(path.h)) + jnp.sum(noise(*path.a.shape, seed=1) * path.a)

    _, found = value_and_gradient(H0)
    for k in range(BATCH):
        direction = np.zeros((BATCH, SIZE))
        direction[k] = [1.0, -0.5, 0.7]
        up, down = (float(value_and_gradient(H0 + sign * 1e-5 * direction)[0]) for sign in (1, -1))
        assert np.sum(np.asarray(found) * direction) == pytest.approx((up - down) / 2e-5, rel=1e-7), k
