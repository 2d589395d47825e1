"""GRU-ODE-Bayes with one row of hidden numbers for each variable.

Rows are moved and changed by networks that all rows share, each knowing only its own row and place. So with `Pairwise`
attention the attention between rows is between the variables themselves: all there is to see of who influences whom.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import GRUCell, Linear, mlp
from ..ode import CoEvolvingODE, Identity, Pairwise, QueryKey, Solver, VectorField
from .gru_ode_bayes import GRUODEBayes


class RowFirst(eqx.Module):
    """h(0): a learned row for each variable."""

    rows: Float[Array, "variables channels"]

    def __init__(self, variables: int, channels: int, *, key: PRNGKeyArray):
        self.rows = 0.1 * jax.random.normal(key, (variables, channels))

    def __call__(self, keep: Array | float = 1.0) -> Float[Array, "variables channels"]:
        return jnp.tanh(keep * self.rows)

    @property
    def width(self) -> int:
        return self.rows.shape[1]


class RowGRUField(VectorField):
    """The continuous GRU of `GRUField` on every row, given the row's place: `dh_i/dt = (1 - z_i) * (u_i - h_i)`.

    Under attention the decay is that of the row itself, as with `GRUField(self_decay=True)`.
    """

    places: Float[Array, "variables rank"]
    gates: Linear
    candidate: Linear
    takes = ("attended", "state")

    def __init__(self, variables: int, channels: int, rank: int = 4, *, key: PRNGKeyArray):
        one, two, three = jax.random.split(key, 3)
        self.places = jax.random.normal(one, (variables, rank))
        self.gates = Linear(channels + rank, 2 * channels, key=two)
        self.candidate = Linear(channels + rank, channels, key=three)

    def __call__(
        self, t, h: Float[Array, "variables channels"], own: Float[Array, "variables channels"] | None = None
    ) -> Float[Array, "variables channels"]:
        def row(h, own, place):
            r, z = jnp.split(jax.nn.sigmoid(self.gates(jnp.concatenate([h, place]))), 2)
            return (1 - z) * (jnp.tanh(self.candidate(jnp.concatenate([r * h, place]))) - own)

        return jax.vmap(row)(h, h if own is None else own, self.places)


class RowJump(eqx.Module):
    """An observed variable changes its own row, by a GRU cell on [x, mean, log variance, error, place]."""

    places: Float[Array, "variables rank"]
    cell: GRUCell

    def __init__(self, variables: int, channels: int, rank: int = 4, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.places = jax.random.normal(one, (variables, rank))
        self.cell = GRUCell(4 + rank, channels, key=two)

    def __call__(self, h, x, observed, mean, log_variance) -> Float[Array, "variables channels"]:
        error = (x - mean) * jnp.exp(-0.5 * log_variance)
        says = jnp.concatenate([jnp.stack([x, mean, log_variance, error], axis=-1), self.places], axis=-1)
        return jnp.where(observed[:, None], jax.vmap(self.cell)(says, h), h)


class RowEmission(eqx.Module):
    """From every row, knowing its place, to the mean and the log variance of its variable."""

    places: Float[Array, "variables rank"]
    net: eqx.nn.MLP

    def __init__(self, variables: int, channels: int, width: int = 25, rank: int = 4, *, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.places = jax.random.normal(one, (variables, rank))
        self.net = mlp(channels + rank, 2, width, 1, jax.nn.relu, key=two)

    def __call__(self, h: Float[Array, "variables channels"], keep: Array | float = 1.0) -> tuple[Array, Array]:
        both = jax.vmap(self.net)(jnp.concatenate([keep * h, self.places], axis=1))
        return both[:, 0], both[:, 1]

    @property
    def width(self) -> int:
        return self.net.in_size - self.places.shape[1]  # pyright: ignore[reportOperatorIssue]


def attention_between_variables(
    variables: int,
    channels: int,
    solver: Solver = Solver(),  # noqa: B008
    *,
    key: PRNGKeyArray,
) -> CoEvolvingODE:
    """The ODE of rows that attend to each other, each mostly to itself at first."""
    one, two = jax.random.split(key)
    shape = (variables, channels)
    return CoEvolvingODE(RowGRUField(*shape, key=one), QueryKey(shape, key=two), Pairwise(), Identity(2.0), solver)


def variable_bayes(
    variables: int,
    ode: Any,
    channels: int = 8,
    *,
    start: float = 0.0,
    dropout: float = 0.0,
    mixing: float = 1e-4,
    key: PRNGKeyArray,
) -> GRUODEBayes:
    """GRU-ODE-Bayes whose hidden state has a row of `channels` numbers for each variable."""
    one, two, three = jax.random.split(key, 3)
    return GRUODEBayes(
        RowFirst(variables, channels, key=one),
        ode,
        RowJump(variables, channels, key=two),
        RowEmission(variables, channels, key=three),
        start,
        dropout,
        mixing,
    )
