"""How an attention acts on a state: Equations 4 and 5."""

import jax.numpy as jnp
import numpy as np
import pytest
from problems import noise

from acenode.ode import Elementwise, Pairwise


@pytest.mark.parametrize("shape", [(4,), (4, 3)], ids=["vector", "rows"])
def test_pairwise_against_loops(shape):
    h, a = noise(*shape), 3 * noise(4, 4, seed=1)
    attended = Pairwise()(h, a)
    assert attended.shape == shape
    for i in range(4):
        weights = [np.exp(float(a[i, j])) for j in range(4)]
        expected = sum(w * np.asarray(h[j]) for j, w in enumerate(weights)) / sum(weights)
        np.testing.assert_allclose(attended[i], expected, rtol=1e-12)


def test_pairwise_is_h_times_s_transposed():
    h, a = noise(5), noise(5, 5, seed=1)
    np.testing.assert_allclose(Pairwise()(h, a), h @ Pairwise().weights(a).T, rtol=1e-12)


def test_rows_of_the_weights_add_up_to_one():
    a = 400 * noise(2, 6, 4, 4)  # large logits: no overflow
    weights = Pairwise().weights(a)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-12)
    assert (weights >= 0).all()
    assert not np.allclose(weights.sum(axis=-2), 1.0)


def test_scale_multiplies_the_logits():
    a = noise(3, 3)
    np.testing.assert_allclose(Pairwise(temperature=0.4).weights(a), Pairwise().weights(2.5 * a), rtol=1e-12)
    np.testing.assert_allclose(Pairwise(temperature=1e12)(jnp.array([1.0, 2.0, 6.0]), a), 3.0, rtol=1e-12)


def test_elementwise():
    h, a = noise(2, 3, 4), noise(2, 3, 4, seed=1)
    np.testing.assert_allclose(Elementwise()(h, a), np.asarray(h) / (1 + np.exp(-np.asarray(a))), rtol=1e-12)
    np.testing.assert_allclose(Elementwise().weights(jnp.zeros(2)), 0.5)


def test_shapes_of_the_attention():
    assert Pairwise().shape((7,)) == Pairwise().shape((7, 3)) == (7, 7)
    assert Elementwise().shape((7,)) == (7,)
    assert Elementwise().shape((64, 7, 7)) == (64, 7, 7)
