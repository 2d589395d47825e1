"""`Query`: the context of each series, and the values to predict from it."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float

from .series import Series, series as one_series, stack


class Query(eqx.Module):
    """The context, a part of each series, and the values that a model should predict at `times` from it.

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
    """The context is each series up to time `after`; all of it is queried, and what comes later is scored.

    `after` may be one time for each series, of shape (batch, 1). `rows` scores only the first so many rows after it.
    `entire` marks series whose context is all of them: for training models that predict from what came before a query
    time only, and so learn from every row.
    """
    early = whole.times <= after
    context = _cut(whole, early if entire is None else early | np.asarray(entire)[:, None])
    later = (whole.times > after) & whole.real
    if rows is not None:
        later = later & (np.cumsum(later, axis=-1) <= rows)
    return Query(context, whole.times, whole.values, whole.observed, whole.observed & later[..., None])


def extrapolate(whole: Series, after: float) -> Query:
    """The context is each series up to time `after`; only what comes later is queried."""
    later = (whole.times > after) & whole.real
    queried = _cut(whole, later).trimmed()
    # A series that ends before is queried at `after`, with nothing to score.
    times = np.where(queried.length[:, None] > 0, queried.times, after).astype(whole.times.dtype)
    context = _cut(whole, np.asarray(whole.times) <= after).trimmed()
    return Query(context, times, queried.values, queried.observed, queried.observed)


def hold_out(whole: Series, part: float = 0.2, seed: int = 0) -> Query:
    """The context lacks a random `part` of the observed values; all are queried, and those that it lacks scored."""
    if not 0 < part < 1:
        raise ValueError(f"hold_out(part=...): {part}; expected a number between 0 and 1.")
    observed = np.asarray(whole.observed)
    hidden = observed & (np.random.default_rng(seed).random(observed.shape) < part)
    left = observed & ~hidden
    context = Series(whole.times, np.where(left, whole.values, 0).astype(whole.values.dtype), left, whole.length)
    return Query(context, whole.times, whole.values, whole.observed, hidden)


def reconstruct(whole: Series) -> Query:
    """The context is everything, and everything is queried again: the published "interpolation"."""
    return Query(whole, whole.times, whole.values, whole.observed, whole.observed)


def _cut(whole: Series, keep: Array | np.ndarray) -> Series:
    keep = np.asarray(keep) & whole.real
    parts = [
        one_series(t[k], v[k], o[k]) for t, v, o, k in zip(whole.times, whole.values, whole.observed, keep, strict=True)
    ]
    return stack(parts, rows=whole.times.shape[-1])
