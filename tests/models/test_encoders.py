"""Encoders side by side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from acenode.models import GRUEncoder, Joined
from acenode.series import series, stack


def test_encoders_side_by_side(key):
    records = stack([series([0.0, 1.0], [[3.0, np.nan], [np.nan, -2.0]]), series([0.5], [[np.nan, 4.0]])])
    units = [GRUEncoder(2, 3, key=k) for k in jax.random.split(key)]
    both = eqx.filter_jit(Joined(tuple(units)))(records)
    np.testing.assert_allclose(both, jnp.concatenate([unit(records) for unit in units], axis=1))
