"""`series`, `stack` and `Panel`: what they keep, how they pad, what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from acenode.series import Panel, series, stack

quick = settings(max_examples=30)
numbers = st.floats(-1e6, 1e6, width=32)


@st.composite
def one(draw, variables: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arguments of any series: no row or some, irregular increasing times, any mask."""
    rows = draw(st.integers(0, 5))
    times = sorted(draw(st.lists(numbers, min_size=rows, max_size=rows, unique=True)))
    values = draw(hnp.arrays(np.float32, (rows, variables), elements=numbers))
    observed = draw(hnp.arrays(bool, (rows, variables)))
    return np.asarray(times), values, observed


@quick
@given(one())
def test_what_is_observed_is_kept_and_the_rest_is_zero(raw):
    s = series(*raw)
    again = series(s.times, np.where(s.observed, s.values, np.nan))
    for a, b in zip(jax.tree.leaves(s), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not s.values[~s.observed].any()
    assert s.length == len(s) and s.real.all()
    assert s.times.dtype == s.values.dtype == np.float32


@quick
@given(st.lists(one(), min_size=1, max_size=4), st.integers(0, 3))
def test_padding_repeats_the_last_time_with_nothing_observed(raw, extra):
    many = [series(*r) for r in raw]
    rows = max(max(len(s) for s in many), 1) + extra
    batch = stack(many, rows)
    assert batch.times.shape == (len(many), rows) and batch.variables == 2
    for s, padded in zip(many, (batch[i] for i in range(len(batch))), strict=True):
        n = len(s)
        assert padded.length == n and padded.real.sum() == n
        np.testing.assert_array_equal(padded.times[:n], s.times)
        np.testing.assert_array_equal(padded.values[:n], s.values)
        np.testing.assert_array_equal(padded.observed[:n], s.observed)
        assert (padded.times[n:] == (s.times[-1] if n else 0)).all()
        assert not padded.observed[n:].any() and not padded.values[n:].any()


@quick
@given(st.lists(one(), min_size=1, max_size=4))
def test_a_sample_of_a_batch_stacks_as_the_series_it_was(raw):
    batch = stack([series(*r) for r in raw])
    again = stack([batch[i] for i in range(len(batch))])
    for a, b in zip(jax.tree.leaves(batch), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_stack_pads_to_the_longest_and_at_least_one_row():
    short, long = series([1.0], [[1.0]]), series([0.0, 2.0, 3.0], [[1.0], [2.0], [3.0]])
    assert stack([short, long]).times.shape == (2, 3)
    assert stack([series([], np.zeros((0, 1)))]).times.shape == (1, 1)


def test_indexing_a_batch():
    batch = stack([series([float(i)], [[float(i)]]) for i in range(4)])
    np.testing.assert_array_equal(batch[[2, 0]].times, [[2.0], [0.0]])
    np.testing.assert_array_equal(batch[1:3].length, [1, 1])
    np.testing.assert_array_equal(batch[batch.times[:, 0] > 2].values, [[[3.0]]])
    assert batch[3].times.shape == (1,) and batch[3].length.shape == ()


def test_a_series_passes_through_jax():
    batch = stack([series([0.0, 1.0], [[1.0], [np.nan]]), series([5.0], [[2.0]])])
    out = jax.jit(lambda s: jax.vmap(lambda one: jnp.sum(one.values * one.real[:, None]))(s))(batch)
    np.testing.assert_array_equal(out, [1.0, 2.0])


def test_integers_and_booleans_are_numbers():
    s = series(np.array([0, 1], np.uint8), [[True], [False]])
    np.testing.assert_array_equal(s.values, [[1.0], [0.0]])
    assert s.observed.all()


def test_what_is_not_observed_may_be_anything():
    s = series([0.0], [[np.inf, np.nan]], [[False, False]])
    np.testing.assert_array_equal(s.values, [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]], [[1.0]]), r"times has shape \(1, 1\); expected \(rows,\)"),
        (([0.0], [1.0]), r"values has shape \(1,\); expected \(rows, variables\) with 1 rows, as times has\."),
        (([0.0], [[1.0], [2.0]]), r"values has shape \(2, 1\)"),
        ((["a"], [[1.0]]), "times has dtype <U1; expected numbers"),
        (([0.0], [["a"]]), "values has dtype <U1; expected numbers"),
        (([0.0], [[1j]]), "values has dtype complex128; expected numbers"),
        (([0.0], [[1.0]], [True]), r"observed has shape \(1,\); expected \(1, 1\) as values has"),
        (([0.0, np.nan], [[1.0], [1.0]]), "time 1 is not a finite number"),
        (([0.0, 1e39], [[1.0], [1.0]]), "time 1 is not a finite number"),
        (([1.0, 1.0], [[1.0], [1.0]]), "times must increase; time 1.0 at row 1 appears twice"),
        (([1.0, 0.0], [[1.0], [1.0]]), "times must increase; time 0.0 at row 1 comes after 1.0"),
        ((np.array([1, 0], np.uint8), [[1.0], [1.0]]), "times must increase"),
        (([2.0**24, 2.0**24 + 1], [[1.0], [1.0]]), "16777216.0 and 16777217.0 are the same number in single precision"),
        (([0.0], [[1.0, np.inf]]), "the observed value at row 0, variable 1 is inf"),
        (([0.0], [[1e39]]), "the observed value at row 0, variable 0 is inf"),
        (([0.0], [[np.nan]], [[True]]), "the observed value at row 0, variable 0 is nan"),
    ],
)
def test_series_refuses(arguments, message):
    with pytest.raises(ValueError, match=f"series: .*{message}"):
        series(*arguments)


def test_stack_refuses():
    a, b = series([0.0, 1.0], [[1.0], [1.0]]), series([0.0], [[1.0, 2.0]])
    with pytest.raises(ValueError, match="stack: there is no series"):
        stack([])
    with pytest.raises(ValueError, match=r"stack: the series have \[1, 2\] variables"):
        stack([a, b])
    with pytest.raises(ValueError, match="stack: rows=1, but the longest series has 2"):
        stack([a], rows=1)


def test_a_panel_names_its_samples_and_variables():
    batch = stack([series([float(i)], [[1.0, 2.0]]) for i in range(3)])
    panel = Panel(batch, np.array(["a", "b", "c"]), ("x", "y"))
    assert len(panel) == 3
    assert panel[[2, 0]].ids.tolist() == ["c", "a"]
    np.testing.assert_array_equal(panel[[2, 0]].series.times, [[2.0], [0.0]])
    with pytest.raises(ValueError, match="Panel: 2 ids and 2 variable names for 3 series of 2 variables"):
        Panel(batch, np.array(["a", "b"]), ("x", "y"))
    with pytest.raises(ValueError, match="Panel: 3 ids and 1 variable names"):
        Panel(batch, np.array(["a", "b", "c"]), ("x",))
