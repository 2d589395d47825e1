"""Every ODE answers under JAX's transformations as it does when it is called plainly, and can be saved."""

import functools as ft
import io

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec
from problems import Wave, coevolving, noise

from acenode.ode import (
    AugmentedODE,
    CoEvolvingODE,
    ConditionedGRUField,
    ConvField,
    ConvInitial,
    Correlation,
    DeltaRule,
    Dense,
    Elementwise,
    FastWeights,
    GRUField,
    LeastSquares,
    LeastSquaresField,
    LeastSquaresInitial,
    MessageField,
    NeuralODE,
    Pairwise,
    Residual,
    ResidualStack,
    Signed,
    Solver,
    Zeros,
    pairwise_field,
)
from acenode.ode.pairwise_fields import QueryKey

SIZE, BATCH, ROWS = 2, 2, (2, 2)
TIMES = jnp.array([[0.0, 0.3, 1.0], [0.0, 0.5, 0.5]])
solver = Solver("heun", step=0.25, max_steps=4, checkpoints=2)  # stores every second state, recomputes the others


class Block(eqx.Module):
    weight: jax.Array

    def __call__(self, h):
        return jnp.tanh(self.weight @ h)


def keys(seed: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), 3)


def signed(seed: int) -> CoEvolvingODE:
    one, two, three = keys(seed)
    f, g = MessageField(ROWS, 3, key=one), QueryKey(ROWS, key=two)
    return CoEvolvingODE(f, g, Signed(ROWS[1], 1, 3, key=three), Zeros((ROWS[0], ROWS[0])), solver)


def least_squares(seed: int) -> CoEvolvingODE:
    one, two, _ = keys(seed)
    initial = LeastSquaresInitial(0.3 * noise(ROWS[0], ROWS[0], seed=seed), ROWS[1])
    attention = LeastSquares(ROWS[1], 3, key=two)
    return CoEvolvingODE(MessageField(ROWS, 3, key=one), LeastSquaresField(ROWS[1]), attention, initial, solver)


def fast_weights(seed: int) -> CoEvolvingODE:
    one, two, three = keys(seed)
    f, g = ConditionedGRUField(SIZE, 1.0, attended=4, key=one), DeltaRule(SIZE, 2, 2, key=two)
    return CoEvolvingODE(f, g, FastWeights(SIZE, 2, 2, key=three), Zeros((2, 2, 2)), solver)


def maps(seed: int) -> CoEvolvingODE:
    one, two, three = keys(seed)
    fields = ConvField(SIZE, 1, key=one), ConvField(SIZE, 1, key=two)
    return CoEvolvingODE(*fields, Elementwise(), ConvInitial(SIZE, 1, key=three), solver)


def published(seed: int) -> CoEvolvingODE:
    """The forms that the paper's rows have: a GRU, a g to H x H numbers, a dense first attention."""
    one, two, three = keys(seed)
    g = pairwise_field("linear_h2", SIZE, 3, 1, key=two)
    return CoEvolvingODE(GRUField(SIZE, key=one), g, Pairwise(), Dense(SIZE, key=three), solver)


def of_batch(evolution: str):
    """An attention from the correlation of a batch, known from training states."""

    def make(seed: int) -> CoEvolvingODE:
        ode = coevolving(Pairwise(), SIZE, solver, seed, initial=Correlation(SIZE), evolution=evolution)
        return eqx.nn.inference_mode(ode.fit_reference_statistics(noise(5, SIZE, seed=seed), TIMES))

    return make


VECTOR, MATRIX, MAP = noise(BATCH, SIZE, seed=9), noise(BATCH, *ROWS, seed=9), noise(BATCH, 3, 3, SIZE, seed=9)
REMEMBERING = {
    "correlation": (of_batch("evolved"), VECTOR),
    "fixed": (of_batch("fixed"), VECTOR),
}
ODES = {
    "plain": (lambda seed: NeuralODE(Wave(SIZE, (SIZE,), seed), solver), VECTOR),
    "augmented": (lambda seed: AugmentedODE(Wave(SIZE + 1, (SIZE + 1,), seed), 1, solver), VECTOR),
    "pairwise": (lambda seed: coevolving(Pairwise(), SIZE, solver, seed), VECTOR),
    "residual attention": (lambda seed: coevolving(Residual(Pairwise()), SIZE, solver, seed), VECTOR),
    "frozen": (lambda seed: coevolving(Pairwise(), SIZE, solver, seed, evolution="frozen"), VECTOR),
    "published": (published, VECTOR),
    "signed": (signed, MATRIX),
    "least squares": (least_squares, MATRIX),
    "fast weights": (fast_weights, VECTOR),
    "maps": (maps, MAP),
    "maps, ends only": (maps, MAP),  # by large products
    "residual": (
        lambda seed: ResidualStack([Block(noise(SIZE, SIZE, seed=seed)), Block(noise(SIZE, SIZE, seed=5))]),
        VECTOR,
    ),
    **REMEMBERING,
}


class Case:
    """Two members of one ODE, their answers to a plain call, and a loss."""

    def __init__(self, name: str):
        make, self.h0 = ODES[name]
        self.odes = [make(seed) for seed in (0, 1)]
        self.params, statics = zip(*(eqx.partition(ode, eqx.is_inexact_array) for ode in self.odes), strict=True)
        self.static = statics[0]
        self.times = TIMES[:, [0, -1]] if name.endswith("ends only") else TIMES
        self.plain = [self.answer(params, self.h0, self.times) for params in self.params]

    def answer(self, params, h0, times) -> tuple:
        path = eqx.combine(params, self.static)(h0, times)
        return (path.h,) if path.a is None else (path.h, path.a)

    def loss(self, params):
        answers = self.answer(params, self.h0, self.times)
        return sum(jnp.sum(noise(*x.shape, seed=k) * jnp.sin(x)) for k, x in enumerate(answers))


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
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_answers(case, transformation):
    assert all(np.isfinite(x).all() for x in case.plain[0])
    assert not np.allclose(case.plain[0][0], case.plain[1][0])
    same(TRANSFORMATIONS[transformation](case, case.h0, case.times), case.plain[0])


@pytest.mark.slow
def test_gradients(case):
    """Against central differences; of each member of an ensemble; with what `jax.checkpoint` computes again."""
    gradient = jax.value_and_grad(case.loss)
    compiled = jax.jit(gradient)
    alone = [compiled(params)[1] for params in case.params]
    direction = jax.tree.map(lambda x: noise(*x.shape, seed=3), case.params[0])
    moved = jax.tree.map(lambda g, d: d if np.abs(g).max() > 0 else 0 * d, alone[0], direction)  # not what is measured
    move = lambda by: jax.tree.map(lambda x, d: x + by * d, case.params[0], moved)  # noqa: E731
    above, below = compiled(move(1e-5))[0], compiled(move(-1e-5))[0]
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), alone[0], direction)))
    assert abs(slope) > 1e-3
    np.testing.assert_allclose(slope, (above - below) / 2e-5, rtol=1e-6)
    _, members = jax.jit(jax.vmap(gradient))(stacked(case))
    same(members, jax.tree.map(lambda *grads: jnp.stack(grads), *alone))
    same(jax.jit(jax.grad(jax.checkpoint(case.loss)))(case.params[0]), alone[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ODES)
def test_serialised_and_read_into_a_new_one(name):
    """What was measured on training states comes back, into an ODE that never saw them."""
    make, _ = ODES[name]
    made = make(0)
    fresh = make(1)
    if name in REMEMBERING:
        evolution = fresh.evolution
        fresh = coevolving(Pairwise(), SIZE, solver, 1, initial=Correlation(SIZE), evolution=evolution)
        fresh = eqx.nn.inference_mode(fresh)
        assert any(np.isnan(x).any() for x in jax.tree.leaves(eqx.filter(fresh, eqx.is_array)))
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, made)
    file.seek(0)
    read = eqx.tree_deserialise_leaves(file, fresh)
    for a, b in zip(jax.tree.leaves(read), jax.tree.leaves(made), strict=True):
        if eqx.is_array(a):
            np.testing.assert_array_equal(a, b)
