"""Makes the clean series of Physiome-ODE from a checkout of the public benchmark, which holds its models.

With the seeds, the solver and the retries of the benchmark, so that the series are its own up to rounding. Series n:
every initial state and constant is drawn uniformly within its relative spread (seed n), the system is solved over twice
the span, and `MOMENTS` moments from a random one on are kept. A try that fails is repeated with seed n + `SERIES`.

Only `model.py` of the named systems is executed. Nothing heavy is imported: every worker process imports this module.
"""

import csv
import io
import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from importlib.resources import files as package_files
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .files import DataCorrupted, DataNotFound, Folder

SERIES, MOMENTS = 2000, 100
TRIES = 10
TOLERANCE = 1e-6
EXPLODED = 1e15  # a solution beyond it is a failed try
SCORED = 10  # channels at most
LIST = Path("resources", "Top50_final.csv")
CHUNK = 20  # series that a worker process takes at a time


class Known(NamedTuple):
    """One of the published sets: the benchmark's name of its ODE model, and how many states it has."""

    model: str
    channels: int


@cache
def known() -> dict[str, Known]:
    """The 50 published sets, in the order of the publication."""
    text = package_files("acenode.datasets").joinpath("physiome_sets.csv").read_text(encoding="utf-8")
    return {row["set"]: Known(row["model"], int(row["channels"])) for row in csv.DictReader(text.splitlines())}


class System(NamedTuple):
    """How the series of a set are made."""

    model: Path  # the file that is executed
    span: float
    states_spread: float  # relative
    constants_spread: float
    targets: np.ndarray


def system(checkout: Folder, name: str) -> System:
    """The system of a set, as the checkout describes it."""
    if name not in known():
        raise DataNotFound(f"physiome: no set {name!r} in the benchmark. There are: {', '.join(known())}.")
    table = Path(checkout) / LIST
    lines = _lines(table)
    wanted = known()[name]
    if wanted.model not in lines:
        raise DataCorrupted(f"{table} does not list {wanted.model}, the model of {name}. Take a fresh checkout.")
    line = lines[wanted.model]
    try:
        scores = [float(score) for score in line["channel_scores"].strip("[]").split(",")]
        span, states, constants = float(line["T"]) / 2, float(line["d_states"]), float(line["d_constants"])
        model = Path(checkout) / "models" / line["domain"] / wanted.model / "model.py"
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataCorrupted(
            f"{table}: the line of {wanted.model} is damaged ({error!r}). Take a fresh checkout."
        ) from None
    if not (0 < span < np.inf and 0 <= states < np.inf and 0 <= constants < np.inf):
        raise DataCorrupted(
            f"{table}: the line of {wanted.model} has T {line['T']}, d_states {states} and d_constants "
            f"{constants}; expected positive numbers. Take a fresh checkout."
        )
    if len(scores) != wanted.channels:
        raise DataCorrupted(
            f"{table} has {len(scores)} channel scores of {wanted.model}; {name} has {wanted.channels} "
            "channels. Take a fresh checkout."
        )
    if not model.is_file():
        raise DataNotFound(
            f"{model} is missing: the checkout does not hold the model of {name}. Take a whole checkout."
        )
    return System(model, span, states, constants, np.sort(np.argsort(scores)[-SCORED:]).astype(np.int32))


def _lines(table: Path) -> dict[str, dict[str, str]]:
    """The lines of the benchmark's list of systems by model."""
    if not table.is_file():
        raise DataNotFound(
            f"{table} is missing: {table.parents[1]} is not a checkout of the benchmark Physiome-ODE. Clone its public "
            "repository, and name that folder with --from."
        )
    try:
        with table.open(encoding="utf-8", newline="") as file:
            return {line["model"]: line for line in csv.DictReader(file)}
    except (KeyError, UnicodeDecodeError, csv.Error) as error:
        raise DataCorrupted(
            f"{table} is not the benchmark's list of models ({error!r}). Take a fresh checkout."
        ) from None


def make(
    checkout: Folder,
    name: str,
    folder: Folder,
    *,
    series: int = SERIES,
    processes: int | None = None,
    advance: Callable[[], Any] = lambda: None,
) -> Path:
    """Make the packed set `name` and write `NAME.npz` into `folder`: whole, or not at all.

    Runs the checkout's `model.py`, in `processes` processes (by default one for each processor; 1 for this one alone).
    `advance` is called after each series. Fewer `series` than the benchmark's 2,000 are the first of them, but the
    scaling is over those alone.
    """
    made = system(checkout, name)
    _check(load_model(made.model), made, name)
    clean = np.empty((series, MOMENTS, known()[name].channels))
    with _map(made, processes or _processors()) as solved:
        for number, one in enumerate(solved(range(series))):
            clean[number] = one
            advance()
    path = Path(folder) / f"{name}.npz"
    _write(path, x=scaled(clean).astype(np.float16), targets=made.targets, span=np.float64(made.span))
    return path


def scaled(clean: np.ndarray) -> np.ndarray:
    """Every channel with mean 0 and variance 1 over all series and moments; a constant channel is 0."""
    spread = clean.std((0, 1))
    return (clean - clean.mean((0, 1))) / np.where(spread > 0, spread, 1)


# --- one series -------------------------------------------------------------------------------------------------


def load_model(path: Path) -> dict[str, Any]:
    """The names that a `model.py` defines. It is executed; no compiled copy of it is written into the checkout.

    The one place where acenode executes a file: a program in the checkout that the user names, not data or a model.
    """
    names: dict[str, Any] = {"__name__": "model", "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), path, "exec"), names)
    except Exception as error:  # whatever the file does
        raise DataCorrupted(f"{path} cannot be executed: {error!r}. Take a fresh checkout.") from error
    return names


def _check(model: dict[str, Any], made: System, name: str) -> None:
    absent = [part for part in ("initConsts", "computeRates") if not callable(model.get(part))]
    if absent:
        raise DataCorrupted(f"{made.model} does not define {' and '.join(absent)}. Take a fresh checkout.")
    try:
        states = len(model["initConsts"]()[0])
    except Exception as error:  # whatever the file does
        raise DataCorrupted(f"{made.model}: initConsts fails with {error!r}. Take a fresh checkout.") from error
    if states != known()[name].channels:
        raise DataCorrupted(
            f"{made.model} has {states} states; {name} has {known()[name].channels} channels. Take a fresh checkout."
        )


def solve(model: dict[str, Any], made: System, number: int) -> np.ndarray:
    """The clean series of that number, (moments, channels), not scaled."""
    fault = ""
    for seed in range(number, number + TRIES * SERIES, SERIES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # as there: a numerical warning is a failed try
                path = _one_try(model, made, np.random.RandomState(seed))
        except Exception as error:  # of the model or of the solver
            fault = repr(error)
            continue
        if np.isfinite(path).all() and np.abs(path).max() <= EXPLODED:
            return path
        fault = "its values are not finite or too large"
    raise DataCorrupted(
        f"{made.model}: series {number} could not be solved in {TRIES} tries (the last: {fault}). The published series "
        "can all be solved: take a fresh checkout, or another version of scipy."
    )


def _one_try(model: dict[str, Any], made: System, random: np.random.RandomState) -> np.ndarray:
    from scipy.integrate import ode  # slow to import

    def drawn(values, spread: float) -> list[float]:
        return [random.uniform(value * (1 - spread), value * (1 + spread)) for value in values]

    states, constants = model["initConsts"]()
    states = drawn(states, made.states_spread)
    constants = drawn(constants, made.constants_spread)
    moments = np.linspace(0, 2 * made.span, 2 * MOMENTS)
    solver = ode(model["computeRates"])
    solver.set_integrator("lsoda", method="bdf", atol=TOLERANCE, rtol=TOLERANCE, max_step=1)
    solver.set_initial_value(states, moments[0]).set_f_params(constants)
    path = np.empty((len(moments), len(states)))
    path[0] = states
    for place, moment in enumerate(moments[1:], 1):
        path[place] = solver.integrate(moment)
        if not solver.successful():
            raise ArithmeticError("the solver failed")
    begin = random.randint(0, MOMENTS)
    return path[begin : begin + MOMENTS]


# --- many processes ---------------------------------------------------------------------------------------------

_work: Callable[[int], np.ndarray]  # of a worker process


def _begin(made: System) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    _work = partial(solve, load_model(made.model), made)


def _number(number: int) -> np.ndarray:
    return _work(number)


@contextmanager
def _map(made: System, processes: int) -> Iterator[Callable[[range], Iterator[np.ndarray]]]:
    """A function that solves the series of many numbers, in their order."""
    if processes == 1:
        yield partial(map, partial(solve, load_model(made.model), made))
        return
    # Not forked: a parent that has used JAX has threads.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (made,))
    try:
        yield partial(pool.map, _number, chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _write(path: Path, **arrays: Any) -> None:
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
            part = Path(file.name)
            file.write(packed.getbuffer())
        os.replace(part, path)
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
