"""Metrics that need all samples at once: of classes and of errors over time, and the recovery of known influence."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num


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

    Ties count half. Samples of weight 0 do not count. NaN where one of the classes is absent.
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
    return jnp.where(pairs > 0, jnp.sum(positive * wins) / jnp.maximum(pairs, 1), jnp.nan)


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


# --- recovery of known influence ------------------------------------------------------------------------------

Influence = Num[Array | np.ndarray, "_ _ _ _"]  # (samples, moments, n, n)


def edge_auc(weights: Influence, truth: Influence) -> float:
    """How well |weights| tell the edges of the true graph from the pairs without one, over all samples and moments.

    Area under the ROC curve; entry (i, j) is the influence of j on i. The diagonal is left out. NaN where the truth has
    an edge everywhere, or nowhere.
    """
    from sklearn.metrics import roc_auc_score  # slow to import

    found, known = _off_diagonal(weights, truth)
    edges = known.ravel() != 0
    return float("nan") if edges.all() or not edges.any() else float(roc_auc_score(edges, np.abs(found.ravel())))


def influence_correlation(weights: Influence, truth: Influence) -> float:
    """The Pearson correlation of weights and true influence over the pairs and moments of a sample, mean over samples.

    The diagonal is left out, and so are samples whose weights or truth are the same everywhere; NaN where all are.
    """
    found, known = _off_diagonal(weights, truth)
    found, known = (x - x.mean(axis=1, keepdims=True) for x in (found, known))
    size = np.linalg.norm(found, axis=1) * np.linalg.norm(known, axis=1)
    defined = size > 1e-12
    if not defined.any():
        return float("nan")
    return float(np.mean(np.sum(found * known, axis=1)[defined] / size[defined]))


def _off_diagonal(weights: Influence, truth: Influence) -> tuple[np.ndarray, np.ndarray]:
    """Both as (samples, moments and pairs)."""
    if weights.shape != truth.shape:
        raise ValueError(
            f"the weights have shape {weights.shape} and the true influence {truth.shape}; expected (samples, moments, "
            "n, n) for both, at the same moments."
        )
    pairs = ~np.eye(truth.shape[-1], dtype=bool)
    found, known = (np.asarray(x, np.float64)[..., pairs].reshape(len(x), -1) for x in (weights, truth))
    return found, known
