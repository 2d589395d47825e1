"""The stepping loop: an explicit Runge-Kutta method over a batch, every sample with its own time and step.

Written for speed of the gradient. The samples of a batch share the parameters of the vector field, so the loop
takes the whole batch and its backward pass (`stepping_back.py`) adds up parameter gradients over the batch inside
each step; mapping a one-sample loop would carry one parameter gradient per sample instead. Samples stay independent
all the same: each has its own clock, error estimate and status, and a finished one stands still.

Most samples of a large batch take the same number of adaptive steps, and a few take more. When an eighth or less is
still on the way, these go on as a small batch of their own, where that is worth a second loop to compile.
"""

from typing import NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .one_step import all_finite, combine, interpolant, read, read_weights, select, stages
from .step_size import Control, error_scale, first_step, rms
from .stepping_back import Tape, backward, ends_only
from .tableau import Tableau

#: The name of the batch axis inside a vector field, for those that average over the batch.
SAMPLES = "samples of acenode"

OK, TOO_MANY_STEPS, STEP_TOO_SMALL, NOT_FINITE, BAD_TIMES = range(5)

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0
_PART = 8  # the last one of so many goes on alone
_LEAST_SAMPLES, _LEAST_NUMBERS = 32, 100_000  # in a batch and in its states, for that to be worth while


class Counts(NamedTuple):
    """What the loop did, per sample."""

    accepted: Int[Array, " batch"]
    rejected: Int[Array, " batch"]
    status: Int[Array, " batch"]


class _Place(NamedTuple):
    """Where each sample is, but for its state."""

    t: Float[Array, " batch"]
    dt: Float[Array, " batch"]  # of the next step
    active: Bool[Array, " batch"]  # still on the way
    counts: Counts


class _Carry(NamedTuple):
    place: _Place
    y: PyTree
    slope: PyTree
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
    few = _few(field, y0, args, times, control)
    rules = tableau, control, keep
    begin = _constant(_begin(_constant((field, y0, args)), times, tableau, control))
    out, y, place, taken = _integrate((field, y0, args), begin, jnp.asarray(0), times, *rules, few)
    place, taken = _without_tangent((place, taken))
    if few:
        late = jnp.argsort(~place.active)[:few]  # and, if these are fewer, some that stand still
        some = lambda tree: jax.tree.map(lambda x: x[late], tree)  # noqa: E731
        more, *now, _ = _integrate((field, some(y), some(args)), some(place), taken, times[late], *rules, 0)
        out = jax.tree.map(lambda every, theirs: every.at[late].add(theirs), out, more)
        y, place = jax.tree.map(lambda every, theirs: every.at[late].set(theirs), (y, place), tuple(now))
    if out is None:
        out = jax.tree.map(lambda *ends: jnp.stack(ends, axis=1), keep(y0), keep(y))
    started, reached = times <= times[:, :1], times <= place.t[:, None]

    def filled(out, first):
        """The state at the beginning where that is asked for; not a number where no step came, the status says why."""
        out = jnp.where(_per_time(started, out), first[:, None], out)
        return jnp.where(_per_time(reached, out), out, jnp.nan)

    status = jnp.where(place.active, TOO_MANY_STEPS, place.counts.status)
    return jax.tree.map(filled, out, keep(y0)), place.counts._replace(status=status)


def _few(field, y0: PyTree, args, times, control: Control) -> int:
    """How many samples go on alone when the others have arrived or failed.

    A second loop takes nearly as long again to compile. On a GPU, moreover, a small batch takes nearly as long as a
    large one, so there is little to gain there (`benchmarks/README.md` has what was measured).
    """
    leaves = jax.tree.leaves(y0)
    batch, numbers = leaves[0].shape[0], sum(leaf.size for leaf in leaves)
    large = batch >= _LEAST_SAMPLES and numbers >= _LEAST_NUMBERS and control.step is None
    if not large or jax.default_backend() != "cpu" or _coupled(field, y0, args, times):
        return 0
    return batch // _PART


def _coupled(field, y0, args, times) -> bool:
    """Whether the field of a sample looks at the others of the batch, by the name of their axis."""
    try:
        eqx.filter_eval_shape(jax.vmap(field), times[:, 0], y0, args)
    except NameError:  # which is how JAX says that there is no axis of that name
        return True
    return False


def _constant(tree: PyTree) -> PyTree:
    """The same numbers without a gradient."""
    return jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, tree)


def _without_tangent(answered: PyTree) -> PyTree:
    """What a custom gradient answered, as constants.

    Its whole numbers too have a tangent, which only floats lose; counts are small enough to be exact as such.
    """
    floats, whole = eqx.partition(answered, eqx.is_inexact_array)
    return eqx.combine(_constant(floats), jax.tree.map(lambda x: x.astype(float).astype(x.dtype), whole))


def _per_time(mask: Bool[Array, "batch times"], like: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (like.ndim - 2))


def _begin(moving, times, tableau: Tableau, control: Control) -> _Place:
    field, y0, args = moving
    field = jax.vmap(field, axis_name=SAMPLES)
    t0, t1 = times[:, 0], times[:, -1]
    slope = field(t0, y0, args)
    if control.step is None:
        dt = first_step(field, args, t0, y0, slope, t1 - t0, tableau, control)
    else:
        dt = jnp.full_like(t0, control.step)
    finite = all_finite((y0, slope))
    none = jnp.zeros(times.shape[0], jnp.int32)
    status = jnp.where(finite, OK, NOT_FINITE).astype(jnp.int32)
    return _Place(t0, dt, (t1 > t0) & finite, Counts(none, none, status))


@eqx.filter_custom_vjp
def _integrate(vjp_arg, place, taken, times, tableau, control, keep, few):
    """From a place that is `taken` steps after the beginning, until at most `few` samples are on the way.

    Answers with what was read on the way (None if only the ends of the times are asked for), with the states and the
    places where the samples are now, and with the number of steps since the beginning.
    """
    return _forward(vjp_arg, place, taken, times, tableau, control, keep, few, record=False)[:4]


@_integrate.def_fwd
def _integrate_fwd(perturbed, vjp_arg, place, taken, times, tableau, control, keep, few):
    *answer, tape = _forward(vjp_arg, place, taken, times, tableau, control, keep, few, record=True)
    return tuple(answer), tape


@_integrate.def_bwd
def _integrate_bwd(tape, grads, perturbed, vjp_arg, place, taken, times, tableau, control, keep, few):
    grad_read, grad_y, _, _ = grads
    return backward(tape, grad_read, grad_y, perturbed, vjp_arg, times, tableau, control, keep, SAMPLES)


def _forward(vjp_arg, place: _Place, taken, times, tableau: Tableau, control: Control, keep, few: int, record: bool):
    field, y0, args = vjp_arg
    field = jax.vmap(field, axis_name=SAMPLES)
    t1 = times[:, -1]
    out = None  # the states where the loop ends may be all there is to read
    if not ends_only(times):
        out = jax.tree.map(lambda y: jnp.zeros((*times.shape, *y.shape[1:]), y.dtype), keep(y0))
    slope = field(place.t, y0, args)
    carry = _Carry(place, y0, slope, out, _blank(y0, times, control if record else None))

    def unfinished(c: _Carry):
        return eqxi.unvmap_any((c.place.active.sum() > few) & (taken + c.tape.iterations < control.max_steps))

    def has_room(c: _Carry):
        return c.tape.iterations < control.checkpoints * c.tape.stride

    def step(c: _Carry) -> _Carry:
        t, dt, active, counts = c.place
        t_new = jnp.minimum(t + dt, t1)
        if control.step is not None:
            # No crumb of a last step where the end is a whole number of steps away up to rounding.
            t_new = jnp.where(t1 - t_new < 1e-3 * control.step, t1, t_new)
        dt = t_new - t
        slopes, y_new = stages(field, args, t, dt, c.y, c.slope, tableau)
        slope_new = slopes[-1] if tableau.fsal else field(t_new, y_new, args)
        if control.step is None:
            assert tableau.b_error is not None
            error = rms(combine(None, dt, tableau.b_error, slopes), error_scale(control, c.y, y_new))
            good = error <= 1
            factor = _SAFETY * jnp.maximum(error, 1e-10) ** (-1 / tableau.order)
            factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, _SHRINK, _GROW), _SHRINK)
            factor = jnp.where(good, jnp.maximum(factor, 1.0), factor)
            dt_next = lax.stop_gradient(dt * factor)  # step sizes are constants, in second derivatives too
            least = 8 * jnp.finfo(times.dtype).eps * jnp.maximum(jnp.abs(t), t1 - times[:, 0])
            stuck = ~good & (dt_next <= least)
        else:
            good = all_finite((y_new, slope_new))
            dt_next, stuck = jnp.full_like(dt, control.step), ~good
        moved = active & good
        t_moved = jnp.where(moved, t_new, t)
        out = c.out
        if out is not None:
            weights = read_weights(tableau, t, t_moved, times)
            terms = interpolant(tableau, dt, keep(c.y), keep(y_new), list(map(keep, slopes)), keep(slope_new))
            # A rejected trial may hold inf or NaN, which a weight of zero would not silence.
            terms = [select(moved, term, jax.tree.map(jnp.zeros_like, term)) for term in terms]
            out = jax.tree.map(jnp.add, out, read(weights, terms))
        failed = active & stuck
        tape = _record(c.tape, t, t_moved, c.y, control) if record else c.tape
        return _Carry(
            _Place(
                t_moved,
                jnp.where(active, dt_next, c.place.dt),
                active & ~failed & ~(moved & (t_new >= t1)),
                Counts(
                    counts.accepted + moved,
                    counts.rejected + (active & ~good),
                    jnp.where(failed, STEP_TOO_SMALL if control.step is None else NOT_FINITE, counts.status),
                ),
            ),
            select(moved, y_new, c.y),
            select(moved, slope_new, c.slope),
            out,
            tape._replace(iterations=c.tape.iterations + 1),
        )

    def fill(c: _Carry) -> _Carry:
        c = lax.while_loop(lambda c: unfinished(c) & has_room(c), step, c)
        return c._replace(tape=lax.cond(unfinished(c), _thin, lambda tape: tape, c.tape))

    every_state_fits = control.max_steps <= control.checkpoints
    c = lax.while_loop(unfinished, fill if record and not every_state_fits else step, carry)
    tape = c.tape._replace(failed=(c.place.counts.status != OK) | c.place.active)
    return c.out, c.y, c.place, taken + tape.iterations, tape


def _blank(y0: PyTree, times, control: Control | None) -> Tape:
    """A tape with room for what `control` allows, or with none."""
    rows, slots = (control.max_steps, control.checkpoints) if control is not None else (0, 0)
    return Tape(
        t=jnp.zeros((rows, times.shape[0]), times.dtype),
        end=jnp.zeros((rows, times.shape[0]), times.dtype),
        y=jax.tree.map(lambda y: jnp.zeros((slots, *y.shape), y.dtype), y0),
        stride=jnp.asarray(1),
        iterations=jnp.asarray(0),
        failed=jnp.zeros(times.shape[0], bool),
    )


def _record(tape: Tape, t, end, y, control: Control) -> Tape:
    i = tape.iterations
    # An iteration between two kept states rewrites what its slot holds.
    slot = jnp.minimum(-(-i // tape.stride), control.checkpoints - 1)
    wanted = i % tape.stride == 0
    ys = jax.tree.map(
        lambda b, v: lax.dynamic_update_index_in_dim(b, jnp.where(wanted, v, b[slot]), slot, 0), tape.y, y
    )
    return tape._replace(t=tape.t.at[i].set(t), end=tape.end.at[i].set(end), y=ys)


def _thin(tape: Tape) -> Tape:
    """Keep every second state of a full tape."""

    def leaf(b):
        half = b.shape[0] // 2
        return b.at[:half].set(b[::2])

    return tape._replace(y=jax.tree.map(leaf, tape.y), stride=2 * tape.stride)
