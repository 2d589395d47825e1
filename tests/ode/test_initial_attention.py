"""The first attention a(0) = q(h(0)): correlation, dense, convolutions, identity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import count, noise

from acenode.ode import ConvInitial, Correlation, Dense, Identity, Pairwise, correlation as eager_correlation

correlation = jax.jit(eager_correlation)


def test_correlation_is_pearsons():
    h = jnp.asarray(np.asarray(noise(30, 4)) @ np.array([[1, 0.5, 0, 0], [0, 1, -2, 0], [0, 0, 1, 0], [3, 0, 0, 1.0]]))
    np.testing.assert_allclose(correlation(h), np.corrcoef(np.asarray(h).T), rtol=1e-10)
    np.testing.assert_array_equal(jnp.diag(correlation(h)), 1.0)


def test_channels_are_further_observations():
    h = noise(6, 3, 5)
    rows = np.moveaxis(np.asarray(h), 1, 0).reshape(3, -1)
    np.testing.assert_allclose(correlation(h), np.corrcoef(rows), rtol=1e-10)
    assert Correlation(3)(h).shape == (6, 3, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_dimensions(dtype):
    h = np.array(noise(37, 6), dtype)
    # Numbers whose mean over 37 samples is not what it should be in floating point, and a spread of next to nothing.
    h[:, 0], h[:, 1], h[:, 2], h[:, 3] = 27.374214, -1000.1, 0.0, 1e-8 * h[:, 3]
    c = np.asarray(correlation(jnp.asarray(h)))
    expected = np.eye(6)
    expected[4:, 4:] = np.corrcoef(h[:, 4:].astype(np.float64).T)
    np.testing.assert_allclose(c, expected, atol=1e-6)
    np.testing.assert_array_equal(c[:4, :4], np.eye(4))


def test_a_batch_of_one_and_equal_samples_give_the_identity():
    h = noise(1, 4)
    np.testing.assert_array_equal(correlation(h), np.eye(4))
    np.testing.assert_array_equal(correlation(jnp.tile(h, (5, 1))), np.eye(4))


def test_correlation_is_clipped():
    for seed in range(20):
        x = np.asarray(noise(7, 1, seed=seed), np.float32)
        c = correlation(jnp.asarray(np.concatenate([x, 3 * x, -x / 10, x + 1], axis=1)))
        assert jnp.abs(c).max() <= 1
        np.testing.assert_allclose(jnp.abs(c), 1.0, rtol=1e-5)


def test_no_gradient_through_the_correlation():
    h = noise(5, 3)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda h: jnp.sum(Correlation(3)(h) ** 2)))(h), 0.0)
    q = Correlation(3).fit_reference_statistics(h)
    grads = eqx.filter_jit(eqx.filter_grad(lambda q: jnp.sum(eqx.nn.inference_mode(q)(h) ** 2)))(q)
    np.testing.assert_array_equal(grads.reference.array, 0.0)


def test_correlation_while_training_and_in_inference():
    h, other = noise(9, 3), noise(4, 3, seed=1)
    q = Correlation(3)
    np.testing.assert_allclose(q(other), np.broadcast_to(correlation(other), (4, 3, 3)), rtol=1e-12)
    assert np.isnan(eqx.nn.inference_mode(q)(other)).all()  # nothing was measured, and nothing is made up
    given = Correlation(3, inference=True, reference=jnp.eye(3))
    np.testing.assert_array_equal(given(other), jnp.broadcast_to(jnp.eye(3), (4, 3, 3)))
    known = q.fit_reference_statistics(h)
    np.testing.assert_array_equal(known(other), q(other))
    np.testing.assert_array_equal(
        eqx.nn.inference_mode(known)(other), np.broadcast_to(known.reference.array, (4, 3, 3))
    )
    np.testing.assert_allclose(known.reference.array, correlation(h), rtol=1e-12)
    assert Correlation(3, inference=True)(other.astype(jnp.float32)).dtype == jnp.float32


def test_dense(key):
    q = Dense(3, key=key)
    h = jnp.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    a = q(h)
    assert a.shape == (2, 3, 3)
    assert sum(leaf.size for leaf in jax.tree.leaves(q)) == 27  # H -> H^2 without bias
    np.testing.assert_allclose(a[0].ravel(), np.asarray(q.linear.weight) @ np.array([1.0, 2.0, 3.0]), rtol=1e-12)
    np.testing.assert_array_equal(a[1], 0.0)


def test_identity():
    a = Identity()(jnp.ones((2, 4, 3)))
    assert a.shape == (2, 4, 4)
    np.testing.assert_array_equal(Pairwise().weights(a[0]), np.eye(4))
    assert Identity()(jnp.ones((2, 4), jnp.float32)).dtype == jnp.float32
    np.testing.assert_array_equal(Pairwise().weights(Identity()(jnp.ones((1, 4), jnp.float32))[0]), np.eye(4))
    np.testing.assert_allclose(Pairwise().weights(Identity(0.0)(jnp.ones((1, 4)))[0]), 0.25)


@pytest.mark.parametrize(
    "channels, convs, parameters", [(64, 1, 37_312), (64, 2, 74_240), (128, 1, 148_352), (128, 2, 295_936)]
)
def test_conv_initial_parameter_counts(channels, convs, parameters, key):
    assert count(ConvInitial, channels, convs, key=key) == parameters


@pytest.mark.parametrize("convs", [1, 2])
def test_conv_initial_keeps_shape_and_samples_apart(convs, key):
    q = ConvInitial(4, convs, key=key)
    h = noise(3, 5, 6, 4)
    a = eqx.filter_jit(q)(h)
    assert a.shape == h.shape
    np.testing.assert_allclose(eqx.filter_jit(q)(h.at[1:].multiply(-2))[0], a[0], rtol=1e-12)
    # Its last layer is a group norm: every group of a sample has mean 0 and spread 1.
    np.testing.assert_allclose(a.mean(axis=(1, 2)), 0.0, atol=1e-12)
    np.testing.assert_allclose(a.std(axis=(1, 2)), 1.0, rtol=1e-2)
