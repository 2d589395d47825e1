"""How long something takes, measured fairly, and how fast a cost grows."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Repeated timings of one thing, in milliseconds."""

    median_ms: float
    fastest_ms: float
    slowest_ms: float
    calls: int
    first_ms: float  # the very first call, with its compilation

    def as_dict(self) -> dict:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def interleaved(things: Mapping[str, Callable[[], object]], rounds: int, seconds: float = 0.2) -> dict[str, Timing]:
    """Time all `things` in turns, `rounds` times over.

    Whatever else the machine does then hits all of them. A call must return only when its work is done. In its
    turn each thing has one call that does not count, then as many as fit into `seconds`, at least one and at most 20.
    """
    first = {name: _milliseconds(call) for name, call in things.items()}
    taken: dict[str, list[float]] = {name: [] for name in things}
    for _ in range(rounds):
        for name, call in things.items():
            taken[name] += _turn(call, seconds)
    return {
        name: Timing(statistics.median(all_ms), min(all_ms), max(all_ms), len(all_ms), first[name])
        for name, all_ms in taken.items()
    }


def _turn(call: Callable[[], object], seconds: float) -> list[float]:
    # Threads of the one before may still be spinning in wait for more work; let them fall asleep.
    time.sleep(0.25)
    call()
    taken = [_milliseconds(call)]
    while sum(taken) < 1e3 * seconds and len(taken) < 20:
        taken.append(_milliseconds(call))
    return taken


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent p of the least-squares fit y ~ x^p."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
