"""Memory of a training step against the number of solver steps: the checkpointed gradient and the direct one.

Nothing is run: the compiler says how much room the program needs besides its inputs and outputs.
"""

import functools as ft
import math

import system
from measure import slope
from record import arguments, save, show
from system import Size, training_step

from acenode.ode import Solver

# A state of H + H^2 = 4,160 numbers a sample, so that stored states outweigh the two numbers a sample (time and size)
# that the checkpointed gradient notes for every step, and the network's own arrays.
SIZE = Size(h=64, batch=16, times=2)
NUMBER = 4  # bytes
ALLOWED = 0.5 + 0.05


def checkpoints(steps: int) -> int:
    """The even number nearest to the square root of the number of steps."""
    return max(2, 2 * round(math.sqrt(steps) / 2))


def solver(steps: int, gradient: str) -> Solver:
    return Solver("rk4", step=1 / steps, gradient=gradient, max_steps=steps, checkpoints=checkpoints(steps))


def temporary_bytes(steps: int, gradient: str) -> int:
    """What the compiled training step needs besides its inputs and outputs."""
    ode, h0, times = system.problem(SIZE, solver(steps, gradient))
    program, parameters = training_step(ft.partial(system.loss, attention=False), ode)
    return program.lower(parameters, h0, times).compile().memory_analysis().temp_size_in_bytes


def clock_bytes(steps: int) -> int:
    """Of these, the time and the size of every step of every sample: grows with the steps, but is small."""
    return 2 * steps * SIZE.batch * NUMBER


def measure(all_steps: list[int]) -> list[dict]:
    rows = []
    for steps in all_steps:
        kept = temporary_bytes(steps, "checkpointed")
        rows.append(
            {
                "steps": steps,
                "checkpoints": checkpoints(steps),
                "checkpointed_bytes": kept,
                "clock_bytes": clock_bytes(steps),
                "state_bytes": kept - clock_bytes(steps),
                "direct_bytes": temporary_bytes(steps, "direct"),
            }
        )
    return rows


def slopes(rows: list[dict]) -> dict[str, float]:
    """Exponents of memory in steps, over all rows and over the upper half, where fixed costs weigh less."""
    found = {}
    for part, some in (("all", rows), ("upper half", rows[len(rows) // 2 :])):
        steps = [row["steps"] for row in some]
        for name in ("checkpointed_bytes", "state_bytes", "direct_bytes"):
            found[f"{name}, {part}"] = round(slope(steps, [row[name] for row in some]), 4)
    return found


def report(rows: list[dict], found: dict[str, float]) -> None:
    heads = ("steps", "checkpoints", "checkpointed MB", "of which clocks", "direct MB", "direct / checkpointed")
    columns = ("checkpointed_bytes", "clock_bytes", "direct_bytes")
    show(
        heads,
        [
            (row["steps"], row["checkpoints"], *(f"{row[name] / 1e6:.2f}" for name in columns))
            + (f"{row['direct_bytes'] / row['checkpointed_bytes']:.1f}",)
            for row in rows
        ],
    )
    print()
    show(("exponent of memory in steps", "value"), [(name, f"{value:.3f}") for name, value in found.items()])
    print(
        f"\nA state is {NUMBER * SIZE.batch * (SIZE.h + SIZE.h**2) / 1e6:.2f} MB (H={SIZE.h}, batch {SIZE.batch}), chosen"
        " large so that stored states dominate.\nThe clocks, two numbers for each step and sample, grow with the steps"
        " themselves; `state_bytes` is all but them."
    )


def main() -> None:
    given = arguments(__doc__.splitlines()[0], "memory").parse_args()
    rows = measure([16, 64, 256] if given.quick else [16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
    found = slopes(rows)
    report(rows, found)
    held = max(found["state_bytes, all"], found["state_bytes, upper half"]) <= ALLOWED
    setting = SIZE.as_dict() | {"method": "rk4", "allowed_exponent": ALLOWED, "held": held}
    print(f"\nwritten: {save(given.out, 'memory', given.quick, setting=setting, rows=rows, slopes=found)}")
    if not held:
        raise SystemExit(f"The checkpointed gradient's states grow faster than steps^{ALLOWED:g}.")


if __name__ == "__main__":
    main()
