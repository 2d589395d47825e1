"""The paper's gradient for theta_f (Equation 7): the attention counts as a given function of time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Wave, coevolving, noise

from acenode.ode import CoEvolvingODE, Elementwise, Identity, NeuralODE, Pairwise, Solver, VectorField
from acenode.train.groups import hold_attention

SIZE = 2
TIMES = jnp.array([[0.0, 0.3, 0.45, 1.0], [0.0, 0.2, 0.8, 0.8]])
H0 = jnp.array([[0.5, -1.0], [1.5, 0.25]])
solver = Solver("heun", step=0.1, max_steps=16)
quick = Solver("euler", step=0.1, max_steps=16)


@eqx.filter_jit
@eqx.filter_value_and_grad
def value_and_gradient(queried):
    ode, h0 = queried
    path = ode(h0, TIMES)
    return jnp.sum(noise(*path.h.shape) * jnp.sin(path.h)) + jnp.sum(noise(*path.a.shape, seed=1) * jnp.cos(path.a))


def largest(tree) -> float:
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


class GivenAttention(eqx.Module):
    """h, driven by f and by the attention of a second pair (h, a), which moves by fields of its own.

    The state is one vector: h, then the other pair's h and a. To the first h, a(t) is an external function of time.
    """

    f: Wave
    other_f: Wave
    other_g: Wave
    attention: Pairwise | Elementwise

    def __call__(self, t, y):
        h, other, a = y[:SIZE], y[SIZE : 2 * SIZE], y[2 * SIZE :].reshape(self.attention.shape((SIZE,)))
        seen = self.attention(other, a)
        return jnp.concatenate([self.f(t, self.attention(h, a)), self.other_f(t, seen), self.other_g(t, seen).ravel()])


@pytest.mark.slow
def test_it_is_the_gradient_for_an_attention_given_from_outside():
    attention = Pairwise()
    ode = coevolving(attention, SIZE, solver)
    _, (held, held_h0) = value_and_gradient((hold_attention(ode), H0))

    @eqx.filter_jit
    @eqx.filter_grad
    def external(queried):
        field, h0 = queried
        y0 = jnp.concatenate([h0, H0, ode.initial(H0).reshape(2, -1)], axis=1)
        h = NeuralODE(GivenAttention(field, ode.f, ode.g, attention), solver)(y0, TIMES).h[..., :SIZE]
        return jnp.sum(noise(*h.shape) * jnp.sin(h))

    known, known_h0 = external((ode.f, H0))
    for one, two in zip(jax.tree.leaves(held.f), jax.tree.leaves(known), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10)
    np.testing.assert_allclose(held_h0, known_h0, rtol=1e-10)


@pytest.mark.slow
def test_it_differs_from_the_exact_one_and_leaves_g_and_q_alone():
    value, (exact, exact_h0) = value_and_gradient((coevolving(Pairwise(), SIZE, solver), H0))
    same, (held, held_h0) = value_and_gradient((coevolving(Pairwise(), SIZE, solver, hold_attention=True), H0))
    assert float(same) == pytest.approx(float(value), rel=1e-14)  # holding changes no value
    assert largest(exact.g) > 1e-2 and largest(exact.initial) > 1e-2
    for leaf in jax.tree.leaves((held.g, held.initial)):
        np.testing.assert_array_equal(leaf, 0.0)
    for one, two in ((exact.f.weight, held.f.weight), (exact_h0, held_h0)):
        assert largest(two) > 1e-2 and np.abs(np.asarray(one - two)).max() > 1e-2


@pytest.mark.slow
def test_frozen_attention_passes_its_gradient_to_q_unless_held():
    ode = coevolving(Pairwise(), SIZE, quick, evolution="frozen")
    assert largest(value_and_gradient((ode, H0))[1][0].initial) > 1e-2
    assert largest(value_and_gradient((hold_attention(ode), H0))[1][0].initial) == 0.0


class Relax(VectorField):
    rate: jax.Array
    takes = ("attended", "attention")

    def __call__(self, t, h, a):
        return -self.rate * a * h


def test_a_field_that_sees_the_attention_is_held_too():
    ode = CoEvolvingODE(Wave(SIZE, (SIZE,)), Relax(jnp.ones(SIZE)), Pairwise(), Identity(1.0), quick)
    _, (held, _) = value_and_gradient((hold_attention(ode), H0))
    assert largest(held.g) == 0.0 and largest(held.f) > 1e-2
