"""Heads: from a model's states or summary to what a task needs. They belong to the task, not to the model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import mlp


class Headed(eqx.Module):
    """A model and the head that a task put on it; what is trained.

    A model that has an `emission` of its own, as GRU-ODE-Bayes needs one, may go without (`head=None`).
    """

    model: Any
    head: Any


class GaussianHead(eqx.Module):
    """A hidden layer from a state vector to mean and log variance of every variable."""

    net: eqx.nn.MLP

    def __init__(self, size: int, variables: int, width: int = 25, *, key: PRNGKeyArray):
        self.net = mlp(size, 2 * variables, width, 1, jax.nn.relu, key=key)

    def __call__(self, state: Float[Array, " size"]) -> tuple[Array, Array]:
        mean, log_variance = jnp.split(self.net(state), 2)
        return mean, log_variance


class RowHead(eqx.Module):
    """One network for all rows of a (variables, channels) state: row i gives variable i."""

    net: eqx.nn.MLP

    def __init__(self, channels: int, width: int = 16, *, key: PRNGKeyArray):
        self.net = mlp(channels, 2, width, 1, key=key)

    def __call__(self, state: Float[Array, "variables channels"]) -> tuple[Array, Array]:
        both = jax.vmap(self.net)(state)
        return both[:, 0], both[:, 1]
