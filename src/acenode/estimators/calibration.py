"""Bands that hold what they promise: a conformal correction, measured on series that were not trained on."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LEVEL = 0.9  # of the band that is made to hold
_Z = 1.6448536  # half its width, in standard deviations of a normal distribution
_BINS = 4  # of the horizon, at most
_ENOUGH = 100  # values in each


@dataclass(frozen=True)
class Calibration:
    """Factors on the standard deviation by horizon, the time since the last row of the context.

    In each bin the factor is that by which the 90 % band covers 90 % of the validation values. Between the middles of
    two bins it changes linearly, and beyond the first and the last it stays.
    """

    horizons: tuple[float, ...] = (0.0,)
    factors: tuple[float, ...] = (1.0,)

    @classmethod
    def fit(cls, error: np.ndarray, sd: np.ndarray, horizon: np.ndarray) -> "Calibration":
        """From the errors, standard deviations and horizons of validation values; of too few, no correction."""
        ratio = np.abs(error) / np.maximum(sd, 1e-12)
        if len(ratio) < _ENOUGH // 5 or not np.isfinite(ratio).all():
            return cls()
        bins = int(np.clip(len(ratio) // _ENOUGH, 1, _BINS))
        parts: dict[float, np.ndarray] = {}
        for part in np.array_split(np.argsort(horizon, kind="stable"), bins):
            middle = float(np.median(horizon[part]))  # of many values at one horizon there is one bin
            parts[middle] = np.concatenate([parts.get(middle, part[:0]), part])
        # The rank of split conformal prediction: one value more than there are.
        widths = [float(np.quantile(ratio[p], min(1.0, LEVEL * (1 + 1 / len(p))))) for p in parts.values()]
        return cls(tuple(parts), tuple(max(width / _Z, 1e-3) for width in widths))

    def factor(self, horizon: Any) -> Any:
        """What to multiply standard deviations at this horizon by."""
        given = (horizon, np.asarray(self.horizons, np.float32), np.asarray(self.factors, np.float32))
        return jnp.interp(*given) if isinstance(horizon, jax.Array) else np.interp(*given)
