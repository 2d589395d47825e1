"""Time of a training step against the batch, the dimension H, and the number of output times.

One of the three varies, the others stay at H=20, batch 50, 50 times. The path of h is returned, without that of a,
as training does.
"""

import functools as ft
from collections.abc import Callable
from dataclasses import replace

import jax
import system
from measure import interleaved, slope
from record import arguments, save, show
from system import Size, training_step

SWEEPS = {
    "batch": [1, 4, 16, 64, 256, 1024],
    "h": [5, 10, 20, 40, 80, 160],
    "times": [2, 8, 32, 128, 512, 2048],
}
TITLES = {"batch": "batch", "h": "H", "times": "output times"}


def step_of(size: Size) -> Callable:
    """A compiled training step of the system at this size, bound to its inputs."""
    ode, h0, times = system.problem(size)
    program, parameters = training_step(ft.partial(system.loss, attention=False), ode)
    return lambda: jax.block_until_ready(program(parameters, h0, times))


def sweep(name: str, values: list[int], rounds: int) -> dict:
    """Timings for every value of one size, and how they grow."""
    steps = {str(value): step_of(replace(Size(), **{name: value})) for value in values}
    times = interleaved(steps, rounds)
    rows = [{name: value} | times[str(value)].as_dict() | solver_steps(steps[str(value)]) for value in values]
    medians = [row["median_ms"] for row in rows]
    half = len(values) // 2
    return {
        "rows": rows,
        "slope": round(slope(values, medians), 4),
        "slope_upper_half": round(slope(values[half:], medians[half:]), 4),
    }


def solver_steps(step: Callable) -> dict:
    """The most steps that any sample took: the work that tolerances, not sizes, decide."""
    (_, (_, stats)), _ = step()
    return {"steps": int(stats.accepted.max()), "rejected": int(stats.rejected.max())}


def report(name: str, found: dict) -> None:
    """The table of one sweep; its local exponent is the one from the row before."""
    rows = found["rows"]
    sizes, medians = [row[name] for row in rows], [row["median_ms"] for row in rows]
    local = [f"{slope(sizes[i - 1 : i + 1], medians[i - 1 : i + 1]):.2f}" for i in range(1, len(rows))]
    table = [
        (row[name], f"{row['median_ms']:.2f}", f"{row['fastest_ms']:.2f}", row["steps"], exponent)
        for row, exponent in zip(rows, ["", *local], strict=True)
    ]
    show((TITLES[name], "median ms", "fastest ms", "solver steps", "local exponent"), table)
    print(f"exponent over all {found['slope']:.2f}, over the upper half {found['slope_upper_half']:.2f}\n")


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "scaling")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each size (default: %(default)s)")
    given = parser.parse_args()
    found = {}
    for name, values in SWEEPS.items():
        values = values[1:4] if given.quick else values
        found[name] = sweep(name, values, 1 if given.quick else given.rounds)
        report(name, found[name])
    print(f"written: {save(given.out, 'scaling', given.quick, setting=Size().as_dict(), sweeps=found)}")


if __name__ == "__main__":
    main()
