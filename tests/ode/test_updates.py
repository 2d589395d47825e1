"""Updates of an attention at observations, against plain loops, and their gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import gru_ode_bayes
from acenode.ode import (
    CoEvolvingODE,
    GRUField,
    GRULinear,
    Identity,
    MessageDeltaRule,
    MessageField,
    MLPField,
    PairUpdate,
    Pairwise,
    Signed,
    Solver,
    Zeros,
)
from acenode.series import series, stack
from acenode.train import groups

KEYS = jax.random.split(jax.random.key(0), 6)
ROWS, CHANNELS = 3, 2
BEFORE, AFTER = np.random.default_rng(0).normal(size=(2, ROWS, CHANNELS))


@pytest.mark.parametrize("heads", [1, 2])
def test_the_delta_rule_is_its_equation(heads):
    attention, rule = Signed(CHANNELS, heads, 4, key=KEYS[0]), MessageDeltaRule(0.3)
    a = jax.random.normal(KEYS[1], attention.shape((ROWS, CHANNELS)))
    messages = np.asarray(attention.messages(jnp.asarray(BEFORE))).reshape(ROWS, ROWS, heads, CHANNELS)
    expected = np.array(a).reshape(heads, ROWS, ROWS)
    for i in range(ROWS):
        size = sum(np.sum(messages[i, j, k] ** 2) for j in range(ROWS) for k in range(heads) if j != i)
        for j, k in ((j, k) for j in range(ROWS) for k in range(heads) if j != i):
            expected[k, i, j] += 0.3 * np.dot(AFTER[i] - BEFORE[i], messages[i, j, k]) / (1e-6 + size)
    found = rule(attention, a, jnp.asarray(BEFORE), jnp.asarray(AFTER))
    np.testing.assert_allclose(found, expected.reshape(a.shape), rtol=1e-6)


def test_a_full_step_of_the_delta_rule_explains_one_message():
    """With two rows there is one message to each: the new weights move the rows just as the observation did."""
    attention = Signed(1, key=KEYS[0])
    before, after = jnp.array([[0.3], [-0.8]]), jnp.array([[0.4], [-0.5]])
    a = MessageDeltaRule(1.0)(attention, jnp.zeros((2, 2)), before, after)
    np.testing.assert_allclose(attention(before, a), after - before, rtol=1e-3)


def test_the_delta_rule_needs_messages():
    with pytest.raises(ValueError, match="the attention is Pairwise; give Signed"):
        MessageDeltaRule()(Pairwise(), jnp.zeros((ROWS, ROWS)), jnp.asarray(BEFORE), jnp.asarray(AFTER))


@pytest.mark.parametrize("channels", [None, CHANNELS])
def test_a_learned_jump_is_its_equation(channels):
    before, after = (x if channels else x[:, 0] for x in (BEFORE, AFTER))
    update = PairUpdate(channels or 1, 5, key=KEYS[2])
    a = np.array(jax.random.normal(KEYS[3], (ROWS, ROWS)))
    rows = [np.concatenate([np.atleast_1d(b), np.atleast_1d(f - b)]) for b, f in zip(before, after, strict=True)]
    expected = a.copy()
    for i in range(ROWS):
        for j in range(ROWS):
            gate, candidate = np.asarray(update.network(jnp.concatenate([rows[i], rows[j]])))
            expected[i, j] += (candidate - a[i, j]) / (1 + np.exp(3.0 - gate))
    np.testing.assert_allclose(update(jnp.asarray(a), jnp.asarray(before), jnp.asarray(after)), expected, rtol=1e-6)


def vectors(update):
    """GRU-ODE-Bayes with a pairwise attention between four dimensions."""
    euler = Solver("euler", step=0.5, max_steps=16)
    g = GRULinear(4, key=KEYS[1])
    ode = CoEvolvingODE(GRUField(4, True, key=KEYS[0]), g, Pairwise(), Identity(1.0), euler, update=update)
    return gru_ode_bayes(2, ode, 4, dropout=0.0, key=KEYS[2])


def test_observations_move_the_attention_and_the_update_gets_gradients():
    values = np.random.default_rng(1).normal(size=(4, 2))
    batch = stack([series(np.arange(1.0, 5.0), values + k) for k in range(2)])
    query = jnp.full((2, 1), 6.0)

    @eqx.filter_jit
    def path(model):
        return model(batch, query, jax.random.key(0), attention=True)

    kept, moved = path(vectors(None)), path(vectors(PairUpdate(key=KEYS[3])))
    assert np.abs(kept.attention - moved.attention).max() > 1e-3
    model = vectors(PairUpdate(key=KEYS[3]))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: jnp.sum(path(m).states ** 2)))(model)
    of_update = jax.tree.leaves(eqx.filter(gradient.ode.update, eqx.is_array))
    assert all(np.isfinite(x).all() and np.abs(x).max() > 0 for x in of_update)
    assert set(jax.tree.leaves(groups(model).ode.update)) <= {"attention", "other"}  # theta_g


def test_the_delta_rule_gets_gradients_at_a_jump():
    attention = Signed(CHANNELS, 1, 4, key=KEYS[0])
    g = MLPField((ROWS, CHANNELS), out=(ROWS, ROWS), width=4, key=KEYS[1])
    f = MessageField((ROWS, CHANNELS), 4, key=KEYS[2])
    solver = Solver("euler", step=0.1)
    ode = CoEvolvingODE(f, g, attention, Zeros((ROWS, ROWS)), solver, update=MessageDeltaRule())

    @eqx.filter_jit
    def jumped(ode):
        state = ode.jump(ode.begin(jnp.asarray(BEFORE)[None]), jnp.asarray(AFTER)[None], jnp.array([True]))
        return state[1]

    assert np.abs(jumped(ode)).max() > 0
    gradient = eqx.filter_grad(lambda ode: jnp.sum(jumped(ode) ** 2))(ode)
    assert np.abs(gradient.update.log_rate) > 0 and np.abs(gradient.attention.message.layers[0].weight).max() > 0
