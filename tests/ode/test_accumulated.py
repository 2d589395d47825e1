"""An attention kept in few numbers moves as the attention itself does, and so do its gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.ode import (
    CoEvolvingODE,
    ConditionedGRUField,
    Correlation,
    Dense,
    GRUField,
    GRULinear,
    NeuralODE,
    Pairwise,
    Solver,
)
from acenode.ode.accumulated import AccumulatedODE, started
from acenode.train.groups import hold_attention

SIZE, BATCH, STEPS = 4, 3, 6
KEYS = jax.random.split(jax.random.key(1), 4)
H0 = jnp.tanh(jax.random.normal(KEYS[3], (BATCH, SIZE)))
F = {"self-decay": GRUField(SIZE, True, key=KEYS[0]), "conditioned": ConditionedGRUField(SIZE, key=KEYS[0])}


def ode(f: str = "self-decay", **options) -> CoEvolvingODE:
    g = jax.tree.map(lambda x: 3 * x, GRULinear(SIZE, key=KEYS[1]))  # so that the attention moves
    return CoEvolvingODE(F[f], g, Pairwise(2.0), Dense(SIZE, key=KEYS[2]), **options)


def stepped(ode, state):
    """Euler steps of unequal sizes, with a jump of the first sample on the way."""
    for k in range(STEPS):
        dt = jnp.linspace(0.3, 0.5, BATCH) / (k + 1)
        slope = ode.slope(jnp.full(BATCH, 0.1 * k), state)
        state = jax.tree.map(lambda y, s, dt=dt: y + dt.reshape(-1, *(1,) * (y.ndim - 1)) * s, state, slope)
        if k == 2:
            state = ode.jump(state, 0.5 * ode.hidden(state), jnp.arange(BATCH) == 0)
    return ode.hidden(state), ode.logits(state)


@eqx.filter_jit
@eqx.filter_value_and_grad(has_aux=True)
def value_and_gradient(ode, few):
    h, a = stepped(*started(ode, H0)) if few else stepped(ode, ode.begin(H0))
    return jnp.sum(jnp.square(h)) + 0.1 * jnp.sum(jnp.square(a)), (h, a)


@pytest.mark.slow
@pytest.mark.parametrize("f", F)
@pytest.mark.parametrize("held", [False, True])
def test_values_and_gradients_are_those_of_the_attention_itself(f, held):
    model = hold_attention(ode(f), held)
    assert isinstance(started(model, H0)[0], AccumulatedODE)
    (_, few), few_gradient = value_and_gradient(model, True)
    (_, whole), gradient = value_and_gradient(model, False)
    assert np.ptp(np.asarray(whole[1] - model.begin(H0)[1])) > 0.1  # it did move
    for one, other in zip(jax.tree.leaves((few, few_gradient)), jax.tree.leaves((whole, gradient)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_products_have_the_precision_of_the_solver():
    def products(few: bool) -> set[str]:
        model = ode(solver=Solver("euler", step=0.1, precision="bfloat16"))
        model, state = started(model, H0) if few else (model, model.begin(H0))
        found = str(jax.make_jaxpr(lambda state: model.slope(jnp.zeros(BATCH), state))(state))
        return {line.split("precision=")[1].split("\n")[0] for line in found.splitlines() if "precision=" in line}

    assert products(True) == products(False) and len(products(True)) == 1


class Doubled(GRULinear):
    """Of a user's own."""

    def __call__(self, t, h):
        return 2 * super().__call__(t, h)


@pytest.mark.slow
def test_what_cannot_be_kept_in_few_numbers_is_left_alone():
    q = Dense(SIZE, key=KEYS[2])
    biased = eqx.tree_at(lambda g: g.linear, GRULinear(SIZE, key=KEYS[1]), eqx.nn.Linear(SIZE, SIZE**2, key=KEYS[1]))
    for g in (Doubled(SIZE, key=KEYS[1]), biased):
        other = CoEvolvingODE(F["self-decay"], g, Pairwise(), q)
        assert started(other, H0)[0] is other
    for other in (ode(renew=True), NeuralODE(F["self-decay"])):
        assert started(other, H0)[0] is other
    frozen = CoEvolvingODE(F["self-decay"], None, Pairwise(), Correlation(SIZE), evolution="frozen")
    assert started(frozen, H0)[0] is frozen
