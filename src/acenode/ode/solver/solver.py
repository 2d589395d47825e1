"""`Solver`: which method, how accurate, which gradient.

The default gradient runs on the loop of `integrate.py`; `backsolve` (the adjoint of the paper's Section 3.3) and
`direct` run on diffrax.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...precision import Precision, check_precision, jax_precision
from .adjoint import vjp_evaluations_per_step
from .diffrax_backend import solve_by_diffrax
from .integrate import integrate
from .runge_kutta import METHODS
from .status import Stats, Status, status_where
from .step_size import Compact, Control, Norm
from .vector_field import InPrecision, prepare

Adjoint = Literal["checkpointed", "backsolve", "direct"]


@dataclass(frozen=True)
class Solver:
    """How to solve `dy/dt = field(t, y)`.

    - `method`: `dopri5`, `tsit5` (adaptive), `euler`, `midpoint`, `heun`, `rk4`, `rk4_38` (fixed step).
    - `rtol`, `atol`: tolerances of an adaptive method.
    - `step`: a fixed step size instead of tolerances; needed by the methods without an error estimate. The
      last step is cut to end at the last time.
    - `adjoint`: `checkpointed` (exact for the steps taken), `backsolve` (the continuous adjoint, solved backwards:
      constant memory, approximate) or `direct` (exact, by nested checkpoints of another loop: slower, for checking the
      others). `checkpointed` can be differentiated forwards over backwards (`jax.hessian`; not through kernels for
      `float16` convolutions on a GPU), `direct` in any order, `backsolve` once. None has a gradient of times.
    - `max_steps`: a sample that needs more fails, with a status. With a fixed `step` it grows by itself to what the
      times need, where these are known (not traced by `jit`).
    - `checkpoints`: how many states `checkpointed` stores. The memory of its gradient is allocated before the solve,
      whatever the number of steps: `checkpoints` states of the batch, about `max_steps / checkpoints` more (the next
      power of two) for the segment that is computed again, and two times a sample for each of `max_steps`.
    - `kept_steps`: of how many steps `checkpointed` stores what their gradient needs, where the field can give it
      (`ConvField`); later steps are evaluated again. Lower it if memory is short (`docs/solver.md` has sizes).
    - `norm`: the error norm of an adaptive method. `per_part` takes the root mean square of every array of the state
      and the largest of these, so that the H x H logits of an attention cannot hide the error of the H numbers of h;
      `joint` takes the root mean square of all numbers of the state.
    - `precision`: of the matrix products in the vector field and in its gradient: `float32`, `tf32` or `bfloat16`.
      `None` takes the precision around the solve (`Recipe.precision` in `fit`, or `jax.default_matmul_precision`), and
      float32 where none is set, on every kind of machine. The solver's own arithmetic is never reduced.
    - `compact`: whether the last unfinished samples of an adaptive solve are moved into a small batch: the answers are
      the same up to rounding. `auto` does so for large batches on a CPU; on a GPU a small batch takes as long.
    """

    method: str = "dopri5"
    rtol: float = 1e-4
    atol: float = 1e-5
    step: float | None = None
    adjoint: Adjoint = "checkpointed"
    max_steps: int = 4096
    checkpoints: int = 64
    kept_steps: int = field(default=8, repr=False)  # no answer depends on it: a training may resume with another
    norm: Norm = "per_part"
    precision: Precision | None = None
    compact: Compact = "auto"

    def __post_init__(self):
        for name, choices in (("method", METHODS), ("adjoint", get_args(Adjoint)), ("norm", get_args(Norm))):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"Solver({name}={value!r}): no such {name}. Choose from {', '.join(choices)}.")
        if self.step is None and not METHODS[self.method].adaptive:
            raise ValueError(f"Solver(method={self.method!r}) has no error estimate: give it a step, e.g. step=0.1.")
        if self.step is not None and not self.step > 0:
            raise ValueError(f"Solver(step={self.step}): the step must be positive.")
        if not (self.rtol > 0 and self.atol > 0):
            raise ValueError(f"Solver(rtol={self.rtol}, atol={self.atol}): tolerances must be positive.")
        if self.max_steps < 1:
            raise ValueError(f"Solver(max_steps={self.max_steps}): must be at least 1.")
        check_precision("Solver", self.precision)
        if self.compact not in (True, False, "auto"):
            raise ValueError(f"Solver(compact={self.compact!r}): choose from True, False, 'auto'.")
        if self.kept_steps < 0:
            raise ValueError(f"Solver(kept_steps={self.kept_steps}): must not be negative.")
        if self.checkpoints < 2 or self.checkpoints % 2:
            raise ValueError(f"Solver(checkpoints={self.checkpoints}): must be an even number, at least 2.")

    @property
    def adaptive(self) -> bool:
        return self.step is None

    def with_enough_steps(self, times: Any) -> "Solver":
        """The same solver, allowed as many steps as a fixed step takes over these times, if that is more.

        The number is a power of two, so that not every span compiles anew. Traced times are not known: the same solver.
        """
        if self.step is None or any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(times)):
            return self
        known = np.asarray(times, float)
        span = np.max(known[..., -1] - known[..., 0], initial=0.0) if known.ndim and known.size else 0.0
        need = math.ceil(span / self.step - 1e-3) if np.isfinite(span) else 0
        if need <= self.max_steps:
            return self
        return replace(self, max_steps=1 << (need + need // 16).bit_length())  # the sum of rounded steps may fall short

    def solve(
        self,
        field,
        y0: PyTree[Float[Array, "batch ..."]],
        times: Float[Array, "batch times"],
        args: PyTree = None,
        keep=lambda y: y,
    ) -> tuple[PyTree[Float[Array, "batch times ..."]], Stats]:
        """`keep(y)` at all `times`, starting from `y0` at the first, and what it took.

        `field(t, y, args)` is written for one sample. Arrays that it closes over have a gradient where they are traced;
        others are read when it is compiled, as under `jax.jit`. Entries that a failed solve did not reach are NaN, and
        `Stats.status` says why; they add nothing to a gradient, so that one may be finite where a loss is not.
        """
        traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((field, y0, times, args)))
        # Outside of `jit` every call would compile its loops anew; this does so once, as diffrax's solve does.
        return (_solve if traced else _compiled)(self.with_enough_steps(times), field, y0, times, args, keep)


def _solve(solver: Solver, field, y0, times, args, keep) -> tuple[PyTree, Stats]:
    """A sample with bad times gets NaN and a status; the others are solved."""
    bad = ~jnp.isfinite(times).all(axis=1) | (jnp.diff(times, axis=1) < 0).any(axis=1)
    out, stats = _solve_sorted(solver, field, y0, jnp.where(bad[:, None], 0.0, times), args, keep)
    out = jax.tree.map(lambda y: jnp.where(bad.reshape(-1, *(1,) * (y.ndim - 1)), jnp.nan, y), out)
    return out, replace(stats, status=status_where(bad, Status.bad_times, stats.status))


_compiled = eqx.filter_jit(_solve)


def _solve_sorted(solver: Solver, field, y0, times, args, keep) -> tuple[PyTree, Stats]:
    if times.shape[-1] == 1:
        return jax.tree.map(lambda y: y[:, None], keep(y0)), Stats.none(times.shape[0])
    # Wrapped, not traced within a context: its gradient is traced later, when the context has ended.
    field, y0, times = prepare(InPrecision(field, jax_precision(solver.precision)), y0, times, args)
    limits = solver.max_steps, solver.checkpoints, solver.kept_steps, solver.compact
    control = Control(solver.rtol, solver.atol, solver.step, solver.norm, *limits)
    if solver.adjoint != "checkpointed":
        return solve_by_diffrax(solver.method, solver.adjoint, control, field, y0, times, args, keep)
    tableau = METHODS[solver.method]
    out, counts = integrate(field, y0, args, times, tableau, control, keep)
    first = 2 if solver.adaptive else 1
    evaluations = first + tableau.evaluations_per_step * (counts.accepted + counts.rejected)
    vjp_evaluations = counts.accepted * vjp_evaluations_per_step(tableau, times)
    return out, Stats(counts.accepted, counts.rejected, evaluations, vjp_evaluations, counts.status)


def check_solver(name: str, solver: object) -> None:
    """Refuse what is not a `Solver`, such as its method alone."""
    if not isinstance(solver, Solver):
        raise ValueError(f"{name}(solver={solver!r}): give a Solver, e.g. Solver() or Solver('rk4', step=0.05).")
