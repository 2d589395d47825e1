"""Every ODE answers under JAX's transformations as it does when it is called plainly."""

import functools as ft

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec
from problems import Wave, coevolving, noise

from acenode.ode import AugmentedODE, Elementwise, NeuralODE, Pairwise, ResidualStack, Solver

SIZE, BATCH = 2, 2
H0 = noise(BATCH, SIZE, seed=9)
TIMES = jnp.array([[0.0, 0.3, 1.0], [0.0, 0.5, 0.5]])
solver = Solver("heun", step=0.25, max_steps=4, checkpoints=2)  # stores every second state, recomputes the others


class Block(eqx.Module):
    weight: jax.Array

    def __call__(self, h):
        return jnp.tanh(self.weight @ h)


ODES = {
    "plain": lambda seed: NeuralODE(Wave(SIZE, (SIZE,), seed), solver),
    "augmented": lambda seed: AugmentedODE(Wave(SIZE + 1, (SIZE + 1,), seed), 1, solver),
    "pairwise": lambda seed: coevolving(Pairwise(), SIZE, solver, seed),
    "elementwise": lambda seed: coevolving(Elementwise(), SIZE, solver, seed),
    "residual": lambda seed: ResidualStack([Block(noise(SIZE, SIZE, seed=seed)), Block(noise(SIZE, SIZE, seed=5))]),
}


class Case:
    """Two members of one ODE, their answers to a plain call, and a loss."""

    def __init__(self, name: str):
        self.params, statics = zip(*(eqx.partition(ODES[name](s), eqx.is_inexact_array) for s in (0, 1)), strict=True)
        self.static = statics[0]
        self.plain = [self.answer(params, H0, TIMES) for params in self.params]

    def answer(self, params, h0, times) -> tuple:
        path = eqx.combine(params, self.static)(h0, times)
        return (path.h,) if path.a is None else (path.h, path.a)

    def loss(self, params):
        return sum(jnp.sum(noise(*x.shape, seed=k) * jnp.sin(x)) for k, x in enumerate(self.answer(params, H0, TIMES)))


@pytest.fixture(scope="module", params=ODES)
def case(request) -> Case:
    return Case(request.param)


def stacked(case: Case):
    return jax.tree.map(lambda *members: jnp.stack(members), *case.params)


def ensemble(case: Case, h0, times):
    members = jax.jit(jax.vmap(case.answer, in_axes=(0, None, None)))(stacked(case), h0, times)
    same(jax.tree.map(lambda x: x[1], members), case.plain[1])
    return jax.tree.map(lambda x: x[0], members)


def exported(case: Case, h0, times):
    program = jax.export.export(jax.jit(ft.partial(case.answer, case.params[0])))(h0, times)
    return jax.export.deserialize(program.serialize()).call(h0, times)


def sharded(case: Case, h0, times):
    devices = jax.devices()[:BATCH]
    mesh = jax.make_mesh((len(devices),), ("batch",), axis_types=(AxisType.Auto,), devices=devices)
    everywhere, by_sample = PartitionSpec(), PartitionSpec("batch")
    answer = jax.shard_map(
        case.answer, mesh=mesh, in_specs=(everywhere, by_sample, by_sample), out_specs=by_sample, check_vma=False
    )
    return jax.jit(answer)(case.params[0], h0, times)


TRANSFORMATIONS = {
    "a second call": lambda case, *query: case.answer(case.params[0], *query),
    "jit": lambda case, *query: jax.jit(case.answer)(case.params[0], *query),
    "ensemble": ensemble,
    "export": exported,
    "shard_map": sharded,
}


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_answers(case, transformation):
    same(TRANSFORMATIONS[transformation](case, H0, TIMES), case.plain[0])


@pytest.mark.slow
def test_gradients(case):
    """Against central differences; of each member of an ensemble; with what `jax.checkpoint` computes again."""
    gradient = jax.value_and_grad(case.loss)
    compiled = jax.jit(gradient)
    alone = [compiled(params)[1] for params in case.params]
    direction = jax.tree.map(lambda x: noise(*x.shape, seed=3), case.params[0])
    move = lambda by: jax.tree.map(lambda x, d: x + by * d, case.params[0], direction)  # noqa: E731
    above, below = compiled(move(1e-5))[0], compiled(move(-1e-5))[0]
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), alone[0], direction)))
    assert abs(slope) > 1e-2
    np.testing.assert_allclose(slope, (above - below) / 2e-5, rtol=1e-7)
    _, members = jax.jit(jax.vmap(gradient))(stacked(case))
    same(members, jax.tree.map(lambda *grads: jnp.stack(grads), *alone))
    same(jax.jit(jax.grad(jax.checkpoint(case.loss)))(case.params[0]), alone[0])
