"""`Scaler`: fitted on what is observed only, undone exactly, safe for constant and absent variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from acenode.series import Scaler, Series, series, stack

quick = settings(max_examples=30)
kinds = ("standard", "minmax", "min_over_max", "none")


def batch_of(values, observed) -> Series:
    """A batch of values (samples, rows, variables) at times 0, 1, ..."""
    return stack([series(np.arange(len(v), dtype=float), v, o) for v, o in zip(values, observed, strict=True)])


@st.composite
def batches(draw) -> tuple[np.ndarray, np.ndarray]:
    """Any values and mask for `batch_of`, with constant and never observed variables among them."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(0, 4)), 2)
    numbers = st.floats(-1000, 1000, width=16)
    values = draw(hnp.arrays(np.float32, shape, elements=numbers))
    return values, draw(hnp.arrays(bool, shape))


@pytest.mark.parametrize("kind", kinds)
@quick
@given(batches())
def test_unscale_undoes_scale(kind, raw):
    batch = batch_of(*raw)
    scaler = Scaler.fit(batch, kind)
    scaled = scaler.scale(batch)
    assert np.isfinite(scaled.values).all() and scaled.values.dtype == np.float32
    assert not scaled.values[~scaled.observed].any()
    seen = batch.observed
    largest = np.abs(batch.values).max(initial=1.0)
    np.testing.assert_allclose(scaler.unscale(scaled.values)[seen], batch.values[seen], atol=1e-5 * largest)


@quick
@given(batches())
def test_each_kind_gives_the_range_it_promises(raw):
    batch = batch_of(*raw)
    for v in range(2):
        seen = batch.observed[..., v]
        x = batch.values[..., v][seen].astype(float)
        if len(x) == 0:
            continue
        standard, minmax, over, none = (Scaler.fit(batch, k).scale(batch).values[..., v][seen] for k in kinds)
        if np.ptp(x) == 0:
            assert not standard.any() and not minmax.any() and not over.any()
        else:
            np.testing.assert_allclose([minmax.min(), minmax.max()], [0, 1], atol=1e-6)
            np.testing.assert_allclose(standard, (x - x.mean()) / x.std(), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(over, (x - x.min()) / (x.max() or 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(none, x)


@pytest.mark.parametrize("kind", kinds)
def test_constant_and_unobserved_variables_are_safe(kind):
    tenth = np.full((2, 7, 2), 0.1)  # a number whose mean is off by rounding
    batch = batch_of(tenth, np.broadcast_to([True, False], tenth.shape))
    scaler = Scaler.fit(batch, kind)
    assert (scaler.shift[1], scaler.spread[1]) == (0, 1)
    if kind in ("standard", "minmax"):
        assert scaler.spread[0] == 1 and not scaler.scale(batch).values.any()
    empty = Scaler.fit(series([], np.zeros((0, 2))), kind)
    np.testing.assert_array_equal(empty.spread, [1, 1])


def test_min_over_max_with_a_maximum_of_zero_and_below():
    batch = series([0.0, 1.0], [[-2.0, -4.0], [0.0, -2.0]])
    scaler = Scaler.fit(batch, "min_over_max")
    np.testing.assert_array_equal(scaler.scale(batch).values, [[0, 0], [2, -1]])
    np.testing.assert_array_equal(scaler.unscale_deviation(np.ones(2, np.float32)), [1, 2])


def test_values_that_are_not_observed_do_not_count():
    batch = series([0.0, 1.0, 2.0], [[1.0], [1e6], [3.0]], [[True], [False], [True]])
    scaler = Scaler.fit(batch)
    np.testing.assert_allclose([scaler.shift[0], scaler.spread[0]], [2, 1])


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_where_selects_samples_rows_or_values(axes):
    batch = batch_of(np.arange(8.0).reshape(2, 2, 2), np.ones((2, 2, 2), bool))
    where = np.zeros((2, 2, 2)[:axes], bool)
    where[0] = True
    scaler = Scaler.fit(batch, "minmax", where=where)
    np.testing.assert_array_equal(scaler.shift, [0, 1])
    np.testing.assert_array_equal(scaler.spread, [2, 2])


def test_deviations_are_scaled_but_not_shifted():
    batch = series([0.0, 1.0], [[10.0], [14.0]])
    scaler = Scaler.fit(batch)
    np.testing.assert_allclose(scaler.unscale_deviation(np.ones((3, 1), np.float32)), 2.0)


def test_the_host_stays_on_the_host_and_the_device_on_the_device():
    batch = batch_of(np.arange(8.0).reshape(2, 2, 2), np.ones((2, 2, 2), bool))
    scaler = Scaler.fit(batch)
    assert isinstance(scaler.scale(batch).values, np.ndarray)
    on_device = jax.tree.map(jnp.asarray, batch)
    scaled = jax.jit(lambda m, s: m.scale(s))(scaler, on_device)
    assert isinstance(scaled.values, jax.Array)
    np.testing.assert_allclose(scaled.values, scaler.scale(batch).values, rtol=1e-6)
    np.testing.assert_allclose(scaler.unscale(scaled.values), batch.values, atol=1e-5)


def test_refusals():
    batch = batch_of(np.ones((2, 3, 2)), np.ones((2, 3, 2), bool))
    scaler = Scaler.fit(batch)
    with pytest.raises(ValueError, match=r"Scaler.fit: kind is 'mad'; expected one of standard, robust, minmax"):
        Scaler.fit(batch, "mad")
    for where in (np.ones(3, bool), np.ones(2), np.asarray(True)):
        with pytest.raises(ValueError, match=r"where has dtype .* of the first axes of \(2, 3, 2\)"):
            Scaler.fit(batch, where=where)
    other = series([0.0], [[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"Scaler.scale: the values have shape \(1, 3\); expected 2 variables"):
        scaler.scale(other)
    with pytest.raises(ValueError, match=r"Scaler.unscale: the values have shape \(4, 1\)"):
        scaler.unscale(np.ones((4, 1), np.float32))
    with pytest.raises(ValueError, match=r"Scaler.unscale_deviation: the values have shape \(1,\)"):
        scaler.unscale_deviation(np.ones(1, np.float32))
