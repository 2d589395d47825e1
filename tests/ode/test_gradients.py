"""Gradients of fixed steps: that of the steps taken, to rounding. What of a path a loss may use."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import H0, TIMES, assert_matches_differences, gradient
from problems import coevolving

from acenode.ode import Elementwise, NeuralODE, Solver


def fixed(method: str, **options):
    return coevolving(Elementwise(), 2, Solver(method, step=0.1, max_steps=16, checkpoints=2, **options)), H0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "tsit5"])
def test_fixed_steps(method):
    # Coarse steps: the gradient is that of the steps taken, to rounding, however far they are from the ODE. The
    # times lie on steps and between them; ten steps and two checkpoints thin the tape three times.
    assert_matches_differences(fixed(method), 1e-5, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("form, tolerance", [("direct", 1e-10), ("backsolve", 1e-4)])
def test_fixed_steps_of_the_other_forms(form, tolerance):
    # On the steps themselves the two loops do the same arithmetic; backsolve takes its steps again backwards.
    times = jnp.array([[0.0, 0.1, 0.3, 1.0], [0.0, 0.2, 0.8, 0.8]])
    ours, theirs = gradient(fixed("rk4"), times), gradient(fixed("rk4", adjoint=form), times)
    np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_unused_outputs_change_nothing():
    """A loss on one number of h alone, with the attention kept or left out."""
    ode = coevolving(Elementwise(), 2, Solver("euler", step=0.1, max_steps=16))

    @eqx.filter_jit
    @eqx.filter_grad
    def kept(ode, attention):
        return ode(H0, TIMES, attention=attention).h[0, 2, 1]

    with_a, without_a = kept(ode, True), kept(ode, False)
    for one, two in zip(jax.tree.leaves(with_a), jax.tree.leaves(without_a), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
        assert np.abs(one).max() > 0


class Scaled(eqx.Module):
    rate: jax.Array

    def __call__(self, t, h):
        return -self.rate * h


def test_gradient_of_the_first_state_is_passed_through():
    """A loss on h at the first time, and at times that repeat it, reaches h(0) alone."""
    times = jnp.array([[0.0, 0.0, 1.0], [0.5, 0.5, 0.5]])
    weights = np.array([1.0, 10.0, 0.0])[:, None]
    queried = NeuralODE(Scaled(jnp.asarray(1.0)), Solver("euler", step=0.25)), H0
    first = eqx.filter_jit(eqx.filter_grad(lambda queried: jnp.sum(weights * queried[0](queried[1], times).h)))
    ode, h0 = first(queried)
    np.testing.assert_array_equal(h0, 11.0)
    assert ode.f.rate == 0


def test_a_solve_outside_of_jit_is_compiled_once_for_each_field():
    traced = []

    def field(t, h):
        traced.append(t)
        return -h

    ode = NeuralODE(field, Solver("rk4", step=0.5, max_steps=4))
    first = ode(H0, TIMES)
    count = len(traced)
    np.testing.assert_array_equal(ode(H0, TIMES).h, first.h)
    assert len(traced) == count > 0
