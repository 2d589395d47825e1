"""Physiome-ODE (ICLR 2025): forecasting irregular series made from published physiological ODEs.

A packed set (`NAME.npz`) holds the clean series: `x` (series, moments, channels), every channel with mean 0 and
variance 1 over the set; `targets`, the channels that are scored; `span`, the time from the first to the last moment.
`fold` adds noise and masks as the benchmark does. The benchmark's own folds depend on the order of files on a disk,
so these are other draws of the same distribution: compare means over the five folds.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..series import Query, Series
from .files import DataCorrupted, DataNotFound, look, user_folders
from .split import Split

NAME = "physiome"
NOISE = 0.05  # standard deviation, on inputs and targets
KEPT = 0.2  # probability that a value is observed
CUT = 0.5  # of the time, which ends at 1: the context ends here
LARGEST = 10.0  # series with a value beyond it are left out
PARTS = (0.7, 0.2)  # training and validation; the rest is tested
FOLDS = 5


class PhysiomeSet(NamedTuple):
    """The clean series of one set."""

    name: str
    values: Float[np.ndarray, "series moments channels"]
    targets: Int[np.ndarray, " targets"]
    span: float


class Fold(NamedTuple):
    """One draw of noise, masks and split of a set."""

    query: Query
    split: Split


def names(data_dir: str | Path | None = None) -> list[str]:
    """The packed sets that are there."""
    return sorted({path.stem for folder in user_folders(NAME, data_dir) for path in folder.glob("*.npz")})


def load(name: str, data_dir: str | Path | None = None) -> PhysiomeSet:
    """One packed set, checked."""
    path = look(NAME, f"{name}.npz", data_dir=data_dir) if re.fullmatch(r"\w+", name) else None
    if path is None:
        searched = ", ".join(map(str, user_folders(NAME, data_dir)))
        raise DataNotFound(
            f"no packed set {name!r} in {searched} (there: {', '.join(names(data_dir)) or 'none'}). Make it from a "
            f"checkout of the benchmark: acenode data get physiome --from CHECKOUT --set {name}"
        )
    return read(path)


def read(path: Path) -> PhysiomeSet:
    """A packed file, refused in a sentence where it is not one."""
    try:
        with np.load(path, allow_pickle=False) as packed:
            x, targets, span = (packed[key] for key in ("x", "targets", "span"))
    except Exception as error:  # whatever a damaged archive raises
        raise DataCorrupted(f"{path} is not a packed set (x, targets, span): {error}. Make it again.") from error
    if x.ndim != 3 or not np.issubdtype(x.dtype, np.floating) or min(x.shape) < 1 or x.shape[1] < 4:
        raise DataCorrupted(f"{path}: x has shape {x.shape} and type {x.dtype}; expected (series, moments, channels).")
    if not np.isfinite(x).all():
        raise DataCorrupted(f"{path}: x holds NaN or infinite values. Make it again.")
    if targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer) or not targets.size:
        raise DataCorrupted(f"{path}: targets has shape {targets.shape} and type {targets.dtype}; expected channels.")
    if targets.min() < 0 or targets.max() >= x.shape[2]:
        raise DataCorrupted(f"{path}: targets names channel {targets.max()}; x has {x.shape[2]} channels.")
    if span.shape != () or not 0 < float(span) < np.inf:
        raise DataCorrupted(f"{path}: span is {span}; expected a positive number.")
    return PhysiomeSet(path.stem, x.astype(np.float32), targets.astype(int), float(span))


def fold(clean: PhysiomeSet, number: int, *, causal: bool = False, odd_rows: bool = True) -> Fold:
    """The series of a set with noise, masks and a split, all drawn with the number of the fold as their seed.

    The context are rows up to `CUT`; queried are the others, and `scored` are the target channels there. For models
    that are `causal`, whose answers see only the rows before, the rows of the context are queried too: they are
    forecasts to learn from, and are not scored.

    `odd_rows` keeps a row only if its number of observed values is odd: a slip in the benchmark's script, but in the
    published data; without it every row with an observed value is kept.
    """
    random = np.random.default_rng(number)
    values = clean.values[np.abs(clean.values).max(axis=(1, 2)) <= LARGEST]
    values = values[random.permutation(len(values))]
    values = values + NOISE * random.standard_normal(values.shape, np.float32)
    observed = random.random(values.shape, np.float32) < KEPT
    count = observed.sum(axis=2)
    observed &= (count % 2 == 1 if odd_rows else count > 0)[..., None]
    moments = np.linspace(0, 1, values.shape[1], dtype=np.float32)
    early = np.broadcast_to(moments <= CUT, observed.shape[:2])
    context, later = (_rows(moments, values, observed & part[..., None]) for part in (early, ~early))
    scored = later.observed & np.isin(np.arange(values.shape[2]), clean.targets)
    query = Query(context, later.times, later.values, later.observed, scored)
    if causal:
        before = (context.times, context.values, context.observed, np.zeros_like(context.observed))
        after = (query.times, query.values, query.observed, query.scored)
        query = Query(context, *(np.concatenate(both, axis=1) for both in zip(before, after, strict=True)))
    ends = np.cumsum([round(part * len(values)) for part in PARTS])
    return Fold(query, Split(*np.split(np.arange(len(values)), ends)))


def _rows(moments, values, observed) -> Series:
    """The moments with observed values, one after the other, padded by the last to half of the moments."""
    rows = observed.any(axis=2)
    length = rows.sum(axis=1)
    order = np.argsort(~rows, axis=1, kind="stable")[:, : -(-moments.size // 2)]
    real = np.arange(order.shape[1]) < length[:, None]
    last = np.take_along_axis(order, np.maximum(length - 1, 0)[:, None], axis=1)
    place = np.where(real, order, last)
    observed = np.take_along_axis(observed, place[..., None], axis=1) & real[..., None]
    values = np.where(observed, np.take_along_axis(values, place[..., None], axis=1), 0.0)
    return Series(moments[place], values.astype(np.float32), observed, length.astype(np.int32))
