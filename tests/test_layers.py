"""Layers: what Equinox's compute, with the samples in front."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.layers import GRUCell, Linear, mlp, normal_linear, scale_last

X = jax.random.normal(jax.random.key(1), (4, 3))


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_linear_layer_is_equinoxs(key, use_bias):
    ours, theirs = (kind(3, 5, use_bias, key=key) for kind in (Linear, eqx.nn.Linear))
    np.testing.assert_allclose(jax.vmap(ours)(X), jax.vmap(theirs)(X), rtol=1e-6)


def test_a_gru_cell_is_equinoxs(key):
    h = jax.random.normal(key, (4, 5))
    ours, theirs = (kind(3, 5, key=key) for kind in (GRUCell, eqx.nn.GRUCell))
    np.testing.assert_allclose(jax.vmap(ours)(X, h), jax.vmap(theirs)(X, h), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hidden", [0, 2])
def test_an_mlp_is_equinoxs(key, hidden):
    ours, theirs = mlp(3, 2, 7, hidden, key=key), eqx.nn.MLP(3, 2, 7, hidden, jnp.tanh, key=key)
    np.testing.assert_allclose(jax.vmap(ours)(X), jax.vmap(theirs)(X), rtol=1e-5, atol=1e-7)


def test_normal_weights_have_a_tenth_and_no_bias(key):
    (first, last) = mlp(3, 400, 100, 1, init="normal", key=key).layers
    assert np.std(last.weight) == pytest.approx(0.1, rel=0.05)
    assert not first.bias.any() and not last.bias.any()
    np.testing.assert_array_equal(last.weight, normal_linear(100, 400, key=jax.random.split(key)[1]).weight)


def test_the_last_layer_is_scaled(key):
    net = mlp(3, 2, 7, 1, key=key)
    np.testing.assert_allclose(jax.vmap(scale_last(net, 0.5))(X), 0.5 * jax.vmap(net)(X), rtol=1e-5)


def test_samples_of_two_batches_are_not_moved_after_the_product(key):
    layer = Linear(3, 5, key=key)
    program = jax.make_jaxpr(jax.vmap(jax.vmap(layer)))(jnp.zeros((2, 4, 3)))
    moved = [e for e in program.jaxpr.eqns if e.primitive.name == "transpose" and e.outvars[0].aval.ndim > 2]
    assert not moved
