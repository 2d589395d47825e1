"""`Path`: what every ODE answers, and the checks on its arguments."""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .solver import Stats


class Path(eqx.Module):
    """A solved batch: states `h` at `times`, attention logits `a` there (`None` without attention), solver `stats`.

    Entries that a failed solve did not reach are NaN; `stats.status` says why.
    """

    times: Float[Array, "batch times"]
    h: Float[Array, "batch times ..."]
    a: Float[Array, "batch times ..."] | None
    stats: Stats

    @property
    def finite(self) -> Float[Array, "batch times ..."]:
        """The states, with 0 for every sample that failed.

        For losses: with these a weight of zero really drops the sample, where NaN times zero would not.
        """
        failed = self.stats.failed.reshape(-1, *(1,) * (self.h.ndim - 1))
        return jnp.where(failed, 0.0, self.h)


def check_query(name: str, h0: Array, times: Array) -> Float[Array, "batch times"]:
    """Refuse what cannot be solved; give every sample its row of times.

    Shapes are always checked, values where they are known (not traced by `jit`).
    """
    if h0.ndim < 2:
        raise ValueError(f"{name}: h0 has shape {h0.shape}; expected (batch, state...). For one sample give h0[None].")
    if h0.shape[0] == 0:
        raise ValueError(f"{name}: h0 has shape {h0.shape}: the batch is empty.")
    if not jnp.issubdtype(h0.dtype, jnp.floating):
        raise ValueError(f"{name}: h0 has dtype {h0.dtype}; expected floating point numbers.")
    # In half precision 0.2 and 0.2002 are equal; the solver rounds times where it solves in it.
    given, times = times, jnp.asarray(times, jnp.promote_types(jnp.result_type(h0), jnp.float32))
    if times.ndim == 1:
        times = jnp.broadcast_to(times, (h0.shape[0], times.shape[0]))
    if times.ndim != 2 or times.shape[0] != h0.shape[0] or times.shape[1] == 0:
        raise ValueError(
            f"{name}: times has shape {times.shape}; expected (times,) for all samples, or (batch, times) with "
            f"batch {h0.shape[0]} as in h0, at least one time each."
        )
    if not any(isinstance(each, jax.core.Tracer) for each in jax.tree.leaves(given)):
        known = np.broadcast_to(np.asarray(given, times.dtype), times.shape)
        if not np.isfinite(known).all():
            raise ValueError(f"{name}: times holds values that are not finite.")
        if (np.diff(known, axis=1) < 0).any():
            row = int(np.argwhere(np.diff(known, axis=1) < 0)[0, 0])
            raise ValueError(
                f"{name}: the times of sample {row} are not sorted: {known[row]}. To go back in time, solve "
                "-f(-t, h) along the negative times."
            )
        lost = (np.diff(known, axis=1) == 0) & (np.diff(np.asarray(given)) > 0)
        if lost.any():
            row, k = np.argwhere(lost)[0]
            raise ValueError(
                f"{name}: the times {k} and {k + 1} of sample {row} are both {known[row, k]:g} in {known.dtype}. Count "
                "time from the first of them."
            )
    if not isinstance(h0, jax.core.Tracer) and not np.isfinite(np.asarray(h0)).all():
        raise ValueError(f"{name}: h0 holds values that are not finite.")
    return times
