"""The stepping loop backwards: the gradient, exact for the steps taken.

Discretise, then differentiate; the step sizes count as constants. It walks back over stored states, and where there
were more steps than room it keeps every second, fourth, ... state and recomputes the stretch between two of them:
memory grows with the square root of the number of steps.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .one_step import interpolant, read_transposed, read_weights, select, stages
from .step_size import Control
from .tableau import Tableau


class Tape(NamedTuple):
    """What the backward pass needs: both ends of every step, and the state at every `stride`-th.

    The end is kept, not the size: `t + (end - t)` rounds to another number than `end` now and then, and a time
    between the two would be read by no step, or by two.
    """

    t: Float[Array, "max_steps batch"]
    end: Float[Array, "max_steps batch"]  # `t` where the sample did not move
    y: PyTree
    stride: Int[Array, ""]
    iterations: Int[Array, ""]
    failed: Bool[Array, " batch"]  # or still on the way when the loop ended


def ends_only(times) -> bool:
    """Whether only the last state is asked for, so that nothing is read between the steps."""
    return times.shape[1] == 2


def vjp_evaluations_per_step(tableau: Tableau, times) -> int:
    """Calls of the vector field, each with its vector-Jacobian product, in the backward pass of one step.

    Reading between the steps takes the slope at the end of the step as well.
    """
    count = len(tableau.a) + (not tableau.fsal)
    return count if ends_only(times) or tableau.dense == "linear" else count + 1


def backward(
    tape: Tape, grad_read, grad_y, perturbed, vjp_arg, times, tableau: Tableau, control: Control, keep, axis_name: str
):
    """The gradient of (field, first states, args) from those of what was read and of the last states."""
    field, y0, args = vjp_arg
    field_perturbed, _, args_perturbed = perturbed
    field_moving, field_still = eqx.partition(field, field_perturbed)
    args_moving, args_still = eqx.partition(args, args_perturbed)
    # What the loss does not use has no gradient at all, and costs nothing here.
    used = jax.tree.map(lambda g: g is not None, grad_read, is_leaf=lambda g: g is None)
    reads = any(jax.tree.leaves(used))
    grad_y = jax.tree.map(lambda y, g: jnp.zeros_like(y) if g is None else g, y0, grad_y)

    def wanted(y):
        return eqx.filter(keep(y), used)

    def replay(field_moving, a, y, t, end, interpolate: bool):
        """One recorded step again; an `end` of `t` leaves a sample where it is."""
        dt = end - t
        f = jax.vmap(eqx.combine(field_moving, field_still), axis_name=axis_name)
        slopes, y_new = stages(f, a, t, dt, y, f(t, y, a), tableau)
        if not interpolate:
            return y_new
        if tableau.fsal:
            slope_new = slopes[-1]
        elif tableau.dense == "linear":
            slope_new = None
        else:
            slope_new = f(end, y_new, a)
        kept = None if slope_new is None else wanted(slope_new)
        terms = interpolant(tableau, dt, wanted(y), wanted(y_new), list(map(wanted, slopes)), kept)
        return y_new, terms

    def stand_in(moved, values):
        """`values`, those of a failed sample that stands still being replaced by those of one that is well.

        Where a sample failed the field may be infinite, and a gradient of zero would not silence that.
        """
        lost = tape.failed & ~moved
        well = jnp.argmax(~lost)
        return select(lost, jax.tree.map(lambda x: x[well][None], values), values)

    def back_one(i, y, grads):
        grad_y, grad_field, grad_args = grads
        t, end = tape.t[i], tape.end[i]
        moved = end > t
        weights = read_weights(tableau, t, end, times) if reads else None
        t, y, a_moving, a_still = stand_in(moved, (t, y, args_moving, args_still))
        end = jnp.where(moved, end, t)
        _, pull = jax.vjp(
            lambda p, a, y: replay(p, eqx.combine(a, a_still), y, t, end, reads), field_moving, a_moving, y
        )
        still = jax.tree.map(jnp.zeros_like, grad_y)
        grad_new = select(moved, grad_y, still)
        more = pull((grad_new, read_transposed(weights, grad_read)) if reads else grad_new)
        # In a step that nobody took there is nothing to add, be the field finite or not.
        more = jax.tree.map(lambda m: jnp.where(moved.any(), m, 0.0), more)
        # A sample that stands still keeps its gradient; those it meets in a batch-wide attention add to it.
        return jax.tree.map(jnp.add, (select(moved, still, grad_y), grad_field, grad_args), (more[2], *more[:2]))

    longest = 1
    while longest * control.checkpoints < control.max_steps:
        longest *= 2

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
            y = select(end > t, replay(field_moving, args, y, t, end, False), y)
            return y, jax.tree.map(lambda b, v: b.at[i - begin].set(v), ys, y)

        _, ys = lax.fori_loop(begin + 1, end, ahead, (first, ys))

        def back(k, grads):
            i = end - 1 - k
            return back_one(i, jax.tree.map(lambda b: b[i - begin], ys), grads)

        return stretch - 1, lax.fori_loop(0, end - begin, back, grads), ys

    nothing = jax.tree.map(jnp.zeros_like, (field_moving, args_moving))
    room = jax.tree.map(lambda y: jnp.zeros((longest, *y.shape), y.dtype), y0)
    last_stretch = (tape.iterations - 1) // tape.stride
    _, (grad_y, grad_field, grad_args), _ = lax.while_loop(
        lambda s: s[0] >= 0, back_stretch, (last_stretch, (grad_y, *nothing), room)
    )
    return grad_field, grad_y, grad_args
