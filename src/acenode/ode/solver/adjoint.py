"""The backward loop: the gradient of the loop of `integrate.py`, exact for the steps taken.

Discretise, then differentiate; the step sizes count as constants. The loop passes the stored states in reverse. Where
there were more steps than checkpoints only every second, fourth, ... state is stored, and the segment between two of
them is computed again. Of the first steps a field may keep all that their gradient needs (`OnBatch`), so that these are
not evaluated again.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .interpolation import interpolant, read_transposed, read_weights
from .runge_kutta import Tableau, select, stages
from .step_size import Control
from .vector_field import OnBatch, batched, of_batch


class Tape(NamedTuple):
    """What the backward loop needs: both ends of every step, and the state at every `stride`-th.

    The end is stored, not the size: `t + (end - t)` may round to another number than `end`, and a time between the two
    would be read by no step, or by two.
    """

    t: Float[Array, "max_steps batch"]
    end: Float[Array, "max_steps batch"]  # `t` where the sample took no step
    kept: PyTree  # by a field that can (`OnBatch`): what the gradient of the first steps needs
    origin: Int[Array, "max_steps batch"] | None  # the evaluation at the beginning of the step, by its number in it
    y: PyTree
    stride: Int[Array, ""]
    iterations: Int[Array, ""]
    failed: Bool[Array, " batch"]  # or unfinished when the loop ended

    @classmethod
    def empty(cls, y0: PyTree, times, control: Control | None) -> "Tape":
        """A tape with space for what `control` allows, or with none."""
        rows, slots = (control.max_steps, control.checkpoints) if control is not None else (0, 0)
        return cls(
            t=jnp.zeros((rows, times.shape[0]), times.dtype),
            end=jnp.zeros((rows, times.shape[0]), times.dtype),
            kept=None,
            origin=None,
            y=jax.tree.map(lambda y: jnp.zeros((slots, *y.shape), y.dtype), y0),
            stride=jnp.asarray(1),
            iterations=jnp.asarray(0),
            failed=jnp.zeros(times.shape[0], bool),
        )

    def keeping(self, kept: PyTree) -> "Tape":
        """The same that keeps what the gradient needs."""
        return self._replace(kept=kept, origin=jnp.zeros(self.t.shape, jnp.int32))

    def record(self, t, end, y, origin, kept) -> "Tape":
        i = self.iterations
        # An iteration between two stored states rewrites what its slot holds.
        slot = jnp.minimum(-(-i // self.stride), jax.tree.leaves(self.y)[0].shape[0] - 1)
        stored = i % self.stride == 0
        ys = jax.tree.map(
            lambda b, v: lax.dynamic_update_index_in_dim(b, jnp.where(stored, v, b[slot]), slot, 0), self.y, y
        )
        set_row = lambda rows, row: rows.at[i].set(row)  # noqa: E731
        t, end = set_row(self.t, t), set_row(self.end, end)
        origin = None if self.origin is None else set_row(self.origin, origin)
        return self._replace(t=t, end=end, y=ys, origin=origin, kept=kept)

    def thin(self) -> "Tape":
        """Every second state of a full tape, so that half of it is free."""
        ys = jax.tree.map(lambda b: b.at[: b.shape[0] // 2].set(b[::2]), self.y)
        return self._replace(y=ys, stride=2 * self.stride)


def evaluations_kept(tableau: Tableau, control: Control) -> int:
    """How many there is space for: the first, those of the steps that are kept, and of one more for all that follow."""
    return 1 + min(control.kept_steps + 1, control.max_steps) * tableau.evaluations_per_step


def _steps_kept(control: Control) -> int:
    return min(control.kept_steps, control.max_steps)


def maps_of_step(step, origin: Int[Array, " batch"], tableau: Tableau, control: Control) -> Int[Array, "rows batch"]:
    """Where the evaluations of a step are kept: that at its beginning, which is number `origin`, and the others.

    Steps beyond those that are kept overwrite each other.
    """
    count, batch = tableau.evaluations_per_step, origin.shape[0]
    step = jnp.minimum(step, _steps_kept(control))
    others = jnp.broadcast_to(step * count + 1 + jnp.arange(count)[:, None], (count, batch))
    return (jnp.concatenate([origin[None], others]) * batch + jnp.arange(batch)).astype(jnp.int32)


def last_evaluation(step, tableau: Tableau, control: Control):
    """The number of the evaluation at the end of a step."""
    return (jnp.minimum(step, _steps_kept(control)) + 1) * tableau.evaluations_per_step


def ends_only(times) -> bool:
    """Whether only the last state is read, so that nothing is read between the steps."""
    return times.shape[1] == 2


def vjp_evaluations_per_step(tableau: Tableau, times) -> int:
    """Calls of the vector field, each with its vector-Jacobian product, in the backward pass of one step.

    Reading between the steps takes the slope at the end of the step as well.
    """
    count = tableau.evaluations_per_step
    return count if ends_only(times) or tableau.dense == "linear" else count + 1


def backward(tape: Tape, grad_read, grad_y, perturbed, vjp_arg, times, tableau: Tableau, control: Control, keep):
    """The gradient of (field, first states, args) from those of what was read and of the last states."""
    field, y0, args = vjp_arg
    field_perturbed, _, args_perturbed = perturbed
    params, field_rest = eqx.partition(field, field_perturbed)
    args_diff, args_rest = eqx.partition(args, args_perturbed)
    # What the loss does not use has no gradient at all, and costs nothing here.
    used = jax.tree.map(lambda g: g is not None, grad_read, is_leaf=lambda g: g is None)
    reads = any(jax.tree.leaves(used))
    grad_y = jax.tree.map(lambda y, g: jnp.zeros_like(y) if g is None else g, y0, grad_y)

    def wanted(y):
        return eqx.filter(keep(y), used)

    def quick(params) -> OnBatch:
        found = of_batch(eqx.combine(params, field_rest), y0)
        assert found is not None  # as something is kept
        return found

    def stepped(t, end, y):
        """The state after one recorded step."""
        if tape.kept is None:
            return replay(params, args, y, t, end, False)
        slope = batched(field, field)(t, y, args)
        return quick(params).step(tableau, t, end - t, y, slope, args)[0]

    def replay(params, args, y, t, end, interpolate: bool):
        """One recorded step again; with an `end` of `t` a sample keeps its state."""
        dt, f = end - t, batched(eqx.combine(params, field_rest), field)
        slopes, y_new = stages(f, args, t, dt, y, f(t, y, args), tableau)
        if not interpolate:
            return y_new
        if tableau.fsal:
            slope_new = wanted(slopes[-1])
        else:
            slope_new = None if tableau.dense == "linear" else wanted(f(end, y_new, args))
        return y_new, interpolant(tableau, dt, wanted(y), wanted(y_new), list(map(wanted, slopes)), slope_new)

    def replace_failed(moved, values):
        """`values`, with those of another sample for one that has failed and is inactive.

        Where a sample failed the field may be infinite, and a cotangent of zero times infinity is not zero.
        """
        lost = tape.failed & ~moved
        other = jnp.argmax(~lost)
        return select(lost, jax.tree.map(lambda x: x[other][None], values), values)

    def kept_step(i, y, moved, kept):
        """What is kept, step `i` among it, and the maps of its evaluations."""
        steps, origin = _steps_kept(control), tape.origin
        assert origin is not None
        late = i >= steps
        maps = maps_of_step(i, jnp.where(late, last_evaluation(i, tableau, control), origin[i]), tableau, control)
        if steps < control.max_steps:
            t, end = tape.t[i], tape.end[i]

            def again(k, kept):
                # In need of k: what a loop does not change would be computed before it, even where there is no pass.
                _, first = lax.optimization_barrier((k, y))
                dt = jnp.where(moved, end - t, 0.0)
                return quick(params).evaluate_again(tableau, t, dt, first, args, kept, maps)

            kept = lax.fori_loop(0, jnp.where(late, 1, 0), again, kept)
        # What a sample tried in vain may be infinite: one that did not move counts, times zero, as one that did.
        return jnp.where(moved, maps, maps[:, jnp.argmax(moved)][:, None]), kept

    def back_one(i, y, kept, grads):
        grad_y, grad_field, grad_args = grads
        t, end = tape.t[i], tape.end[i]
        moved = end > t
        weights = read_weights(tableau, t, end, times) if reads else None
        zero = jax.tree.map(jnp.zeros_like, grad_y)
        grad_new = select(moved, grad_y, zero)
        if kept is None:
            t, y, a_diff, a_rest = replace_failed(moved, (t, y, args_diff, args_rest))
            end = jnp.where(moved, end, t)
            again = lambda p, a, y: replay(p, eqx.combine(a, a_rest), y, t, end, reads)  # noqa: E731
        else:
            maps, kept = kept_step(i, y, moved, kept)
            dt, a_diff = jnp.where(moved, end - t, 0.0), args_diff
            again = lambda p, a, y: quick(p).replay(  # noqa: E731
                tableau, t, dt, y, eqx.combine(a, args_rest), kept, maps
            )
        _, vjp = jax.vjp(again, params, a_diff, y)
        more = vjp((grad_new, read_transposed(weights, grad_read)) if reads else grad_new)
        # A step that no sample took adds nothing, be the field finite or not.
        more = jax.tree.map(lambda m: jnp.where(moved.any(), m, 0.0), more)
        # An inactive sample keeps its gradient; active ones that see it in a coupled field add to it.
        return kept, jax.tree.map(jnp.add, (select(moved, zero, grad_y), grad_field, grad_args), (more[2], *more[:2]))

    longest = 1
    while longest * control.checkpoints < control.max_steps:
        longest *= 2

    def back_segment(state):
        segment, kept, grads, ys = state
        begin = segment * tape.stride
        end = jnp.minimum(begin + tape.stride, tape.iterations)
        first = jax.tree.map(lambda b: b[segment], tape.y)
        if longest == 1:
            return segment - 1, *back_one(begin, first, kept, grads), ys
        ys = jax.tree.map(lambda b, y: b.at[0].set(y), ys, first)

        def recompute(i, state):
            y, ys = state
            t, end = tape.t[i - 1], tape.end[i - 1]
            y = select(end > t, stepped(t, end, y), y)
            return y, jax.tree.map(lambda b, v: b.at[i - begin].set(v), ys, y)

        _, ys = lax.fori_loop(begin + 1, end, recompute, (first, ys))

        def back(k, state):
            i = end - 1 - k
            return back_one(i, jax.tree.map(lambda b: b[i - begin], ys), *state)

        return segment - 1, *lax.fori_loop(0, end - begin, back, (kept, grads)), ys

    zeros = jax.tree.map(jnp.zeros_like, (params, args_diff))
    buffer = jax.tree.map(lambda y: jnp.zeros((longest, *y.shape), y.dtype), y0)
    last_segment = (tape.iterations - 1) // tape.stride
    _, _, (grad_y, grad_field, grad_args), _ = lax.while_loop(
        lambda s: s[0] >= 0, back_segment, (last_segment, tape.kept, (grad_y, *zeros), buffer)
    )
    return grad_field, grad_y, grad_args
