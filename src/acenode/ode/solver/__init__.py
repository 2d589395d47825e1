"""Batched Runge-Kutta solvers: adaptive or fixed steps per sample, dense output, exact and continuous adjoints."""

from .solver import Solver as Solver, check_solver as check_solver
from .status import Stats as Stats, Status as Status, status_where as status_where
from .vector_field import (
    SAMPLES as SAMPLES,
    BatchCoupled as BatchCoupled,
    OnBatch as OnBatch,
    batched as batched,
    check_slope as check_slope,
    of_batch as of_batch,
)
