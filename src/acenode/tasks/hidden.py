"""Hiding variables from a model while it trains, so that it does not lean on any single one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..series import Series


def hidden(series: Series, part: float, key: PRNGKeyArray) -> Series:
    """The series, each as if a random `part` of its variables had never been measured; as they are for a part of 0."""
    if not part:
        return series
    batch, _, variables = series.observed.shape
    left = series.observed & jax.random.bernoulli(jax.random.fold_in(key, 1), 1 - part, (batch, 1, variables))
    return eqx.tree_at(lambda s: (s.values, s.observed), series, (jnp.where(left, series.values, 0.0), left))
