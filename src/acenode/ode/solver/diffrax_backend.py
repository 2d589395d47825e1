"""Solving by diffrax, mapped over the samples of a batch: the only file that calls `diffrax.diffeqsolve`."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .runge_kutta import METHODS
from .status import Stats, Status, status_where
from .step_size import Control, rms
from .vector_field import batched

_ADJOINTS = {"backsolve": diffrax.BacksolveAdjoint, "direct": diffrax.DirectAdjoint}
_METHODS = {
    "dopri5": diffrax.Dopri5,
    "tsit5": diffrax.Tsit5,
    "euler": diffrax.Euler,
    "midpoint": diffrax.Midpoint,
    "heun": diffrax.Heun,
}


def solve_by_diffrax(
    method: str, adjoint: str, control: Control, field, y0: PyTree, times: Float[Array, "batch times"], args, keep
) -> tuple[PyTree[Float[Array, "batch times ..."]], Stats]:
    """As `Solver.solve`, with the gradient of diffrax's `adjoint`."""
    if control.step is None:

        def norm(scaled):
            return rms(jax.tree.map(lambda x: lax.stop_gradient(x)[None], scaled), control.norm).max()

        controller = diffrax.PIDController(rtol=control.rtol, atol=control.atol, norm=norm)
    else:
        controller = diffrax.ConstantStepSize()

    def one(y0, times, args):
        # Padding repeats the last time. Diffrax's backsolve with a fixed step fails on a repeated last time, but
        # not on a repeated first one: ask for the repeats there, and read them from the end.
        place, repeats = jnp.arange(times.size), jnp.sum(times == times[-1]) - 1
        queried = jnp.where(place < repeats, times[0], jnp.roll(times, repeats))
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            _METHODS[method]() if method in _METHODS else _from_tableau(method),
            times[0],
            times[-1],
            control.step,
            y0,
            args,
            saveat=diffrax.SaveAt(ts=queried),
            stepsize_controller=controller,
            adjoint=_ADJOINTS[adjoint](),
            max_steps=control.max_steps,
            throw=False,
        )
        ys = jax.tree.map(lambda y: y[jnp.minimum(place + repeats, times.size - 1)], solution.ys)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(ys)]).all()
        status = status_where(finite, Status.solved, Status.not_finite)
        too_many = solution.result == diffrax.RESULTS.max_steps_reached
        failure = status_where(too_many, Status.max_steps_reached, Status.step_too_small)
        status = status_where(solution.result == diffrax.RESULTS.successful, status, failure)
        kept = jax.tree.map(lambda y: jnp.where(jnp.isfinite(y), y, jnp.nan), keep(ys))
        stats = solution.stats
        taken = (jnp.asarray(stats[f"num_{each}_steps"], jnp.int32) for each in ("accepted", "rejected"))
        return kept, tuple(taken), status

    kept, (accepted, rejected), status = batched(one, field)(y0, times, args)
    uncounted = jnp.full_like(accepted, -1)
    return kept, Stats(accepted, rejected, uncounted, uncounted, status)


def _from_tableau(method: str) -> diffrax.AbstractERK:
    """A method that diffrax does not have, from our tableau."""
    ours = METHODS[method]

    class Method(diffrax.AbstractERK):
        tableau = diffrax.ButcherTableau(
            c=np.array(ours.c),
            b_sol=np.array(ours.b),
            b_error=np.zeros(len(ours.b)),
            a_lower=tuple(np.array(row) for row in ours.a),
        )
        interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

        def order(self, terms):
            return ours.order

    return Method()
