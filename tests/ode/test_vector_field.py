"""What a vector field may be: a function that closes over arrays, a module, a module that couples the batch."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import decay, noise

from acenode.ode import BatchCoupled, CoEvolvingODE, Elementwise, NeuralODE, Solver, Zeros
from acenode.ode.solver import SAMPLES

H0 = jnp.array([[0.5, -1.0], [1.5, 0.25]])
TIMES = jnp.array([[0.0, 0.3, 1.0], [0.0, 0.2, 0.8]])


class Decay(eqx.Module):
    rate: jax.Array

    def __call__(self, t, h):
        return -self.rate * jnp.sin(h)


def eager(function):
    return jax.grad(function, argnums=(0, 1))


def jit_inside(function):
    return jax.grad(jax.jit(function), argnums=(0, 1))


def jit_outside(function):
    return jax.jit(jax.grad(function, argnums=(0, 1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "adjoint, differentiated",
    [("checkpointed", eager), ("checkpointed", jit_inside), ("checkpointed", jit_outside), ("backsolve", jit_inside)],
)
def test_closed_over_arrays_have_the_gradient_of_fields(adjoint, differentiated):
    solver = Solver("rk4", step=0.1, max_steps=16)

    def closed(rate, h0):
        ode = NeuralODE(lambda t, h: -rate * jnp.sin(h), replace(solver, adjoint=adjoint))
        return jnp.sum(ode(h0, TIMES).h ** 2)

    def explicit(rate, h0):
        return jnp.sum(NeuralODE(Decay(rate), solver)(h0, TIMES).h ** 2)

    given = jnp.asarray(0.7), H0
    found, known = differentiated(closed)(*given), jit_outside(explicit)(*given)
    assert abs(known[0]) > 0.1
    tolerance = 1e-10 if adjoint == "checkpointed" else 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance), found, known)


@pytest.mark.slow
def test_a_gradient_of_a_closed_over_array_alone():
    """No argument of the solve is traced by itself."""

    def last(rate):
        return NeuralODE(lambda t, h: -rate * h, Solver("rk4", step=0.1, max_steps=16))(H0, TIMES).h[0, -1, 0]

    np.testing.assert_allclose(jax.grad(last)(1.0), -0.5 * np.exp(-1.0), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(last)(1.0), 0.5 * np.exp(-1.0), rtol=1e-5)


class ToTheMean(BatchCoupled):
    rate: object

    def __call__(self, t, h):
        rate = self.rate() if callable(self.rate) else self.rate
        return rate * (jax.lax.pmean(h, SAMPLES) - h)


def coupled(rate, h0, adjoint="checkpointed"):
    solver = Solver("rk4", step=0.05, max_steps=32, adjoint=adjoint)
    return NeuralODE(ToTheMean(rate), solver)(h0, jnp.array([0.0, 0.4, 1.0])).h


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", ["checkpointed", "direct"])
def test_a_part_of_a_field_may_couple_the_batch(adjoint):
    # The mean m is constant: h(t) = m + (h(0) - m) exp(-rate t).
    rate, mean, times = jnp.asarray(1.3), H0.mean(axis=0), np.array([0.0, 0.4, 1.0])[:, None]
    expected = mean + (H0 - mean)[:, None] * np.exp(-1.3 * times)

    def last(rate):
        h = coupled(rate, H0, adjoint)
        return h[0, -1, 0], h

    slope, h = jax.jit(jax.grad(last, has_aux=True))(rate)
    np.testing.assert_allclose(h, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slope, -(H0 - mean)[0, 0] * np.exp(-1.3), rtol=1e-5)


def test_the_gradient_of_a_coupled_field_reaches_finished_samples():
    """A sample that has reached its end still counts in the mean, and so in the gradient of the others."""
    times = jnp.array([[0.0, 0.5, 1.0], [0.0, 0.15, 0.3], [0.0, 0.2, 0.65], [0.0, 0.0, 0.0]])
    ode = NeuralODE(ToTheMean(jnp.asarray(1.3)), Solver("midpoint", step=0.1, max_steps=16, checkpoints=2))

    @jax.jit
    @jax.value_and_grad
    def value_and_gradient(h0):
        h = ode(h0, times).h
        return jnp.sum(noise(*h.shape) * jnp.sin(h))

    h0 = noise(4, 2, seed=1)
    _, found = value_and_gradient(h0)
    for k in range(4):
        up, down = (value_and_gradient(h0.at[k, 0].add(shift))[0] for shift in (1e-5, -1e-5))
        np.testing.assert_allclose(found[k, 0], (up - down) / 2e-5, rtol=1e-7)


class AroundTheMean(Elementwise, BatchCoupled):
    def __call__(self, h, a):
        return h - jax.lax.pmean(h, SAMPLES)


def test_an_attention_may_couple_the_batch_too():
    solver, times = Solver("rk4", step=0.05, max_steps=32), jnp.array([0.0, 0.4, 1.0])
    h = CoEvolvingODE(decay, None, AroundTheMean(), Zeros((2,)), solver, "frozen")(H0, times).h
    mean = H0.mean(axis=0)
    np.testing.assert_allclose(h, mean + (H0 - mean)[:, None] * np.exp(-times)[:, None], rtol=1e-6, atol=1e-6)


def test_a_coupled_field_keeps_its_arrays_as_fields():
    with pytest.raises(ValueError, match="BatchCoupled and closes over traced arrays: make its functions equinox.Mod"):
        jax.grad(lambda rate: coupled(lambda: rate, H0).sum())(jnp.asarray(1.3))


def test_a_field_that_is_not_declared_coupled_has_no_batch():
    with pytest.raises(NameError, match="BatchCoupled"):
        NeuralODE(lambda t, h: jax.lax.pmean(h, SAMPLES) - h)(H0, TIMES)
