"""`Scaler`: per-variable shifting and scaling, fitted on what was observed in training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .series import Series

KINDS = ("standard", "robust", "minmax", "min_over_max", "none")
REACH = 10.0  # distances of the quartiles from the median, beyond which a value is winsorised


class Scaler(eqx.Module):
    """Scaled values are `(x - shift) / spread`, variable by variable.

    | kind | shift | spread |
    |---|---|---|
    | standard | mean | standard deviation |
    | robust | the same of winsorised values | the same |
    | minmax | min | max - min |
    | min_over_max | min | max |
    | none | 0 | 1 |

    A spread of zero becomes 1, so a constant variable scales to 0; a variable never observed keeps its values.

    It has the precision of what it was fitted on; scaled values on the host are in single precision. The estimators
    give it readings in double precision, so that a meter at 123,456,789 which counts by ones loses nothing; `series`
    and `stack` are in single precision.
    """

    shift: Float[Array | np.ndarray, " variables"]
    spread: Float[Array | np.ndarray, " variables"]
    kind: str = eqx.field(static=True)

    @classmethod
    def fit(cls, series: Series, kind: str = "standard", where=None) -> "Scaler":
        """The scaler of the observed values of `series`, which should be training data.

        **Arguments:**

        - `series`: one series or a batch.
        - `kind`: "standard", "robust", "minmax", "min_over_max" or "none".
        - `where`: booleans that say which values to fit on, one for each sample (batch,), row (batch, rows) or value
            (batch, rows, variables); all if not given.
        """
        if kind not in KINDS:
            raise ValueError(f"Scaler.fit: kind is {kind!r}; expected one of {', '.join(KINDS)}.")
        chosen = _chosen(np.asarray(series.observed), where).reshape(-1, series.variables)
        values = np.asarray(series.values, np.float64).reshape(-1, series.variables)
        if kind == "robust":
            values = np.clip(values, *limits(values, chosen))
        shift, spread = _shift_and_spread(values, chosen, kind)
        # A spread below the smallest normal number counts as zero on an accelerator, and dividing by it would too.
        spread = np.where(np.abs(spread) < np.finfo(np.float32).tiny, 1.0, spread)
        precision = np.float64 if series.values.dtype == np.float64 else np.float32
        return cls(shift.astype(precision), spread.astype(precision), kind)

    def scale(self, series: Series) -> Series:
        """The series with scaled values; what is not observed stays 0."""
        self._check("scale", series.values)
        values = (series.values - self.shift) / self.spread
        if isinstance(values, jax.Array):
            values = jnp.where(series.observed, values, 0)
        else:  # data on the host stays there
            values = np.where(series.observed, values, 0).astype(np.float32)
        return Series(series.times, values, series.observed, series.length)

    def unscale(
        self, values: Float[Array | np.ndarray, "*batch variables"]
    ) -> Float[Array | np.ndarray, "*batch variables"]:
        """Scaled values, such as predictions, in their original units."""
        self._check("unscale", values)
        return values * self.spread + self.shift

    def unscale_deviation(
        self, sd: Float[Array | np.ndarray, "*batch variables"]
    ) -> Float[Array | np.ndarray, "*batch variables"]:
        """Standard deviations of scaled values, in their original units: they are scaled but not shifted."""
        self._check("unscale_deviation", sd)
        return sd * abs(self.spread)  # min_over_max has a negative spread where every value is negative

    def _check(self, name: str, values: Array | np.ndarray) -> None:
        # Without this a scaler of one variable would broadcast over any number of them.
        if values.ndim == 0 or values.shape[-1] != self.shift.shape[0]:
            raise ValueError(
                f"Scaler.{name}: the values have shape {values.shape}; expected {self.shift.shape[0]} variables on "
                "the last axis, as the scaler was fitted on."
            )


def limits(
    values: Float[np.ndarray, "*batch variables"], chosen: Bool[np.ndarray, "*batch variables"]
) -> tuple[Float[np.ndarray, " variables"], Float[np.ndarray, " variables"]]:
    """Where each variable is winsorised: ten times as far from the median as the quartiles are from each other.

    Or, if that is farther, twenty times the median distance of the values that differ from it: where most are the same,
    rare values are no absurd ones. Infinite where fewer than three differ.
    """
    width = values.shape[-1]
    flat, counts = np.asarray(values, np.float64).reshape(-1, width), chosen.reshape(-1, width)
    low, high = np.full(width, -np.inf), np.full(width, np.inf)
    for k in range(width):
        present = flat[counts[:, k], k]
        if present.size > 2:
            one, middle, three = np.quantile(present, (0.25, 0.5, 0.75))
            away = np.abs(present - middle)[present != middle]
            if away.size > 2:
                reach = REACH * max(three - one, 2 * np.median(away))
                low[k], high[k] = middle - reach, middle + reach
    return low, high


def _chosen(observed: Bool[np.ndarray, "*batch variables"], where) -> Bool[np.ndarray, "*batch variables"]:
    """The observed entries that `where` selects."""
    if where is None:
        return observed
    where = np.asarray(where)
    if where.dtype != bool or where.ndim == 0 or where.shape != observed.shape[: where.ndim]:
        raise ValueError(
            f"Scaler.fit: where has dtype {where.dtype} and shape {where.shape}; expected booleans of the first axes "
            f"of {observed.shape}, the shape of observed."
        )
    return observed & where.reshape(where.shape + (1,) * (observed.ndim - where.ndim))


def _shift_and_spread(
    values: Float[np.ndarray, "rows variables"], chosen: Bool[np.ndarray, "rows variables"], kind: str
) -> tuple[Float[np.ndarray, " variables"], Float[np.ndarray, " variables"]]:
    """The shift and spread of each variable over its chosen values, with spread 0 where there is none."""
    count = chosen.sum(0)
    low = np.where(count > 0, values.min(0, where=chosen, initial=np.inf), 0.0)
    high = np.where(count > 0, values.max(0, where=chosen, initial=-np.inf), 0.0)
    if kind == "none":
        return np.zeros_like(low), np.ones_like(low)
    if kind == "minmax":
        return low, high - low
    if kind == "min_over_max":
        return low, high
    some = np.maximum(count, 1)
    mean = values.sum(0, where=chosen) / some
    deviation = np.sqrt(np.square(values - mean).sum(0, where=chosen) / some)
    # The mean of equal values can be off by rounding, and the deviation then tiny instead of zero.
    return np.where(low == high, low, mean), np.where(low == high, 0.0, deviation)
