"""Trajectories that cross, the paper's Figure 2: two points on a line that must swap places.

A plain neural ODE cannot do it: two paths of one equation `dh/dt = f(t, h)` on a line never meet, so they keep their
order, and of all pairs of ends in the right order the best is both half way: an MSE of (distance / 2)^2.

An attention lets them cross, because f sees `h'' = h sigmoid(a)` and two points at one h may have two a. But
sigmoid(a) is positive: h'' has the sign of h, and at h = 0 it is 0 whatever a is. Two points that both have to pass
zero, one up and one down, then need `f(0)` positive and negative. So -1 and 1 swap only by an f that knows the time,
and passes them through zero one after the other; without it one of them stays on its side, at an MSE of 1/2 or more.
For points on one side of zero, such as 1 and 2, an f without time is enough.
"""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from acenode.ode import AugmentedODE, CoEvolvingODE, Elementwise, MLPField, NeuralODE, Solver

SEEDS, UPDATES = 3, 300
TIMES = jnp.array([0.0, 1.0])
PLACES = jnp.array([[-1.0, 1.0], [1.0, 2.0]])  # two problems: the points that are to swap
solver = Solver("heun", step=0.1, max_steps=16, checkpoints=16)
field = ft.partial(MLPField, width=16, hidden=1)


class Gate(eqx.Module):
    """a(0) = w h(0) + b: tells the points apart."""

    w: Array
    b: Array

    def __call__(self, h0):
        return self.w * h0 + self.b


def plain(key):
    return NeuralODE(field(1, timed=True, key=key), solver)


def augmented(key):
    return AugmentedODE(field(2, timed=True, key=key), 1, solver)


def coevolving(key, timed: bool):
    one, two = jax.random.split(key)
    gate = Gate(jnp.asarray(4.0), jnp.asarray(0.0))
    return CoEvolvingODE(field(1, timed=timed, key=one), field(1, key=two), Elementwise(), gate, solver)


def learn(make, places: Array, seed: Array) -> Array:
    """The loss of every update of a model that learns to swap `places`."""
    params, static = eqx.partition(make(jax.random.key(seed)), eqx.is_inexact_array)
    adam = optax.adam(0.05)

    def loss(params):
        path = eqx.combine(params, static)(places[:, None], TIMES)
        return jnp.mean((path.h[:, -1, 0] - places[::-1]) ** 2)

    def update(carry, _):
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    return jax.lax.scan(update, (params, adam.init(params)), None, length=UPDATES)[1]


def losses(make) -> np.ndarray:
    """Of both problems, of every seed, of every update: one program."""
    each = jax.vmap(jax.vmap(ft.partial(learn, make), in_axes=(None, 0)), in_axes=(0, None))
    return np.asarray(jax.jit(each)(PLACES, jnp.arange(SEEDS)))


@pytest.mark.slow
def test_a_plain_ode_keeps_the_order():
    found = losses(plain)
    bound = np.array([1.0, 0.25])[:, None]
    assert (found.min(axis=2) >= 0.999 * bound).all()
    np.testing.assert_allclose(found[:, :, -1], np.broadcast_to(bound, (2, SEEDS)), rtol=0.05)  # it did learn that


@pytest.mark.slow
@pytest.mark.parametrize("make", [augmented, ft.partial(coevolving, timed=True)], ids=["augmented", "co-evolving"])
def test_more_dimensions_and_attention_cross(make):
    # Both points half way is a saddle that a seed can be slow to leave; that one of three crosses says they can.
    found = np.median(losses(make)[:, :, -20:], axis=2)
    assert (found.min(axis=1) < 0.05).all()


@pytest.mark.slow
def test_without_time_an_attention_crosses_on_one_side_of_zero_only():
    around_zero, one_side = losses(ft.partial(coevolving, timed=False))
    assert around_zero.min() >= 0.5
    assert np.median(one_side[:, -20:], axis=1).min() < 0.05
