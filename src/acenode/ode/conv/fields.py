"""Vector fields and residual blocks on feature maps (y, x, channels), for one sample."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...backend import backend
from ..solver import OnBatch
from .batch import OnMaps
from .layers import Conv, ConvPrecision, GroupNorm
from .products import PRODUCTS
from .steps import Columns

KERNELS_ON, PRODUCTS_ON = ("gpu",), ("cpu",)  # where a batch has which of them


class ConvField(eqx.Module):
    """Time-concatenated convolutions with group norm: GN, ReLU, Conv, GN[, ReLU, Conv, GN].

    `convs=2` is the function f of ODE-Net, `convs=1` the paper's light f'' with its second layer removed; more make a
    deeper one. Every convolution is 3 x 3 and sees one more channel, filled with t; `precision` is theirs (`Conv`).
    """

    norms: tuple[GroupNorm, ...]
    convs: tuple[Conv, ...]

    def __init__(self, channels: int, convs: int = 2, *, precision: ConvPrecision | None = None, key: PRNGKeyArray):
        if convs < 1:
            raise ValueError(f"ConvField(convs={convs}): at least 1.")
        self.norms = tuple(GroupNorm(channels) for _ in range(convs + 1))
        keys = jax.random.split(key, convs)
        self.convs = tuple(Conv(channels, channels, timed=True, precision=precision, key=k) for k in keys)

    def __call__(self, t: Float[Array, ""], h: Float[Array, "y x channels"]) -> Float[Array, "y x channels"]:
        for norm, conv in zip(self.norms[:-1], self.convs, strict=True):
            h = conv(jax.nn.relu(norm(h)), t)
        return self.norms[-1](h)

    def on_batch(self, h: Float[Array, "batch y x channels"]) -> OnBatch | None:
        """What can be done for a batch; None where there is nothing quicker than sample by sample."""
        return _on_batch((self,), h)

    def beside(self, other: "ConvField") -> "_Stacked | None":
        """This field and another as one, which answers with both derivatives: half as many, larger operations.

        None where their convolutions are of another kind or have not the same precision.
        """
        convs = (*self.convs, *other.convs)
        alike = all(type(conv) is Conv for conv in convs) and len({conv.precision for conv in convs}) == 1
        return _Stacked(self, other) if alike else None


class _Stacked(eqx.Module):
    """Two fields on the same state: the layers both have are stacked, those that only the deeper has follow."""

    f: ConvField
    g: ConvField

    def __call__(self, t, h):
        norms, convs = _stack(self.f.norms, self.g.norms), _stack(self.f.convs, self.g.convs)
        both = jax.vmap(lambda norm: norm(h))(norms[0])
        for norm, conv in zip(norms[1:], convs, strict=True):
            both = jax.vmap(lambda norm, conv, x: norm(conv(jax.nn.relu(x), t)))(norm, conv, both)
        g_deeper = len(self.g.convs) >= len(self.f.convs)
        field, deep = (self.g, both[1]) if g_deeper else (self.f, both[0])
        for norm, conv in zip(field.norms[len(norms) :], field.convs[len(convs) :], strict=True):
            deep = norm(conv(jax.nn.relu(deep), t))
        return (both[0], deep) if g_deeper else (deep, both[1])

    def on_batch(self, h):
        """As `ConvField.on_batch`."""
        return _on_batch((self.f, self.g), h)


def _stack(one, other):
    """The layers at the same place, stacked, as far as both go."""
    return tuple(jax.tree.map(lambda *both: jnp.stack(both), *layers) for layers in zip(one, other, strict=False))


def _on_batch(fields: tuple[ConvField, ...], h) -> OnBatch | None:
    """Fields for a batch; None where there is no quicker way for it than sample by sample."""
    groups = {norm.groups for field in fields for norm in field.norms if type(norm) is GroupNorm}
    if len(groups) != 1 or not all(_as_made(field, h.shape[-1]) for field in fields):
        return None
    (count,) = groups
    precisions = {conv.precision for field in fields for conv in field.convs}
    if precisions == {"float16"} and backend() in KERNELS_ON:
        try:
            from .block import columns  # slow to import
            from .gradient import KERNELS
        except ImportError:  # Pallas for Triton is deprecated since JAX 0.11
            return None
        room = columns(h, count)
        return None if room is None else OnMaps(fields, KERNELS, room)
    if len(precisions) != 1 or backend() not in PRODUCTS_ON:
        return None
    return OnMaps(fields, PRODUCTS, Columns.of(count, h.shape[-1] // count))


def _as_made(field: ConvField, channels: int) -> bool:
    """Whether the layers are those of `__init__`, and none was put in the place of another."""

    def timed(conv):
        shape = (channels, 3, 3, channels)
        whole = type(conv) is Conv and conv.clock is not None and conv.bias is not None
        return whole and conv.weight.shape == shape and (conv.stride, conv.padding) == (1, 1)

    def of_channels(norm):
        return type(norm) is GroupNorm and norm.affine.shape == (2, channels)

    as_many = len(field.norms) == len(field.convs) + 1
    return as_many and all(map(timed, field.convs)) and all(map(of_channels, field.norms))


class ResidualBlock(eqx.Module):
    """What a pre-activation residual block adds to its input: GN, ReLU, Conv, GN, ReLU, Conv, without biases."""

    norms: tuple[GroupNorm, GroupNorm]
    convs: tuple[Conv, Conv]

    def __init__(self, channels: int, *, precision: ConvPrecision | None = None, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.norms = (GroupNorm(channels), GroupNorm(channels))
        given = {"bias": False, "precision": precision}
        self.convs = (Conv(channels, channels, **given, key=one), Conv(channels, channels, **given, key=two))

    def __call__(self, h: Float[Array, "y x channels"]) -> Float[Array, "y x channels"]:
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(jax.nn.relu(norm(h)))
        return h
