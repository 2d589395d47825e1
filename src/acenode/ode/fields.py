"""Vector fields: callables `(t, h) -> dh/dt` for one sample. Any such callable serves as f or g."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Init, Linear, mlp, scale_last


class VectorField(eqx.Module):
    """A vector field of a `CoEvolvingODE` that says what it sees, as f or as g.

    `takes` names the arguments after t, in order: `attended` (h' of Equation 4, h'' of Equation 5), `state` (h),
    `attention` (a) and, for a g, `flow` (the function h -> dh/dt at this moment). Any other callable is given the
    attended state alone, as the paper has it.
    """

    takes: eqx.AbstractVar[tuple[str, ...]]

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """The derivative, from t and what `takes` names."""

    @property
    def keeps_weights(self) -> bool:
        """Whether, as g, it leaves the weights as they are on purpose, as controls do."""
        return False


def evaluate_field(field: Callable, t, attended, h, a, flow: Callable | None = None):
    """A vector field at what it sees."""
    takes = field.takes if isinstance(field, VectorField) else ("attended",)
    given = {"attended": attended, "state": h, "attention": a, "flow": flow}
    return field(t, *(given[name] for name in takes))


class MLPField(eqx.Module):
    """A multi-layer perceptron on the flattened state.

    `shape` is the state's shape (an int for a vector), `out` the shape of the derivative, the same by default.
    `timed` appends t to the input; without it the field is autonomous. `last` is a factor on the last layer at the
    start of training: a g with a small one begins as a frozen attention, not as a random one.
    """

    net: eqx.nn.MLP
    out: tuple[int, ...] = eqx.field(static=True)
    timed: bool = eqx.field(static=True)

    def __init__(
        self,
        shape: int | tuple[int, ...],
        width: int = 50,
        hidden: int = 3,
        *,
        out: tuple[int, ...] | None = None,
        timed: bool = False,
        activation: Callable = jnp.tanh,
        init: Init = "uniform",
        last: float = 1.0,
        key: PRNGKeyArray,
    ):
        shape = (shape,) if isinstance(shape, int) else shape
        self.out = shape if out is None else out
        self.timed = timed
        net = mlp(_size(shape) + timed, _size(self.out), width, hidden, activation, init, key=key)
        self.net = scale_last(net, last)

    def __call__(self, t: Float[Array, ""], h: Float[Array, "..."]) -> Float[Array, "..."]:
        x = jnp.ravel(h)
        if self.timed:
            x = jnp.append(x, jnp.asarray(t, x.dtype))
        return self.net(x).reshape(self.out)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


class GRUField(VectorField):
    """The continuous gated recurrent unit of GRU-ODE, autonomous and without biases.

    `r = sigmoid(W_r h)`, `z = sigmoid(W_z h)`, `u = tanh(W_u (r * h))`, `dh/dt = (1 - z) * (u - h)`: a state
    that starts inside [-1, 1] stays there.

    As the f of a `CoEvolvingODE` it is given the attended state h' in place of h, in the decay too. Where two
    dimensions attend to each other, the decay of either pushes the other away, and h diverges. `self_decay` has
    `dh/dt = (1 - z) * (u - h)` with z and u from h', but h itself in the decay: then h stays inside [-1, 1] whatever
    the attention does.
    """

    reset: Linear
    update: Linear
    candidate: Linear
    takes: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, size: int, self_decay: bool = False, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.reset, self.update, self.candidate = (Linear(size, size, use_bias=False, key=k) for k in keys)
        self.takes = ("attended", "state") if self_decay else ("attended",)

    def __call__(
        self, t: Float[Array, ""], h: Float[Array, " h"], own: Float[Array, " h"] | None = None
    ) -> Float[Array, " h"]:
        r = jax.nn.sigmoid(self.reset(h))
        z = jax.nn.sigmoid(self.update(h))
        u = jnp.tanh(self.candidate(r * h))
        return (1 - z) * (u - (h if own is None else own))


class ConditionedGRUField(VectorField):
    """A continuous GRU of h that is given the attended state h' as its input, for the f of a `CoEvolvingODE`.

    `r = sigmoid(W_r h + V_r h')`, `z = sigmoid(W_z h + V_z h')`, `u = tanh(W_u (r * h) + V_u h')`,
    `dh/dt = (1 - z) * (u - h)`. With V = 0 it is `GRUField` without attention, and the V start small. A state that
    starts inside [-1, 1] stays there. `attended` is the size of h', that of h by default.
    """

    cell: GRUField
    inputs: Linear
    takes = ("attended", "state")

    def __init__(self, size: int, start: float = 0.1, *, attended: int | None = None, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.cell = GRUField(size, key=one)
        inputs = Linear(size if attended is None else attended, 3 * size, use_bias=False, key=two)
        self.inputs = eqx.tree_at(lambda l: l.weight, inputs, start * inputs.weight)

    def __call__(self, t: Float[Array, ""], attended: Float[Array, " s"], h: Float[Array, " h"]) -> Float[Array, " h"]:
        x_reset, x_update, x_candidate = jnp.split(self.inputs(attended), 3)
        r = jax.nn.sigmoid(self.cell.reset(h) + x_reset)
        z = jax.nn.sigmoid(self.cell.update(h) + x_update)
        return (1 - z) * (jnp.tanh(self.cell.candidate(r * h) + x_candidate) - h)


class ConditionedMLPField(VectorField):
    """A perceptron of h and of the attended state h' beside it, for the f of a `CoEvolvingODE`; as `MLPField`."""

    field: MLPField
    takes = ("attended", "state")

    def __init__(self, size: int, width: int = 50, hidden: int = 3, *, init: Init = "uniform", key: PRNGKeyArray):
        self.field = MLPField((2, size), width, hidden, out=(size,), init=init, key=key)

    def __call__(self, t: Float[Array, ""], attended: Float[Array, " h"], h: Float[Array, " h"]) -> Float[Array, " h"]:
        return self.field(t, jnp.stack([h, attended]))


class RowField(eqx.Module):
    """One network for all rows of a (rows, channels) state: row i moves by (h_i, e_i[, t]) alone.

    e_i is a learned place that tells the rows apart. Rows meet only where something mixes them before, such as
    `Pairwise` attention: then the attention is all there is to see of who influences whom.
    """

    places: Float[Array, "rows rank"]
    net: eqx.nn.MLP
    timed: bool = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int],
        width: int = 50,
        hidden: int = 2,
        rank: int = 2,
        *,
        timed: bool = False,
        key: PRNGKeyArray,
    ):
        rows, channels = shape
        one, two = jax.random.split(key)
        self.places = 0.1 * jax.random.normal(one, (rows, rank))
        self.net = mlp(channels + rank + timed, channels, width, hidden, key=two)
        self.timed = timed

    def __call__(self, t: Float[Array, ""], h: Float[Array, "rows channels"]) -> Float[Array, "rows channels"]:
        x = [h, self.places]
        if self.timed:
            x.append(jnp.full((h.shape[0], 1), t, h.dtype))
        return jax.vmap(self.net)(jnp.concatenate(x, axis=1))
