"""`masked_scan`: a scan over a batch of sequences of unequal length, with a quick gradient.

Recurrent models take hundreds of small moves one after the other, and time goes into how many calls those are, not
into arithmetic. So `masked_scan` does one after the other only what must be:

- stretches of the sequence in which no sample of the batch moves any more are skipped;
- backwards, the moves are linearised all at once, from the stored states; then the gradient of the state is pulled
  through them one by one; then the gradients of parameters and inputs are taken all at once again.

The price is memory: the states before all moves are kept and, on a GPU, as many gradients of the weights as a stretch
has moves.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr, Var
from jaxtyping import Array, Bool, PyTree

from ..backend import backend

_STRETCH = 16  # moves at most


def masked_scan(
    step: Callable[[PyTree, PyTree], PyTree],
    start: PyTree,
    xs: PyTree,
    moves: Bool[Array, "length batch"],
) -> tuple[PyTree, PyTree]:
    """The last state, and the states before every move: `state = step(state, x)` for the xs in turn.

    `step` is a module, written for the batch; `xs` have a leading axis for the moves. Where `moves` is not set, `step`
    must give the state it got. Differentiable in `step`, `start` and `xs`.
    """
    length = moves.shape[0]
    parts = max(-(-length // _STRETCH), 1)
    stretch = max(-(-length // parts), 1)

    def cut(x):
        fill = jnp.zeros((parts * stretch - length, *x.shape[1:]), x.dtype)
        return jnp.concatenate([x, fill]).reshape(parts, stretch, *x.shape[1:])

    given, rest = eqx.partition(jax.tree.map(cut, xs), eqx.is_inexact_array)
    last, before = _masked_scan((step, start, given), rest, cut(moves))
    return last, jax.tree.map(lambda s: s.reshape(parts * stretch, *s.shape[2:])[:length], before)


@eqx.filter_custom_vjp
def _masked_scan(vjp_arg, rest, moves):
    step, start, given = vjp_arg

    def go(state, x):
        return lax.scan(lambda state, x: (step(state, x), state), state, x)

    def stand(state, x):
        return state, jax.tree.map(lambda s: jnp.broadcast_to(s, (moves.shape[1], *s.shape)), state)

    def part(state, x):
        x, moves = x
        return lax.cond(eqxi.unvmap_any(moves), go, stand, state, x)

    return lax.scan(part, start, (eqx.combine(given, rest), moves))


@_masked_scan.def_fwd
def _masked_scan_fwd(perturbed, vjp_arg, rest, moves):
    last, before = _masked_scan(vjp_arg, rest, moves)
    return (last, before), before


@_masked_scan.def_bwd
def _masked_scan_bwd(before, grad_out, perturbed, vjp_arg, rest, moves):
    _, start, _ = vjp_arg
    wanted, known = eqx.partition(vjp_arg, perturbed)
    params, _, given = wanted
    grad_last, grad_before = grad_out  # `None` where nothing depends on a result
    # Over all moves of a stretch, a gradient of weights is a product of few rows and columns and a long sum, of which
    # a GPU has few multiprocessors at work. So there each move has a product of its own.
    one_by_one = backend() == "gpu"
    grad_last = jax.tree.map(
        lambda s, g: jnp.zeros_like(s) if g is None else g, start, grad_last, is_leaf=lambda x: x is None
    )

    def whole(params, given, known_given, rest):
        return eqx.combine(params, known[0]), eqx.combine(given, known_given, rest)

    def go(grad, before, given, known_given, rest, grad_before):
        pull, own = _linearised(*whole(params, given, known_given, rest), before)

        def back(grad, x):
            own, more = x
            return eqx.apply_updates(pull(own, grad), more), grad

        grad, grad_after = lax.scan(back, grad, (own, grad_before), reverse=True)

        def pulled(before, given, known_given, rest, grad_after):
            def moved(params, given):
                step, x = whole(params, given, known_given, rest)
                return (step if one_by_one else jax.vmap(step))(before, x)

            return jax.vjp(moved, params, given)[1](grad_after)

        told = (before, given, known_given, rest, grad_after)
        return grad, *(jax.vmap(pulled) if one_by_one else pulled)(*told)

    def stand(grad, before, given, known_given, rest, grad_before):
        grad = eqx.apply_updates(grad, jax.tree.map(lambda g: g.sum(axis=0), grad_before))
        return grad, *jax.tree.map(jnp.zeros_like, (zero, given))

    def part(carry, x):
        grad, total = carry
        moves, x = x
        grad, grad_params, grad_given = lax.cond(eqxi.unvmap_any(moves), go, stand, grad, *x)
        return (grad, jax.tree.map(jnp.add, total, grad_params)), grad_given

    zero = jax.tree.map(jnp.zeros_like, params)
    if one_by_one:
        zero = jax.tree.map(lambda p: jnp.broadcast_to(p, (moves.shape[1], *p.shape)), zero)
    xs = (moves, (before, given, known[2], rest, grad_before))
    (grad_start, grad_params), grad_given = lax.scan(part, (grad_last, zero), xs, reverse=True)
    if one_by_one:
        grad_params = jax.tree.map(lambda g: g.sum(axis=0), grad_params)
    return grad_params, grad_start, grad_given


def _linearised(step: Callable, xs: PyTree, states: PyTree) -> tuple[Callable[[Any, PyTree], PyTree], Any]:
    """`pull(own, grad)`, the gradient before a move from that after it, and what each move has of its `own`.

    What no state and no input has a part in, such as the parameters, is shared by all moves.
    """

    def pullback(state, x):
        return jax.tree.flatten(jax.vjp(lambda s: step(s, x), state)[1])

    first = jax.tree.map(lambda leaf: leaf[0], (states, xs))
    leaves, structure = pullback(*first)
    varies = _depends(jax.make_jaxpr(lambda s, x: pullback(s, x)[0])(*first).jaxpr)
    own = jax.vmap(lambda s, x: [leaf for leaf, v in zip(pullback(s, x)[0], varies, strict=True) if v])(states, xs)

    def pull(own, grad):
        mine = iter(own)
        both = [next(mine) if v else leaf for leaf, v in zip(leaves, varies, strict=True)]
        return jax.tree.unflatten(structure, both)(grad)[0]

    return pull, own


def _depends(jaxpr: Jaxpr) -> list[bool]:
    """Which outputs anything that goes in has a part in."""
    reached = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(isinstance(v, Var) and v in reached for v in equation.invars):
            reached.update(equation.outvars)
    return [isinstance(v, Var) and v in reached for v in jaxpr.outvars]
