"""Part 7: hard vector fields, solved by acenode and by scipy in double precision.

An answer is right if it is within `slack` times the tolerance of the reference, or once for every step taken, as the
errors of steps add up; what a first state that is off by the tolerance changes is allowed for too. The reference is
the closed form where `solver_fields.py` has one, else scipy's solution at a ten-thousandth of the tolerances. Otherwise
a status must say why. What was reached before a failure must be right too; the rest must be NaN. scipy's RK45 solves
the same problems at the same tolerances, for comparison.

No embedded estimate of the error is safe from a jump: its terms can cancel, and what happens between two stages is not
seen at all. Where a jump cost more than is allowed, it is counted as missed, for acenode and for scipy.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from acenode.ode import Solver
from acenode.ode.solver import Status
from acenode.train import enable_compilation_cache

from .solver_fields import (
    CLOSED_FORMS,
    constant,
    exponential,
    follows_cosine,
    friction,
    late,
    linear,
    robertson,
    rotation,
    scaled_pendulum,
    sliding,
    square,
    stair,
    van_der_pol,
    zero,
)
from .tally import Tally

SMOOTH, ROUGH = 100.0, 1000.0  # a jump inside of a step is seen by one stage, and underestimated
BATCH = 8
_LARGEST = 1e300


class Problem(NamedTuple):
    """A batch of initial value problems of one field `(xp, t, y, p) -> dy/dt`, xp being numpy or jax.numpy."""

    name: str
    field: Callable
    y0: np.ndarray
    p: np.ndarray
    times: np.ndarray
    rtol: float = 1e-6
    atol: float = 1e-8
    slack: float = SMOOTH
    stiff: bool = False
    solvable: bool = False  # an explicit method must solve it
    dtype: Any = np.float64
    adjoint: str = "checkpointed"
    method: str = "dopri5"

    @property
    def jumps(self) -> bool:
        return self.name.startswith("discontinuous")


def problems(seed: int) -> Iterator[Problem]:
    """One draw of every problem."""
    random = np.random.default_rng(seed)
    kinds = {"dtype": np.float64}, {"dtype": np.float32, "rtol": 1e-4, "atol": 1e-5}
    one = random.normal(size=(BATCH, 1))
    two = random.normal(size=(BATCH, 2))

    def powers(low, high, sign=False):
        drawn = 10 ** random.uniform(low, high, (BATCH, 1))
        return drawn * random.choice([-1, 1], (BATCH, 1)) if sign else drawn

    def uniform(low, high, columns=1):
        return random.uniform(low, high, (BATCH, columns))

    def grid(span, start=0.0, count=6):
        inner = np.sort(random.uniform(0, 1, (BATCH, count - 2)), axis=1)
        return start + np.concatenate([np.zeros((BATCH, 1)), inner, np.ones((BATCH, 1))], axis=1) * span

    for more in kinds:
        single = more["dtype"] is np.float32
        yield Problem("stiff, cosine", follows_cosine, one, powers(1, 9), grid(2.0), stiff=True, **more)
        yield Problem("stiff, decay", linear, one, -powers(2, 12), grid(1.0), stiff=True, **more)
        yield Problem("stiff, van der Pol", van_der_pol, two, powers(0, 3), grid(5.0), stiff=True, slack=ROUGH, **more)
        yield Problem(
            "stiff, Robertson",
            robertson,
            np.tile([1.0, 0, 0], (BATCH, 1)),
            one,
            grid(powers(-3, 5)),
            stiff=True,
            **more,
        )
        jumps = np.concatenate([np.sort(uniform(0.05, 0.95, 3)), 3 * random.normal(size=(BATCH, 4))], axis=1)
        yield Problem("discontinuous, stair", stair, one, jumps, grid(1.0), slack=ROUGH, **more)
        yield Problem("discontinuous, friction", friction, two, uniform(0.1, 2, 2), grid(3.0), slack=ROUGH, **more)
        yield Problem("discontinuous, sliding", sliding, one, uniform(0.5, 3), grid(2.0), slack=ROUGH, **more)
        starts = np.concatenate([uniform(0.2, 0.8), one], axis=1)
        yield Problem("discontinuous, late", late, one + 2, starts, grid(1.0), slack=ROUGH, **more)
        yield Problem("exploding, square", square, uniform(0.5, 3), uniform(0.1, 2), grid(1.0), **more)
        yield Problem("exploding, exponential", exponential, one, uniform(0.1, 2), grid(1.0), **more)
        # To 1e300 takes thousands of steps, whose errors add up.
        yield Problem("exploding, linear", linear, one, powers(1, 5), grid(1.0), slack=ROUGH, **more)
        yield Problem("zero", zero, one * powers(-30, 30), one, grid(powers(-6, 6)), solvable=True, **more)
        largest = 28 if single else 30
        yield Problem("constant", constant, one, powers(-largest, largest, True), grid(1.0), solvable=True, **more)
        for power in (-30, 30):
            own = {**more, "atol": more.get("atol", 1e-8) * 10.0**power}
            units = np.tile([10.0**power, 1.0], (BATCH, 1))
            start = two * 10.0**power
            yield Problem(f"state of 1e{power}", scaled_pendulum, start, units, grid(4.0), solvable=True, **own)
            yield Problem(f"field times 1e{power}", linear, one, np.full((BATCH, 1), -(10.0**power)), grid(1.0), **more)
        units = np.tile([1.0, 1e12], (BATCH, 1))
        yield Problem("time of 1e12", scaled_pendulum, two, units, grid(4e12), solvable=True, **more)
        yield Problem("time of 1e12, much in it", rotation, two, powers(-11, 0), grid(1e12), **more)
        units = np.tile([1.0, 1e-12], (BATCH, 1))
        for start in (0.0, 1.0, 1e3) if not single else (0.0,):
            apart = start + 1e-12 * np.tile(np.arange(5.0), (BATCH, 1))
            yield Problem(f"times 1e-12 apart from {start:g}", scaled_pendulum, two, units, apart, **more)
    smooth = uniform(0.5, 3), grid(3.0)
    for method in ("dopri5", "tsit5"):
        for adjoint in ("checkpointed", "direct"):
            chosen = {"method": method, "adjoint": adjoint}
            yield Problem("rotation", rotation, two, *smooth, solvable=True, **chosen)
            yield Problem("exploding, square", square, uniform(0.5, 3), uniform(0.1, 2), grid(1.0), **chosen)


def run(scale: float) -> dict[str, Any]:
    """Solve about 2,000 problems at scale 1."""
    enable_compilation_cache()
    tally, scipy_wrong, missed, scipy_missed = Tally(), 0, 0, 0
    for seed in range(max(1, round(5 * scale))):
        for problem in problems(seed):
            print(f"  {problem.name}: {tally.tried.total()} solved, {tally.losses.total()} losses", flush=True)
            with jax.enable_x64(problem.dtype is np.float64):
                by_us, by_scipy = check(problem, tally)
            missed += by_us
            if problem.jumps:
                scipy_missed += by_scipy
            else:
                scipy_wrong += by_scipy
    return tally.result(
        scipy_rk45_wrong_without_a_word=scipy_wrong, missed_jumps=missed, scipy_rk45_missed_jumps=scipy_missed
    )


def check(problem: Problem, tally: Tally) -> tuple[int, int]:
    """Solve the batch of a problem and compare each sample; how many jumps were missed, and scipy's wrong answers."""
    y0, p, times = (np.asarray(x, problem.dtype) for x in (problem.y0, problem.p, problem.times))
    solver = Solver(problem.method, problem.rtol, problem.atol, adjoint=problem.adjoint)
    out, stats = _solved(problem.field, solver, jnp.asarray(y0), jnp.asarray(p), jnp.asarray(times))
    out, codes = np.asarray(out, float), np.asarray(stats.status != Status.solved)
    kind = problem.name if problem.dtype is np.float64 else f"{problem.name} (float32)"
    missed = scipy_wrong = 0
    for k in range(len(y0)):
        failed = bool(codes[k])
        status = _name(stats.message(k))
        steps = int(stats.accepted[k])
        loss, wrong = _fault(problem, *(x[k].astype(float) for x in (y0, p, times)), out[k], failed, steps)
        if problem.jumps and wrong and not failed:
            loss, status, missed = None, "missed jump", missed + 1
        if loss is not None:
            loss = f"p={p[k].tolist()}, y0={y0[k].tolist()}, status {status}: {loss}"
        tally.add(kind, loss, status)
        if problem.dtype is np.float64:
            own = y0[k], p[k], times[k]
            theirs = scipy_solution(problem, *own, "RK45", problem.rtol, problem.atol, 3000)
            scipy_wrong += bool(_wrong(theirs, *reference(problem, *own)).any())
    return missed, scipy_wrong


_programs: dict[tuple, Callable] = {}


def _solved(field, solver: Solver, y0, p, times):
    """One compiled program for each field and solver."""
    key = (field, solver, y0.dtype)
    if key not in _programs:
        _programs[key] = jax.jit(
            lambda y0, p, times: solver.solve(lambda t, y, p: field(jnp, t, y, p), y0, times, args=p)
        )
    return _programs[key](y0, p, times)


def _name(message: str) -> str:
    return next(
        name
        for name in ("solved", "max_steps_reached", "step_too_small", "not_finite", "bad_times")
        if Status[getattr(Status, name)] == message
    )


def _fault(problem: Problem, y0, p, times, out, failed: bool, steps: int) -> tuple[str | None, bool]:
    """What is wrong with one answer, and whether that is its values."""
    known = np.isfinite(out).all(axis=1)
    if not failed and not known.all():
        return "solved, but not finite", False
    if failed and problem.solvable:
        return "it can be solved", False
    if failed and known.all():
        return "failed, but every time has an answer", False
    exact, allowed = reference(problem, y0, p, times, steps)
    reached = np.isfinite(exact).all(axis=1)
    if not failed and not reached.all():
        return f"solved, but the solution explodes before {times[~reached][0]:.6g}", False
    wrong = known & _wrong(out, exact, allowed)
    if wrong.any():
        i = int(np.argmax(wrong))
        there = f"{out[i].tolist()} instead of {exact[i].tolist()}"
        return f"at {times[i]:.6g} it is {there}, {allowed[i].max():.3g} allowed", True
    return None, False


def _wrong(out, exact, allowed) -> np.ndarray:
    """At which times an answer is outside of what is allowed, or follows an explosion."""
    return np.isfinite(out).all(axis=1) & ~(np.abs(out - exact) <= allowed).all(axis=1)


def reference(problem: Problem, y0, p, times, steps: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The solution at the times, NaN from where it explodes on, and the error allowed."""
    exact = _exact(problem, y0, p, times)
    moved = _exact(problem, y0 + problem.atol + problem.rtol * np.abs(y0), p, times)
    largest = np.maximum.accumulate(np.abs(exact).max(axis=1, keepdims=True), axis=0)
    tolerance = problem.atol + problem.rtol * largest
    return exact, max(problem.slack, steps) * (tolerance + np.nan_to_num(np.abs(moved - exact), nan=np.inf))


def _exact(problem: Problem, y0, p, times) -> np.ndarray:
    closed = CLOSED_FORMS.get(problem.field)
    if closed is None:
        method = "LSODA" if problem.stiff else "DOP853"
        return scipy_solution(problem, y0, p, times, method, problem.rtol * 1e-4, problem.atol * 1e-4, 50_000)
    with np.errstate(all="ignore"):
        out = np.array([closed(y0, p, t - times[0]) for t in times], float)
    return np.where(np.isfinite(out), out, np.nan)


class _TooLong(Exception):
    """scipy was stopped."""


def scipy_solution(problem: Problem, y0, p, times, method: str, rtol: float, atol: float, most: int) -> np.ndarray:
    """scipy's solution at the times, NaN where it has none or takes too long."""
    out = np.full((len(times), len(y0)), np.nan)
    later = np.unique(times[times > times[0]]) - times[0]
    left = most

    def field(t, y):
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooLong
        # In time since the start: near 1000 there are few numbers between two times 1e-12 apart.
        return np.asarray(problem.field(np, t + times[0], y, p))

    found = {0.0: y0}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            solution = solve_ivp(field, (0.0, later[-1]), y0, method, t_eval=later, rtol=max(rtol, 1e-11), atol=atol)
            found |= dict(zip(np.asarray(solution.t).tolist(), np.asarray(solution.y).T, strict=True))
        except (_TooLong, ValueError):  # it refuses a state that is not finite
            pass
    for i, t in enumerate(times - times[0]):
        out[i] = found.get(float(t), np.nan)
    return np.where(np.abs(out) < _LARGEST, out, np.nan)
