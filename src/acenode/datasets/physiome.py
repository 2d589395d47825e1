"""Physiome-ODE (ICLR 2025): forecasting irregular series made from published physiological ODEs.

A packed set (`NAME.npz`) holds the clean series: `x` (series, moments, channels), every channel with mean 0 and
variance 1 over the set; `targets`, the channels that are scored; `span`, the time from the first to the last moment.
`fold` adds noise and masks as the benchmark does. The benchmark's own folds depend on the order of files on a disk,
so these are other draws of the same distribution: compare means over the five folds. `physiome_raw` makes packed sets.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..series import Panel, Query, Series
from .files import DataCorrupted, DataNotFound, Folder, cache_folder, user_folders
from .split import Split

NAME = "physiome"
NOISE = 0.05  # standard deviation, on inputs and targets
KEPT = 0.2  # probability that a value is observed
CUT = 0.5  # of the time, which ends at 1: the context ends here
LARGEST = 10.0  # series with a value beyond it are left out
PARTS = (0.7, 0.2)  # training and validation; the rest is tested
_SET = re.compile(r"[\w-]+")  # a name, not a path to a file elsewhere


class PhysiomeSet(NamedTuple):
    """The clean series of one set."""

    name: str
    values: Float[np.ndarray, "series moments channels"]
    targets: Int[np.ndarray, " targets"]
    span: float

    @property
    def panel(self) -> Panel:
        """The clean series over their span, every value observed."""
        count, moments, channels = self.values.shape
        times = np.tile(np.linspace(0, self.span, moments, dtype=np.float32), (count, 1))
        lengths = np.full(count, moments, np.int32)
        series = Series(times, self.values, np.ones(self.values.shape, bool), lengths)
        return Panel(series, np.arange(count), tuple(f"channel_{k}" for k in range(channels)))


class Fold(NamedTuple):
    """One draw of noise, masks and split of a set."""

    query: Query
    split: Split


def places(data_dir: Folder | None = None) -> list[Path]:
    """Where packed sets are looked for."""
    return [*user_folders(NAME, data_dir), cache_folder() / NAME]


def names(data_dir: Folder | None = None) -> list[str]:
    """The packed sets that are there."""
    found = {path.stem for folder in places(data_dir) for path in folder.glob("*.npz")}
    return sorted(filter(_SET.fullmatch, found))


def find(name: str, data_dir: Folder | None = None) -> Path:
    """The file of a packed set."""
    for folder in places(data_dir) if _SET.fullmatch(name) else ():
        if (folder / f"{name}.npz").is_file():
            return folder / f"{name}.npz"
    searched = ", ".join(map(str, places(data_dir)))
    raise DataNotFound(
        f"no packed set {name!r} in {searched} (there: {', '.join(names(data_dir)) or 'none'}). Make it from a "
        f"checkout of the benchmark: acenode data get {NAME} --from CHECKOUT --set {name}"
    )


def load(name: str, data_dir: Folder | None = None) -> PhysiomeSet:
    """One packed set, checked."""
    return read(find(name, data_dir))


def read(path: Path) -> PhysiomeSet:
    """A packed file, refused in a sentence where it is not one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as packed:
            # An entry that is no array comes as bytes.
            x, targets, span = (np.asarray(packed[key]) for key in ("x", "targets", "span"))
    except Exception as error:  # whatever a damaged archive raises
        raise DataCorrupted(f"{path} is not a packed set (x, targets, span): {error}. Make it again.") from error
    if x.ndim != 3 or not np.issubdtype(x.dtype, np.floating) or min(x.shape) < 1 or x.shape[1] < 4:
        raise DataCorrupted(
            f"{path}: x has shape {x.shape} and type {x.dtype}; expected floats of shape (series, moments, channels) "
            "with at least 4 moments. Make it again."
        )
    if not np.isfinite(x).all():
        raise DataCorrupted(f"{path}: x holds NaN or infinite values. Make it again.")
    if targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer) or not targets.size:
        raise DataCorrupted(
            f"{path}: targets has shape {targets.shape} and type {targets.dtype}; expected whole numbers of shape "
            "(targets,), the channels that are scored. Make it again."
        )
    if targets.min() < 0 or targets.max() >= x.shape[2]:
        raise DataCorrupted(
            f"{path}: targets names channels {targets.min()} to {targets.max()}; x has 0 to "
            f"{x.shape[2] - 1}. Make it again."
        )
    if span.shape != () or span.dtype.kind not in "iuf" or not 0 < float(span) < np.inf:
        raise DataCorrupted(f"{path}: span is {span}; expected a positive number. Make it again.")
    return PhysiomeSet(path.stem, x.astype(np.float32), targets.astype(int), float(span))


def fold(clean: PhysiomeSet, number: int, *, causal: bool = False, odd_rows: bool = True) -> Fold:
    """The series of a set with noise, masks and a split, all drawn with the number of the fold as their seed.

    The context are rows up to `CUT`; queried are the others, and `scored` are the target channels there. For models
    that are `causal`, whose answers see only the rows before, the rows of the context are queried too, and the context
    of training series is all of them: every row is a forecast to learn from. Scored are the same values.

    `odd_rows` keeps a row only if its number of observed values is odd: a slip in the benchmark's script, but in the
    published data; without it every row with an observed value is kept.
    """
    random = np.random.default_rng(number)
    values = clean.values[np.abs(clean.values).max(axis=(1, 2)) <= LARGEST]
    values = values[random.permutation(len(values))]
    split = _split(len(values))
    if min(map(len, split)) == 0:
        raise DataCorrupted(
            f"physiome: {clean.name} has {len(values)} series whose values are at most {LARGEST:g}; too few for a "
            "training, a validation and a test part. Make it again with at least 10."
        )
    values = values + NOISE * random.standard_normal(values.shape, np.float32)
    observed = random.random(values.shape, np.float32) < KEPT
    count = observed.sum(axis=2)
    observed &= (count % 2 == 1 if odd_rows else count > 0)[..., None]
    moments = np.linspace(0, 1, values.shape[1], dtype=np.float32)
    target = np.isin(np.arange(values.shape[2]), clean.targets)
    if causal:
        whole = _rows(moments, values, observed, moments.size)
        later = whole.times > CUT
        entire = np.isin(np.arange(len(values)), split.train)[:, None]
        shown = whole.observed & (entire | ~later)[..., None]
        context = Series(whole.times, np.where(shown, whole.values, 0), shown, whole.length)
        return Fold(
            Query(context, whole.times, whole.values, whole.observed, whole.observed & later[..., None] & target), split
        )
    early = (moments <= CUT)[:, None]
    context, later = (_rows(moments, values, observed & part, -(-moments.size // 2)) for part in (early, ~early))
    return Fold(Query(context, later.times, later.values, later.observed, later.observed & target), split)


def _split(count: int) -> Split:
    """The series are shuffled already."""
    ends = np.cumsum([round(part * count) for part in PARTS])
    return Split(*np.split(np.arange(count), ends))


def _rows(moments, values, observed, width: int) -> Series:
    """The moments with observed values, one after the other, padded by the last to so many."""
    rows = observed.any(axis=2)
    length = rows.sum(axis=1)
    order = np.argsort(~rows, axis=1, kind="stable")[:, :width]
    real = np.arange(order.shape[1]) < length[:, None]
    last = np.take_along_axis(order, np.maximum(length - 1, 0)[:, None], axis=1)
    place = np.where(real, order, last)
    observed = np.take_along_axis(observed, place[..., None], axis=1) & real[..., None]
    values = np.where(observed, np.take_along_axis(values, place[..., None], axis=1), 0.0)
    return Series(moments[place], values.astype(np.float32), observed, length.astype(np.int32))
