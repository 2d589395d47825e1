"""Metrics that need all samples at once, as array programs."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def error_by_time(
    times: np.ndarray,
    error: np.ndarray,
    scored: np.ndarray,
    bins: int,
    between: tuple[float, float] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of the scored errors (batch, queries, variables) in equal bins of their times (batch, queries).

    Edges, means (0 in an empty bin) and numbers of values. The bins lie `between` two times, or the first and the last
    that are scored; what is outside counts in the bin at that end.
    """
    at = np.broadcast_to(times[..., None], error.shape)[scored]
    low, high = between or (at.min(), max(at.max(), at.min() + 1e-6))
    edges = np.linspace(low, high, bins + 1)
    place = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    total = np.bincount(place, weights=error[scored], minlength=bins)
    return edges, total / np.maximum(count, 1), count


def roc_auc(score: Float[Array, " n"], label: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, ""]:
    """Area under the receiver operating characteristic: the chance that a positive scores above a negative.

    Ties count half. Samples of weight 0 do not count. 0.5 where one of the classes is absent.
    """
    order = jnp.argsort(score)
    s, positive = score[order], (label * weight)[order]
    negative = ((1 - label) * weight)[order]
    below = jnp.cumsum(negative)
    # Negatives strictly below a score, and up to it: equal scores share both.
    left = jnp.searchsorted(s, s, side="left")
    right = jnp.searchsorted(s, s, side="right")
    padded = jnp.concatenate([jnp.zeros(1, below.dtype), below])
    wins = 0.5 * (padded[left] + padded[right])
    pairs = positive.sum() * negative.sum()
    return jnp.where(pairs > 0, jnp.sum(positive * wins) / jnp.maximum(pairs, 1), 0.5)


def average_precision(
    score: Float[Array, " n"], label: Float[Array, " n"], weight: Float[Array, " n"]
) -> Float[Array, ""]:
    """Area under the precision-recall curve: the mean precision at every positive. Equal scores share a threshold."""
    order = jnp.argsort(-score)
    s, positive, counted = -score[order], (label * weight)[order], weight[order]
    up_to = jnp.searchsorted(s, s, side="right") - 1
    precision = jnp.cumsum(positive)[up_to] / jnp.maximum(jnp.cumsum(counted)[up_to], 1)
    return jnp.sum(precision * positive) / jnp.maximum(positive.sum(), 1)


def calibration_error(
    probability: Float[Array, " n"], label: Float[Array, " n"], weight: Float[Array, " n"], bins: int = 10
) -> Float[Array, ""]:
    """Mean distance between predicted probability and observed frequency over equal bins of probability."""
    place = jnp.clip((probability * bins).astype(int), 0, bins - 1)
    member = (place[:, None] == jnp.arange(bins)) * weight[:, None]
    gap = jnp.abs(member.T @ probability - member.T @ label)
    return gap.sum() / jnp.maximum(weight.sum(), 1)
