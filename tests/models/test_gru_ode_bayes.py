"""GRU-ODE-Bayes against a loop in numpy, what it may see, and one observation at a time."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import gru_ode_bayes
from acenode.models.gru_ode_bayes import GRUODEBayes
from acenode.ode import (
    AugmentedODE,
    CoEvolvingODE,
    Correlation,
    GRUField,
    GRULinear,
    NeuralODE,
    Pairwise,
    Solver,
)
from acenode.series import Query, Series, series, stack
from acenode.tasks import Forecast, Headed
from acenode.tasks.forecast import predictions
from acenode.train import Member, Recipe, fit, parameter_count

VARIABLES, SIZE, STEP = 2, 4, 0.25
ONE, TWO = jax.random.split(jax.random.key(3))
EULER = Solver("euler", step=STEP, max_steps=40)


def model(ode=None, extra=0, **options) -> GRUODEBayes:
    ode = NeuralODE(GRUField(SIZE, key=ONE)) if ode is None else ode
    ode = replace(ode, solver=EULER)
    return gru_ode_bayes(VARIABLES, ode, SIZE, extra=extra, prepared=3, width=5, key=TWO, **options)


def attentive(self_decay=False, temperature=1.0, **options) -> CoEvolvingODE:
    one, two = jax.random.split(ONE)
    f, g = GRUField(SIZE, self_decay, key=one), GRULinear(SIZE, key=two)
    known = Correlation(SIZE, reference=jnp.eye(SIZE))
    return CoEvolvingODE(f, g, Pairwise(temperature), known, **options)


def data(seed: int = 0) -> Series:
    random = np.random.default_rng(seed)
    many = []
    for rows in (5, 3, 1):
        values = random.normal(size=(rows, VARIABLES))
        values[random.random(values.shape) < 0.3] = np.nan
        values[0, 0] = 0.5
        many.append(series(np.cumsum(random.uniform(0.1, 1.0, rows)), values))
    return stack(many)


@eqx.filter_jit
def ask(m, s, times, key=jax.random.key(0), attention=False):  # noqa: B008
    return m(s, times, key, attention=attention)


QUERIES = np.array([[0.0, 0.7, 2.5, 4.0]] * 3)


# --- an independent loop --------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(layer, x):
    return np.asarray(layer.weight) @ x + (0 if layer.bias is None else np.asarray(layer.bias))


def emit(m, h):
    both = linear(m.emission.last, np.maximum(linear(m.emission.first, h), 0))
    return np.split(both, 2)


def gated(f, h, own):
    r, z = sigmoid(linear(f.reset, h)), sigmoid(linear(f.update, h))
    return (1 - z) * (np.tanh(linear(f.candidate, r * h)) - own)


def slope(ode, h, a):
    """Of h, and of the attention where there is one."""
    if a is None:
        return gated(ode.f, h, h), None
    weights = np.exp(a / ode.attention.temperature)
    attended = weights @ h / weights.sum(axis=1)
    dh = gated(ode.f, attended, h if "state" in ode.f.takes else attended)
    return dh, linear(ode.g.linear, gated(ode.g.cell, attended, attended)).reshape(a.shape)


def first_attention(ode, h):
    return np.asarray(ode.initial(jnp.asarray(h[None])))[0] if isinstance(ode, CoEvolvingODE) else None


def gru(cell, x, h):
    wi, wh = np.asarray(cell.weight_ih) @ x + np.asarray(cell.bias), np.asarray(cell.weight_hh) @ h
    n = len(h)
    r, z = sigmoid(wi[:n] + wh[:n]), sigmoid(wi[n : 2 * n] + wh[n : 2 * n])
    new = np.tanh(wi[2 * n :] + r * (wh[2 * n :] + np.asarray(cell.bias_n)))
    return new + z * (h - new)


def jump(m, h, x, seen):
    mean, log_variance = emit(m, h)
    prepared = []
    for j in range(VARIABLES):
        error = (x[j] - mean[j]) * np.exp(-log_variance[j] / 2)
        says = np.array([x[j], mean[j], log_variance[j], error])
        each = np.maximum(says @ np.asarray(m.jump.weight[j]) + np.asarray(m.jump.bias[j]), 0)
        prepared.append(each * seen[j])
    return gru(m.jump.cell, np.concatenate(prepared), h)


def loop(m, s, queries):
    """States at the queries before any jump there, and the penalty, for one series; Euler steps by hand."""
    first, second = m.first.layers
    h = np.tanh(linear(second, np.maximum(np.asarray(first.bias), 0)))
    h = np.append(h, np.zeros(getattr(m.ode, "extra", 0)))
    a = first_attention(m.ode, h)
    rows = [(float(t), x, o) for t, x, o in zip(s.times, s.values, s.observed, strict=True) if o.any()]
    moments = sorted({0.0, *(t for t, *_ in rows), *map(float, queries)})
    found, now, penalty, seen_values = {}, 0.0, 0.0, 0
    for moment in moments:
        gap = moment - now
        steps = int(np.ceil(gap / STEP - 1e-3)) if gap > 0 else 0
        for _ in range(steps):
            dh, da = slope(m.ode, h, a)
            h, a = h + gap / steps * dh, a if a is None else a + gap / steps * da
        now = moment
        found[moment] = h
        for t, x, o in rows:
            if t == moment:
                h = jump(m, h, x, o)
                a = first_attention(m.ode, h) if getattr(m.ode, "renew", False) else a
                mean, log_variance = emit(m, h)
                kl = np.log(0.01) - log_variance / 2 + (np.exp(log_variance) + (mean - x) ** 2) / (2 * 0.01**2) - 0.5
                penalty += kl[o].sum()
                seen_values += o.sum()
    return np.stack([found[float(q)] for q in queries]), m.mixing * penalty / seen_values


ODES = {
    "plain": lambda: (NeuralODE(GRUField(SIZE, key=ONE)), 0),
    "augmented": lambda: (AugmentedODE(GRUField(SIZE + 2, key=ONE), 2), 2),
    "attentive": lambda: (attentive(), 0),
    "self-decay, temperature 0.1": lambda: (attentive(self_decay=True, temperature=0.1), 0),
    "renewed": lambda: (attentive(renew=True), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODES)
def test_against_a_loop_in_numpy(name):
    m, s = eqx.nn.inference_mode(model(*ODES[name]())), data()
    queries = QUERIES.astype(np.float32)
    trace = ask(m, s, queries)
    for k in range(3):
        one = s[k]
        real = int(one.length)
        cut = Series(one.times[:real], one.values[:real], one.observed[:real], one.length)
        states, penalty = loop(m, cut, queries[k])
        np.testing.assert_allclose(trace.states[0, k], states, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(trace.penalty[k], penalty, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("variables, size, prepared", [(5, 50, 10), (5, 50, 20), (2, 7, 3)])
def test_parameter_count(variables, size, prepared):
    m = gru_ode_bayes(variables, NeuralODE(GRUField(size, key=ONE), EULER), size, prepared=prepared, key=TWO)
    first = 2 * size + size * size + size
    emission = 25 * size + 25 + 2 * variables * 26
    cell = (
        3 * size * (variables * prepared + size) + 4 * size
    )  # without the reset and update biases that torch has twice
    assert parameter_count(m) == first + emission + 3 * size**2 + variables * 5 * prepared + cell


# --- what may be seen -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ODES)
def test_no_value_at_or_after_a_query_changes_its_answer(name):
    ode, extra = ODES[name]()
    m, s = eqx.nn.inference_mode(model(ode, extra)), data()
    now = np.asarray(s.times[:, 1:2])
    changed = np.where((np.asarray(s.times) >= now)[..., None], np.asarray(s.values) + 9, np.asarray(s.values))
    other = eqx.tree_at(lambda x: x.values, s, np.where(s.observed, changed, 0).astype(np.float32))
    before, after = (ask(m, x, now).states for x in (s, other))
    np.testing.assert_array_equal(before, after)
    later = now + 2.0
    assert np.abs(ask(m, s, later).states - ask(m, other, later).states).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ODES)
def test_an_answer_depends_on_its_own_series_only(name):
    ode, extra = ODES[name]()
    m, s = eqx.nn.inference_mode(model(ode, extra)), data()
    together = ask(m, s, QUERIES).states
    other = jax.tree.map(lambda a, b: np.concatenate([a[:1], b[1:]]), s, data(1))
    np.testing.assert_allclose(ask(m, other, QUERIES).states[:, 0], together[:, 0], rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_long_gap_moves_the_state():
    m, s = eqx.nn.inference_mode(model()), data()
    near, far = (ask(m, s, np.full((3, 1), t)).states for t in (3.2, 7.0))
    assert np.abs(near - far).max() > 1e-2


def test_a_series_with_too_many_steps_fails_with_a_status():
    s = data()
    trace = ask(eqx.nn.inference_mode(model()), s, np.array([[1.0], [1.0], [1000.0]]))
    assert trace.stats.failed.tolist() == [False, False, True]
    assert np.isfinite(trace.states).all()


def test_a_series_with_rows_before_the_start_fails_with_a_status():
    s = data()
    early = eqx.tree_at(lambda s: s.times, s, np.asarray(s.times) - np.array([[0.0], [2.0], [0.0]]))
    trace = ask(eqx.nn.inference_mode(model()), early, QUERIES)
    assert trace.stats.failed.tolist() == [False, True, False]
    assert "before the start" in trace.stats.message(1)


def test_a_g_of_the_wrong_shape_is_refused():
    ode = CoEvolvingODE(GRUField(SIZE, key=ONE), GRUField(SIZE, key=TWO), Pairwise(), Correlation(SIZE))
    with pytest.raises(ValueError, match="see pairwise_field"):
        ask(model(ode), data(), QUERIES)


@pytest.mark.slow
def test_dropout_acts_in_training_only():
    m, s = model(dropout=0.5), data()
    one, two = (ask(m, s, QUERIES, jax.random.key(k)).states for k in (0, 1))
    assert np.abs(one - two).max() > 1e-3
    rested = eqx.nn.inference_mode(m)
    np.testing.assert_array_equal(*(ask(rested, s, QUERIES, jax.random.key(k)).states for k in (0, 1)))


@pytest.mark.slow
def test_the_likelihood_is_of_the_emission_with_dropout():
    m, s = model(dropout=0.5), data()
    for each, dropped in ((m, True), (eqx.nn.inference_mode(m), False)):
        trace = ask(each, s, QUERIES)
        keep = np.asarray(jnp.broadcast_to(trace.keep, (3, 5)))
        hidden = np.maximum([[linear(m.emission.first, h) for h in of] for of in np.asarray(trace.states[0])], 0)
        both = [[linear(m.emission.last, k * x) for x in of] for of, k in zip(hidden, keep, strict=True)]
        for got, expected in zip(predictions(Headed(each, None), trace), np.split(np.array(both), 2, -1), strict=True):
            np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-6)
        assert set(np.unique(keep)) == ({0.0, 2.0} if dropped else {1.0})


@pytest.mark.slow
def test_the_attention_at_the_queries():
    trace = ask(eqx.nn.inference_mode(model(attentive())), data(), QUERIES, attention=True)
    assert trace.attention.shape == (1, 3, 4, SIZE, SIZE)
    assert np.abs(trace.attention[0, 0, 0] - trace.attention[0, 0, -1]).max() > 1e-3


@pytest.mark.slow
def test_a_jump_renews_the_attention_or_keeps_it():
    state = (jnp.ones((3, SIZE)), jnp.full((3, SIZE, SIZE), 7.0))
    jumped = jnp.array([True, False, True])
    new = jax.random.normal(jax.random.key(0), (3, SIZE))
    h, kept = attentive().jump(state, new, jumped)
    np.testing.assert_array_equal(h[1], state[0][1])
    np.testing.assert_array_equal(kept, state[1])
    _, renewed = attentive(renew=True).jump(state, new, jumped)
    np.testing.assert_array_equal(renewed[1], state[1][1])
    np.testing.assert_allclose(np.diagonal(renewed[0]), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "attentive"])
def test_one_observation_at_a_time_equals_the_whole_history(name):
    ode, extra = ODES[name]()
    m, s = eqx.nn.inference_mode(model(ode, extra)), data()
    queried = np.float32(4.0)
    whole = ask(m, s, np.full((3, 1), queried))
    mean, log_variance = jax.vmap(m.emission)(whole.states[0, :, 0])
    for k in range(3):
        memory = m.begin()
        for t, x, o in list(zip(s.times[k], s.values[k], s.observed[k], strict=True))[: int(s.length[k])]:
            if o.any():
                memory = m.observe(
                    m.advance(memory, jnp.asarray([t], float)), jnp.asarray(x[None]), jnp.asarray(o[None])
                )
        answer = m.emit(m.advance(memory, jnp.asarray([queried], float)))
        np.testing.assert_allclose(answer[0][0], mean[k], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(answer[1][0], log_variance[k], rtol=1e-5, atol=1e-6)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="give the ODE a solver with a fixed step"):
        gru_ode_bayes(2, NeuralODE(GRUField(4, key=ONE)), 4, key=TWO)
    with pytest.raises(ValueError, match="from 0 to below 1"):
        model(dropout=1.0)
    with pytest.raises(ValueError, match="cannot be stepped"):
        fixed = CoEvolvingODE(
            GRUField(4, key=ONE), None, Pairwise(), Correlation(4), Solver("rk4", step=0.1), evolution="fixed"
        )
        fixed.begin(jnp.ones((2, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "attentive"])
def test_it_learns_sines(name):
    random = np.random.default_rng(0)
    many = []
    for _ in range(48):
        times = np.sort(random.choice(np.arange(1, 25), 12, replace=False)) / 4
        phase = random.uniform(0, 2 * np.pi)
        both = np.stack([np.sin(times + phase), np.cos(times + phase)], axis=1) + 0.05 * random.normal(size=(12, 2))
        both[random.random(both.shape) < 0.3] = np.nan
        many.append(series(times, both))
    whole = stack(many)
    query = Query(whole, whole.times, whole.values, whole.observed, whole.observed)
    from acenode.datasets.split import random_split

    def build(key):
        one, two, three = jax.random.split(key, 3)
        ode = NeuralODE(GRUField(8, key=one), EULER)
        if name == "attentive":
            ode = CoEvolvingODE(GRUField(8, key=one), GRULinear(8, key=three), Pairwise(), Correlation(8), EULER)
        return Headed(gru_ode_bayes(2, ode, 8, dropout=0.0, key=two), None)

    recipe = Recipe(epochs=40, batch_size=12, algorithm="joint", eval_batch=48)
    done = fit(build, Forecast(), query, random_split(48, (0.75, 0.25, 0.0), 0), recipe, [Member(0, 0, 2e-2)])
    variance = np.var(whole.values[whole.observed])
    assert done.history["validation_mse"][:, 0].min() < 0.5 * variance
