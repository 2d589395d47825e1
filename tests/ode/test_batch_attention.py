"""Attention of a whole batch: `fixed`, a correlation at every moment."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Wave, coevolving, noise, solve

from acenode.ode import CoEvolvingODE, Correlation, Identity, Pairwise, Solver

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


@pytest.mark.slow
def test_another_solver_in_the_place_of_the_one_it_was_made_with():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("fixed", euler), H0, TIMES))
    finer = replace(ode, solver=Solver("rk4", step=STEP / 4))
    path, again = solve(ode, H0, TIMES), solve(finer, H0, TIMES)
    np.testing.assert_array_equal(again.a, path.a)  # the reference is still there
    np.testing.assert_allclose(again.h, path.h, atol=0.1)
    assert np.abs(np.asarray(again.h - path.h)).max() > 1e-4


@pytest.mark.slow
def test_evaluation_follows_what_training_data_did():
    # Four steps from knot to knot, and queries between the knots, where straight lines are off by a'' / 8 / 32^2.
    ode = fit_reference_statistics(batch_ode("fixed", Solver("euler", step=1 / 128)), H0, TIMES)
    times = jnp.asarray(np.linspace(0.0, 0.99, 9))
    path, again = solve(ode, H0, times), solve(eqx.nn.inference_mode(ode), H0, times)
    np.testing.assert_allclose(again.a, path.a, atol=2e-3)
    np.testing.assert_allclose(again.h, path.h, atol=2e-4)
    assert np.abs(np.asarray(again.a - path.a)).max() > 1e-9  # it is the reference that was followed


def test_evaluation_beyond_the_reference_times_keeps_the_last_attention():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("fixed", euler), H0, TIMES))
    a = np.asarray(solve(ode, H0, jnp.array([-1.0, 0.0, 1.0, 5.0])).a)
    np.testing.assert_array_equal(a[:, 0], a[:, 1])
    np.testing.assert_array_equal(a[:, 2], a[:, 3])
    assert np.abs(a[:, 1] - a[:, 2]).max() > 0.01


def test_a_reference_of_one_moment_is_enough_for_that_moment():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("fixed", euler), H0, jnp.array([0.5])))
    path = solve(ode, H0, TIMES)
    np.testing.assert_allclose(path.a, np.broadcast_to(np.corrcoef(np.asarray(H0).T), path.a.shape), rtol=1e-9)
    assert np.isfinite(path.h).all()


def test_inference_needs_reference_statistics():
    with pytest.raises(
        ValueError, match=r"inference mode follows an attention measured on.*call ode\.fit_reference_statistics\(h0"
    ):
        eqx.nn.inference_mode(batch_ode("fixed", euler))(H0, TIMES)


def test_reference_statistics_change_no_training():
    ode = batch_ode("fixed", euler)
    one, two = solve(ode, H0, TIMES), solve(fit_reference_statistics(ode, 3 * H0, TIMES), H0, TIMES)
    np.testing.assert_array_equal(one.h, two.h)


def test_the_reference_is_not_trained():
    ode = eqx.nn.inference_mode(fit_reference_statistics(batch_ode("fixed", euler), H0, TIMES))
    grads = eqx.filter_jit(eqx.filter_grad(lambda ode: jnp.sum(ode(H0, TIMES).h ** 2)))(ode)
    for leaf in jax.tree.leaves((grads.reference, grads.initial)):
        np.testing.assert_array_equal(leaf, 0.0)
    assert np.abs(grads.f.weight).max() > 0


def test_without_a_statistic_there_is_no_reference():
    ode = coevolving(Pairwise(), SIZE, Solver())
    assert ode.fit_reference_statistics(H0, TIMES) is ode
    frozen = CoEvolvingODE(Wave(SIZE, (SIZE,)), None, Pairwise(), Identity(), evolution="frozen")
    assert frozen.fit_reference_statistics(H0, TIMES) is frozen
