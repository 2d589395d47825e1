"""The last known values: carried forward for an encoder, and beside the states for a head, against loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import CarriedForward, FirstLook, WithLastValue
from acenode.models.last_value import last_rows
from acenode.models.trace import Trace
from acenode.ode import Constant, MLPField, NeuralODE, Solver, Stats
from acenode.series import series, stack
from acenode.tasks import ResidualDecoder

NAN = np.nan
RECORDS = stack(
    [
        series([0.1, 0.3, 0.6], [[1.0, NAN, NAN], [2.0, 5.0, NAN], [NAN, 6.0, NAN]]),
        series([0.2], [[NAN, NAN, 7.0]]),
    ]
)
MEAN = np.array([0.5, -0.5, 0.25])


def test_last_rows():
    np.testing.assert_array_equal(last_rows(RECORDS)[0], [[0, -1, -1], [1, 1, -1], [1, 2, -1]])
    np.testing.assert_array_equal(last_rows(RECORDS)[1], [[-1, -1, 0]] * 3)


def test_an_encoder_sees_values_carried_forward():
    seen = {}

    def look(given):
        seen.update(values=np.asarray(given.values), observed=np.asarray(given.observed))
        return jnp.zeros((2, 1))

    CarriedForward(look)(RECORDS)
    np.testing.assert_array_equal(seen["values"][0], [[1, 0, 0], [2, 5, 0], [2, 6, 0]])
    np.testing.assert_array_equal(seen["observed"], RECORDS.observed)


@pytest.fixture
def model(key):
    return FirstLook(NeuralODE(MLPField((3, 2), 8, 1, key=key), Solver("rk4", step=0.25)), 2)


class _Flat(eqx.Module):
    model: FirstLook

    def __call__(self, series, times, key, *, attention=False):
        trace = self.model(series, times, key)
        return eqx.tree_at(lambda t: t.states, trace, trace.states.reshape(*trace.states.shape[:3], -1))


def _still(series, times, key, *, attention=False):
    """A model whose states are zeros, whatever is asked."""
    none = jnp.zeros(2)
    return Trace(jnp.zeros((1, *times.shape, 2)), jnp.zeros((1, 2, 2)), none, None, Stats.none(2), None, None)


def test_states_are_followed_by_last_values_and_their_age(model, key):
    times = jnp.asarray([[0.7, 0.9], [0.8, 1.0]])
    plain = _Flat(model)(RECORDS, times, key).states
    states = WithLastValue(_Flat(model), Constant(jnp.asarray(MEAN)))(RECORDS, times, key).states
    np.testing.assert_array_equal(states[..., :-6], plain)
    values, age = states[0, ..., -6:-3], states[0, ..., -3:]
    np.testing.assert_allclose(values[0], [[2.0, 6.0, 0.25]] * 2)
    np.testing.assert_allclose(values[1], [[0.5, -0.5, 7.0]] * 2)
    np.testing.assert_allclose(age[0], [[0.4, 0.1, 0.7], [0.6, 0.3, 0.9]], rtol=1e-6)
    np.testing.assert_allclose(age[1], [[0.8, 0.8, 0.6], [1.0, 1.0, 0.8]], rtol=1e-6)


def test_an_answer_leans_on_nothing_that_comes_later(key):
    times = jnp.asarray([[0.05, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.4]], RECORDS.times.dtype)
    states = WithLastValue(_still, Constant(jnp.asarray(MEAN)))(RECORDS, times, key).states
    values, age = states[0, ..., -6:-3], states[0, ..., -3:]
    np.testing.assert_allclose(values[0], [[0.5, -0.5, 0.25], [1.0, -0.5, 0.25], [2.0, 5.0, 0.25], [2.0, 5.0, 0.25]])
    np.testing.assert_allclose(age[0], [[0.05] * 3, [0.1, 0.2, 0.2], [0.0, 0.0, 0.3], [0.2, 0.2, 0.5]], atol=1e-6)
    np.testing.assert_allclose(values[1, :, 2], [0.25, 7.0, 7.0, 7.0])
    np.testing.assert_allclose(age[1, :, 2], [0.1, 0.0, 0.1, 0.2], atol=1e-6)


def test_a_decoder_leans_on_the_last_value_less_and_less(key):
    decoder = ResidualDecoder(4, 3, key=key)
    own, last = np.array([0.1, -0.2, 0.3, 0.0]), np.array([2.0, 6.0, -1.0])
    both = np.asarray(decoder.net.weight) @ own + np.asarray(decoder.net.bias)
    guess, logit = both[:3], both[3:]
    distances = []
    for age in (0.0, 0.5, 50.0):
        trust = 1 / (1 + np.exp(age * np.log(2.0) - logit))  # softplus(0) = log 2
        value = decoder(jnp.concatenate([own, last, np.full(3, age)]))
        np.testing.assert_allclose(value, guess + trust * (last - guess), rtol=1e-5)
        distances.append(np.abs(np.asarray(value) - last))
    assert (distances[0] < 0.2 * np.abs(guess - last)).all()
    assert (distances[0] < distances[1]).all() and (distances[1] < distances[2]).all()
    assert jax.grad(lambda d: d(jnp.ones(10)).sum())(decoder).fading.shape == (3,)
