"""Several rows at a time: while one trains on an accelerator, the host compiles the next."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..train.progress import Bar, Display, Progress

Thing = TypeVar("Thing")
Done = TypeVar("Done")


class _Interruptible(Bar):
    """A bar that ends its run at the next epoch when it is told to: signals reach only the main thread."""

    def __init__(self, name: str, display: Display, stopped: threading.Event):
        super().__init__(name, display)
        self._stopped = stopped

    def epoch(self, epoch, record, samples) -> None:
        super().epoch(epoch, record, samples)
        if self._stopped.is_set():
            raise KeyboardInterrupt


def together(
    things: Iterable[Thing], run: Callable[[Thing, Progress], Done], jobs: int, name: Callable[[Thing], str] = str
) -> Iterator[tuple[Thing, Done]]:
    """`run(thing, progress)` for each, `jobs` at a time in threads, on one display; each with its answer, in order.

    What one raises is raised here, and the others end at their next epoch, which their checkpoints keep.
    """
    stopped = threading.Event()
    causes: list[BaseException] = []

    def guarded(thing, progress):
        if stopped.is_set():
            raise KeyboardInterrupt
        try:
            return run(thing, progress)
        except BaseException as error:
            causes.append(error)
            stopped.set()
            raise

    with Display() as display, ThreadPoolExecutor(jobs) as pool:
        waiting = [(t, pool.submit(guarded, t, _Interruptible(name(t), display, stopped))) for t in things]
        try:
            for thing, future in waiting:
                if future.exception() is not None:
                    raise causes[0]
                yield thing, future.result()
        finally:
            stopped.set()
