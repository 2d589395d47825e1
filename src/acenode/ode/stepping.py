"""The stepping loop: an explicit Runge-Kutta method over a batch, every sample with its own time and step.

Written for speed of the gradient. The samples of a batch share the parameters of the vector field, so the loop
takes the whole batch and its backward pass adds up parameter gradients over the batch inside each step;
mapping a one-sample loop would carry one parameter gradient per sample instead. Samples stay independent all
the same: each has its own clock, error estimate and status, and a finished one stands still.

The backward pass is exact for the steps taken (discretise, then differentiate; the step sizes count as
constants). It walks back over stored states, and where there were more steps than room it keeps every second,
fourth, ... state and recomputes the stretch between two of them: memory grows with the square root of the
number of steps.
"""

import functools as ft
from typing import NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from .tableau import Tableau

#: The name of the batch axis inside a vector field, for those that average over the batch.
SAMPLES = "samples"

OK, TOO_MANY_STEPS, STEP_TOO_SMALL, NOT_FINITE, BAD_TIMES = range(5)

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0


class Control(NamedTuple):
    """How steps are chosen: by `rtol` and `atol` where `step` is `None`, all of size `step` otherwise."""

    rtol: float
    atol: float
    step: float | None
    max_steps: int
    checkpoints: int


class Counts(NamedTuple):
    """What the loop did, per sample."""

    accepted: Int[Array, " batch"]
    rejected: Int[Array, " batch"]
    status: Int[Array, " batch"]


class _Tape(NamedTuple):
    """What the backward pass needs: both ends of every step, and the state at every `stride`-th.

    The end is kept, not the size: `t + (end - t)` rounds to another number than `end` now and then, and a time
    between the two would be read by no step, or by two.
    """

    t: Float[Array, "max_steps batch"]
    end: Float[Array, "max_steps batch"]  # `t` where the sample did not move
    y: PyTree
    stride: Int[Array, ""]
    iterations: Int[Array, ""]
    failed: Bool[Array, " batch"]


class _Carry(NamedTuple):
    t: Float[Array, " batch"]
    dt: Float[Array, " batch"]
    y: PyTree
    slope: PyTree
    out: PyTree
    active: Bool[Array, " batch"]
    counts: Counts
    tape: _Tape


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
    return _integrate((field, y0, args), times, tableau, control, keep)


@eqx.filter_custom_vjp
def _integrate(vjp_arg, times, tableau, control, keep):
    out, counts, _ = _forward(vjp_arg, times, tableau, control, keep, record=False)
    return out, counts


@_integrate.def_fwd
def _integrate_fwd(perturbed, vjp_arg, times, tableau, control, keep):
    out, counts, tape = _forward(vjp_arg, times, tableau, control, keep, record=True)
    return (out, counts), tape


@_integrate.def_bwd
def _integrate_bwd(tape, grad_out, perturbed, vjp_arg, times, tableau, control, keep):
    grad_kept, _ = grad_out
    return _backward(tape, grad_kept, perturbed, vjp_arg, times, tableau, control, keep)


# --- one step -------------------------------------------------------------------------------------------------


def _per_sample(scalars: Shaped[Array, " batch"], like: Array) -> Array:
    return scalars.reshape(scalars.shape + (1,) * (like.ndim - 1))


def _select(mask, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(_per_sample(mask, b), a, b), yes, no)


def _finite(tree: PyTree) -> Bool[Array, " batch"]:
    """Whether all numbers of a sample are finite."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in jax.tree.leaves(tree)]
    return ft.reduce(jnp.logical_and, leaves)


def _combine(y: PyTree | None, dt, weights, slopes) -> PyTree:
    """`y + dt * sum_i weights[i] * slopes[i]`, without the terms whose weight is zero."""
    pairs = [(w, k) for w, k in zip(weights, slopes, strict=False) if w != 0.0]

    def leaf(first, *ks):
        total = sum(w * k for (w, _), k in zip(pairs, ks, strict=True))
        total = _per_sample(dt, ks[0]) * total
        return total if y is None else first + total

    base = pairs[0][1] if y is None else y
    return jax.tree.map(leaf, base, *[k for _, k in pairs])


def _stages(field, args, t, dt, y, slope, tableau: Tableau):
    """All slopes of one step from `y`, the first being `slope`; the new state; the slope there."""
    slopes = [slope]
    y_new = None
    for weights, c in zip(tableau.a, tableau.c, strict=True):
        y_new = _combine(y, dt, weights, slopes)
        slopes.append(field(t + c * dt, y_new, args))
    if not tableau.last_is_next:
        y_new = _combine(y, dt, tableau.b, slopes)
    return slopes, y_new


def _interpolant(tableau: Tableau, dt, y, y_new, slopes, slope_new) -> list[PyTree]:
    """The terms that `_basis` weights: states and scaled slopes at the ends of the step."""
    terms = [y, y_new]
    if tableau.dense != "linear":
        scaled = [jax.tree.map(lambda k: _per_sample(dt, k) * k, s) for s in (slopes[0], slope_new)]
        terms += scaled
    if tableau.dense == "quartic":
        terms.append(_combine(y, dt, tableau.b_middle, slopes))
    return terms


def _basis(tableau: Tableau, t, end, times) -> Float[Array, "batch times terms"]:
    """Weights that read the interpolant at `times`; zero for times outside `(t, end]`."""
    x = (times - t[:, None]) / jnp.where(end > t, end - t, 1.0)[:, None]
    inside = (times > t[:, None]) & (times <= end[:, None])
    # The end of the step is read exactly, whatever rounding does to x there.
    x = jnp.where(times == end[:, None], 1.0, x)
    x2, x3 = x * x, x * x * x
    if tableau.dense == "linear":
        weights = [1 - x, x]
    elif tableau.dense == "cubic":
        weights = [1 - 3 * x2 + 2 * x3, 3 * x2 - 2 * x3, x - 2 * x2 + x3, x3 - x2]
    else:
        x4 = x2 * x2
        weights = [
            1 - 11 * x2 + 18 * x3 - 8 * x4,
            -5 * x2 + 14 * x3 - 8 * x4,
            x - 4 * x2 + 5 * x3 - 2 * x4,
            x2 - 3 * x3 + 2 * x4,
            16 * x2 - 32 * x3 + 16 * x4,
        ]
    return jnp.where(inside[..., None], jnp.stack(weights, axis=-1), 0.0)


def _read(basis, terms: list[PyTree]) -> PyTree:
    """The interpolant at the times of `basis`. Plain sums: quicker here than small matrix products."""

    def leaf(*parts):
        weights = jnp.moveaxis(basis, -1, 0)
        return sum(w.reshape(w.shape + (1,) * (p.ndim - 1)) * p[:, None] for w, p in zip(weights, parts, strict=True))

    return jax.tree.map(leaf, *terms)


def _read_transposed(basis, grad: PyTree) -> list[PyTree]:
    """The gradient of every term from the gradient of what was read."""

    def term(k):
        return jax.tree.map(
            lambda g: jnp.sum(basis[:, :, k].reshape(basis.shape[:2] + (1,) * (g.ndim - 2)) * g, axis=1), grad
        )

    return [term(k) for k in range(basis.shape[-1])]


# --- step sizes -----------------------------------------------------------------------------------------------


def _rms(values: PyTree, scale: PyTree) -> Float[Array, " batch"]:
    """Root mean square of `values / scale` over everything one sample carries."""
    leaves = jax.tree.leaves(jax.tree.map(lambda v, s: jnp.square(v / s), values, scale))
    total = sum(jnp.sum(leaf.reshape(leaf.shape[0], -1), axis=1) for leaf in leaves)
    size = sum(leaf[0].size for leaf in leaves)
    return jnp.sqrt(total / size)


def _scale(control: Control, *states: PyTree) -> PyTree:
    def leaf(*ys):
        return control.atol + control.rtol * ft.reduce(jnp.maximum, [jnp.abs(y) for y in ys])

    return jax.tree.map(leaf, *states)


def _first_step(field, args, t, y, slope, span, tableau: Tableau, control: Control):
    """Hairer, Norsett and Wanner's starting step (Solving ODEs I, II.4)."""
    scale = _scale(control, y)
    size, speed = _rms(y, scale), _rms(slope, scale)
    guess = jnp.where((size < 1e-5) | (speed < 1e-5), 1e-6, 0.01 * size / jnp.maximum(speed, 1e-12))
    guess = jnp.minimum(guess, span)
    ahead = field(t + guess, _combine(y, guess, (1.0,), [slope]), args)
    bend = _rms(jax.tree.map(jnp.subtract, ahead, slope), scale) / jnp.maximum(guess, 1e-30)
    steepest = jnp.maximum(speed, bend)
    step = jnp.where(
        steepest <= 1e-15,
        jnp.maximum(1e-6, guess * 1e-3),
        (0.01 / jnp.maximum(steepest, 1e-30)) ** (1 / tableau.order),
    )
    # Where the field is not finite even at the guess, only a far smaller step can be right.
    step = jnp.where(jnp.isfinite(bend), jnp.minimum(100 * guess, step), 1e-3 * guess)
    # Late on the clock a step can be too small to move it.
    return jnp.maximum(step, 16 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t + span)))


# --- forward --------------------------------------------------------------------------------------------------


def _ends_only(times) -> bool:
    """Whether only the last state is asked for, so that nothing is read between the steps."""
    return times.shape[1] == 2


def pullbacks_per_step(tableau: Tableau, times) -> int:
    """Calls of the vector field, each with its vector-Jacobian product, in the backward pass of one step.

    Reading between the steps takes the slope at the end of the step as well.
    """
    stages = len(tableau.a) + (not tableau.last_is_next)
    return stages if _ends_only(times) or tableau.dense == "linear" else stages + 1


def _forward(vjp_arg, times, tableau: Tableau, control: Control, keep, record: bool):
    field, y0, args = vjp_arg
    field = jax.vmap(field, axis_name=SAMPLES)
    t0, t1 = times[:, 0], times[:, -1]
    span = t1 - t0
    dtype = times.dtype
    batch = times.shape[0]

    slope = field(t0, y0, args)
    if control.step is None:
        dt0 = _first_step(field, args, t0, y0, slope, span, tableau, control)
    else:
        dt0 = jnp.full_like(t0, control.step)
    started = times <= t0[:, None]
    out = jax.tree.map(
        lambda y: jnp.where(started.reshape(started.shape + (1,) * (y.ndim - 1)), y[:, None], 0.0), keep(y0)
    )
    if _ends_only(times):
        out = None  # the state where the loop ends is all there is to read
    finite = _finite((y0, slope))
    status = jnp.where(finite, OK, NOT_FINITE).astype(jnp.int32)
    none = jnp.zeros(batch, jnp.int32)
    rows = control.max_steps if record else 0
    slots = control.checkpoints if record else 0
    tape = _Tape(
        t=jnp.zeros((rows, batch), dtype),
        end=jnp.zeros((rows, batch), dtype),
        y=jax.tree.map(lambda y: jnp.zeros((slots, *y.shape), y.dtype), y0),
        stride=jnp.asarray(1),
        iterations=jnp.asarray(0),
        failed=~finite,
    )
    carry = _Carry(t0, dt0, y0, slope, out, (t1 > t0) & finite, Counts(none, none, status), tape)

    def unfinished(c: _Carry):
        return eqxi.unvmap_any(c.active) & (c.tape.iterations < control.max_steps)

    def has_room(c: _Carry):
        return c.tape.iterations < control.checkpoints * c.tape.stride

    def step(c: _Carry) -> _Carry:
        t_new = jnp.minimum(c.t + c.dt, t1)
        if control.step is not None:
            # No crumb of a last step where the end is a whole number of steps away up to rounding.
            t_new = jnp.where(t1 - t_new < 1e-3 * control.step, t1, t_new)
        dt = t_new - c.t
        slopes, y_new = _stages(field, args, c.t, dt, c.y, c.slope, tableau)
        slope_new = slopes[-1] if tableau.last_is_next else field(t_new, y_new, args)
        if control.step is None:
            assert tableau.b_error is not None
            error = _rms(_combine(None, dt, tableau.b_error, slopes), _scale(control, c.y, y_new))
            good = error <= 1
            factor = _SAFETY * jnp.maximum(error, 1e-10) ** (-1 / tableau.order)
            factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, _SHRINK, _GROW), _SHRINK)
            factor = jnp.where(good, jnp.maximum(factor, 1.0), factor)
            dt_next = dt * factor
            stuck = ~good & (dt_next <= 8 * jnp.finfo(dtype).eps * jnp.maximum(jnp.abs(c.t), span))
        else:
            good = _finite((y_new, slope_new))
            dt_next, stuck = jnp.full_like(dt, control.step), ~good
        moved = c.active & good
        t_moved = jnp.where(moved, t_new, c.t)
        out = c.out
        if out is not None:
            basis = _basis(tableau, c.t, t_moved, times)
            terms = _interpolant(tableau, dt, keep(c.y), keep(y_new), list(map(keep, slopes)), keep(slope_new))
            # A rejected trial may hold inf or NaN, which a weight of zero would not silence.
            terms = [_select(moved, term, jax.tree.map(jnp.zeros_like, term)) for term in terms]
            out = jax.tree.map(jnp.add, out, _read(basis, terms))
        failed = c.active & stuck
        counts = Counts(
            c.counts.accepted + moved,
            c.counts.rejected + (c.active & ~good),
            jnp.where(failed, STEP_TOO_SMALL if control.step is None else NOT_FINITE, c.counts.status),
        )
        tape = _record(c.tape, c.t, t_moved, c.y, control) if record else c.tape
        tape = tape._replace(iterations=c.tape.iterations + 1)
        return _Carry(
            t_moved,
            jnp.where(c.active, dt_next, c.dt),
            _select(moved, y_new, c.y),
            _select(moved, slope_new, c.slope),
            out,
            c.active & ~failed & ~(moved & (t_new >= t1)),
            counts,
            tape,
        )

    def fill(c: _Carry) -> _Carry:
        c = lax.while_loop(lambda c: unfinished(c) & has_room(c), step, c)
        return c._replace(tape=lax.cond(unfinished(c), _thin, lambda tape: tape, c.tape))

    every_state_fits = control.max_steps <= control.checkpoints
    c = lax.while_loop(unfinished, fill if record and not every_state_fits else step, carry)
    counts = c.counts._replace(status=jnp.where(c.active, TOO_MANY_STEPS, c.counts.status))
    # Times that were never reached are not numbers, and the status says why.
    reached = times <= c.t[:, None]
    out = c.out
    if out is None:
        out = jax.tree.map(lambda *ends: jnp.stack(ends, axis=1), keep(y0), keep(c.y))
    out = jax.tree.map(lambda o: jnp.where(reached.reshape(reached.shape + (1,) * (o.ndim - 2)), o, jnp.nan), out)
    return out, counts, c.tape._replace(failed=counts.status != OK)


def _record(tape: _Tape, t, end, y, control: Control) -> _Tape:
    i = tape.iterations
    # An iteration between two kept states rewrites what its slot holds.
    slot = jnp.minimum(-(-i // tape.stride), control.checkpoints - 1)
    wanted = i % tape.stride == 0
    ys = jax.tree.map(
        lambda b, v: lax.dynamic_update_index_in_dim(b, jnp.where(wanted, v, b[slot]), slot, 0), tape.y, y
    )
    return tape._replace(t=tape.t.at[i].set(t), end=tape.end.at[i].set(end), y=ys)


def _thin(tape: _Tape) -> _Tape:
    """Keep every second state of a full tape."""

    def leaf(b):
        half = b.shape[0] // 2
        return b.at[:half].set(b[::2])

    return tape._replace(y=jax.tree.map(leaf, tape.y), stride=2 * tape.stride)


# --- backward -------------------------------------------------------------------------------------------------


def _backward(tape: _Tape, grad_kept, perturbed, vjp_arg, times, tableau: Tableau, control: Control, keep):
    field, y0, args = vjp_arg
    field_perturbed, _, args_perturbed = perturbed
    field_moving, field_still = eqx.partition(field, field_perturbed)
    args_moving, args_still = eqx.partition(args, args_perturbed)
    # Outputs that the loss does not use have no gradient at all, and cost nothing here.
    used = jax.tree.map(lambda g: g is not None, grad_kept, is_leaf=lambda g: g is None)
    keep_all, keep = keep, lambda y: eqx.filter(keep_all(y), used)

    def replay(field_moving, a, y, t, end, interpolate: bool):
        """One recorded step again; an `end` of `t` leaves a sample where it is."""
        dt = end - t
        f = jax.vmap(eqx.combine(field_moving, field_still), axis_name=SAMPLES)
        slopes, y_new = _stages(f, a, t, dt, y, f(t, y, a), tableau)
        if not interpolate:
            return y_new
        if tableau.last_is_next:
            slope_new = slopes[-1]
        elif tableau.dense == "linear":
            slope_new = None
        else:
            slope_new = f(end, y_new, a)
        kept = None if slope_new is None else keep(slope_new)
        terms = _interpolant(tableau, dt, keep(y), keep(y_new), list(map(keep, slopes)), kept)
        return y_new, terms

    def stand_in(moved, values):
        """`values`, those of a failed sample that stands still being replaced by those of one that is well.

        Where a sample failed the field may be infinite, and a gradient of zero would not silence that.
        """
        lost = tape.failed & ~moved
        well = jnp.argmax(~lost)
        return _select(lost, jax.tree.map(lambda x: x[well][None], values), values)

    longest = 1
    while longest * control.checkpoints < control.max_steps:
        longest *= 2
    last_stretch = (tape.iterations - 1) // tape.stride

    def back_one(i, y, grads):
        grad_y, grad_field, grad_args = grads
        t, end = tape.t[i], tape.end[i]
        moved = end > t
        basis = None if _ends_only(times) else _basis(tableau, t, end, times)
        t, y, a_moving, a_still = stand_in(moved, (t, y, args_moving, args_still))
        end = jnp.where(moved, end, t)
        _, pull = jax.vjp(
            lambda p, a, y: replay(p, eqx.combine(a, a_still), y, t, end, basis is not None), field_moving, a_moving, y
        )
        still = jax.tree.map(jnp.zeros_like, grad_y)
        grad_new = _select(moved, grad_y, still)
        more = pull(grad_new if basis is None else (grad_new, _read_transposed(basis, grad_kept)))
        # In a step that nobody took there is nothing to add, be the field finite or not.
        more = jax.tree.map(lambda m: jnp.where(moved.any(), m, 0.0), more)
        # A sample that stands still keeps its gradient; those it meets in a batch-wide attention add to it.
        return jax.tree.map(jnp.add, (_select(moved, still, grad_y), grad_field, grad_args), (more[2], *more[:2]))

    def back_stretch(state):
        stretch, grads, ys = state
        begin = stretch * tape.stride
        end = jnp.minimum(begin + tape.stride, tape.iterations)
        first = jax.tree.map(lambda b: b[stretch], tape.y)
        if longest == 1:
            return stretch - 1, back_one(begin, first, grads), ys
        ys = jax.tree.map(lambda b, y: b.at[0].set(y), ys, first)

        def ahead(i, state):
            y, ys = state
            t, end = tape.t[i - 1], tape.end[i - 1]
            y = _select(end > t, replay(field_moving, args, y, t, end, False), y)
            return y, jax.tree.map(lambda b, v: b.at[i - begin].set(v), ys, y)

        _, ys = lax.fori_loop(begin + 1, end, ahead, (first, ys))

        def back(k, grads):
            i = end - 1 - k
            return back_one(i, jax.tree.map(lambda b: b[i - begin], ys), grads)

        return stretch - 1, lax.fori_loop(0, end - begin, back, grads), ys

    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    _, pull_kept = jax.vjp(keep, y0)
    grad_last = zeros(y0)
    if _ends_only(times):
        reached = (times[:, 1] > times[:, 0]) & ~tape.failed
        ends = jax.tree.map(lambda k, g: jnp.where(_per_sample(reached, k), g[:, 1], 0.0), keep(y0), grad_kept)
        (grad_last,) = pull_kept(ends)
    grads = (grad_last, zeros(field_moving), zeros(args_moving))
    room = jax.tree.map(lambda y: jnp.zeros((longest, *y.shape), y.dtype), y0)
    _, grads, _ = lax.while_loop(lambda s: s[0] >= 0, back_stretch, (last_stretch, grads, room))
    grad_y, grad_field, grad_args = grads
    started = times <= times[:, :1]

    def add_started(g, k):
        mask = started.reshape(started.shape + (1,) * (k.ndim - 2))
        return g + jnp.where(mask, k, 0.0).sum(axis=1)

    kept = jax.tree.map(add_started, zeros(keep(y0)), grad_kept)
    (more,) = pull_kept(kept)
    return grad_field, jax.tree.map(jnp.add, grad_y, more), grad_args
