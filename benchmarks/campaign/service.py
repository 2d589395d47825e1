"""Part 6: a million `update` and `predict` calls on a thousand ids, through the parts that `acenode serve` is made of.

Memory after the first 10,000 calls must stay within 1 %. At the end, forecasts of the followed series must be those of
`predict` on the whole histories.
"""

import asyncio
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from acenode.estimators import Forecaster, follow, load
from acenode.serve.app import Service

from .samples import SMALL, machines, untrained
from .tally import Tally

CALLS, IDS, WARM = 1_000_000, 1_000, 10_000
FORECASTS = 0.05  # of the calls
SPAN = 20.0  # hours that all observations of a series cover
TOLERANCE = 2e-3  # of a standard deviation of the training data; sums in another order in single precision
COMPARED = 50  # ids whose whole history is predicted from


def run(scale: float) -> dict[str, Any]:
    """A million calls at scale 1."""
    calls, ids = max(1000, round(CALLS * scale)), max(20, round(IDS * min(1.0, 2 * scale)))
    warm = min(WARM, calls // 4)
    tally = Tally()
    with tempfile.TemporaryDirectory() as place:
        folder = untrained(Forecaster(**SMALL, model="gru-ode-bayes"), machines(12)).save(Path(place) / "model")
        service = Service(load(folder), folder, Path(place) / "state.sqlite")
        service.start()
        began = time.perf_counter()
        rows, memory = asyncio.run(_calls(service, calls, ids, warm, tally))
        seconds = time.perf_counter() - began
        at = SPAN + 1.0
        compared = np.random.default_rng(1).choice(ids, min(ids, COMPARED), replace=False)
        worst = _compare(service, rows, sorted(compared.tolist()), at, tally)
        service.close()
    grown = max(memory.values()) / memory[min(memory)] - 1
    tally.add("memory", f"it grew by {100 * grown:.2f} %" if grown > 0.01 else None)
    return tally.result(
        calls=calls,
        ids=ids,
        calls_a_second=round(calls / seconds),
        memory_mib={str(at): round(mib, 1) for at, mib in memory.items()},
        memory_growth=round(grown, 5),
        largest_difference_in_standard_deviations=worst,
    )


async def _calls(
    service: Service, calls: int, ids: int, warm: int, tally: Tally
) -> tuple[np.ndarray, dict[int, float]]:
    """All calls; the observations of each id, and the memory in MiB by number of calls."""
    _, updates = service.following()
    random = np.random.default_rng(0)
    rounds = round(calls * (1 - FORECASTS) / ids)
    rows = np.full((ids, rounds, 3), np.nan)  # takes all its memory now
    memory: dict[int, float] = {}
    done, asked = 0, 0.0
    for k in range(rounds):
        hour = SPAN * (k + 1) / rounds
        for begin in range(0, ids, follow.SIZES[-1]):
            chosen = range(begin, min(ids, begin + follow.SIZES[-1]))
            values = np.round(
                np.stack([np.sin(hour + np.arange(len(chosen))), 20 + random.normal(size=len(chosen))]), 3
            )
            takes = []
            for i, (heat, flow) in zip(chosen, values.T.tolist(), strict=True):
                rows[i, k] = hour, heat, flow
                row = follow.read_row(service.estimator, f"s{i}", hour, {"heat": heat, "flow": flow})
                takes.append(updates.take(row))
            for kept in await asyncio.gather(*takes, return_exceptions=True):
                wrong = f"{kept!r}" if isinstance(kept, BaseException) else None
                if wrong is None and kept.observations != k + 1:
                    wrong = f"{kept.observations} observations instead of {k + 1}"
                tally.add("update", wrong)
            done += len(chosen)
            asked += FORECASTS / (1 - FORECASTS) * len(chosen)
            while asked >= 1:
                asked -= 1
                done += 1
                id = f"s{int(random.integers(chosen.start, chosen.stop))}"
                said = service.forecast(id, [hour + 0.5])["forecasts"]
                tally.add("predict", None if said else "no forecast")
            if done >= warm and (not memory or done >= max(memory) + calls // 50):
                memory[done] = _resident()
    memory[done] = _resident()
    return rows, memory


def _compare(service: Service, rows: np.ndarray, chosen: list[int], at: float, tally: Tally) -> float:
    """Compare followed series with whole histories; the largest difference."""
    lines = [(f"s{i}", *row) for i in chosen for row in rows[i].tolist()]
    frame = pd.DataFrame(lines, columns=["machine", "hour", "heat", "flow"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        whole = service.estimator.predict(frame, at=[at]).set_index(["machine", "variable"])
    spread = dict(zip(service.estimator.columns_.values, np.asarray(service.estimator.scaler_.spread), strict=True))
    worst = 0.0
    for i in chosen:
        for said in service.forecast(f"s{i}", [at])["forecasts"]:
            right = whole.loc[(f"s{i}", said["variable"]), "mean"]
            off = abs(float(said["mean"]) - float(right)) / float(spread[said["variable"]])
            worst = max(worst, off)
            tally.add("answer at the end", f"s{i} {said['variable']}: off by {off:.2g}" if off > TOLERANCE else None)
    return worst


def _resident() -> float:
    """MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
