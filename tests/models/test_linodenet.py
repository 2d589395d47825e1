"""LinODENet against its equations in numpy, its closed-form solution, and what a prediction may see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from baselines import assert_ensemble_in_single_precision, assert_learns, seen
from sines import KEY, answer, assert_stands_alone, batch_of, linear, quick, rows

from acenode.models import LinODENet
from acenode.models.linodenet import KalmanCell, LinearODE
from acenode.train import parameter_count

VARIABLES, HIDDEN, LATENT, LAYERS = 2, 3, 4, 2
SCALE = 2.0


def model(**options) -> LinODENet:
    return quick(lambda key: LinODENet(VARIABLES, HIDDEN, LATENT, LAYERS, time_scale=SCALE, key=key, **options))


# --- the closed form ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [0.0, 0.3, 5.0])
def test_the_solution_is_the_matrix_exponential(time):
    system = quick(lambda key: LinearODE(6, key=key), 2.0)
    z = np.random.default_rng(0).normal(size=6)
    expected = jax.scipy.linalg.expm(system.kernel * time) @ z
    np.testing.assert_allclose(system(jnp.asarray(z), jnp.asarray(time)), expected, rtol=1e-9, atol=1e-12)


def test_a_change_of_basis_makes_it_the_exponential_of_a_full_matrix():
    system = quick(lambda key: LinearODE(4, key=key), 1.0)
    basis = np.random.default_rng(1).normal(size=(4, 4))
    full = basis @ np.asarray(system.kernel) @ np.linalg.inv(basis)
    z = np.arange(4.0)
    inside = system(jnp.asarray(np.linalg.solve(basis, z)), jnp.asarray(0.7))
    np.testing.assert_allclose(basis @ inside, jax.scipy.linalg.expm(jnp.asarray(full) * 0.7) @ z, rtol=1e-8)


def test_the_solution_decays_in_the_long_run():
    system = LinearODE(6, key=KEY)
    assert np.abs(system(jnp.ones(6), jnp.asarray(1e4))).max() < 1e-12


# --- the equations --------------------------------------------------------------------------------------------


def through(blocks, x):
    for block in blocks:
        x = x + float(block.scale) * np.asarray(block.outer.weight) @ np.tanh(linear(block.inner, x))
    return x


def filtered(cell, estimate, x, m):
    residual = lambda e: m * (x - e[:VARIABLES])  # noqa: E731
    mixed = m * (residual(estimate) + np.asarray(cell.mix) @ residual(estimate))
    better = estimate + np.asarray(cell.spread.weight) @ mixed
    better[:VARIABLES] += np.asarray(cell.gain) * mixed
    for one in cell.cells:
        better = better + float(one.scale) * np.asarray(one.outer.weight) @ np.tanh(
            np.asarray(one.inner.weight) @ residual(better)
        )
    return better


def by_hand(m, times, values, observed, query):
    """The estimate at `query`, from a loop over the rows before it."""
    z, before, kernel = np.asarray(m.first), times[0], np.asarray(m.system.kernel)
    decode = lambda z: through(m.decoder, linear(m.project, z))  # noqa: E731
    for time, x, o in zip(times, values, observed, strict=True):
        if time < query and o.any():
            z = np.asarray(jax.scipy.linalg.expm(kernel * (time - before) / SCALE)) @ z
            estimate = decode(z)
            better = filtered(m.filter, estimate, np.where(o, x, 0.0), o)
            z = z + np.asarray(m.embed.weight) @ (through(m.encoder, better) - through(m.encoder, estimate))
            before = time
    return decode(np.asarray(jax.scipy.linalg.expm(kernel * (query - before) / SCALE)) @ z)


def test_predictions_equal_the_equations():
    made, one = model(), rows()[0]
    queries = np.asarray([one[0][1], 1.5, 4.0])
    trace = answer(made, batch_of([one]), queries[None])
    expected = np.stack([by_hand(made, *one, q) for q in queries])
    np.testing.assert_allclose(trace.states[0, 0], expected, rtol=1e-6)
    mean, log_variance = made.emission(trace.states[0, 0, 1])
    np.testing.assert_allclose(mean, expected[1][:VARIABLES], rtol=1e-6)
    np.testing.assert_allclose(log_variance, linear(made.log_variance, expected[1]), rtol=1e-6)


def test_a_row_that_agrees_with_the_estimate_changes_nothing():
    made = model()
    z = jnp.asarray([0.3, -0.2, 0.5, 1.0])
    estimate = made.read(z)[:VARIABLES]
    same = made.update(z, estimate, jnp.ones(VARIABLES, bool), KEY)
    half = made.update(z, jnp.asarray([float(estimate[0]), 9.0]), jnp.asarray([True, False]), KEY)
    np.testing.assert_allclose(same, z, atol=1e-12)
    np.testing.assert_allclose(half, z, atol=1e-12)
    assert not np.allclose(made.update(z, estimate + 1, jnp.ones(VARIABLES, bool), KEY), z, atol=1e-3)


def test_a_gain_of_one_takes_over_the_observed_values():
    cell = KalmanCell(2, 3, 1, key=KEY)
    cell = eqx.tree_at(lambda c: (c.gain, c.spread.weight), cell, (jnp.ones(2), jnp.zeros((3, 2))))
    better = cell(jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([7.0, 0.0]), jnp.asarray([True, False]))
    np.testing.assert_allclose(better, [7.0, 2.0, 3.0])


@pytest.mark.slow
def test_a_new_model_stays_bounded_over_many_rows():
    made = LinODENet(VARIABLES, 8, 6, 1, time_scale=3.0, key=KEY)
    random = np.random.default_rng(0)
    values = random.normal(size=(300, VARIABLES))
    one = (np.arange(300) / 100, values, random.random(values.shape) < 0.5)
    states = answer(made, batch_of([one]), np.asarray([[1.0, 2.0, 3.0, 9.0]])).states
    assert np.abs(states).max() < 10


# --- sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v, h, z, n", [(2, 3, 4, 2), (5, 64, 64, 2)])
def test_parameter_count(v, h, z, n):
    blocks = 2 * n * (h * (2 * h + 1) + 1)
    cell = v + v * v + h * v + n * (h * v + h * h + 1)
    made = quick(lambda key: LinODENet(v, h, z, n, key=key))
    assert parameter_count(made) == z + blocks + h * z + (z * h + h) + cell + z + v * (h + 1)
    assert made.size == h


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="all 5 variables; raise hidden"):
        LinODENet(5, 4, key=KEY)
    with pytest.raises(ValueError, match="must be even"):
        LinODENet(2, 4, 5, key=KEY)
    with pytest.raises(ValueError, match="time_scale=0"):
        LinODENet(2, time_scale=0.0, key=KEY)


# --- what matters and what does not ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_prediction_stands_alone():
    slopes = assert_stands_alone(model())
    unread = {".log_variance.weight", ".log_variance.bias"}  # the emission alone reads them
    for path, x in jax.tree_util.tree_leaves_with_path(slopes):
        name = jax.tree_util.keystr(path)
        assert np.asarray(x).any() == (name not in unread), name


def test_it_is_causal():
    assert LinODENet.causal
    assert seen(model()) == [True, True, False, False, False]
    assert seen(model(including=True)) == [True, True, True, False, False]


@pytest.mark.slow
def test_an_ensemble_in_single_precision():
    assert_ensemble_in_single_precision(model())


@pytest.mark.slow
def test_it_learns():
    assert_learns(lambda key: LinODENet(2, 12, 12, 1, time_scale=1.5, key=key), 0.25)
