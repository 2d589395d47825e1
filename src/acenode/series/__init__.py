"""Irregular multivariate time series: made, checked, padded, scaled, and exchanged with data frames."""

from .series import Panel as Panel, Series as Series, series as series, stack as stack
