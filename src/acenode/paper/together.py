"""Several rows at a time: while one trains on an accelerator, the host compiles the next."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..train.progress import Bar, Display, Progress

Thing = TypeVar("Thing")
Done = TypeVar("Done")


class OutOfTime(Exception):
    """The time that was given is over; checkpoints keep what was done."""


class _Interruptible(Bar):
    """A bar that ends its run at the next epoch: when it is told to (signals reach only the main thread), or late."""

    def __init__(self, name: str, display: Display, stopped: threading.Event, until: float):
        super().__init__(name, display)
        self._stopped, self._until = stopped, until

    def epoch(self, epoch, record, samples) -> None:
        super().epoch(epoch, record, samples)
        if time.monotonic() > self._until:
            raise OutOfTime
        if self._stopped.is_set():
            raise KeyboardInterrupt


def together(
    things: Iterable[Thing],
    run: Callable[[Thing, Progress], Done],
    jobs: int,
    name: Callable[[Thing], str] = str,
    seconds: float = math.inf,
) -> Iterator[tuple[Thing, Done]]:
    """`run(thing, progress)` for each, `jobs` at a time in threads, on one display; each with its answer, in order.

    What one raises is raised here, and the others end at their next epoch, which their checkpoints keep. After so many
    `seconds` all end at their next epoch, and `OutOfTime` is raised.
    """
    stopped, until = threading.Event(), time.monotonic() + seconds
    causes: list[BaseException] = []

    def guarded(thing, progress):
        if stopped.is_set():
            raise KeyboardInterrupt
        try:
            if time.monotonic() > until:
                raise OutOfTime
            return run(thing, progress)
        except BaseException as error:
            causes.append(error)
            stopped.set()
            raise

    with Display() as display, ThreadPoolExecutor(jobs) as pool:
        try:
            waiting = [(t, pool.submit(guarded, t, _Interruptible(name(t), display, stopped, until))) for t in things]
            for thing, future in waiting:
                if future.exception() is not None:
                    raise causes[0]
                yield thing, future.result()
        finally:
            stopped.set()
