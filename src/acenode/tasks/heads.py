"""Heads: from a model's states or summary to what a task needs. They belong to the task, not to the model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear, mlp


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


class ResidualDecoder(eqx.Module):
    """From a state of `models.WithLastValue` to values that lean on the last known ones, the less the older they are.

    `value = guess + trust * (last - guess)` with `trust = sigmoid(logit - rate * age)`; guess and logit are linear in
    the model's state, and every variable has a rate of its own. Begins with most of its trust in the last value.
    """

    net: Linear
    fading: Float[Array, " variables"]  # softplus of it is the rate

    def __init__(self, size: int, variables: int, *, key: PRNGKeyArray):
        net = Linear(size, 2 * variables, key=key)
        assert net.bias is not None
        self.net = eqx.tree_at(lambda n: n.bias, net, net.bias.at[variables:].set(2.0))
        self.fading = jnp.zeros(variables)

    def __call__(self, state: Float[Array, " state"]) -> Float[Array, " variables"]:
        variables = self.fading.shape[0]
        own, last, age = jnp.split(state, [state.shape[0] - 2 * variables, state.shape[0] - variables])
        guess, logit = jnp.split(self.net(own), 2)
        trust = jax.nn.sigmoid(logit - jax.nn.softplus(self.fading) * age)
        return guess + trust * (last - guess)
