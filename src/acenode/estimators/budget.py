"""A budget of time, kept between epochs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

MINUTES = 5.0  # on a CPU
_FOR_THE_REST = 0.08  # of the budget, for what follows training


@dataclass
class Budget:
    """So many seconds from now on. `clock` gives seconds; a test has one of its own."""

    seconds: float | int
    clock: Callable[[], float] = time.monotonic
    begun: float = field(init=False)

    def __post_init__(self):
        if not self.seconds > 0:
            raise ValueError(f"minutes={self.seconds / 60:g}: expected a positive number.")
        self.begun = self.clock()

    @property
    def spent(self) -> float:
        return self.clock() - self.begun

    def left(self, part: float = 1.0) -> float:
        """The seconds until this part of the budget is spent; those after training are kept back."""
        return part * (1 - _FOR_THE_REST) * self.seconds - self.spent


class Pace:
    """How many steps an epoch may have, so that it ends within a share: doubled while epochs are short."""

    def __init__(self, share: float, steps: int = 1, epochs: int = 8):
        self.target = share / epochs
        self.steps = steps
        self.last = 0.0

    def after(self, seconds: float, whole: int) -> None:
        """Take in how long an epoch of the present number of steps took."""
        self.last = seconds
        if seconds < self.target / 2:
            self.steps = min(2 * self.steps, whole)
        elif seconds > 2 * self.target:
            self.steps = max(self.steps // 2, 1)

    def fits(self, left: float) -> bool:
        """Whether another epoch as long as the last one ends in time."""
        return 1.2 * self.last < left
