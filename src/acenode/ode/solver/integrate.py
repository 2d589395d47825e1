"""The forward loop: an explicit Runge-Kutta method over a batch, every sample with its own time and step.

Written for speed of the gradient. The samples of a batch share the parameters of the vector field, so the loop takes
the whole batch and its backward pass (`adjoint.py`) adds up parameter gradients over the batch inside each step;
mapping a one-sample loop would carry one parameter gradient per sample instead. Samples stay independent all the same:
each has its own time, error estimate and status, and a finished one is inactive.

Most samples of a large batch take the same number of adaptive steps, and a few take more. When an eighth or less is
still active, these are compacted into a small batch, where that is worth a second loop to compile.
"""

from typing import NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ...backend import backend
from .adjoint import Tape, backward, ends_only, evaluations_kept, last_evaluation, maps_of_step
from .interpolation import interpolant, read, read_weights
from .runge_kutta import Tableau, all_finite, combine, select, stages
from .status import Status, status_where
from .step_size import Control, first_step, next_step
from .vector_field import batched, is_coupled, of_batch

_COMPACT = 8  # when one in so many samples is active, the batch is compacted
_LEAST_SAMPLES, _LEAST_NUMBERS = 32, 100_000  # in a batch and in its states, for that to be worth while


class Counts(NamedTuple):
    """What the loop did, per sample."""

    accepted: Int[Array, " batch"]
    rejected: Int[Array, " batch"]
    status: Status


class _Progress(NamedTuple):
    """Where each sample is, but for its state."""

    t: Float[Array, " batch"]
    dt: Float[Array, " batch"]  # of the next step
    active: Bool[Array, " batch"]  # neither finished nor failed
    counts: Counts


class _Carry(NamedTuple):
    progress: _Progress
    y: PyTree
    slope: PyTree
    origin: Int[Array, " batch"]  # the evaluation that gave this slope, by its number in what the tape keeps
    out: PyTree
    tape: Tape


def integrate(
    field,
    y0: PyTree[Float[Array, "batch ..."]],
    args: PyTree,
    times: Float[Array, "batch times"],
    tableau: Tableau,
    control: Control,
    keep,
) -> tuple[PyTree[Float[Array, "batch times ..."]], Counts]:
    """Solve `dy/dt = field(t, y, args)` from `y0` at `times[:, 0]`; give `keep(y)` at all `times`.

    `field` is written for one sample; leaves of `y0` and `args` have a leading batch axis. `keep` picks leaves
    of `y`. Differentiable in `field`, `y0` and `args`, not in `times`.
    """
    args = jax.tree.map(jnp.asarray, args)
    few = _compact_size(field, y0, control)
    rules = tableau, control, keep
    begin = _constant(_begin(_constant((field, y0, args)), times, tableau, control))
    out, y, progress, taken = _integrate((field, y0, args), begin, jnp.asarray(0), times, *rules, few)
    progress, taken = _without_tangent((progress, taken))
    if few:
        rows = jnp.argsort(~progress.active)[:few]  # the unfinished samples first
        pick = lambda tree: jax.tree.map(lambda x: x[rows], tree)  # noqa: E731
        more, *last, _ = _integrate((field, pick(y), pick(args)), pick(progress), taken, times[rows], *rules, 0)
        out = jax.tree.map(lambda every, theirs: every.at[rows].add(theirs), out, more)
        y, progress = jax.tree.map(lambda every, theirs: every.at[rows].set(theirs), (y, progress), tuple(last))
    if out is None:
        out = jax.tree.map(lambda *ends: jnp.stack(ends, axis=1), keep(y0), keep(y))
    at_start, reached = times <= times[:, :1], times <= progress.t[:, None]

    def filled(out, first):
        """The first state at the first time; NaN at times that no step reached."""
        out = jnp.where(_per_time(at_start, out), first[:, None], out)
        return jnp.where(_per_time(reached, out), out, jnp.nan)

    status = status_where(progress.active, Status.max_steps_reached, progress.counts.status)
    return jax.tree.map(filled, out, keep(y0)), progress.counts._replace(status=status)


def _compact_size(field, y0: PyTree, control: Control) -> int:
    """The size of the batch into which unfinished samples are compacted; 0 for no compaction.

    A second loop takes nearly as long again to compile. On a GPU, moreover, a small batch takes nearly as long as a
    large one, so there is little to gain there (`benchmarks/README.md` has the measurements): `auto` leaves it out.
    """
    leaves = jax.tree.leaves(y0)
    batch, numbers = leaves[0].shape[0], sum(leaf.size for leaf in leaves)
    wanted = control.compact
    if wanted == "auto":
        wanted = batch >= _LEAST_SAMPLES and numbers >= _LEAST_NUMBERS and backend() == "cpu"
    return batch // _COMPACT if wanted and control.step is None and not is_coupled(field) else 0


def _constant(tree: PyTree) -> PyTree:
    """The same numbers without a gradient."""
    return jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, tree)


def _without_tangent(outputs: PyTree) -> PyTree:
    """Outputs of a custom gradient, as constants.

    Its whole numbers too have a tangent, which only floats lose; counts are small enough to be exact as such.
    """
    floats, whole = eqx.partition(outputs, eqx.is_inexact_array)
    return eqx.combine(_constant(floats), jax.tree.map(lambda x: x.astype(float).astype(x.dtype), whole))


def _per_time(mask: Bool[Array, "batch times"], like: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (like.ndim - 2))


def _begin(vjp_arg, times, tableau: Tableau, control: Control) -> _Progress:
    field, y0, args = vjp_arg
    field = batched(field, field)
    t0, t1 = times[:, 0], times[:, -1]
    slope = field(t0, y0, args)
    if control.step is None:
        dt = first_step(field, args, t0, y0, slope, t1 - t0, tableau, control)
    else:
        dt = jnp.full_like(t0, control.step)
    finite = all_finite((y0, slope))
    none = jnp.zeros(times.shape[0], jnp.int32)
    return _Progress(
        t0, dt, (t1 > t0) & finite, Counts(none, none, status_where(finite, Status.solved, Status.not_finite))
    )


@eqx.filter_custom_vjp
def _integrate(vjp_arg, progress, taken, times, tableau, control, keep, few):
    """Continue from `progress`, `taken` steps after the start, until at most `few` samples are active.

    Gives what was read (`None` if only the last state is), the states and the progress of all samples, and the number
    of steps since the start.
    """
    return _forward(vjp_arg, progress, taken, times, tableau, control, keep, few, record=False)[:4]


@_integrate.def_fwd
def _integrate_fwd(perturbed, vjp_arg, progress, taken, times, tableau, control, keep, few):
    *answer, tape = _forward(vjp_arg, progress, taken, times, tableau, control, keep, few, record=True)
    return tuple(answer), tape


@_integrate.def_bwd
def _integrate_bwd(tape, grads, perturbed, vjp_arg, progress, taken, times, tableau, control, keep, few):
    grad_read, grad_y, _, _ = grads
    return backward(tape, grad_read, grad_y, perturbed, vjp_arg, times, tableau, control, keep)


def _forward(vjp_arg, progress: _Progress, taken, times, tableau: Tableau, control: Control, keep, few, record: bool):
    field, y0, args = vjp_arg
    quick = of_batch(field, y0) if ends_only(times) else None  # it does not give the slopes between
    field = batched(field, field)
    t1 = times[:, -1]
    out = None
    if not ends_only(times):
        out = jax.tree.map(lambda y: jnp.zeros((*times.shape, *y.shape[1:]), y.dtype), keep(y0))
    tape, origin = Tape.empty(y0, times, control if record else None), jnp.zeros(times.shape[0], jnp.int32)
    if record and quick is not None:
        kept = quick.space(y0, args, evaluations_kept(tableau, control))
        slope, kept = quick.first(progress.t, y0, args, kept, maps_of_step(0, origin, tableau, control))
        tape = tape.keeping(kept)
    else:
        slope = field(progress.t, y0, args)
    carry = _Carry(progress, y0, slope, origin, out, tape)

    def unfinished(c: _Carry):
        return eqxi.unvmap_any((c.progress.active.sum() > few) & (taken + c.tape.iterations < control.max_steps))

    def has_room(c: _Carry):
        return c.tape.iterations < control.checkpoints * c.tape.stride

    def step(c: _Carry) -> _Carry:
        t, dt, active, counts = c.progress
        t_new = jnp.minimum(t + dt, t1)
        if control.step is not None:
            # No tiny last step where the end is a whole number of steps away up to rounding.
            t_new = jnp.where(t1 - t_new < 1e-3 * control.step, t1, t_new)
        dt = t_new - t
        slopes: list[PyTree] = []
        error, kept = None, c.tape.kept
        if quick is not None:
            maps = None if kept is None else maps_of_step(c.tape.iterations, c.origin, tableau, control)
            y_new, slope_new, error, kept = quick.step(tableau, t, dt, c.y, c.slope, args, kept, maps)
        else:
            slopes, y_new = stages(field, args, t, dt, c.y, c.slope, tableau)
            slope_new = slopes[-1] if tableau.fsal else field(t_new, y_new, args)
            if control.step is None:
                error = combine(None, dt, tableau.b_error, slopes)
        if control.step is None:
            good, dt_next = next_step(dt, c.y, y_new, error, tableau, control)
            least = 8 * jnp.finfo(times.dtype).eps * jnp.maximum(jnp.abs(t), t1 - times[:, 0])
            failed, failure = active & ~good & (dt_next <= least), Status.step_too_small
        else:
            good, dt_next = all_finite((y_new, slope_new)), jnp.full_like(dt, control.step)
            failed, failure = active & ~good, Status.not_finite
        accepted = active & good
        t_now = jnp.where(accepted, t_new, t)
        out = c.out
        if out is not None:
            weights = read_weights(tableau, t, t_now, times)
            terms = interpolant(tableau, dt, keep(c.y), keep(y_new), list(map(keep, slopes)), keep(slope_new))
            # A rejected step may hold inf or NaN, which a weight of zero would not remove.
            terms = [select(accepted, term, jax.tree.map(jnp.zeros_like, term)) for term in terms]
            out = jax.tree.map(jnp.add, out, read(weights, terms))
        tape = c.tape.record(t, t_now, c.y, c.origin, kept) if record else c.tape
        origin = jnp.where(accepted, last_evaluation(c.tape.iterations, tableau, control), c.origin)
        counts = Counts(
            counts.accepted + accepted,
            counts.rejected + (active & ~good),
            status_where(failed, failure, counts.status),
        )
        active &= ~failed & ~(accepted & (t_new >= t1))
        return _Carry(
            _Progress(t_now, jnp.where(c.progress.active, dt_next, c.progress.dt), active, counts),
            select(accepted, y_new, c.y),
            select(accepted, slope_new, c.slope),
            origin,
            out,
            tape._replace(iterations=c.tape.iterations + 1),
        )

    def fill(c: _Carry) -> _Carry:
        c = lax.while_loop(lambda c: unfinished(c) & has_room(c), step, c)
        return c._replace(tape=lax.cond(unfinished(c), Tape.thin, lambda tape: tape, c.tape))

    every_state_fits = control.max_steps <= control.checkpoints
    c = lax.while_loop(unfinished, fill if record and not every_state_fits else step, carry)
    tape = c.tape._replace(failed=(c.progress.counts.status != Status.solved) | c.progress.active)
    return c.out, c.y, c.progress, taken + tape.iterations, tape
