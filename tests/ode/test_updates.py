"""Updates of an attention at observations, against plain loops, and their gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import assert_every_slope_matches
from problems import noise

from acenode.models import gru_ode_bayes
from acenode.models.unit_filter import unit_filter
from acenode.models.variable_bayes import variable_bayes
from acenode.ode import (
    CoEvolvingODE,
    ConditionedGRUField,
    DeltaRule,
    DeltaRuleUpdate,
    FastWeights,
    GRUField,
    GRULinear,
    Identity,
    LeastSquaresUpdate,
    MessageDeltaRule,
    MessageField,
    MLPField,
    PairUpdate,
    Pairwise,
    QueryKey,
    Signed,
    Solver,
    Zeros,
)
from acenode.series import Series, series, stack
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


def vectors(update, variables=2):
    """GRU-ODE-Bayes with a pairwise attention between four dimensions."""
    euler = Solver("euler", step=0.5, max_steps=16)
    g = GRULinear(4, key=KEYS[1])
    ode = CoEvolvingODE(GRUField(4, True, key=KEYS[0]), g, Pairwise(), Identity(1.0), euler, update=update)
    return gru_ode_bayes(variables, ode, 4, dropout=0.0, key=KEYS[2])


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


# --- gradients by finite differences ------------------------------------------------------------------------------


def least_squares_case():
    """A row with one channel observed, one with both, one with none; the surprise is where it matters."""
    parts = [noise(ROWS, ROWS), noise(ROWS, ROWS * CHANNELS, seed=1), noise(ROWS, ROWS, ROWS, seed=2)]
    p = jnp.eye(ROWS) + 0.1 * (parts[2] + parts[2].swapaxes(1, 2))
    v, surprise = jnp.full((ROWS, CHANNELS), 0.5), jnp.full((ROWS, 1), 3.0)
    a = jnp.concatenate([parts[0], parts[1], p.reshape(ROWS, -1), v, surprise], axis=1)
    observed = jnp.asarray([True, False, True, True, False, False])
    return LeastSquaresUpdate(CHANNELS, noise=0.3), jnp.asarray(BEFORE), a, jnp.asarray(AFTER).ravel(), observed


def delta_rule_case():
    size, heads, width = 4, 2, 3
    update = DeltaRuleUpdate(size, heads, width, key=KEYS[0])
    return update, noise(heads, width, width), noise(size, seed=1), noise(size, seed=2)


def message_case():
    attention = Signed(CHANNELS, 2, 4, key=KEYS[0])
    update = eqx.Partial(MessageDeltaRule(0.3), attention)
    return update, noise(2, ROWS, ROWS), jnp.asarray(BEFORE), jnp.asarray(AFTER)


CASES = {
    "learned jump": lambda: (
        PairUpdate(CHANNELS, 5, key=KEYS[0]),
        noise(ROWS, ROWS),
        jnp.asarray(BEFORE),
        jnp.asarray(AFTER),
    ),
    "delta rule of messages": message_case,
    "delta rule of fast weights": delta_rule_case,
    "least squares": least_squares_case,
}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_an_update_by_finite_differences(name):
    """In its parameters, the attention, and the states or values that it is given."""
    moving, still = eqx.partition(CASES[name](), eqx.is_inexact_array)

    def loss(moving):
        update, *given = eqx.combine(moving, still)
        return sum(jnp.sum(noise(*x.shape, seed=7) * jnp.sin(x)) for x in jax.tree.leaves(update(*given)))

    assert_every_slope_matches(loss, moving)


# --- one row at a time --------------------------------------------------------------------------------------------

VARIABLES, SIZE, HEADS, WIDTH = 3, 4, 2, 3
EULER = Solver("euler", step=0.25, max_steps=40)


def fast_weights():
    one, two, three, four = jax.random.split(KEYS[4], 4)
    ode = CoEvolvingODE(
        ConditionedGRUField(SIZE, 1.0, attended=HEADS * WIDTH, key=one),
        DeltaRule(SIZE, HEADS, WIDTH, key=two),
        FastWeights(SIZE, HEADS, WIDTH, key=three),
        Zeros((HEADS, WIDTH, WIDTH)),
        EULER,
        update=DeltaRuleUpdate(SIZE, HEADS, WIDTH, key=four),
    )
    return gru_ode_bayes(VARIABLES, ode, SIZE, dropout=0.0, key=KEYS[5])


def signed_rows():
    """A row of numbers for each variable, and signed messages between these rows."""
    shape = (VARIABLES, CHANNELS)
    f, g = MessageField(shape, 4, key=KEYS[1]), QueryKey(shape, width=4, key=KEYS[2])
    attention, first = Signed(CHANNELS, 1, 4, key=KEYS[3]), Zeros((VARIABLES, VARIABLES))
    ode = CoEvolvingODE(f, g, attention, first, EULER, update=MessageDeltaRule(0.5))
    return variable_bayes(VARIABLES, ode, CHANNELS, key=KEYS[5])


MODELS = {
    "learned jump": lambda: vectors(PairUpdate(key=KEYS[3]), VARIABLES),
    "delta rule of messages": signed_rows,
    "delta rule of fast weights": fast_weights,
    "least squares": lambda: unit_filter(VARIABLES, 1, width=4, solver=EULER, key=KEYS[5]),
}


def histories():
    """Two series at times of their own, with blanks; the second ends in padding."""
    times = np.array([[0.3, 0.5, 1.4, 1.9], [0.7, 1.0, 2.2, 2.2]])
    observed = np.asarray(noise(2, 4, VARIABLES, seed=3)) > 0
    observed[:, :, 0] |= ~observed.any(axis=2)
    observed[1, 3] = False
    values = np.where(observed, noise(2, 4, VARIABLES, seed=4), 0.0)
    return Series(times, values, observed, np.array([4, 3]))


@pytest.mark.parametrize("name", MODELS)
def test_one_row_at_a_time_is_the_whole_series(name):
    """State and attention after the last row, some time later."""
    model, batch, query = MODELS[name](), histories(), jnp.array([[2.6], [3.1]])

    @eqx.filter_jit
    def whole(model):
        trace = model(batch, query, jax.random.key(0), attention=True)
        return trace.states[0, :, 0], trace.attention[0, :, 0]

    @eqx.filter_jit
    def met(model, memory, time, values, observed):
        memory = model.advance(memory, time)
        return memory.state, model.observe(memory, values, observed)

    memory = model.begin(2)
    nothing = np.zeros((2, VARIABLES))
    for k in range(4):
        before, memory = met(model, memory, batch.times[:, k], batch.values[:, k], batch.observed[:, k])
        moved = np.abs(memory.state[1] - before[1]).reshape(2, -1).max(axis=1)
        np.testing.assert_array_equal(moved > 1e-5, batch.observed[:, k].any(axis=1))
    state, _ = met(model, memory, query[:, 0], nothing, nothing > 0)
    states, attention = whole(model)
    np.testing.assert_allclose(model.ode.output(state), states, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.ode.logits(state), attention, rtol=1e-10, atol=1e-12)
