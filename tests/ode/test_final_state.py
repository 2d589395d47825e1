"""Two times, a beginning and an end: nothing is read between the steps, and nothing else is different."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import H0 as PAIR, assert_matches_differences
from jaxtyping import Array
from problems import Wave, coevolving, noise

from acenode.ode import CoEvolvingODE, Elementwise, NeuralODE, Solver
from acenode.ode.solver.adjoint import vjp_evaluations_per_step
from acenode.ode.solver.runge_kutta import METHODS

SOLVERS = {
    "dopri5": Solver(max_steps=32, checkpoints=32),
    "euler": Solver("euler", step=0.1, max_steps=16, checkpoints=16),
    "rk4": Solver("rk4", step=0.1, max_steps=16, checkpoints=16),
    "rk4_38": Solver("rk4_38", step=0.1, max_steps=16, checkpoints=2),  # the backward loop computes states again
}

# --- against three times --------------------------------------------------------------------------------------

# One sample a kind: a long span, another one, none at all, one that fails on its way; the last for comparison.
THREE = jnp.array([[0.0, 0.3, 1.0], [0.2, 0.55, 0.75], [0.5, 0.5, 0.5], [0.0, 0.3, 1.0]])
TWO = THREE[:, ::2]
FAILS = 3
HEALTHY = noise(4, 2)
TROUBLED = HEALTHY.at[FAILS].set(60.0)


class Explosive(eqx.Module):
    """A `Wave`, and for a large state one that grows without bounds, its slopes being infinite in the end."""

    wave: Wave

    def __call__(self, t, h):
        return self.wave(t, h) + jnp.where(h > 10, h, 0.0) ** 3


def explosive(solver: Solver) -> CoEvolvingODE:
    ode = coevolving(Elementwise(), 2, solver)
    return eqx.tree_at(lambda o: o.f, ode, Explosive(ode.f))


@eqx.filter_jit
def gradient_and_ends(ode, h0, times, weight):
    """The gradient of a weighted sum over both ends of h and of a, with a weight a sample, and these ends."""

    def loss(queried):
        ode, h0 = queried
        path = ode(h0, times)
        assert path.a is not None
        ends = [x[:, jnp.array([0, -1])] for x in (path.h, path.a)]
        each = sum(jnp.sum(noise(*x.shape, seed=k) * x, axis=(1, 2)) for k, x in enumerate(ends))
        return jnp.sum(weight * each), (path.h[:, -1], path.a[:, -1], path.stats)

    return eqx.filter_grad(loss, has_aux=True)((ode, h0))


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", SOLVERS)
def test_two_times_are_the_ends_of_three(method):
    ode, everyone = explosive(SOLVERS[method]), jnp.ones(4)
    (grad_ode, grad_h0), (h, a, stats) = gradient_and_ends(ode, TROUBLED, TWO, everyone)
    (known_ode, known_h0), (known_h, known_a, known_stats) = gradient_and_ends(ode, TROUBLED, THREE, everyone)
    assert_same((h, a), (known_h, known_a))
    assert_same(
        (grad_ode.f, grad_ode.g, grad_ode.initial, grad_h0), (known_ode.f, known_ode.g, known_ode.initial, known_h0)
    )
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves((grad_ode, grad_h0)))
    for name in ("accepted", "rejected", "evaluations"):
        np.testing.assert_array_equal(getattr(stats, name), getattr(known_stats, name))
    assert (stats.status == known_stats.status).all()
    for told, times in ((stats, TWO), (known_stats, THREE)):
        np.testing.assert_array_equal(
            told.vjp_evaluations, told.accepted * vjp_evaluations_per_step(METHODS[method], times)
        )

    # An interval of no length: the first state, and the slopes of both ends together.
    assert stats.accepted[2] == stats.vjp_evaluations[2] == 0
    np.testing.assert_array_equal(h[2], TROUBLED[2])
    # A failed sample has no end, and is nothing to the others.
    np.testing.assert_array_equal(stats.failed, np.arange(4) == FAILS)
    assert np.isnan(h[FAILS]).all() and np.isnan(a[FAILS]).all()
    others = everyone.at[FAILS].set(0.0)
    (without_ode, without_h0), _ = gradient_and_ends(ode, TROUBLED, TWO, others)
    (among_ode, among_h0), (among_h, _, _) = gradient_and_ends(ode, HEALTHY, TWO, others)
    assert_same((without_ode, without_h0, h[:FAILS]), (among_ode, among_h0, among_h[:FAILS]))


@pytest.mark.slow
def test_the_gradient_of_three_eighths_steps_is_that_of_differences():
    ode = coevolving(Elementwise(), 2, SOLVERS["rk4_38"])
    assert_matches_differences((ode, PAIR), 1e-5, 1e-8, times=jnp.array([[0.0, 1.0], [0.2, 0.75]]))


# --- vjp_evaluations ------------------------------------------------------------------------------------------------


@jax.custom_vjp
def tracked(x, rate):
    return -rate * x


tracked.calls = 0


def tracked_bwd(kept, grad):
    tracked.calls += 1
    x, rate = kept
    return -rate * grad, -jnp.sum(x * grad)


tracked.defvjp(lambda x, rate: (tracked(x, rate), (x, rate)), tracked_bwd)


class Counted(eqx.Module):
    """A field that counts its vjp_evaluations when they are traced."""

    rate: Array

    def __call__(self, t, h):
        return tracked(h, self.rate)


@pytest.mark.slow
@pytest.mark.parametrize("times, more", [([0.0, 1.0], 0), ([0.0, 0.4, 1.0], 1)], ids=["two times", "three times"])
@pytest.mark.parametrize("method", METHODS)
def test_vjp_evaluations_of_a_step_are_those_made(method, times, more):
    solver, times = Solver(method, step=0.5, max_steps=2, checkpoints=2), jnp.array(times)
    tracked.calls = 0
    # One step is traced, whatever their number.
    eqx.filter_eval_shape(
        eqx.filter_grad(lambda field: NeuralODE(field, solver)(jnp.ones((1, 1)), times).h.sum()),
        Counted(jnp.asarray(1.0)),
    )
    stages = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, "rk4_38": 4, "dopri5": 6, "tsit5": 6}[method]
    # Reading between the steps takes the slope at the end as well, but for straight lines.
    expected = stages + more * (method != "euler")
    assert tracked.calls == vjp_evaluations_per_step(METHODS[method], times[None]) == expected
