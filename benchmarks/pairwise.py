"""A training step of the pairwise co-evolving system: ours, diffrax, and torchdiffeq, in one run.

All start from the same weights and states. Loss and gradients must agree before the clock means anything.
"""

import os

# Two frameworks share one GPU: neither may take all of its memory. Has to be said before JAX starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import argparse
import functools as ft
from collections.abc import Callable
from dataclasses import dataclass

import baseline_diffrax
import jax
import numpy as np
import system
from measure import Timing, interleaved
from record import arguments, save, show
from system import Problem, Size, layers, training_step

from acenode.ode import Solver

TIGHT = 1e-6  # tolerance of the solution that all are compared with
PRECISIONS = {"float32": ("highest", "highest"), "tf32": ("tensorfloat32", "high")}
OURS, OURS_H = "acenode", "acenode, h only"


@dataclass(frozen=True)
class Candidate:
    """A training step to call, and what it answers: the loss, the gradients, the evaluations of a forward pass."""

    step: Callable[[], object]
    answer: Callable[[], tuple[float, np.ndarray, int]]


def flat(arrays) -> np.ndarray:
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])


def by_jax(loss: Callable, given: Problem, evaluations: Callable) -> Candidate:
    """A baseline that is a JAX loss over our parameters."""
    program, parameters = training_step(loss, given.ode)

    def step():
        return jax.block_until_ready(program(parameters, given.h0, given.times))

    def answer():
        (value, (_, stats)), gradient = step()
        each = [leaf for layer in layers(gradient) for leaf in (layer.weight, layer.bias)]
        return float(value), flat(each), int(np.max(evaluations(stats)))

    return Candidate(step, answer)


def by_torch(solver: str, given: Problem, device: str) -> Candidate:
    import baseline_torch

    step = baseline_torch.Step(solver, given, device)

    def answer():
        value = step()
        return value, flat(step.gradients()), step.evaluations

    return Candidate(step, answer)


def jax_candidates(given: Problem) -> dict[str, Candidate]:
    def ours(stats):
        return stats.evaluations

    def theirs(stats):  # six a step, and two to choose the first
        return 6 * stats["num_steps"] + 2

    return {
        OURS: by_jax(ft.partial(system.loss, attention=True), given, ours),
        OURS_H: by_jax(ft.partial(system.loss, attention=False), given, ours),
        "diffrax": by_jax(ft.partial(baseline_diffrax.loss, attention=True), given, theirs),
        "diffrax, h only": by_jax(ft.partial(baseline_diffrax.loss, attention=False), given, theirs),
    }


def torch_candidates(given: Problem, device: str) -> dict[str, Candidate]:
    """Those of torch; none, with a sentence, where it is not to be had."""
    try:
        import baseline_torch
    except ImportError as error:
        print(f"Without torch: {error}. `pip install -r benchmarks/requirements.txt` brings it.\n")
        return {}
    if why := baseline_torch.missing_device(device):
        print(f"Without torch: {why}. `--device cpu` runs it on the processor.\n")
        return {}
    return {f"torchdiffeq {solver}": by_torch(solver, given, device) for solver in baseline_torch.SOLVERS}


def set_precision(name: str, threads: int | None) -> dict:
    """The same precision of matrix products for both frameworks, which differ in their defaults on a GPU."""
    for_jax, for_torch = PRECISIONS[name]
    jax.config.update("jax_default_matmul_precision", for_jax)
    try:
        import torch
    except ImportError:
        return {"precision": name}
    torch.set_float32_matmul_precision(for_torch)
    if threads is not None:
        torch.set_num_threads(threads)
    return {"precision": name, "torch_threads": torch.get_num_threads()}


def compare(candidates: dict[str, Candidate], tight: Candidate) -> dict[str, dict]:
    """Loss, gradient and work of each; how far they are from ours, and from a far more accurate solution."""
    answers = {name: candidate.answer() for name, candidate in candidates.items()}
    value, gradient, _ = answers[OURS]
    _, accurate, _ = tight.answer()
    return {
        name: {
            "loss": v,
            "loss_difference": abs(v - value) / abs(value),
            "gradient_difference": relative(g, gradient),
            "gradient_error": relative(g, accurate),
            "evaluations": n,
        }
        for name, (v, g, n) in answers.items()
    }


def relative(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def disagreeing(rows: dict[str, dict], allowed: float) -> list[str]:
    return [n for n, r in rows.items() if not max(r["loss_difference"], r["gradient_difference"]) <= allowed]


def show_agreement(rows: dict[str, dict], allowed: float) -> None:
    heads = ("agreement", "loss", "loss off ours", "gradient off ours", "gradient error", "evaluations")
    numbers = ("loss_difference", "gradient_difference", "gradient_error")
    table = [(n, f"{r['loss']:.6f}", *(f"{r[x]:.1e}" for x in numbers), r["evaluations"]) for n, r in rows.items()]
    show(heads, table)
    odd = disagreeing(rows, allowed)
    verdict = f"These do NOT agree with ours: {', '.join(odd)}." if odd else "All agree with ours."
    print(
        f"\n{verdict} Up to {allowed:g} is allowed, relative, gradients by their norm. The error is against a solution"
        f"\nwith tolerance {TIGHT:g}. Evaluations of the vector field are those of a forward pass.\n"
    )


def show_times(times: dict[str, Timing]) -> None:
    ours, ours_h = times[OURS].median_ms, times[OURS_H].median_ms
    heads = ("one training step", "median ms", "fastest ms", "calls", "first ms", f"/ {OURS}", f"/ {OURS_H}")
    ratios = {name: [f"{t.median_ms / base:.2f}" for base in (ours, ours_h)] for name, t in times.items()}
    rows = [
        (name, f"{t.median_ms:.2f}", f"{t.fastest_ms:.2f}", t.calls, f"{t.first_ms:.0f}", *ratios[name])
        for name, t in times.items()
    ]
    show(heads, rows)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__.splitlines()[0], "pairwise")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where torch runs (default: the kind JAX runs on)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each baseline (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="processor threads of torch (default: its own choice)")
    parser.add_argument("--precision", choices=tuple(PRECISIONS), default="float32", help="of matrix products on a GPU")
    parser.add_argument("--gain", type=float, default=1.0, help="factor on all weights; more makes more solver steps")
    parser.add_argument("--agree", type=float, default=1e-3, help="largest difference from ours (default: %(default)s)")
    given = parser.parse_args()
    given.device = given.device or ("cpu" if jax.default_backend() == "cpu" else "gpu")
    return given


def main() -> None:
    given = parse()
    size = Size()
    setting = set_precision(given.precision, given.threads) | {"torch_device": given.device, "gain": given.gain}
    print(f"H={size.h}, batch {size.batch}, {size.times} times, dopri5; JAX on {jax.devices()[0].device_kind}.\n")
    task = system.problem(size, gain=given.gain)
    candidates = jax_candidates(task) | torch_candidates(task, given.device)
    times = interleaved(
        {name: candidate.step for name, candidate in candidates.items()}, 1 if given.quick else given.rounds
    )
    accurate = system.problem(size, Solver("dopri5", rtol=TIGHT, atol=TIGHT), given.gain)
    rows = compare(
        candidates, by_jax(ft.partial(system.loss, attention=False), accurate, lambda stats: stats.evaluations)
    )
    show_agreement(rows, given.agree)
    show_times(times)
    for name, row in rows.items():
        row |= times[name].as_dict()
        row["ratio_to_ours"] = round(times[name].median_ms / times[OURS].median_ms, 4)
        row["ratio_to_ours_h_only"] = round(times[name].median_ms / times[OURS_H].median_ms, 4)
    odd = disagreeing(rows, given.agree)
    setting |= size.as_dict() | {"agreement_within": given.agree, "all_agree": not odd}
    print(f"\nwritten: {save(given.out, 'pairwise', given.quick, setting=setting, rows=rows)}")
    if odd:
        raise SystemExit(f"Not the same training step, within {given.agree:g}: {', '.join(odd)}.")


if __name__ == "__main__":
    main()
