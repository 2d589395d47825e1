"""The error norm: what a large second part of the state does to the steps of the first."""

import jax.numpy as jnp
import numpy as np
import pytest

from acenode.ode import Solver

Y0 = jnp.array([[1.0, 0.0], [0.3, -2.0]])
TIMES = jnp.tile(jnp.array([0.0, 0.7, 4.0]), (2, 1))


def swing(t, h, args):
    return jnp.stack([h[1], -4 * h[0] * (1 + jnp.sin(h[0]))])


def beside_constant(t, y, args):
    return swing(t, y[0], args), jnp.zeros_like(y[1])


def steps(norm: str, logits=None, adjoint: str = "checkpointed") -> np.ndarray:
    solver = Solver(norm=norm, adjoint=adjoint, max_steps=256)
    if logits is None:
        h, stats = solver.solve(swing, Y0, TIMES)
    else:
        (h, _), stats = solver.solve(beside_constant, (Y0, logits), TIMES)
    assert not stats.failed.any() and np.isfinite(h).all()
    return np.stack([stats.accepted, stats.rejected])


@pytest.mark.slow
def test_only_the_joint_norm_lets_constant_logits_loosen_the_tolerance_of_h():
    logits, alone = jnp.full((2, 12, 12), 5.0), steps("per_part")
    np.testing.assert_array_equal(steps("joint"), alone)  # of one part they are the same
    np.testing.assert_array_equal(steps("per_part", logits), alone)
    assert (steps("joint", logits)[0] < 0.8 * alone[0]).all()


@pytest.mark.slow
def test_diffrax_takes_the_same_norm():
    logits = jnp.full((2, 12, 12), 5.0)
    assert (steps("joint", logits, "direct")[0] < 0.8 * steps("per_part", logits, "direct")[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("logits", [jnp.zeros((2, 3, 3)), jnp.full((2, 3, 3), 1e4), jnp.zeros((2, 0))])
def test_a_constant_part_of_any_size_does_not_limit_the_steps(logits):
    np.testing.assert_array_equal(steps("per_part", logits), steps("per_part"))
