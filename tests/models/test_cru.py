"""CRU against a Kalman filter with full matrices in numpy, and what a prediction may see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from baselines import assert_ensemble_in_single_precision, assert_learns, seen
from sines import KEY, answer, assert_stands_alone, batch_of, linear, quick, rows

from acenode.models import CRU
from acenode.models.cru import Belief, _relative_growth
from acenode.train import parameter_count

VARIABLES, LATENT, BASES, WIDTH, LAYERS = 2, 4, 3, 5, 2
HALF, SCALE = LATENT // 2, 2.0


def model(**options) -> CRU:
    made = quick(lambda key: CRU(VARIABLES, LATENT, BASES, WIDTH, LAYERS, time_scale=SCALE, key=key, **options))
    return eqx.tree_at(lambda m: m.sde.rates, made, made.sde.rates.at[0].set(0.0))


# --- the equations --------------------------------------------------------------------------------------------


def positive(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) + 1e-4


def dense(hidden, x):
    for layer, norm in zip(hidden.layers, hidden.norms, strict=True):
        x = np.maximum(linear(layer, x), 0)
        x = (x - x.mean()) / np.sqrt(x.var() + norm.eps) * np.asarray(norm.weight) + np.asarray(norm.bias)
    return x


def full(upper, lower, side):
    return np.block([[np.diag(upper), np.diag(side)], [np.diag(side), np.diag(lower)]])


def diagonals(covariance):
    top, bottom = covariance[:HALF], covariance[HALF:]
    return np.diag(top[:, :HALF]), np.diag(bottom[:, HALF:]), np.diag(top[:, HALF:])


def predicted(m, mean, covariance, gap, steps=4000):
    """Moments of the SDE: the matrix exponential, and the integral of the noise by the midpoint rule."""
    weights = np.exp(linear(m.sde.coefficients, mean))
    rates = weights / weights.sum() @ np.asarray(m.sde.rates)
    skew = np.asarray(m.sde.skew) - np.asarray(m.sde.skew).T
    basis = np.linalg.solve(np.eye(LATENT) + skew, np.eye(LATENT) - skew)
    assert np.allclose(basis @ basis.T, np.eye(LATENT))
    grow = lambda t: basis @ np.diag(np.exp(rates * t)) @ basis.T  # noqa: E731
    noise = np.diag(positive(np.asarray(m.sde.noise)))
    time = gap / SCALE
    added = sum(grow(t) @ noise @ grow(t).T for t in (np.arange(steps) + 0.5) * time / steps) * time / steps
    return grow(time) @ mean, full(*diagonals(grow(time) @ covariance @ grow(time).T + added))


def updated(m, mean, covariance, x, o):
    """Kalman's update with the matrix that observes the upper half; the covariance keeps its four diagonals."""
    hidden = dense(m.observer.hidden, np.concatenate([np.where(o, x, 0.0), o]))
    hidden = hidden / np.linalg.norm(hidden)
    y, variance = linear(m.observer.mean, hidden), positive(linear(m.observer.variance, hidden))
    observe = np.eye(LATENT)[:HALF]
    gain = covariance @ observe.T @ np.linalg.inv(observe @ covariance @ observe.T + np.diag(variance))
    return mean + gain @ (y - observe @ mean), covariance - gain @ observe @ covariance


def by_hand(m, times, values, observed, query):
    mean, covariance = np.zeros(LATENT), np.diag(positive(np.asarray(m.first_variance)))
    before = times[0]
    for time, x, o in zip(times, values, observed, strict=True):
        if time < query and o.any():
            mean, covariance = updated(m, *predicted(m, mean, covariance, time - before), x, o)
            before = time
    return predicted(m, mean, covariance, query - before)


@pytest.mark.slow
def test_predictions_equal_a_kalman_filter_with_full_matrices():
    made, one = model(), rows()[0]
    query = np.asarray(2.5)
    trace = answer(made, batch_of([one]), query[None, None])
    mean, covariance = by_hand(made, *one, query)
    state = np.concatenate([mean, *diagonals(covariance)])
    np.testing.assert_allclose(trace.states[0, 0, 0], state, rtol=1e-5)
    found_mean, found_log_variance = made.emission(trace.states[0, 0, 0])
    np.testing.assert_allclose(found_mean, linear(made.mean, dense(made.mean_hidden, mean)), rtol=1e-4)
    spread = positive(linear(made.variance, dense(made.variance_hidden, state[LATENT:])))
    np.testing.assert_allclose(found_log_variance, np.log(spread), rtol=1e-4)


@pytest.mark.slow
def test_no_time_changes_nothing():
    state = Belief(jnp.arange(4.0), jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0]), jnp.asarray([0.5, -1.0]))
    after = model().cell().drift(state, jnp.zeros(()))
    for found, expected in zip(after, state, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_longer_the_gap_the_less_certain_and_a_row_makes_more_certain():
    made = eqx.tree_at(lambda m: m.sde.rates, model(), jnp.zeros((BASES, LATENT)))
    cell, start = made.cell(), made.cell().start()
    near, far = (cell.drift(start, jnp.asarray(gap)) for gap in (0.1, 1.0))
    assert (near.upper > start.upper).all() and (far.upper > near.upper).all() and (far.lower > near.lower).all()
    after = cell.update(far, jnp.ones(VARIABLES), jnp.ones(VARIABLES, bool), KEY)
    assert (after.upper < far.upper).all() and (after.lower <= far.lower).all()


@pytest.mark.parametrize("dtype, rtol", [(np.float64, 3e-8), (np.float32, 1e-5)])
def test_relative_growth_and_its_slope_near_zero(dtype, rtol):
    x = np.asarray([-20.0, -1.0, -0.1, -1e-3, -1e-9, 0.0, 1e-9, 1e-5, 0.0999, 0.1001, 3.0])
    exact = np.asarray([1.0 if v == 0 else np.expm1(v) / v for v in x])
    slope = np.asarray([0.5 + v / 3 if abs(v) < 1e-4 else (np.exp(v) * (v - 1) + 1) / v**2 for v in x])
    given = jnp.asarray(x, dtype)
    np.testing.assert_allclose(_relative_growth(given), exact, rtol=rtol)
    np.testing.assert_allclose(jax.vmap(jax.grad(_relative_growth))(given), slope, rtol=100 * rtol)


# --- sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v, z, k, w, n", [(2, 4, 3, 5, 2), (5, 32, 10, 50, 3)])
def test_parameter_count(v, z, k, w, n):
    hidden = lambda inputs, layers: (inputs + 1) * w + (layers - 1) * (w + 1) * w + 2 * layers * w  # noqa: E731
    observer = hidden(2 * v, n) + 2 * (w + 1) * (z // 2)
    sde = z * z + k * z + (z + 1) * k + z
    decoder = hidden(z, n) + hidden(3 * z // 2, 1) + 2 * (w + 1) * v
    made = quick(lambda key: CRU(v, z, k, w, n, key=key))
    assert parameter_count(made) == observer + sde + z + decoder
    assert made.size == 5 * z // 2


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="must be even"):
        CRU(2, 5, key=KEY)
    with pytest.raises(ValueError, match="time_scale=-1"):
        CRU(2, time_scale=-1.0, key=KEY)


# --- what matters and what does not ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_prediction_stands_alone():
    slopes = assert_stands_alone(model())
    for path, x in jax.tree_util.tree_leaves_with_path(slopes):
        name = jax.tree_util.keystr(path)
        read_by_emission = name.startswith((".mean", ".variance"))
        assert np.asarray(x).any() == (not read_by_emission), name


def test_it_is_causal():
    assert CRU.causal
    assert seen(model()) == [True, True, False, False, False]
    assert seen(model(including=True)) == [True, True, True, False, False]


@pytest.mark.slow
def test_an_ensemble_in_single_precision():
    assert_ensemble_in_single_precision(model())


@pytest.mark.slow
def test_it_learns():
    assert_learns(lambda key: CRU(2, 8, 4, 12, 1, time_scale=1.5, key=key), 0.6)
