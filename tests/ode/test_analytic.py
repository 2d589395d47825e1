"""Systems whose path is known: closed forms, an invariant, and an independent integrator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import coevolving, decay, solve, still
from scipy.integrate import solve_ivp

from acenode.ode import CoEvolvingODE, Elementwise, Identity, NeuralODE, Pairwise, Solver, VectorField

tight = Solver(rtol=1e-9, atol=1e-10)
small = Solver("rk4", step=0.01)  # as good here, and quicker to compile
exact = {"rtol": 1e-7, "atol": 1e-8}


def test_exponential_decay():
    h0 = jnp.array([[1.0, -2.0], [0.5, 3.0]])
    times = jnp.array([0.0, 0.1, 0.7, 2.0])
    path = solve(NeuralODE(decay, tight), h0, times)
    assert path.a is None
    np.testing.assert_array_equal(path.times, np.broadcast_to(times, (2, 4)))
    np.testing.assert_allclose(path.h, h0[:, None] * jnp.exp(-times)[:, None], **exact)


def test_one_dimension_attends_to_itself_alone():
    # softmax of one number is 1, so h' = h: dh/dt = -h and da/dt = h, whatever a is.
    h0, times = jnp.array([[2.0], [-1.0]]), jnp.array([0.0, 0.5, 3.0])
    ode = CoEvolvingODE(decay, lambda t, h: h[:, None], Pairwise(), lambda h: 7.0 + h[:, None], small)
    path = solve(ode, h0, times)
    fallen = jnp.exp(-times)
    np.testing.assert_allclose(path.h[..., 0], h0 * fallen, **exact)
    np.testing.assert_allclose(path.a[..., 0, 0], 7.0 + h0 + h0 * (1 - fallen), **exact)


def test_pairwise_antisymmetric_pair():
    # h = (x, -x) and a = [[d, 0], [0, d]] give h' = (x, -x) tanh(d / 2). With d = 2 (u + r t), dh/dt = k h':
    # x(t) = x(0) (cosh(u + r t) / cosh(u)) ** (k / r).
    k, r, u = -1.3, 0.8, jnp.array([0.2, -0.5])
    ode = CoEvolvingODE(
        lambda t, h: k * h,
        lambda t, h: 2 * r * jnp.eye(2),
        Pairwise(),
        lambda h: 2 * u[:, None, None] * jnp.eye(2),
        small,
    )
    times = jnp.array([0.0, 0.4, 1.0, 1.5])
    path = solve(ode, jnp.array([[1.0, -1.0], [-0.6, 0.6]]), times)
    x = jnp.array([[1.0], [-0.6]]) * (jnp.cosh(u[:, None] + r * times) / jnp.cosh(u)[:, None]) ** (k / r)
    np.testing.assert_allclose(path.h, jnp.stack([x, -x], axis=-1), **exact)
    np.testing.assert_allclose(path.a[:, :, 0, 0], 2 * (u[:, None] + r * times), **exact)
    np.testing.assert_allclose(path.a[:, :, 0, 1], 0.0, atol=1e-12)


def test_low_temperature_concentrates_the_pair():
    # The same pair with a constant attention: dh/dt = -tanh(scale * d / 2) h.
    ode = CoEvolvingODE(decay, lambda t, h: jnp.zeros((2, 2)), Pairwise(temperature=1 / 3), Identity(0.4), small)
    path = solve(ode, jnp.array([[1.0, -1.0]]), jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(path.h[0, 1], np.exp(-np.tanh(0.6)) * np.array([1.0, -1.0]), **exact)


def test_elementwise_with_a_moving_attention():
    # da/dt = c and dh/dt = -k h sigmoid(a): h(t) = h(0) exp(-k/c (softplus(a(t)) - softplus(a(0)))).
    k, c = 1.5, jnp.array([2.0, -1.0])
    ode = CoEvolvingODE(lambda t, h: -k * h, lambda t, h: c, Elementwise(), lambda h: 0.3 * h, small)
    h0, times = jnp.array([[1.0, 2.0], [-1.0, 0.5]]), jnp.array([0.0, 0.3, 1.1])
    path = solve(ode, h0, times)
    a = 0.3 * h0[:, None] + c * times[:, None]
    np.testing.assert_allclose(path.a, a, **exact)
    fall = -k / c * (jax.nn.softplus(a) - jax.nn.softplus(0.3 * h0)[:, None])
    np.testing.assert_allclose(path.h, h0[:, None] * jnp.exp(fall), **exact)


@pytest.mark.parametrize("solver", [Solver("euler", step=0.2), Solver(rtol=1e-2, atol=1e-2)], ids=["euler", "dopri5"])
def test_both_fields_see_the_same_attended_state(solver):
    # dh/dt = 2 h'' and da/dt = 3 h'': every Runge-Kutta method keeps 3 h - 2 a, however coarse it is.
    ode = CoEvolvingODE(lambda t, h: 2 * h, lambda t, h: 3 * h, Elementwise(), lambda h: jnp.cos(h), solver)
    h0 = jnp.array([[0.4, -1.0]])
    path = solve(ode, h0, jnp.linspace(0, 1, 6))
    assert float(jnp.abs(path.h[0, -1] - h0[0]).min()) > 0.1
    np.testing.assert_allclose(3 * path.h - 2 * path.a, (3 * h0 - 2 * jnp.cos(h0))[:, None].repeat(6, 1), rtol=1e-12)


def test_a_field_that_sees_the_attention_relaxes_it():
    class Relax(VectorField):
        takes = ("attended", "attention")

        def __call__(self, t, h, a):
            return -2 * a + h[:, None] * 0

    times = jnp.array([0.0, 0.5, 1.0])
    path = solve(CoEvolvingODE(still, Relax(), Pairwise(), Identity(4.0), small), jnp.ones((1, 2)), times)
    np.testing.assert_allclose(path.a[0], 4.0 * jnp.exp(-2 * times)[:, None, None] * jnp.eye(2), **exact)


@pytest.mark.parametrize("attention", [Pairwise(), Elementwise()], ids=["pairwise", "elementwise"])
def test_against_an_independent_integrator(attention):
    """A nonlinear, timed system, with Equation 4 or 5 written as loops and solved by another library."""
    size = 3
    ode = coevolving(attention, size, tight if isinstance(attention, Pairwise) else small)
    h0 = jnp.array([[1.0, -0.5, 0.25], [0.1, 0.9, -2.0]])
    times = jnp.array([0.5, 0.9, 1.7, 2.5])
    path = solve(ode, h0, times)

    def wave(field, t, h):
        w, b = np.asarray(field.weight), np.asarray(field.bias)
        return np.array(
            [np.tanh(sum(w[i, j] * h[j] for j in range(size)) + b[i] * np.sin(3 * t)) for i in range(len(b))]
        )

    def right_hand_side(t, y):
        h, a = y[:size], y[size:]
        if isinstance(attention, Pairwise):
            e = np.exp(a.reshape(size, size))
            seen = np.array([sum(e[i, j] / e[i].sum() * h[j] for j in range(size)) for i in range(size)])
        else:
            seen = h / (1 + np.exp(-a))
        return np.concatenate([wave(ode.f, t, seen), wave(ode.g, t, seen)])

    for k in range(2):
        a0 = np.sin(np.asarray(ode.initial.weight) @ np.asarray(h0[k]))
        y0 = np.concatenate([h0[k], a0])
        known = solve_ivp(right_hand_side, (0.5, 2.5), y0, "DOP853", np.asarray(times), rtol=1e-11, atol=1e-12).y.T
        np.testing.assert_allclose(path.h[k], known[:, :size], **exact)
        np.testing.assert_allclose(path.a[k].reshape(len(times), -1), known[:, size:], **exact)


@pytest.mark.slow
def test_leaving_the_attention_out_changes_nothing_else():
    ode = coevolving(Pairwise(), 2, Solver("heun", step=0.1))
    h0, times = jnp.array([[1.0, -0.5]]), jnp.array([0.0, 0.6, 1.0])
    full = solve(ode, h0, times)
    lean = jax.jit(lambda h0: ode(h0, times, attention=False))(h0)
    assert lean.a is None
    np.testing.assert_allclose(lean.h, full.h, rtol=1e-13)
    np.testing.assert_array_equal(lean.stats.accepted, full.stats.accepted)
