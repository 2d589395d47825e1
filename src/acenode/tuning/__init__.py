"""Tuning: Optuna chooses settings, and each of its generations trains as one ensemble."""

from .study import Tuned as Tuned, tune as tune
