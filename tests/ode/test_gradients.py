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


def flat_gradient(asked, times=TIMES) -> np.ndarray:
    return np.asarray(ravel_pytree(compiled(asked, times)[1])[0])


def differences(asked, step: float, times=TIMES) -> np.ndarray:
    """Central differences in every parameter and every entry of h(0), all in one call."""
    moving, still = eqx.partition(asked, eqx.is_inexact_array)
    point, back = ravel_pytree(moving)
    shifts = step * np.eye(point.size)
    each = eqx.filter_jit(jax.vmap(lambda p: loss_and_steps(eqx.combine(back(p), still), times)[0]))
    up, down = np.split(np.asarray(each(np.concatenate([point + shifts, point - shifts]))), 2)
    return (up - down) / (2 * step)


def parts(asked, flat) -> dict[str, np.ndarray]:
    """The flat gradient again as those of f, g, q and h(0)."""
    ode, h0 = ravel_pytree(eqx.filter(asked, eqx.is_inexact_array))[1](jnp.asarray(flat))
    trees = {"f": ode.f, "g": ode.g, "q": ode.initial, "h0": h0}
    return {name: np.asarray(ravel_pytree(tree)[0]) for name, tree in trees.items()}


def test_every_form_with_adaptive_steps(key):
    def asked(**options):
        return coevolving(Pairwise(), 2, Solver(**FINE, **options), key=key), H0

    known = differences(asked(), 1e-4)
    for name, part in parts(asked(), known).items():
        assert np.abs(part).min() > 1e-5, name  # nothing to be compared is zero
    many = flat_gradient(asked(max_steps=256, checkpoints=256))
    few = flat_gradient(asked(checkpoints=4))
    direct = flat_gradient(asked(gradient="direct", max_steps=64))
    back = flat_gradient(asked(gradient="backsolve"))
    scale = np.abs(known).max()
    for form in (many, few, direct, back):
        np.testing.assert_allclose(form, known, atol=1e-6 * scale)
    np.testing.assert_allclose(few, many, atol=1e-13 * scale)
    np.testing.assert_allclose(direct, many, atol=1e-7 * scale)
    np.testing.assert_allclose(back, many, atol=1e-7 * scale)


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun", "rk4", "rk4_38", "dopri5", "tsit5"])
def test_fixed_steps(method, key):
    # Coarse steps: the gradient is that of the steps taken, to rounding, however far they are from the ODE. The
    # times lie on steps and between them; ten steps and two checkpoints thin the tape three times.
    asked = coevolving(Elementwise(), 2, Solver(method, step=0.1, max_steps=16, checkpoints=2), key=key), H0
    np.testing.assert_allclose(flat_gradient(asked), differences(asked, 1e-5), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("method, form", [("rk4", "direct"), ("rk4_38", "backsolve"), ("heun", "direct")])
def test_fixed_steps_of_the_other_forms(method, form, key):
    # On the steps themselves the two loops do the same arithmetic; backsolve takes its steps again backwards.
    def asked(**options):
        return coevolving(Elementwise(), 2, Solver(method, step=0.1, max_steps=16, **options), key=key), H0

    times = jnp.array([[0.0, 0.1, 0.3, 1.0], [0.0, 0.2, 0.8, 0.8]])
    ours, theirs = flat_gradient(asked(), times), flat_gradient(asked(gradient=form), times)
    np.testing.assert_allclose(theirs, ours, rtol=1e-10 if form == "direct" else 1e-3, atol=1e-3 * (form != "direct"))


def test_an_ensemble_member_has_the_gradient_it_has_alone(key):
    # Members of different stiffness take different numbers of steps; the tape is thinned for all together.
    solver = Solver("tsit5", rtol=1e-6, atol=1e-7, checkpoints=4)
    members = [coevolving(Pairwise(), 2, solver, key=k) for k in jax.random.split(key, 3)]
    members[1] = eqx.tree_at(lambda m: m.f.weight, members[1], replace_fn=lambda w: 10 * w)
    stacked = jax.tree.map(lambda *w: jnp.stack(w) if eqx.is_array(w[0]) else w[0], *members)
    each = eqx.filter_vmap(lambda ode: value_and_gradient((ode, H0), TIMES))
    (values, steps), grads = eqx.filter_jit(each)(stacked)
    assert len(set(np.asarray(steps).sum(axis=1).tolist())) == 3
    for k, member in enumerate(members):
        (value, alone), grad = compiled((member, H0), TIMES)
        np.testing.assert_array_equal(steps[k], alone)
        np.testing.assert_allclose(values[k], value, rtol=1e-12)
        for together, single in zip(jax.tree.leaves(grads), jax.tree.leaves(grad), strict=True):
            np.testing.assert_allclose(together[k], single, rtol=1e-9, atol=1e-12)


def test_unused_outputs_cost_nothing_and_change_nothing(key):
    """A loss on h alone, with the attention kept or left out, and on one time of one sample."""
    ode = coevolving(Elementwise(), 2, Solver("heun", step=0.1, max_steps=16), key=key)

    @eqx.filter_jit
    @eqx.filter_grad
    def kept(ode, attention):
        return ode(H0, TIMES, attention=attention).h[0, 2, 1]

    with_a, without_a = kept(ode, True), kept(ode, False)
    for one, two in zip(jax.tree.leaves(with_a), jax.tree.leaves(without_a), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
        assert np.abs(one).max() > 0


def test_gradient_of_the_first_state_is_passed_through():
    """A loss on h at the first time, and at times that repeat it, reaches h(0) alone."""

    class Scaled(eqx.Module):
        rate: jax.Array

        def __call__(self, t, h):
            return -self.rate * h

    times = jnp.array([[0.0, 0.0, 1.0], [0.5, 0.5, 0.5]])

    @eqx.filter_jit
    @eqx.filter_grad
    def first(asked):
        ode, h0 = asked
        return jnp.sum(jnp.array([1.0, 10.0, 0.0])[:, None] * ode(h0, times).h)

    ode, h0 = first((NeuralODE(Scaled(jnp.asarray(1.0)), Solver("rk4", step=0.25)), H0))
    np.testing.assert_array_equal(h0, 11.0)
    assert ode.f.rate == 0


def test_a_field_may_close_over_traced_values_but_not_be_differentiated_in_them():
    """`lambda t, h: -rate * h`: its path is right under `jit`; its gradient is refused, never silently zero."""

    def value(rate):
        return NeuralODE(lambda t, h: -rate * h, Solver("rk4", step=0.1, max_steps=16))(H0, TIMES).h[0, -1, 0]

    np.testing.assert_allclose(jax.jit(value)(1.0), 0.5 * np.exp(-1.0), rtol=1e-5)
    with pytest.raises(Exception, match="(?i)trace"):
        jax.grad(value)(1.0)
