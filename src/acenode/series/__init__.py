"""Irregular multivariate time series: made, checked, padded, scaled, and exchanged with data frames."""

from .frames import from_long as from_long, from_wide as from_wide, to_long as to_long, to_wide as to_wide
from .query import (
    Query as Query,
    extrapolate as extrapolate,
    forecast as forecast,
    hold_out as hold_out,
    reconstruct as reconstruct,
)
from .scale import Scaler as Scaler
from .series import Panel as Panel, Series as Series, series as series, stack as stack
