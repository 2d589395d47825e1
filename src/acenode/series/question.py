"""`Question`: what is known of each series, and what is asked about it."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float

from .series import Series, series as one_series, stack


class Question(eqx.Module):
    """A known part of each series, and the values that a model should give at `times`.

    `observed` says which of `values` exist, `scored` which of them count in the metrics; training uses all.
    """

    known: Series
    times: Float[Array | np.ndarray, "*batch queries"]
    values: Float[Array | np.ndarray, "*batch queries variables"]
    observed: Bool[Array | np.ndarray, "*batch queries variables"]
    scored: Bool[Array | np.ndarray, "*batch queries variables"]

    def __len__(self) -> int:
        return self.times.shape[0]


def forecast(
    whole: Series, after: float | np.ndarray, rows: int | None = None, entire: np.ndarray | None = None
) -> Question:
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
    return Question(known, whole.times, whole.values, whole.observed, whole.observed & later[..., None])


def reconstruct(whole: Series) -> Question:
    """Know everything and ask for it again: the published "interpolation"."""
    return Question(whole, whole.times, whole.values, whole.observed, whole.observed)


def _cut(whole: Series, keep: Array | np.ndarray) -> Series:
    keep = np.asarray(keep) & whole.real
    parts = [
        one_series(t[k], v[k], o[k]) for t, v, o, k in zip(whole.times, whole.values, whole.observed, keep, strict=True)
    ]
    return stack(parts, rows=whole.times.shape[-1])
