"""Hiding values from a model while it trains, so that it does not lean on any single one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..series import Series


def hidden(series: Series, part: float, key: PRNGKeyArray) -> Series:
    """The series without a random `part` of its observed values; as it is for a part of 0."""
    if not part:
        return series
    left = series.observed & jax.random.bernoulli(jax.random.fold_in(key, 1), 1 - part, series.observed.shape)
    return eqx.tree_at(lambda s: (s.values, s.observed), series, (jnp.where(left, series.values, 0.0), left))
