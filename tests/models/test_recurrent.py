"""The recurrent cells against their equations in plain loops, and what their answers must not depend on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sines import answer, assert_learns, assert_stands_alone, batch_of, gru, linear, quick, rows, sigmoid

from acenode.models import GRUD, TLSTM, Filter, GRUSimple, RNNDecay, RNNDt, RNNImpute
from acenode.ode import Constant
from acenode.train import groups, parameter_count

VARIABLES, SIZE = 2, 3
CELLS = [RNNDt, RNNImpute, RNNDecay, GRUD, GRUSimple, TLSTM]
each_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda c: c.__name__)


def model(cell, including: bool = False) -> Filter:
    made = quick(lambda key: cell(VARIABLES, SIZE, key=key))
    if hasattr(made, "impute"):  # where the decay is not zero
        made = eqx.tree_at(lambda c: c.impute.weight, made, jnp.asarray([0.5, 1.5]))
    return Filter(made, including)


# --- the equations --------------------------------------------------------------------------------------------


def gated_by_hand(cell, times, values, observed, query):
    """h at `query`: over the rows before it, then over one row of nothing at the query itself."""
    kind = type(cell)
    mean = np.asarray(cell.impute.mean.array) if kind in (RNNImpute, GRUD) else np.zeros(VARIABLES)
    last, seen_at = mean, np.full(VARIABLES, times[0])
    before, h = times[0], np.zeros(SIZE)
    known = times < query
    empty = (query, np.zeros(VARIABLES), np.zeros(VARIABLES, bool))
    for time, x, m in [*zip(times[known], values[known], observed[known], strict=True), empty]:
        if not m.any() and time != query:
            continue
        gap, delta = time - before, time - seen_at
        x = np.where(m, x, 0.0)
        if kind in (RNNImpute, GRUD):
            gamma = np.exp(-np.maximum(0, np.asarray(cell.impute.weight) * delta + np.asarray(cell.impute.bias)))
            x = m * x + (1 - m) * (gamma * last + (1 - gamma) * mean)
        if kind in (RNNDecay, GRUD):
            h = np.exp(-np.maximum(0, linear(cell.decay, delta))) * h
        more = {RNNDt: [gap], RNNImpute: [gap], GRUSimple: delta}.get(kind, [])
        h = gru(cell.unit, np.concatenate([x, m, more]), h)
        before, seen_at, last = time, np.where(m, time, seen_at), np.where(m, x, last)
    return h


def lstm_by_hand(cell, times, values, observed, query):
    before, h, c = times[0], np.zeros(SIZE), np.zeros(SIZE)
    known = (times < query) & observed.any(axis=1)
    empty = (query, np.zeros(VARIABLES), np.zeros(VARIABLES, bool))
    for time, x, m in [*zip(times[known], values[known], observed[known], strict=True), empty]:
        short = np.tanh(linear(cell.short, c))
        c = c - short + short / np.log(np.e + time - before)
        row = np.concatenate([np.where(m, x, 0.0), m])
        sums = np.asarray(cell.unit.weight_ih) @ row + np.asarray(cell.unit.weight_hh) @ h + np.asarray(cell.unit.bias)
        i, f, g, o = sums.reshape(4, SIZE)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        before = time
    return h


@each_cell
def test_answers_equal_the_equations(cell):
    filtered, by_hand = model(cell), lstm_by_hand if cell is TLSTM else gated_by_hand
    one = rows()[0]
    assert not one[2][2].any() and (one[2].sum(axis=1) == 1).any()  # an empty row, and rows with one variable missing
    queries = np.asarray([0.0, 0.3, one[0][3], 1.9, 5.0])  # the third at the time of a row, which is not yet seen
    trace = answer(filtered, batch_of([one]), queries[None].astype(np.float32))
    expected = [by_hand(filtered.cell, *one, max(q, one[0][0])) for q in queries.astype(np.float32).astype(float)]
    np.testing.assert_allclose(trace.states[0, 0], expected, rtol=1e-6)
    # the summary: queried at the moment after the last row
    np.testing.assert_allclose(trace.summary[0, 0], by_hand(filtered.cell, *one, one[0][-1] + 1e-12), rtol=1e-6)


def test_the_step_of_an_answer_is_not_kept():
    one = batch_of(rows()[:1])
    queried = answer(model(GRUD), one, np.asarray([[0.5, 1.0, 1.5, 2.0]])).states
    alone = answer(model(GRUD), one, np.asarray([[2.0]])).states
    np.testing.assert_allclose(alone[0, 0, 0], queried[0, 0, 3], rtol=1e-12)


@pytest.mark.parametrize("cell", [RNNImpute, GRUD], ids=lambda c: c.__name__)
def test_a_missing_value_decays_from_the_last_one_to_the_mean(key, cell):
    made = cell(VARIABLES, SIZE, Constant(jnp.asarray([2.0, -1.0])), key=key)
    unseen = made.impute(made.drift(made.start(), jnp.asarray(3.0)), jnp.zeros(2), jnp.zeros(2, bool))
    np.testing.assert_allclose(unseen, [2.0, -1.0])
    after = made.update(made.start(), jnp.asarray([5.0, 0.0]), jnp.asarray([True, False]), key)

    def filled(gap):
        return made.impute(made.drift(after, jnp.asarray(gap)), jnp.asarray([0.0, 7.0]), jnp.asarray([False, True]))

    np.testing.assert_allclose(filled(0.0), [5.0, 7.0])
    np.testing.assert_allclose(filled(1.0), [2.0 + 3.0 * np.exp(-np.asarray(made.impute.weight[0])), 7.0])
    np.testing.assert_allclose(filled(1e6), [2.0, 7.0])
    assert groups(made).impute.mean.array == "constant"


def test_a_mean_of_the_wrong_shape_is_refused(key):
    with pytest.raises(ValueError, match=r"mean has shape \(3,\); expected \(2,\)"):
        GRUD(2, SIZE, Constant(jnp.zeros(3)), key=key)


def gated(inputs, size):
    return 3 * size * (inputs + size + 1) + size


@pytest.mark.parametrize("d, h", [(2, 3), (5, 50)])
def test_parameter_counts(d, h):
    counts = {
        RNNDt: gated(2 * d + 1, h),
        GRUSimple: gated(3 * d, h),
        RNNImpute: gated(2 * d + 1, h) + 2 * d,
        RNNDecay: gated(2 * d, h) + h * (d + 1),
        GRUD: gated(2 * d, h) + h * (d + 1) + 2 * d,
        TLSTM: 4 * h * (2 * d + h + 1) + h * (h + 1),
    }
    for cell, count in counts.items():
        made = quick(lambda key, cell=cell: cell(d, h, key=key))
        assert parameter_count(made) == count, cell.__name__
        assert made.size == h


# --- what matters and what does not ---------------------------------------------------------------------------


@pytest.mark.slow
@each_cell
def test_an_answer_stands_alone(cell):
    slopes = assert_stands_alone(model(cell))
    for path, x in jax.tree_util.tree_leaves_with_path(slopes):
        trained = "mean" not in jax.tree_util.keystr(path)
        assert np.asarray(x).any() == trained, jax.tree_util.keystr(path)


@pytest.mark.slow
@pytest.mark.parametrize("including", [False, True])
@each_cell
def test_nothing_is_seen_before_its_time(cell, including):
    filtered = model(cell, including)
    times, values, observed = rows()[0]
    observed[3] = True
    queries = np.asarray([[times[1], times[3], times[3] + 0.01]])
    base = answer(filtered, batch_of([(times, values, observed)]), queries).states[0, 0]

    def moved(from_row):
        other = values.copy()
        other[from_row:] += 1
        found = answer(filtered, batch_of([(times, other, observed)]), queries).states[0, 0]
        return [not np.array_equal(f, b) for f, b in zip(found, base, strict=True)]

    assert moved(3) == [False, including, True]
    assert moved(4) == [False, False, False]
    assert moved(0) == [True, True, True]


@each_cell
def test_an_answer_depends_on_how_long_ago_the_last_row_was(cell):
    states = answer(model(cell), batch_of(rows()[:1]), np.asarray([[2.0, 2.5, 4.0]])).states[0, 0]
    assert not np.allclose(states[0], states[1], atol=1e-4) and not np.allclose(states[1], states[2], atol=1e-4)


@pytest.mark.slow
@each_cell
def test_it_learns(cell):
    assert_learns(lambda key: Filter(cell(2, 12, key=key)), 12)
