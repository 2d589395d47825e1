"""Products in a training step are in full single precision, on the way back as well."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from acenode.compiled import compiled, in_full_precision
from acenode.models import ODERNN, LatentODE
from acenode.ode import CoEvolvingODE, Correlation, MLPField, Pairwise, Solver, pairwise_field
from acenode.series import reconstruct, series, stack
from acenode.tasks import Headed, Reconstruction, ValueHead


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
def test_all_products_are_in_full_precision(gradient):
    take, moving = gradient
    found = products(jax.make_jaxpr(in_full_precision(take))(moving).jaxpr)
    assert len(found) > 40
    assert set(found) == {(jax.lax.Precision.HIGHEST,) * 2}
    assert set(products(jax.make_jaxpr(take)(moving).jaxpr)) == {None}  # what JAX would do by itself


def test_a_precision_that_was_asked_for_stays(gradient):
    take, moving = gradient
    with jax.default_matmul_precision("tensorfloat32"):
        found = products(jax.make_jaxpr(in_full_precision(take))(moving).jaxpr)
    assert set(found) == {(jax.lax.Precision.HIGH,) * 2}


def test_compiled_keeps_name_and_answer():
    def twice(x):
        """Doubles."""
        return x @ (2 * jnp.eye(2))

    assert compiled(twice).__name__ == "twice" and compiled(twice).__doc__ == "Doubles."
    assert (compiled(twice)(jnp.ones(2)) == 2).all()
