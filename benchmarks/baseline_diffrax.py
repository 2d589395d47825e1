"""The same training step written in plain diffrax: one sample, mapped over the batch."""

import diffrax
import jax
import jax.numpy as jnp
from system import ATOL, RTOL

from acenode.ode import CoEvolvingODE, correlation


def loss(ode: CoEvolvingODE, h0, times, attention: bool):
    """`mean(h^2)`, with the networks and weights of `ode`; beside it the attention and the number of steps."""
    a0 = correlation(h0)

    def field(t, y, args):
        h, a = y
        attended = jax.nn.softmax(a, axis=-1) @ h
        return ode.f.net(attended), ode.g.net(attended).reshape(a.shape)

    def one(h):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Dopri5(),
            times[0],
            times[-1],
            None,
            (h, a0),
            saveat=diffrax.SaveAt(ts=times, fn=lambda t, y, args: y if attention else (y[0], None)),
            stepsize_controller=diffrax.PIDController(rtol=RTOL, atol=ATOL),
            adjoint=diffrax.RecursiveCheckpointAdjoint(),
            throw=False,
        )

    solution = jax.vmap(one)(h0)
    h, a = solution.ys
    return jnp.mean(jnp.square(h)), (a, solution.stats)
