"""The precision of products is the one that was set, on the way back as well, and float32 where none was."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.lax import DotAlgorithmPreset, Precision as Digits
from toy_task import Regression, build, pairs, split

from acenode.compiled import compiled, compiled_quickly
from acenode.layers import GRUCell, Linear
from acenode.models import ODERNN, LatentODE
from acenode.ode import AugmentedODE, CoEvolvingODE, Correlation, MLPField, NeuralODE, Pairwise, Solver, pairwise_field
from acenode.precision import check_precision, jax_precision, products_in
from acenode.series import reconstruct, series, stack
from acenode.tasks import Headed, Reconstruction, ValueHead
from acenode.train import Member, Recipe, evaluate, fit

NAMED = {
    "float32": (Digits.HIGHEST,) * 2,
    "tf32": (Digits.HIGH,) * 2,
    "bfloat16": DotAlgorithmPreset.BF16_BF16_F32,
}


def products(jaxpr: Jaxpr) -> list:
    """The precision of every product of matrices, however deep inside."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found.append(equation.params["precision"])
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: isinstance(p, Jaxpr | ClosedJaxpr)):
            if isinstance(inner, ClosedJaxpr):
                inner = inner.jaxpr
            if isinstance(inner, Jaxpr):
                found += products(inner)
    return found


def traced(function, *args) -> list:
    return products(jax.make_jaxpr(function)(*args).jaxpr)


@pytest.fixture
def gradient(key):
    one, two, three = jax.random.split(key, 3)
    f, g = MLPField(3, 4, 1, key=one), pairwise_field("linear_h2", 3, 4, 1, key=two)
    ode = CoEvolvingODE(f, g, Pairwise(), Correlation(3), Solver("dopri5"))
    encoder = ODERNN(2, 4, 4, 1, key=three)
    model = Headed(LatentODE(encoder, eqx.nn.Linear(8, 6, key=one), ode, (3,)), ValueHead(eqx.nn.Linear(3, 2, key=two)))
    queried = jax.tree.map(jnp.asarray, reconstruct(stack([series([0.1, 0.4], [[1.0, 2.0], [3.0, 4.0]])] * 2)))
    moving, still = eqx.partition(model, eqx.is_inexact_array)

    def loss(moving):
        return Reconstruction().loss(eqx.combine(moving, still), queried, jax.random.key(0), jnp.asarray(0))[0]

    return jax.grad(loss), moving


@pytest.mark.slow
@pytest.mark.parametrize("precision", [None, *NAMED])
def test_all_products_of_a_training_step_are_in_one_precision(gradient, precision):
    take, moving = gradient
    found = traced(products_in(precision)(take), moving)
    assert len(found) > 40
    assert set(found) == {NAMED[precision or "float32"]}


@pytest.mark.slow
def test_a_precision_that_was_set_in_jax_stays(gradient):
    take, moving = gradient
    with jax.default_matmul_precision("tensorfloat32"):
        assert set(traced(products_in()(take), moving)) == {NAMED["tf32"]}


WEIGHT, H0, TIMES = jnp.eye(2) / 3, jnp.ones((2, 2)), jnp.array([0.0, 0.5, 1.0])


class Turn(eqx.Module):
    """A vector field with a product of its own, which names no precision."""

    weight: jax.Array

    def __call__(self, t, h):
        return self.weight @ h


ODES = {
    "plain": lambda solver: NeuralODE(Turn(WEIGHT), solver),
    "augmented": lambda solver: AugmentedODE(Turn(jnp.eye(3)), 1, solver),
    "attentive": lambda solver: CoEvolvingODE(
        Turn(WEIGHT), lambda t, h: jnp.outer(h, h), Pairwise(), Correlation(2), solver
    ),
}


@pytest.mark.parametrize(
    "precision, adjoint",
    [(None, "checkpointed"), ("bfloat16", "checkpointed"), pytest.param("bfloat16", "direct", marks=pytest.mark.slow)],
)
def test_the_field_of_a_solve_has_the_precision_of_the_solver(precision, adjoint):
    solver = Solver("heun", step=0.5, precision=precision, adjoint=adjoint)

    def loss(ode):
        return ode(H0, TIMES).h.sum()

    ode = ODES["plain"](solver)
    with products_in("tf32"):
        around = set(traced(eqx.filter_grad(loss), ode))
    alone = set(traced(eqx.filter_grad(loss), ode))  # the gradient is traced after the solve has returned
    own = {NAMED["float32"]} if adjoint == "direct" else set()  # diffrax's own arithmetic
    assert around == {NAMED[precision or "tf32"]} | own
    assert alone == {NAMED[precision or "float32"]} | own


@pytest.mark.parametrize("kind", ODES)
def test_steps_that_a_model_takes_itself_have_it_too(kind):
    ode = ODES[kind](Solver("euler", step=0.5, precision="bfloat16"))
    found = traced(lambda: ode.slope(jnp.zeros(2), ode.begin(H0)))
    assert NAMED["bfloat16"] in found and NAMED["float32"] not in found


def test_layers_are_in_float32_by_themselves(key):
    assert traced(Linear(2, 3, key=key), jnp.ones(2)) == [NAMED["float32"]]
    assert traced(GRUCell(2, 3, key=key), jnp.ones(2), jnp.ones(3)) == [NAMED["float32"]] * 2


@dataclass(frozen=True)
class Noting(Regression):
    """Notes the precision in which it is traced."""

    noted: ClassVar[list] = []

    def loss(self, model, batch, key, epoch):
        self.noted.append(("loss", jax_precision()))
        return super().loss(model, batch, key, epoch)

    def outputs(self, model, batch, key):
        self.noted.append(("outputs", jax_precision()))
        return super().outputs(model, batch, key)


@pytest.mark.slow
@pytest.mark.parametrize("given, name", [({}, "highest"), ({"precision": "tf32"}, "tensorfloat32")])
def test_fit_and_evaluate_take_the_precision_they_are_given(given, name):
    Noting.noted.clear()
    jax.clear_caches()
    data, recipe = pairs(), Recipe(epochs=1, batch_size=4, **given)
    with jax.default_matmul_precision("BF16_BF16_F32"):  # that of the recipe is nearer
        done = fit(build, Noting(), data, split(), recipe, [Member(0)])
        evaluate(done.models, Noting(), data, split().validation, eval_batch=3, **given)
    assert set(Noting.noted) == {("loss", name), ("outputs", name)}
    assert recipe.plain()["precision"] == given.get("precision", "float32")


@pytest.mark.parametrize("precision, digits", [("float32", 21), ("tf32", 9), ("bfloat16", 6)])
def test_products_keep_as_many_digits_as_they_say(precision, digits):
    """At least: a CPU computes in float32 whatever is set."""
    a, b = (jnp.asarray(np.random.default_rng(s).normal(size=(16, 16)), jnp.float32) for s in (0, 1))
    with products_in(precision):
        found = jax.jit(jnp.matmul)(a, b)
    assert found.dtype == jnp.float32
    exact, size = (np.asarray(x, float) @ np.asarray(y, float) for x, y in ((a, b), (abs(a), abs(b))))
    assert (np.abs(found - exact) <= 2.0**-digits * size).all()


def test_a_wrong_name_is_refused():
    with pytest.raises(ValueError, match=r"Solver\(precision='half'\): choose from float32, tf32, bfloat16, or None"):
        check_precision("Solver", "half")
    with pytest.raises(ValueError, match=r"Recipe\(precision=None\): choose from float32, tf32, bfloat16\."):
        check_precision("Recipe", None, optional=False)


def test_first_weights_are_the_same_with_and_without_optimisation(key):
    draw = lambda key: Linear(8, 8, key=key)  # noqa: E731
    one, other = (compiled_quickly(draw, optimise=each)(key) for each in (True, False))
    np.testing.assert_allclose(one.weight, other.weight, rtol=1e-6)


def test_compiled_keeps_name_and_answer():
    def twice(x):
        """Doubles."""
        return x @ (2 * jnp.eye(2))

    assert compiled(twice).__name__ == "twice" and compiled(twice).__doc__ == "Doubles."
    assert (compiled(twice)(jnp.ones(2)) == 2).all()
