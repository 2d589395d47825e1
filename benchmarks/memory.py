"""Memory of a training step against the number of solver steps, for several ways to the gradient.

- checkpointed: our default, with as many checkpoints as the square root of the number of steps;
- direct: diffrax's DirectAdjoint, which nests checkpoints itself once there are more than 16 steps;
- stored: the same Runge-Kutta method as a plain `lax.scan`, differentiated as it stands, nothing recomputed.

Nothing is run: the compiler says how much memory the program needs besides its inputs and outputs.
"""

import os

# The compiler grumbles about diffrax's nested loops, dozens of lines for each program. Said before JAX starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools as ft
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import system
from jax import lax
from measure import slope
from record import arguments, save, show
from system import Problem, Size, training_step

from acenode.ode import CoEvolvingODE, Solver

# A state of H + H^2 = 4,160 numbers a sample, so that stored states outweigh the two numbers a sample (time and size)
# that the checkpointed gradient notes for every step.
SIZE = Size(h=64, batch=16, times=2)
NUMBER = 4  # bytes
ALLOWED = 0.5 + 0.05
WAYS = ("checkpointed", "direct", "stored")


def checkpoints(steps: int) -> int:
    """The even number nearest to the square root of the number of steps."""
    return max(2, 2 * round(math.sqrt(steps) / 2))


def problem(steps: int, gradient: str) -> Problem:
    solver = Solver("rk4", step=1 / steps, adjoint=gradient, max_steps=steps, checkpoints=checkpoints(steps))
    return system.problem(SIZE, solver)


def stored_loss(ode: CoEvolvingODE, h0, times, steps: int):
    """`system.loss` by the classical Runge-Kutta method in a plain scan."""
    dt = (times[-1] - times[0]) / steps

    @jax.vmap
    def field(y):
        attended = ode.attention(*y)
        return ode.f(times[0], attended), ode.g(times[0], attended)

    def ahead(y, slopes, by):
        return jax.tree.map(lambda a, b: a + by * b, y, slopes)

    def step(y, _):
        k1 = field(y)
        k2 = field(ahead(y, k1, dt / 2))
        k3 = field(ahead(y, k2, dt / 2))
        k4 = field(ahead(y, k3, dt))
        return jax.tree.map(lambda y, a, b, c, d: y + dt / 6 * (a + 2 * b + 2 * c + d), y, k1, k2, k3, k4), None

    (h, _), _ = lax.scan(step, (h0, ode.initial(h0)), length=steps)
    return jnp.mean(jnp.square(jnp.stack([h0, h]))), None


def program(steps: int, way: str) -> tuple[Callable, tuple]:
    """The training step by this way, and what it is called with."""
    ode, h0, times = problem(steps, "direct" if way == "direct" else "checkpointed")
    if way == "stored":
        loss = ft.partial(stored_loss, steps=steps)
    else:
        loss = ft.partial(system.loss, attention=False)
    compiled, parameters = training_step(loss, ode)
    return compiled, (parameters, h0, times)


def temporary_bytes(steps: int, way: str) -> int:
    """What the compiled training step needs besides its inputs and outputs."""
    step, inputs = program(steps, way)
    return step.lower(*inputs).compile().memory_analysis().temp_size_in_bytes


def clock_bytes(steps: int) -> int:
    """Of the checkpointed: the time and the size of every step of every sample. Grows with the steps, but is small."""
    return 2 * steps * SIZE.batch * NUMBER


def measure(all_steps: list[int]) -> list[dict]:
    rows = []
    for steps in all_steps:
        row = {"steps": steps, "checkpoints": checkpoints(steps), "clock_bytes": clock_bytes(steps)}
        row |= {f"{way}_bytes": temporary_bytes(steps, way) for way in WAYS}
        row["checkpointed_without_clocks_bytes"] = row["checkpointed_bytes"] - row["clock_bytes"]
        rows.append(row)
    return rows


def slopes(rows: list[dict]) -> dict[str, dict[str, float]]:
    """Exponents of memory in steps, over all rows and over the upper half, where fixed costs weigh less."""
    half = rows[len(rows) // 2 :]
    return {
        name: {
            part: round(slope([row["steps"] for row in some], [row[f"{name}_bytes"] for row in some]), 4)
            for part, some in (("all", rows), ("upper_half", half))
        }
        for name in ("checkpointed", "checkpointed_without_clocks", "direct", "stored")
    }


def report(rows: list[dict], found: dict[str, dict[str, float]]) -> None:
    columns = ("checkpointed", "clock", "direct", "stored")
    table = [
        (row["steps"], row["checkpoints"], *(f"{row[f'{name}_bytes'] / 1e6:.2f}" for name in columns)) for row in rows
    ]
    show(("steps", "checkpoints", "checkpointed MB", "of which clocks", "direct MB", "stored MB"), table)
    print()
    lines = [
        (name.replace("_", " "), f"{value['all']:.3f}", f"{value['upper_half']:.3f}") for name, value in found.items()
    ]
    show(("exponent of memory in steps", "all rows", "upper half"), lines)
    state = NUMBER * SIZE.batch * (SIZE.h + SIZE.h**2) / 1e6
    print(
        f"\nOne state of the batch is {state:.2f} MB (H={SIZE.h}, batch {SIZE.batch}), chosen large so that states"
        " dominate.\nThe clocks, two numbers for each step and sample, grow with the steps themselves. Few steps"
        " hide\nbehind the fixed cost of one step's stages, so the upper half tells more."
    )


def main() -> None:
    given = arguments(__doc__.splitlines()[0], "memory").parse_args()
    rows = measure([16, 64, 256] if given.quick else [16, 64, 256, 1024, 4096, 16384])
    found = slopes(rows)
    report(rows, found)
    held = max(found["checkpointed_without_clocks"].values()) <= ALLOWED
    setting = SIZE.as_dict() | {"method": "rk4", "allowed_exponent": ALLOWED, "held": held}
    print(f"\nwritten: {save(given.out, 'memory', given.quick, setting=setting, rows=rows, slopes=found)}")
    if not held:
        raise SystemExit(f"The checkpointed gradient's memory grows faster than steps^{ALLOWED:g}.")


if __name__ == "__main__":
    main()
