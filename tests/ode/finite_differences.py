"""A loss on a co-evolving system, its compiled gradient, and central differences to compare it with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import noise

# Two samples with their own times; the second row ends in padding.
TIMES = jnp.array([[0.0, 0.3, 0.45, 1.0], [0.0, 0.2, 0.8, 0.8]])
H0 = jnp.array([[0.5, -1.0], [1.5, 0.25]])


def loss_and_steps(queried, times):
    """Weights on h and on a, at all times and different everywhere."""
    ode, h0 = queried
    path = ode(h0, times)
    value = jnp.sum(noise(*path.h.shape) * jnp.sin(path.h)) + jnp.sum(noise(*path.a.shape, seed=1) * jnp.cos(path.a))
    return value, path.stats.accepted


value_and_gradient = eqx.filter_value_and_grad(loss_and_steps, has_aux=True)
compiled = eqx.filter_jit(value_and_gradient)


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def gradient(queried, times=TIMES) -> np.ndarray:
    return flat(compiled(queried, times)[1])


def assert_every_slope_matches(loss, at, tolerance: float = 1e-6, step: float = 1e-5):
    """The gradient of a loss in every array of a tree, each along a random direction of its own; none may be zero."""
    compiled = jax.jit(jax.value_and_grad(loss))
    leaves, structure = jax.tree.flatten(at)
    found = jax.tree.leaves(compiled(at)[1])
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(at)]
    for k, (name, gradient) in enumerate(zip(names, found, strict=True)):
        direction = np.asarray(noise(*gradient.shape, seed=k))

        def value(shift, k=k, direction=direction):
            moved = [*leaves[:k], np.asarray(leaves[k]) + shift * direction, *leaves[k + 1 :]]
            return float(compiled(structure.unflatten(moved))[0])

        slope = (value(step) - value(-step)) / (2 * step)
        assert abs(slope) > 1e-6, f"{name}: nothing to compare"
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=tolerance, abs=1e-3 * tolerance), name


def assert_matches_differences(queried, step: float, tolerance: float, times=TIMES):
    """The slope along two random directions of f's, g's and q's parameters and of h(0), each on its own."""
    moving, still = eqx.partition(queried, eqx.is_inexact_array)
    found = gradient(queried, times)
    nowhere = jax.tree.map(np.zeros_like, moving)
    groups = {"f": lambda a: a[0].f, "g": lambda a: a[0].g, "q": lambda a: a[0].initial, "h0": lambda a: a[1]}
    for name, where in groups.items():
        for seed in range(2):
            random = jax.tree.map(lambda leaf, seed=seed: np.asarray(noise(*leaf.shape, seed=seed)), where(moving))
            direction = eqx.tree_at(where, nowhere, random)

            def value(shift, direction=direction):
                moved = jax.tree.map(lambda p, d: jnp.asarray(np.asarray(p) + shift * d), moving, direction)
                return float(compiled(eqx.combine(moved, still), times)[0][0])

            slope = (value(step) - value(-step)) / (2 * step)
            assert abs(slope) > 1e-3, f"{name}: nothing to compare"
            assert found @ flat(direction) == pytest.approx(slope, rel=tolerance, abs=tolerance), name
