"""Small co-evolving systems that the tests of this folder share, and one compiled way to solve any of them."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from acenode.ode import CoEvolvingODE, Path, Solver


@eqx.filter_jit
def solve(ode, h0: Array, times: Array) -> Path:
    """`ode(h0, times)`, compiled once for every structure and shape."""
    return ode(h0, times)


def noise(*shape: int, seed: int = 0) -> Array:
    """Standard normal numbers, always the same."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def count(make, *args, **kwargs) -> int:
    """The number of parameters of `make(*args, **kwargs)`, without drawing them."""
    leaves = jax.tree.leaves(eqx.filter_eval_shape(make, *args, **kwargs))
    return sum(leaf.size for leaf in leaves if hasattr(leaf, "size"))


def decay(t, h):
    return -h


def still(t, h):
    return jnp.zeros_like(h)


class Wave(eqx.Module):
    """`tanh(W h + b sin(3 t))`: smooth, bounded, timed, with parameters, and cheap to compile."""

    weight: Array
    bias: Array
    out: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, size: int, out: tuple[int, ...], seed: int = 0):
        self.weight = noise(math.prod(out), size, seed=seed)
        self.bias = jnp.asarray(np.linspace(-1.0, 1.0, math.prod(out)))
        self.out = out

    def __call__(self, t, h):
        return jnp.tanh(self.weight @ h.ravel() + self.bias * jnp.sin(3 * t)).reshape(self.out)


class FromState(eqx.Module):
    """A first attention with parameters: `a(0) = sin(W h(0))`."""

    weight: Array
    out: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, size: int, out: tuple[int, ...], seed: int = 0):
        self.weight = noise(math.prod(out), size, seed=seed)
        self.out = out

    def __call__(self, h0):
        return jnp.sin(h0 @ self.weight.T).reshape(-1, *self.out)


def coevolving(attention, size: int, solver: Solver, seed: int = 0, **options) -> CoEvolvingODE:
    """f, g and q all with parameters, on a vector of `size` dimensions. `options` go to `CoEvolvingODE`."""
    shape = attention.shape((size,))
    g = None if options.get("evolution") in ("frozen", "fixed") else Wave(size, shape, 3 * seed + 1)
    initial = options.pop("initial", FromState(size, shape, 3 * seed + 2))
    return CoEvolvingODE(Wave(size, (size,), 3 * seed), g, attention, initial, solver, **options)


def leaves_equal(one, two) -> bool:
    """Bit for bit, NaN being equal to NaN."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(bool(jnp.array_equal(a, b, equal_nan=True)) for a, b in pairs)
