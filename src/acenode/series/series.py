"""`Series`: irregular multivariate time series, each with its own time axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Series(eqx.Module):
    """Measurements of several variables at irregular times.

    One series has `times` (rows,), `values` (rows, variables) and `observed` (rows, variables), with the value 0
    where nothing was observed. A batch has a leading axis on each, and is padded to a common number of rows by
    repeating the last time with nothing observed, so a model that keeps its state where nothing is observed never
    notices the padding. `length` counts the real rows.

    Make one with `series(...)`, a batch with `stack([...])` or from a data frame; these check what they are given.
    """

    times: Float[Array | np.ndarray, "*batch rows"]
    values: Float[Array | np.ndarray, "*batch rows variables"]
    observed: Bool[Array | np.ndarray, "*batch rows variables"]
    length: Int[Array | np.ndarray, "*batch"]

    def __len__(self) -> int:
        return self.times.shape[0]

    def __getitem__(self, index) -> "Series":
        # The ellipsis keeps the length of one series an array, where numpy would hand back a scalar.
        return Series(self.times[index], self.values[index], self.observed[index], self.length[index, ...])

    @property
    def variables(self) -> int:
        return self.values.shape[-1]

    @property
    def real(self) -> Bool[Array | np.ndarray, "*batch rows"]:
        """Which rows are not padding."""
        rows = np.arange(self.times.shape[-1])
        return rows < self.length[..., None]

    def trimmed(self) -> "Series":
        """A batch without the rows that are padding in all of it."""
        rows = max(int(np.max(self.length)), 1)
        return Series(self.times[:, :rows], self.values[:, :rows], self.observed[:, :rows], self.length)


def series(times, values, observed=None) -> Series:
    """One checked series. `observed` defaults to "wherever the value is not NaN"; times must increase strictly."""
    times = np.asarray(times)
    values = np.asarray(values)
    if times.ndim != 1:
        raise ValueError(f"series: times has shape {times.shape}; expected (rows,).")
    if values.ndim != 2 or values.shape[0] != times.shape[0]:
        raise ValueError(
            f"series: values has shape {values.shape}; expected (rows, variables) with {times.shape[0]} rows, as times "
            "has."
        )
    for name, array in (("times", times), ("values", values)):
        if array.dtype.kind not in "buif":
            raise ValueError(f"series: {name} has dtype {array.dtype}; expected numbers.")
    times = times.astype(np.float64)  # differences of unsigned integers would wrap around
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
        values, single = values.astype(np.float32), times.astype(np.float32)
    observed = ~np.isnan(values) if observed is None else np.asarray(observed).astype(bool)
    if observed.shape != values.shape:
        raise ValueError(f"series: observed has shape {observed.shape}; expected {values.shape} as values has.")
    if not np.isfinite(single).all():
        raise ValueError(f"series: time {int(np.argmin(np.isfinite(single)))} is not a finite number.")
    gaps = np.diff(times)
    if (gaps <= 0).any():
        i = int(np.argmax(gaps <= 0))
        fault = "appears twice" if gaps[i] == 0 else f"comes after {times[i]}"
        raise ValueError(f"series: times must increase; time {times[i + 1]} at row {i + 1} {fault}.")
    if (np.diff(single) <= 0).any():
        i = int(np.argmax(np.diff(single) <= 0))
        raise ValueError(
            f"series: times {times[i]} and {times[i + 1]} are the same number in single precision; "
            "subtract an origin or use a larger unit."
        )
    bad = observed & ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"series: the observed value at row {row}, variable {column} is {values[row, column]}.")
    return Series(single, np.where(observed, values, 0), observed, np.asarray(len(times), np.int32))


def stack(many: Sequence[Series], rows: int | None = None) -> Series:
    """A batch of series, padded to the longest, or to `rows`."""
    if len(many) == 0:
        raise ValueError("stack: there is no series to stack.")
    widths = {s.variables for s in many}
    if len(widths) > 1:
        raise ValueError(f"stack: the series have {sorted(widths)} variables; expected the same number in all.")
    longest = max(len(s) for s in many)
    rows = max(longest, 1) if rows is None else rows
    if rows < longest:
        raise ValueError(f"stack: rows={rows}, but the longest series has {longest}.")
    width = widths.pop()
    times = np.zeros((len(many), rows), np.float32)
    values = np.zeros((len(many), rows, width), np.float32)
    observed = np.zeros((len(many), rows, width), bool)
    for i, s in enumerate(many):
        n = s.times.shape[0]
        times[i, :n] = s.times
        times[i, n:] = s.times[-1] if n else 0.0
        values[i, :n] = s.values
        observed[i, :n] = s.observed
    return Series(times, values, observed, np.asarray([s.length for s in many], np.int32))


@dataclass(frozen=True)
class Panel:
    """A batch of series with the names of its samples and variables."""

    series: Series
    ids: np.ndarray
    variables: tuple[str, ...]

    def __post_init__(self):
        if len(self.ids) != len(self.series) or len(self.variables) != self.series.variables:
            raise ValueError(
                f"Panel: {len(self.ids)} ids and {len(self.variables)} variable names for {len(self.series)} series "
                f"of {self.series.variables} variables."
            )

    def __len__(self) -> int:
        return len(self.series)

    def __getitem__(self, index) -> "Panel":
        return Panel(self.series[index], self.ids[index], self.variables)
