"""`Filter` with a cell whose state can be counted by hand."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from sines import KEY, answer, batch_of

from acenode.models import Cell, Filter
from acenode.series import series, stack


class Tally(NamedTuple):
    rows: jax.Array
    drifts: jax.Array
    time: jax.Array
    total: jax.Array


class Count(eqx.Module):
    """Rows, times it drifted, time that passed, and sum of what was observed, times a weight."""

    weight: jax.Array

    def start(self):
        zero = jnp.zeros((), self.weight.dtype)
        return Tally(zero, zero, zero, zero)

    def drift(self, state, gap):
        return state._replace(drifts=state.drifts + 1, time=state.time + gap)

    def update(self, state, values, observed, key):
        return state._replace(rows=state.rows + 1, total=state.total + self.weight * values.sum())

    def read(self, state):
        return jnp.stack(state)


class Dice(eqx.Module):
    """Keeps the last number drawn, and charges for every row."""

    first: jax.Array

    def start(self):
        return self.first, jnp.zeros_like(self.first)

    def drift(self, state, gap):
        return state

    def update(self, state, values, observed, key):
        return jax.random.normal(key, (), self.first.dtype), state[1] + 1

    def read(self, state):
        return state[0][None]

    def penalty(self, state):
        return 10 * state[1]


COUNT, DICE = Count(jnp.ones(())), Dice(jnp.zeros(()))


def by_hand(times, values, observed, query, including):
    """One answer of `Count`, with nothing but a loop."""
    if len(times) == 0:
        return [0, 1, 0, 0]
    rows = drifts = passed = total = 0
    since = times[0]
    for time, value, seen in zip(times, values, observed, strict=True):
        if not seen.any() or time > query or (time == query and not including):
            continue
        rows, drifts, passed, since = rows + 1, drifts + 1, passed + time - since, time
        total += value[seen].astype(float).sum()
    return [rows, drifts + 1, passed + max(query - since, 0), total]


def everything(times, values, observed):
    rows, drifts, _, total = by_hand(times, values, observed, np.inf, True)
    last = times[observed.any(axis=1)]
    return [rows, drifts - 1, last[-1] - times[0] if len(last) else 0, total]


EXAMPLE = [
    (
        np.asarray([0.25, 0.5, 1.0, 1.5]),
        np.asarray([[1.0, 2], [3, 4], [5, 6], [7, 8]]),
        np.asarray([[1, 0], [0, 0], [1, 1], [0, 1]], bool),
    ),
    (np.asarray([0.5, 1.0]), np.asarray([[1.0, 2], [3, 4]]), np.asarray([[0, 0], [1, 0]], bool)),
    (np.asarray([1.0]), np.asarray([[1.0, 2]]), np.asarray([[0, 1]], bool)),
    (np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2), bool)),
]
QUERIES = np.asarray([[1.0, 0.25, 9.0, 1.0, 0.0, 0.75]] * 4)


@pytest.mark.parametrize("including", [False, True])
def test_an_answer_counts_the_rows_before_its_time(including):
    trace = answer(Filter(COUNT, including), batch_of(EXAMPLE), QUERIES)
    expected = [[by_hand(*one, q, including) for q in queried] for one, queried in zip(EXAMPLE, QUERIES, strict=True)]
    assert trace.states.shape == (1, 4, 6, 4)
    np.testing.assert_allclose(trace.states[0], expected)
    # written out once: at the time of the third row, one row of which a single value was observed is known before it
    np.testing.assert_allclose(trace.states[0, 0, 0], [2, 3, 0.75, 12] if including else [1, 2, 0.75, 1])


def test_the_summary_is_read_just_after_the_last_row():
    trace = answer(Filter(COUNT), batch_of(EXAMPLE), QUERIES)
    assert trace.summary.shape == (1, 4, 4)
    np.testing.assert_allclose(trace.summary[0], [everything(*one) for one in EXAMPLE])


def test_before_the_first_row_nothing_moves_and_a_leading_empty_row_starts_it():
    states = answer(Filter(COUNT), batch_of(EXAMPLE), QUERIES).states[0, :, :, 2]
    np.testing.assert_allclose(states[2, [4, 1, 5, 0]], 0)  # queried at 0, 0.25, 0.75 and 1, first row at 1
    np.testing.assert_allclose(states[1, [4, 1, 5, 0]], [0, 0, 0.25, 0.5])  # empty row at 0.5
    np.testing.assert_allclose(states[3], 0)  # no rows: no time to count from


def test_padding_and_empty_rows_are_nothing():
    base = answer(Filter(COUNT), batch_of(EXAMPLE), QUERIES)
    padded = answer(Filter(COUNT), batch_of(EXAMPLE, 9), QUERIES)
    np.testing.assert_array_equal(padded.states, base.states)
    np.testing.assert_array_equal(padded.summary, base.summary)
    times, values, observed = EXAMPLE[0]
    kept = observed.any(axis=1)
    without = answer(Filter(COUNT), batch_of([(times[kept], values[kept], observed[kept])], 4), QUERIES[:1])
    np.testing.assert_array_equal(without.states[:, 0], base.states[:, 0])


def test_padding_that_is_marked_as_observed_does_not_count():
    batch = batch_of(EXAMPLE[2:3], 3)
    marked = eqx.tree_at(lambda s: (s.values, s.observed), batch, (batch.values + 1, batch.observed | True))
    trace = answer(Filter(COUNT, True), marked, QUERIES[:1])
    np.testing.assert_allclose(trace.states[0, 0, 2], [1, 2, 8, 1 + 3])


def test_what_stands_where_nothing_was_observed_does_not_matter():
    batch = batch_of(EXAMPLE)
    dirty = eqx.tree_at(lambda s: s.values, batch, np.where(batch.observed, batch.values, np.nan).astype(np.float32))
    base, again = answer(Filter(COUNT), batch, QUERIES), answer(Filter(COUNT), dirty, QUERIES)
    np.testing.assert_array_equal(again.states, base.states)


def test_a_query_meets_its_row_whatever_the_precision():
    one = stack([series([0.1, 0.2], [[1.0], [2.0]])])
    double = answer(Filter(COUNT, True), one, np.asarray([[0.1, 0.2]]))
    single = answer(Filter(COUNT, True), one, np.asarray([[0.1, 0.2]], np.float32))
    np.testing.assert_array_equal(double.states, single.states)
    np.testing.assert_allclose(double.states[0, 0, :, 0], [1, 2])


@pytest.mark.parametrize("weights, data", [(np.float32, np.float64), (np.float64, np.float32)])
def test_all_is_in_the_precision_of_the_weights(weights, data):
    batch = jax.tree.map(lambda x: x.astype(data) if x.dtype == np.float32 else x, batch_of(EXAMPLE))
    trace = answer(Filter(Count(jnp.ones((), weights))), batch, QUERIES.astype(data))
    assert trace.states.dtype == trace.summary.dtype == trace.penalty.dtype == weights


def test_a_cell_may_have_a_penalty():
    assert isinstance(DICE, Cell) and isinstance(COUNT, Cell)
    np.testing.assert_allclose(answer(Filter(DICE), batch_of(EXAMPLE), QUERIES).penalty, [30, 10, 10, 0])
    assert not np.asarray(answer(Filter(COUNT), batch_of(EXAMPLE), QUERIES).penalty).any()


def test_every_row_of_every_series_draws_for_itself():
    twice = batch_of([EXAMPLE[0], EXAMPLE[0]])
    drawn = np.asarray(answer(Filter(DICE), twice, QUERIES[:2]).states[0, :, [5, 2], 0]).ravel()
    assert len(set(drawn)) == 4
    # neither the size of the batch nor padding changes what is drawn
    alone = answer(Filter(DICE), batch_of(EXAMPLE[:1], 7), QUERIES[:1]).states[0, 0]
    np.testing.assert_array_equal(alone, answer(Filter(DICE), twice, QUERIES[:2]).states[0, 0])
    other = answer(Filter(DICE), twice, QUERIES[:2], jax.random.key(1)).states
    assert not np.isin(other[0, :, [5, 2], 0], drawn).any()


def test_the_slope_of_an_answer_is_exact_and_finite():
    @eqx.filter_jit
    @eqx.filter_grad
    def slope(model, batch):
        return jnp.sum(model(batch, jnp.asarray(QUERIES), KEY).states[..., 3])

    found = slope(Filter(COUNT), jax.tree.map(jnp.asarray, batch_of(EXAMPLE))).cell.weight
    totals = [[by_hand(*one, q, False)[3] for q in queried] for one, queried in zip(EXAMPLE, QUERIES, strict=True)]
    np.testing.assert_allclose(found, np.sum(totals))


moments = st.integers(0, 32).map(lambda i: i / 16)


@st.composite
def anything(draw):
    """A series of up to four rows, observed anywhere or nowhere."""
    times = sorted(draw(st.lists(moments, max_size=4, unique=True)))
    shape = (len(times), 2)
    values = draw(hnp.arrays(np.float32, shape, elements=st.floats(-100, 100, width=32)))
    return np.asarray(times), values, draw(hnp.arrays(bool, shape))


@pytest.mark.slow
@settings(max_examples=50)
@given(
    many=st.lists(anything(), min_size=2, max_size=2),
    queried=hnp.arrays(float, (2, 3), elements=moments),
    late=st.booleans(),
)
def test_any_series_and_any_queries_agree_with_the_loop(many, queried, late):
    trace = answer(Filter(COUNT, late), batch_of(many, 4), queried)
    expected = [[by_hand(*one, q, late) for q in row] for one, row in zip(many, queried, strict=True)]
    np.testing.assert_allclose(trace.states[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(trace.summary[0], [everything(*one) for one in many], rtol=1e-5, atol=1e-5)


class Leaky(eqx.Module):
    """A state that decays and takes in what was observed, by learned rates."""

    decay: jax.Array
    gain: jax.Array

    def start(self):
        return jnp.ones((), self.decay.dtype)

    def drift(self, state, gap):
        return state * jnp.exp(-self.decay * gap)

    def update(self, state, values, observed, key):
        return state + self.gain * jnp.tanh(values.sum() - state)

    def read(self, state):
        return state[None]


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_answers_and_gradients_over_many_rows_are_those_of_a_loop(kind):
    draw = np.random.default_rng(0)
    rows, empty, queries = [40, 3], [4, 17, 18, 39], np.array([0.5, 7.0, 30.0])
    whole = []
    for count in rows:
        observed = np.ones((count, 1), bool)
        observed[[k for k in empty if k < count]] = False
        whole.append((np.sort(draw.uniform(0, 20, count)), draw.normal(size=(count, 1)), observed))
    batch = stack([series(*each) for each in whole])
    cell = Leaky(jnp.asarray(0.3), jnp.asarray(0.7))
    times = np.tile(queries, (len(rows), 1))

    def scanned(cell):
        return jnp.sum(jnp.square(Filter(cell)(batch, times, jax.random.key(0, impl=kind)).states[0, ..., 0]))

    def looped(cell):
        total = 0.0
        for moments, values, observed in whole:
            for query in queries:
                state, since = cell.start(), moments[0]
                for now, value, seen in zip(moments, values, observed, strict=True):
                    if seen.any() and now < query:
                        state, since = cell.update(cell.drift(state, now - since), value, seen, None), now
                total += jnp.square(cell.drift(state, max(query - since, 0.0)))
        return total

    ours, theirs = (jax.value_and_grad(each)(cell) for each in (scanned, looped))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), ours, theirs)
