"""Linear layers and what is made of them, for one sample; `jax.vmap` makes batches of it.

Equinox multiplies a matrix by a sample, these multiply a sample by the transposed matrix. Under one `vmap` that is the
same, under two of them Equinox's samples come out in the last axes, and on a CPU it takes as long to move them to the
front as to multiply. Products are in float32 unless another precision is set around them (`acenode.precision`).
"""

from collections.abc import Callable
from typing import Literal, cast, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .precision import matmul

Init = Literal["uniform", "normal"]


class Linear(eqx.nn.Linear):
    """`W x + b`."""

    def __init__(self, size_in: int, size_out: int, use_bias: bool = True, *, key: PRNGKeyArray):
        super().__init__(size_in, size_out, use_bias, key=key)

    def __call__(self, x: Float[Array, " size_in"], *, key: PRNGKeyArray | None = None) -> Float[Array, " size_out"]:
        product = matmul(x, self.weight.T)
        return product if self.bias is None else product + self.bias


class GRUCell(eqx.nn.GRUCell):
    """A gated recurrent unit: the state after an input."""

    def __init__(self, input_size: int, hidden_size: int, *, key: PRNGKeyArray):
        super().__init__(input_size, hidden_size, key=key)

    def __call__(
        self, input: Float[Array, " input"], hidden: Float[Array, " size"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " size"]:
        bias, bias_n = cast(Array, self.bias), cast(Array, self.bias_n)
        reset_in, update_in, new_in = jnp.split(matmul(input, self.weight_ih.T) + bias, 3)
        reset_own, update_own, new_own = jnp.split(matmul(hidden, self.weight_hh.T), 3)
        reset, update = jax.nn.sigmoid(reset_in + reset_own), jax.nn.sigmoid(update_in + update_own)
        new = jnp.tanh(new_in + reset * (new_own + bias_n))
        return new + update * (hidden - new)


def mlp(
    size_in: int,
    size_out: int,
    width: int,
    hidden: int,
    activation: Callable = jnp.tanh,
    init: Init = "uniform",
    *,
    key: PRNGKeyArray,
) -> eqx.nn.MLP:
    """A multi-layer perceptron with `hidden` hidden layers and a linear output.

    `init="normal"` draws weights from N(0, 0.1^2) with zero biases, as the Latent-ODE family does; `"uniform"`
    is the usual +-1/sqrt(fan in).
    """
    if init not in get_args(Init):
        raise ValueError(f"mlp(init={init!r}): choose from {', '.join(get_args(Init))}.")
    net = eqx.nn.MLP(size_in, size_out, width, hidden, activation, key=key)
    keys = jax.random.split(key, hidden + 1)
    layer = Linear if init == "uniform" else normal_linear
    sizes = [(size_in if i == 0 else width, size_out if i == hidden else width) for i in range(hidden + 1)]
    layers = tuple(layer(*size, key=k) for size, k in zip(sizes, keys, strict=True))
    return eqx.tree_at(lambda n: n.layers, net, layers)


def normal_linear(size_in: int, size_out: int, *, key: PRNGKeyArray) -> Linear:
    """A linear layer with weights from N(0, 0.1^2) and zero biases."""
    layer = Linear(size_in, size_out, key=key)
    new = (0.1 * jax.random.normal(key, layer.weight.shape), jnp.zeros(size_out))
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, new)


def scale_last(net: eqx.nn.MLP, factor: float) -> eqx.nn.MLP:
    """The same network with its last layer multiplied by `factor`."""
    where = lambda n: (n.layers[-1].weight, n.layers[-1].bias)  # noqa: E731
    return eqx.tree_at(where, net, tuple(factor * w for w in where(net)))
