"""Gradients: every form against central differences and against each other, for f, g, q and h(0)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import coevolving, noise

from acenode.ode import Elementwise, NeuralODE, Pairwise, Solver

# Two samples with their own times; the second row ends in padding.
TIMES = jnp.array([[0.0, 0.3, 0.45, 1.0], [0.0, 0.2, 0.8, 0.8]])
H0 = jnp.array([[0.5, -1.0], [1.5, 0.25]])
FINE = {"rtol": 1e-10, "atol": 1e-11}


def loss_and_steps(asked, times):
    """Weights on h and on a, at all times and different everywhere."""
    ode, h0 = asked
    path = ode(h0, times)
    value = jnp.sum(noise(*path.h.shape) * jnp.sin(path.h))
    if path.a is not None:
        value += jnp.sum(noise(*path.a.shape, seed=1) * jnp.cos(path.a))
    return value, path.stats.steps


value_and_gradient = eqx.filter_value_and_grad(loss_and_steps, has_aux=True)
compiled = eqx.filter_jit(value_and_gradient)


def gradient(asked, times=TIMES) -> np.ndarray:
    return np.asarray(ravel_pytree(compiled(asked, times)[1])[0])


def assert_matches_differences(asked, step: float, tolerance: float, times=TIMES):
    """The slope along two random directions of f's, g's and q's parameters and of h(0), each on its own."""
    moving, still = eqx.partition(asked, eqx.is_inexact_array)
    point, back = ravel_pytree(moving)
    found = gradient(asked, times)

    def value(p):
        return float(compiled(eqx.combine(back(jnp.asarray(p)), still), times)[0][0])

    groups = {"f": lambda a: a[0].f, "g": lambda a: a[0].g, "q": lambda a: a[0].initial, "h0": lambda a: a[1]}
    for name, where in groups.items():
        inside = eqx.tree_at(where, jax.tree.map(np.zeros_like, moving), jax.tree.map(np.ones_like, where(moving)))
        for seed in range(2):
            direction = np.asarray(ravel_pytree(inside)[0]) * np.asarray(noise(point.size, seed=seed))
            slope = (value(point + step * direction) - value(point - step * direction)) / (2 * step)
            assert abs(slope) > 1e-3, f"{name}: nothing to compare"
            assert found @ direction == pytest.approx(slope, rel=tolerance, abs=tolerance), name


def test_every_form_with_adaptive_steps():
    def asked(**options):
        return coevolving(Pairwise(), 2, Solver(**FINE, **options)), H0

    assert_matches_differences(asked(checkpoints=4), 1e-4, 1e-6)
    few = gradient(asked(checkpoints=4))
    many = gradient(asked(max_steps=256, checkpoints=256))
    direct = gradient(asked(gradient="direct", max_steps=64))
    back = gradient(asked(gradient="backsolve"))
    scale = np.abs(few).max()
    np.testing.assert_allclose(many, few, atol=1e-13 * scale)
    np.testing.assert_allclose(direct, few, atol=1e-7 * scale)
    np.testing.assert_allclose(back, few, atol=1e-7 * scale)


def fixed(method: str, **options):
    return coevolving(Elementwise(), 2, Solver(method, step=0.1, max_steps=16, checkpoints=2, **options)), H0


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "tsit5"])
def test_fixed_steps(method):
    # Coarse steps: the gradient is that of the steps taken, to rounding, however far they are from the ODE. The
    # times lie on steps and between them; ten steps and two checkpoints thin the tape three times.
    assert_matches_differences(fixed(method), 1e-5, 1e-8)


@pytest.mark.parametrize("form, tolerance", [("direct", 1e-10), ("backsolve", 1e-4)])
def test_fixed_steps_of_the_other_forms(form, tolerance):
    # On the steps themselves the two loops do the same arithmetic; backsolve takes its steps again backwards.
    times = jnp.array([[0.0, 0.1, 0.3, 1.0], [0.0, 0.2, 0.8, 0.8]])
    ours, theirs = gradient(fixed("rk4"), times), gradient(fixed("rk4", gradient=form), times)
    np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance)


def test_an_ensemble_member_has_the_gradient_it_has_alone():
    # Members of different stiffness take different numbers of steps; the tape is thinned for all together.
    solver = Solver(**FINE, checkpoints=4)
    members = [coevolving(Pairwise(), 2, solver, seed) for seed in range(3)]
    members[1] = eqx.tree_at(lambda m: m.f.weight, members[1], replace_fn=lambda w: 5 * w)
    stacked = jax.tree.map(lambda *w: jnp.stack(w) if eqx.is_array(w[0]) else w[0], *members)
    each = eqx.filter_vmap(lambda ode: value_and_gradient((ode, H0), TIMES))
    (values, steps), grads = eqx.filter_jit(each)(stacked)
    assert len({int(s.max()) for s in np.asarray(steps)}) == 3
    for k, member in enumerate(members):
        (value, alone), grad = compiled((member, H0), TIMES)
        np.testing.assert_array_equal(steps[k], alone)
        np.testing.assert_allclose(values[k], value, rtol=1e-12)
        for together, single in zip(jax.tree.leaves(grads), jax.tree.leaves(grad), strict=True):
            np.testing.assert_allclose(together[k], single, rtol=1e-9, atol=1e-12)


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
    asked = NeuralODE(Scaled(jnp.asarray(1.0)), Solver("euler", step=0.25)), H0
    first = eqx.filter_jit(eqx.filter_grad(lambda asked: jnp.sum(weights * asked[0](asked[1], times).h)))
    ode, h0 = first(asked)
    np.testing.assert_array_equal(h0, 11.0)
    assert ode.f.rate == 0


def test_a_field_may_close_over_traced_values_but_not_be_differentiated_in_them():
    """`lambda t, h: -rate * h`: its path is right under `jit`; its gradient is refused, never silently zero."""

    def value(rate):
        return NeuralODE(lambda t, h: -rate * h, Solver("rk4", step=0.1, max_steps=16))(H0, TIMES).h[0, -1, 0]

    np.testing.assert_allclose(jax.jit(value)(1.0), 0.5 * np.exp(-1.0), rtol=1e-5)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        jax.grad(value)(1.0)
