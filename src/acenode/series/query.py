"""`Query`: what is known of each series, and what is asked about it."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float

from .series import Series, series as one_series, stack


class Query(eqx.Module):
    """A known part of each series, and the values that a model should give at `times`.

    `observed` says which of `values` exist, `scored` which of them count in the metrics; training uses all.
    """

    context: Series
    times: Float[Array | np.ndarray, "*batch queries"]
    values: Float[Array | np.ndarray, "*batch queries variables"]
    observed: Bool[Array | np.ndarray, "*batch queries variables"]
    scored: Bool[Array | np.ndarray, "*batch queries variables"]

    def __len__(self) -> int:
        return self.times.shape[0]


def forecast(
    whole: Series, after: float | np.ndarray, rows: int | None = None, entire: np.ndarray | None = None
) -> Query:
    """Know each series up to time `after`; ask for all of it, and score what comes later.

    `after` may be one time for each series, of shape (batch, 1). `rows` scores only the first so many rows after it.
    `entire` marks series that are known to their end: for training models that answer from what came before a queried
    time only, and so learn from every row.
    """
    early = whole.times <= after
    known = _cut(whole, early if entire is None else early | np.asarray(entire)[:, None])
    later = (whole.times > after) & whole.real
    if rows is not None:
        later = later & (np.cumsum(later, axis=-1) <= rows)
    return Query(known, whole.times, whole.values, whole.observed, whole.observed & later[..., None])


def extrapolate(whole: Series, after: float) -> Query:
    """Know each series up to time `after`; ask only for what comes later."""
    later = (whole.times > after) & whole.real
    queried = _cut(whole, later).trimmed()
    # A series that ends before: asked at `after`, about nothing.
    times = np.where(queried.length[:, None] > 0, queried.times, after).astype(whole.times.dtype)
    known = _cut(whole, np.asarray(whole.times) <= after).trimmed()
    return Query(known, times, queried.values, queried.observed, queried.observed)


def hold_out(whole: Series, part: float = 0.2, seed: int = 0) -> Query:
    """Hide a random `part` of the observed values; ask for all of them, and score those that were hidden."""
    if not 0 < part < 1:
        raise ValueError(f"hold_out(part=...): {part}; expected a number between 0 and 1.")
    observed = np.asarray(whole.observed)
    hidden = observed & (np.random.default_rng(seed).random(observed.shape) < part)
    left = observed & ~hidden
    known = Series(whole.times, np.where(left, whole.values, 0).astype(whole.values.dtype), left, whole.length)
    return Query(known, whole.times, whole.values, whole.observed, hidden)


def reconstruct(whole: Series) -> Query:
    """Know everything and ask for it again: the published "interpolation"."""
    return Query(whole, whole.times, whole.values, whole.observed, whole.observed)


def _cut(whole: Series, keep: Array | np.ndarray) -> Series:
    keep = np.asarray(keep) & whole.real
    parts = [
        one_series(t[k], v[k], o[k]) for t, v, o, k in zip(whole.times, whole.values, whole.observed, keep, strict=True)
    ]
    return stack(parts, rows=whole.times.shape[-1])
