"""Failure is a status with a sentence, per sample: never an exception, a silent NaN, or a matter for its mates."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from problems import leaves_equal, solve

from acenode.ode import CoEvolvingODE, Elementwise, NeuralODE, Path, Solver, Stats, Status
from acenode.ode.solver import status_where

WELL, BLOWS_UP, ENDS, BROKEN = range(4)
OK, NOT_FINITE = Status.solved, Status.not_finite
TOO_MANY_STEPS, STEP_TOO_SMALL = Status.max_steps_reached, Status.step_too_small
TIMES = jnp.array([0.0, 0.1, 0.4, 1.0])
late = jnp.asarray(False)


class Trouble(eqx.Module):
    """A field of (x, kind) with a parameter. The kind, which is constant, says what will go wrong.

    Each branch reads a harmless x where it does not apply, so that only the failed sample has infinite derivatives.
    """

    p: Array

    def __call__(self, t, h):
        x, kind = h
        well = -self.p * jnp.where(kind == WELL, x, 0.0)
        blows_up = self.p * jnp.where(kind == BLOWS_UP, x, 0.0) ** 2
        ends = jnp.where((kind == ENDS) & (t > 0.5), jnp.nan, self.p * (kind == ENDS))
        broken = jnp.where(kind == BROKEN, -self.p / jnp.where(kind == BROKEN, x, 1.0), 0.0)
        return jnp.stack([well + blows_up + ends + broken, jnp.zeros_like(x)])


UNIFORM = jnp.array([[1.0, WELL], [5.0, BLOWS_UP], [1.0, ENDS], [0.0, BROKEN]])
HEALTHY = jnp.array([[1.0, WELL], [-0.5, WELL], [3.0, WELL], [2.0, WELL]])
CASES = {
    "dopri5": (Solver(max_steps=256), [OK, STEP_TOO_SMALL, STEP_TOO_SMALL, NOT_FINITE]),
    "few steps": (Solver("tsit5", max_steps=12, checkpoints=4), [OK, TOO_MANY_STEPS, TOO_MANY_STEPS, NOT_FINITE]),
    "rk4": (Solver("rk4", step=0.05, max_steps=32), [OK, NOT_FINITE, NOT_FINITE, NOT_FINITE]),
    "euler": (Solver("euler", step=0.05, max_steps=32, checkpoints=4), [OK, NOT_FINITE, NOT_FINITE, NOT_FINITE]),
}


def has(stats: Stats, expected: list[Status]) -> bool:
    return [stats.message(k) for k in range(len(expected))] == [Status[status] for status in expected]


@eqx.filter_jit
@eqx.filter_value_and_grad(has_aux=True)
def value_and_gradient(queried, solver, early: Array):
    """A loss on the samples that are well, or, where `early`, on what sample 1 reached before it failed."""
    field, h0 = queried
    path = NeuralODE(field, solver)(h0, TIMES)
    return jnp.where(early, path.h[1, 1, 0], jnp.sum(path.finite[..., 0] ** 2)), path


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_failed_samples_fail_alone(case):
    solver, status = CASES[case]
    field = Trouble(jnp.asarray(1.0))
    (value, path), (grad_field, grad_h0) = value_and_gradient((field, UNIFORM), solver, late)
    assert has(path.stats, status)
    np.testing.assert_array_equal(path.stats.failed, [False, True, True, True])
    # NaN exactly where a sample did not come: 5 / (1 - 5 t) ends at 0.2, the next at 0.5, the last never starts.
    reached = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], bool)
    h = np.asarray(path.h)
    if case == "euler":  # its steps run past the end of the world, and only then into infinity
        reached[1, 2] = True
    np.testing.assert_array_equal(np.isfinite(h[..., 0]), reached)
    np.testing.assert_array_equal(np.isnan(h[..., 0]), ~reached)
    np.testing.assert_array_equal(h[:, 0], UNIFORM)
    np.testing.assert_allclose(h[2, :3, 0], [1.0, 1.1, 1.4], rtol=1e-3)
    np.testing.assert_allclose(h[0, :, 0], np.exp(-np.asarray(TIMES)), rtol=0.03 if case == "euler" else 1e-3)

    # The healthy sample is what it is among healthy ones, bit for bit.
    (_, among), _ = value_and_gradient((field, HEALTHY), solver, late)
    assert leaves_equal(
        (path.h[0], path.stats.accepted[0], path.stats.rejected[0]),
        (among.h[0], among.stats.accepted[0], among.stats.rejected[0]),
    )

    # `finite` drops the failed samples from a loss, and from its gradient.
    np.testing.assert_array_equal(path.finite[0], path.h[0])
    np.testing.assert_array_equal(path.finite[1:], 0.0)
    assert float(value) == pytest.approx(float(np.sum(h[0, :, 0] ** 2)))
    fixed = solver.step is not None
    slope = np.sum(2 * h[0, :, 0] * -np.asarray(TIMES) * np.exp(-np.asarray(TIMES)))
    assert float(grad_field.p) == pytest.approx(slope, rel=0.1 if fixed else 1e-3)
    np.testing.assert_array_equal(np.asarray(grad_h0)[1:], 0.0)
    assert np.isfinite(grad_h0).all() and float(grad_h0[0, 0]) > 1


@pytest.mark.slow
def test_all_samples_fail():
    solver, _ = CASES["rk4"]
    (value, path), (grad_field, grad_h0) = value_and_gradient(
        (Trouble(jnp.asarray(1.0)), UNIFORM[jnp.array([3, 3, 1, 1])]), solver, late
    )
    assert np.asarray(path.stats.failed).all() and value == 0
    assert grad_field.p == 0 and not np.asarray(grad_h0).any()


@pytest.mark.slow
def test_what_a_failed_sample_did_reach_has_its_gradient():
    # x(0.1) = x0 / (1 - 0.1 p x0), whatever happens later: d/dp = 0.1 x^2, d/dx0 = (x / x0)^2.
    solver, _ = CASES["few steps"]
    (x, path), (field, h0) = value_and_gradient((Trouble(jnp.asarray(1.0)), UNIFORM), solver, jnp.asarray(True))
    assert float(x) == pytest.approx(10.0, rel=1e-3) and int(path.stats.rejected[1]) > 0
    np.testing.assert_allclose(field.p, 0.1 * 10.0**2, rtol=0.01)
    np.testing.assert_allclose(h0[:, 0], [0.0, 4.0, 0.0, 0.0], rtol=0.01)


@pytest.mark.slow
def test_the_other_gradient_forms_say_so_too():
    ode = NeuralODE(Trouble(jnp.asarray(1.0)), Solver(adjoint="direct", max_steps=64))
    path, among = solve(ode, UNIFORM, TIMES), solve(ode, HEALTHY, TIMES)
    np.testing.assert_array_equal(path.stats.failed, [False, True, True, True])
    np.testing.assert_array_equal(path.stats.evaluations, -1)  # diffrax does not count them
    assert np.isnan(path.h[1, 2:, 0]).all() and np.isfinite(path.h[1, :2, 0]).all()
    assert np.isnan(path.h[2, 3:, 0]).all() and np.isfinite(path.h[2, :3, 0]).all()
    assert leaves_equal(path.h[0], among.h[0])


def test_an_attention_that_blows_up_fails_its_sample():
    ode = CoEvolvingODE(
        lambda t, h: -h,
        lambda t, h: jnp.exp(20 * h),
        Elementwise(),
        lambda h: jnp.zeros_like(h),
        Solver("heun", step=0.1),
    )
    path = solve(ode, jnp.array([[0.1], [1e3]]), jnp.array([0.0, 1.0]))
    assert has(path.stats, [OK, NOT_FINITE])
    assert np.isfinite(path.h[0]).all() and np.isfinite(path.a[0]).all()
    assert np.isnan(path.h[1, 1]).all() and np.isnan(path.a[1, 1]).all()


def test_every_status_has_a_sentence_with_a_fix():
    fixes = {"solved": "solved", "max_steps_reached": "raise max_steps", "step_too_small": "loosen rtol"}
    fixes |= {"not_finite": "lower the learning rate", "bad_times": "sort those of each sample"}
    assert len(Status) == len(fixes)
    for name, fix in fixes.items():
        stats = replace(Stats.none(2), status=status_where(jnp.array([False, True]), getattr(Status, name), OK))
        assert fix in stats.message(1) and stats.message(0) == "solved"


def test_a_status_passes_through_transformations():
    """Compared, chosen and returned inside `jit`, `vmap` and `scan`."""

    @jax.jit
    @jax.vmap
    def solved(x):
        status = status_where(x > 0, OK, NOT_FINITE)
        return status, status == NOT_FINITE

    status, lost = solved(jnp.array([1.0, -1.0]))
    np.testing.assert_array_equal(lost, [False, True])
    np.testing.assert_array_equal(status != OK, [False, True])
    last, _ = jax.lax.scan(lambda s, x: (status_where(x, TOO_MANY_STEPS, s), None), status, jnp.array([[True, False]]))
    np.testing.assert_array_equal(last == TOO_MANY_STEPS, [True, False])


def test_finite_on_states_of_any_shape():
    stats = replace(Stats.none(2), status=status_where(jnp.array([True, False]), OK, NOT_FINITE))
    path = Path(jnp.zeros((2, 1)), jnp.full((2, 1, 3, 4, 4), jnp.nan).at[0].set(2.0), None, stats)
    np.testing.assert_array_equal(path.finite[0], 2.0)
    np.testing.assert_array_equal(path.finite[1], 0.0)


def test_nothing_raises_under_jit():
    # Values are not known there, so nothing is checked; what cannot be solved says so in its status.
    path = solve(NeuralODE(lambda t, h: -h), jnp.array([[jnp.nan], [1.0], [jnp.inf]]), jnp.array([0.0, 1.0]))
    assert has(path.stats, [NOT_FINITE, OK, NOT_FINITE])
    assert np.isfinite(path.h[1]).all() and np.isnan(path.h[::2, 1]).all()
