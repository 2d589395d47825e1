"""`forecast` and `reconstruct`: context, query and what is scored."""

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from acenode.series import forecast, reconstruct, series, stack

quick = settings(max_examples=30)
moments = st.floats(0, 10, width=32)


@st.composite
def batches(draw):
    """The times and masks of one to three series of up to five rows."""
    many = []
    for _ in range(draw(st.integers(1, 3))):
        times = sorted(draw(st.lists(moments, max_size=5, unique=True)))
        many.append((np.asarray(times), draw(hnp.arrays(bool, (len(times), 2)))))
    return many


def made(raw):
    return stack([series(t, np.repeat(1.5 + t[:, None], 2, axis=1), observed) for t, observed in raw])


@quick
@given(batches(), moments)
def test_known_is_what_was_seen_until_then_and_scored_what_was_seen_later(raw, after):
    whole = made(raw)
    query = forecast(whole, after)
    assert len(query) == len(whole)
    for i in range(len(whole)):
        n, k = int(whole.length[i]), int(query.context.length[i])
        assert k == (whole.times[i, :n] <= after).sum()
        np.testing.assert_array_equal(query.context.times[i, :k], whole.times[i, :k])
        np.testing.assert_array_equal(query.context.values[i, :k], whole.values[i, :k])
        np.testing.assert_array_equal(query.context.observed[i, :k], whole.observed[i, :k])
        assert not query.context.observed[i, k:].any() and not query.context.values[i, k:].any()
        assert not query.scored[i, :k].any() and not query.scored[i, n:].any()
        np.testing.assert_array_equal(query.scored[i, k:n], whole.observed[i, k:n])
    np.testing.assert_array_equal(query.times, whole.times)
    np.testing.assert_array_equal(query.values, whole.values)
    np.testing.assert_array_equal(query.observed, whole.observed)


@quick
@given(batches(), moments, st.integers(1, 3))
def test_rows_scores_only_the_first_rows_after_that_time(raw, after, rows):
    whole = made(raw)
    query = forecast(whole, after, rows)
    for i in range(len(whole)):
        n, k = int(whole.length[i]), int(query.context.length[i])
        end = min(k + rows, n)
        np.testing.assert_array_equal(query.scored[i, k:end], whole.observed[i, k:end])
        assert not query.scored[i, end:].any()


@quick
@given(batches())
def test_reconstruct_knows_and_scores_everything(raw):
    whole = made(raw)
    query = reconstruct(whole)
    assert query.context is whole
    np.testing.assert_array_equal(query.scored, whole.observed)
    np.testing.assert_array_equal(query.values, whole.values)
