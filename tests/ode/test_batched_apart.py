"""A field of large states is a program of its own on a CPU; what comes out, and its gradient, is the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import noise

from acenode.ode import BatchCoupled, MLPField, Solver
from acenode.ode.solver import SAMPLES, vector_field

TIMES = jnp.array([[0.0, 0.7], [0.1, 1.0], [0.0, 0.0]])
Y0 = noise(3, 4)


class ToTheMean(BatchCoupled):
    rate: jax.Array

    def __call__(self, t, y, args):
        return self.rate * (jax.lax.pmean(y, SAMPLES) - y)


FIELDS = {
    "each sample": lambda k: eqx.Partial(MLPField(4, width=5, key=jax.random.key(k))),
    "coupled": lambda k: ToTheMean(jnp.asarray(0.5 + k)),
}


def loss(field, y0, solver):
    call = field if isinstance(field, BatchCoupled) else lambda t, y, args: field(t, y)
    ys, stats = solver.solve(call, y0, TIMES)
    return jnp.sum(jnp.square(ys[:, -1]) * jnp.arange(4.0)), stats


def answer(field, solver):
    return eqx.filter_value_and_grad(lambda both: loss(*both, solver), has_aux=True)((field, Y0))


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize(
    "solver", [Solver("rk4", step=0.2), Solver("dopri5", rtol=1e-6, atol=1e-8)], ids=["rk4", "dopri5"]
)
def test_values_and_gradients_are_the_same(field, solver, monkeypatch):
    expected = answer(field(0), solver)
    monkeypatch.setattr(vector_field, "_LARGE", 1)
    jax.clear_caches()
    for one, other in zip(jax.tree.leaves(answer(field(0), solver)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def conditions(function, *inputs) -> int:
    jax.clear_caches()
    return str(jax.make_jaxpr(function)(*inputs)).count("cond[")


def test_it_is_one_for_large_states_on_a_cpu_in_an_ensemble_too(monkeypatch):
    members = eqx.filter_vmap(lambda key: MLPField(4, width=5, key=key))(jax.random.split(jax.random.key(0), 2))
    arrays, rest = eqx.partition(members, eqx.is_array)
    solver = Solver("rk4", step=0.2)
    gradient = lambda arrays: jax.vmap(jax.grad(lambda a: loss(eqx.combine(a, rest), Y0, solver)[0]))(arrays)  # noqa: E731
    few = conditions(gradient, arrays)
    monkeypatch.setattr(vector_field, "_LARGE", 12)
    # One that differed between members would become a choice between two answers, both computed.
    assert conditions(gradient, arrays) >= few + 8  # rk4 has four stages, forwards and backwards
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert conditions(gradient, arrays) == few
