"""`Solver`: which method, how accurate, which gradient. The only file that calls diffrax.

The default gradient runs on the loop of `stepping.py`; `backsolve` (the adjoint of the paper's Section 3.3) and
`direct` run on diffrax, mapped over the samples.
"""

from dataclasses import dataclass
from typing import Literal, SupportsInt, get_args

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from . import stepping
from .step_size import Control
from .stepping_back import vjp_evaluations_per_step
from .tableau import METHODS, Tableau

Adjoint = Literal["checkpointed", "backsolve", "direct"]

SENTENCES = {
    stepping.OK: "solved",
    stepping.TOO_MANY_STEPS: "the solver used up its max_steps: raise max_steps, loosen rtol and atol or enlarge the "
    "step, or shrink the vector field",
    stepping.STEP_TOO_SMALL: "the step size shrank to nothing: the vector field is stiff or blows up; loosen "
    "rtol and atol, use a fixed step, or lower the learning rate",
    stepping.NOT_FINITE: "the state became infinite or not a number: lower the learning rate or the step, check "
    "the inputs, or, if the attention starts from a correlation, call ode.fit_reference_statistics before predicting",
    stepping.BAD_TIMES: "the times are not finite, not sorted, or before the start: sort those of each sample, and "
    "repeat the last one where it has fewer than others",
}


class Stats(eqx.Module):
    """What the solver did for each sample.

    `status` is 0 where all went well; `sentence(status)` says what went wrong and what to do elsewhere.
    `evaluations` counts calls of the vector field (NFE, forward), `vjp_evaluations` the vector-Jacobian products that a
    gradient would take (NFE, backward); -1 where the method does not count them.
    """

    steps: Int[Array, " batch"]
    rejected: Int[Array, " batch"]
    evaluations: Int[Array, " batch"]
    vjp_evaluations: Int[Array, " batch"]
    status: Int[Array, " batch"]

    @property
    def failed(self) -> Array:
        return self.status != stepping.OK

    @classmethod
    def none(cls, batch: int) -> "Stats":
        zero = jnp.zeros(batch, jnp.int32)
        return cls(zero, zero, zero, zero, zero)


def sentence(status: SupportsInt) -> str:
    """The status of a solve in words, with the fix."""
    return SENTENCES[int(status)]


@dataclass(frozen=True)
class Solver:
    """How to solve `dy/dt = field(t, y)`.

    - `method`: `dopri5`, `tsit5` (adaptive), `euler`, `midpoint`, `heun`, `rk4`, `rk4_38` (fixed step).
    - `rtol`, `atol`: tolerances of an adaptive method.
    - `step`: a fixed step size instead of tolerances; needed by the methods without an error estimate. The
      last step is cut to end at the last time.
    - `adjoint`: `checkpointed` (exact for the steps taken, memory grows with the square root of their
      number), `backsolve` (the continuous adjoint, solved backwards: constant memory, approximate) or `direct`
      (exact, by nested checkpoints of another loop: slower, for checking the others). `checkpointed` can be
      differentiated forwards over backwards (`jax.hessian`), `direct` in any order, `backsolve` once. No form has a
      gradient of times. Weights that f closes over have one with `direct` only: make f an `equinox.Module`. What else
      a function closes over is read when it is compiled, as under `jax.jit`.
    - `max_steps`: a sample that needs more is given up, with a status.
    - `checkpoints`: how many states `checkpointed` keeps; 64 by default.
    """

    method: str = "dopri5"
    rtol: float = 1e-4
    atol: float = 1e-5
    step: float | None = None
    adjoint: Adjoint = "checkpointed"
    max_steps: int = 4096
    checkpoints: int = 64

    def __post_init__(self):
        if self.method not in METHODS:
            raise ValueError(f"Solver(method={self.method!r}): no such method. Choose from {', '.join(METHODS)}.")
        if self.adjoint not in get_args(Adjoint):
            raise ValueError(
                f"Solver(adjoint={self.adjoint!r}): no such adjoint. Choose from {', '.join(get_args(Adjoint))}."
            )
        if self.step is None and not METHODS[self.method].adaptive:
            raise ValueError(f"Solver(method={self.method!r}) has no error estimate: give it a step, e.g. step=0.1.")
        if self.step is not None and not self.step > 0:
            raise ValueError(f"Solver(step={self.step}): the step must be positive.")
        if not (self.rtol > 0 and self.atol > 0):
            raise ValueError(f"Solver(rtol={self.rtol}, atol={self.atol}): tolerances must be positive.")
        if self.max_steps < 1:
            raise ValueError(f"Solver(max_steps={self.max_steps}): must be at least 1.")
        if self.checkpoints < 2 or self.checkpoints % 2:
            raise ValueError(f"Solver(checkpoints={self.checkpoints}): must be an even number, at least 2.")

    @property
    def adaptive(self) -> bool:
        return self.step is None

    def solve(
        self,
        field,
        y0: PyTree[Float[Array, "batch ..."]],
        times: Float[Array, "batch times"],
        args: PyTree = None,
        keep=lambda y: y,
    ) -> tuple[PyTree[Float[Array, "batch times ..."]], Stats]:
        """`keep(y)` at all `times`, starting from `y0` at the first, and what it took.

        `field(t, y, args)` is written for one sample. Entries that a failed solve did not reach are NaN, and
        `Stats.status` says why; they add nothing to a gradient, so that one may be finite where a loss is not.
        """
        traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((field, y0, times, args)))
        # Outside of `jit` every call would compile its loops anew; this does so once, as diffrax's solve does.
        return (Solver._checked if traced else _alone)(self, field, y0, times, args, keep)

    def _checked(self, field, y0, times, args, keep) -> tuple[PyTree, Stats]:
        """Samples whose times cannot be solved get none of it."""
        bad = ~jnp.isfinite(times).all(axis=1) | (jnp.diff(times, axis=1) < 0).any(axis=1)
        out, stats = self._solve(field, y0, jnp.where(bad[:, None], 0.0, times), args, keep)
        out = jax.tree.map(lambda y: jnp.where(bad.reshape(-1, *(1,) * (y.ndim - 1)), jnp.nan, y), out)
        return out, eqx.tree_at(lambda s: s.status, stats, jnp.where(bad, stepping.BAD_TIMES, stats.status))

    def _solve(self, field, y0, times, args, keep) -> tuple[PyTree, Stats]:
        if times.shape[-1] == 1:
            return jax.tree.map(lambda y: y[:, None], keep(y0)), Stats.none(times.shape[0])
        y0, times = _in_one_precision(field, y0, times, args)
        tableau = METHODS[self.method]
        if self.adjoint != "checkpointed":
            return _solve_by_diffrax(self, tableau, field, y0, times, args, keep)
        control = Control(self.rtol, self.atol, self.step, self.max_steps, self.checkpoints)
        out, counts = stepping.integrate(field, y0, args, times, tableau, control, keep)
        first = 2 if self.adaptive else 1
        evaluations = first + tableau.evaluations_per_step * (counts.accepted + counts.rejected)
        vjp_evaluations = counts.accepted * vjp_evaluations_per_step(tableau, times)
        return out, Stats(counts.accepted, counts.rejected, evaluations, vjp_evaluations, counts.status)


_alone = eqx.filter_jit(Solver._checked)


def check_solver(name: str, solver: object) -> None:
    """Refuse what is not a `Solver`, such as its method alone."""
    if not isinstance(solver, Solver):
        raise ValueError(f"{name}(solver={solver!r}): give a Solver, e.g. Solver() or Solver('rk4', step=0.05).")


def check_slope(slope: PyTree, y: PyTree) -> None:
    """Refuse a derivative that has not the shape of its state, which arithmetic would stretch to it."""
    given, needed = ([leaf.shape[1:] for leaf in jax.tree.leaves(each)] for each in (slope, y))
    for name, one, other in zip(("h", "a", *("state",) * len(needed)), given, needed, strict=False):
        if one != other:
            hint = "; see pairwise_field for a g that gives H x H numbers" if name == "a" else ""
            raise ValueError(f"The vector field gives d{name}/dt of shape {one} where {name} has {other}{hint}.")
    if len(given) != len(needed):
        raise ValueError(f"The vector field gives {len(given)} arrays for a state of {len(needed)}.")


def _in_one_precision(field, y0, times, args):
    """State and times in the precision in which the field answers, e.g. float32 data under float64 weights."""
    start = times[:, 0].astype(jnp.result_type(*jax.tree.leaves(y0)))
    slope = eqx.filter_eval_shape(jax.vmap(field, axis_name=stepping.SAMPLES), start, y0, args)
    check_slope(slope, y0)
    widest = jnp.result_type(*jax.tree.leaves((y0, slope)))
    return jax.tree.map(lambda y: y.astype(widest), y0), times.astype(widest)


def _solve_by_diffrax(solver: Solver, tableau: Tableau, field, y0, times, args, keep):
    import diffrax

    term = diffrax.ODETerm(field)
    if solver.step is None:
        controller = diffrax.PIDController(rtol=solver.rtol, atol=solver.atol)
    else:
        controller = diffrax.ConstantStepSize()
    if solver.adjoint == "backsolve":
        adjoint = diffrax.BacksolveAdjoint()
    else:
        adjoint = diffrax.DirectAdjoint()

    def one(y0, times, args):
        # Padding repeats the last time. Diffrax's backsolve with a fixed step fails on a repeated last time, but
        # not on a repeated first one: ask for the repeats there, and read them from the end.
        place, repeats = jnp.arange(times.size), jnp.sum(times == times[-1]) - 1
        queried = jnp.where(place < repeats, times[0], jnp.roll(times, repeats))
        solution = diffrax.diffeqsolve(
            term,
            _diffrax_method(solver.method, tableau),
            times[0],
            times[-1],
            solver.step,
            y0,
            args,
            saveat=diffrax.SaveAt(ts=queried),
            stepsize_controller=controller,
            adjoint=adjoint,
            max_steps=solver.max_steps,
            throw=False,
        )
        status = jnp.where(
            solution.result == diffrax.RESULTS.successful,
            stepping.OK,
            jnp.where(
                solution.result == diffrax.RESULTS.max_steps_reached,
                stepping.TOO_MANY_STEPS,
                stepping.STEP_TOO_SMALL,
            ),
        )
        ys = jax.tree.map(lambda y: y[jnp.minimum(place + repeats, times.size - 1)], solution.ys)
        finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(ys)]
        status = jnp.where((status == stepping.OK) & ~jnp.stack(finite).all(), stepping.NOT_FINITE, status)
        kept = jax.tree.map(lambda y: jnp.where(jnp.isfinite(y), y, jnp.nan), keep(ys))
        stats = solution.stats
        counts = (stats["num_accepted_steps"], stats["num_rejected_steps"], jnp.asarray(-1), jnp.asarray(-1), status)
        return kept, tuple(jnp.asarray(c, jnp.int32) for c in counts)

    kept, counts = jax.vmap(one, axis_name=stepping.SAMPLES)(y0, times, args)
    return kept, Stats(*counts)


def _diffrax_method(name: str, tableau: Tableau):
    import diffrax
    import numpy as np

    known = {
        "dopri5": diffrax.Dopri5,
        "tsit5": diffrax.Tsit5,
        "euler": diffrax.Euler,
        "midpoint": diffrax.Midpoint,
        "heun": diffrax.Heun,
    }
    if name in known:
        return known[name]()

    class Classical(diffrax.AbstractERK):
        tableau = diffrax.ButcherTableau(
            c=np.array(METHODS[name].c),
            b_sol=np.array(METHODS[name].b),
            b_error=np.zeros(len(METHODS[name].b)),
            a_lower=tuple(np.array(row) for row in METHODS[name].a),
        )
        interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

        def order(self, terms):
            return tableau.order

    return Classical()
