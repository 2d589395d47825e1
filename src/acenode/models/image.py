"""Image classifiers: a stem of convolutions, an ODE on the feature map, a linear head.

Which ODE is the whole difference between ResNet, RKNet, ODE-Net, Augmented-ODE-Net and ACE-ODE-Net.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..layers import Linear
from ..ode import Conv, GroupNorm, Path, Stats
from ..ode.conv.layers import ConvPrecision


class Stem(eqx.Module):
    """An image to a feature map of a quarter of its size: Conv 3x3, GN, ReLU, Conv 4x4/2, GN, ReLU, Conv 4x4/2.

    `padding` is that of the first convolution: the paper's tables show 0 for MNIST (6 x 6 maps), 1 for the others.
    `precision` is that of the convolutions (`Conv`).
    """

    convs: tuple[Conv, Conv, Conv]
    norms: tuple[GroupNorm, GroupNorm]

    def __init__(
        self,
        channels: int,
        width: int = 64,
        padding: int = 1,
        *,
        precision: ConvPrecision | None = None,
        key: PRNGKeyArray,
    ):
        one, two, three = jax.random.split(key, 3)
        self.convs = (
            Conv(channels, width, 3, padding=padding, precision=precision, key=one),
            Conv(width, width, 4, stride=2, precision=precision, key=two),
            Conv(width, width, 4, stride=2, precision=precision, key=three),
        )
        self.norms = (GroupNorm(width), GroupNorm(width))

    def __call__(self, image: Float[Array, "y x channels"]) -> Float[Array, "v u width"]:
        x = self.convs[0](image)
        for norm, conv in zip(self.norms, self.convs[1:], strict=True):
            x = conv(jax.nn.relu(norm(x)))
        return x


class Verdict(eqx.Module):
    """What an image classifier answers for a batch."""

    logits: Float[Array, "batch classes"]
    features: Float[Array, "batch width"]  # the pooled vector that the last layer sees
    stats: Stats


class ImageClassifier(eqx.Module):
    """`stem`, then `ode` from time 0 to 1, then the head on h(1): GN, ReLU, average over the map, linear.

    `width` is the number of channels of the ODE's answer, which an `AugmentedODE` makes larger than the stem's.
    """

    stem: Callable
    ode: Callable
    norm: GroupNorm
    linear: Linear

    def __init__(self, stem: Callable, ode: Callable, width: int, classes: int = 10, *, key: PRNGKeyArray):
        self.stem, self.ode = stem, ode
        self.norm = GroupNorm(width)
        self.linear = Linear(width, classes, key=key)

    def __call__(self, images: Float[Array, "batch y x channels"]) -> Verdict:
        path = self.path(images, jnp.array([0.0, 1.0]), attention=False)
        features = jax.vmap(self._pooled)(path.finite[:, -1])
        return Verdict(jax.vmap(self.linear)(features), features, path.stats)

    def path(self, images: Float[Array, "batch y x channels"], times: Array, *, attention: bool = True) -> Path:
        """The feature map, and the attention beside it, at the given times from 0 to 1."""
        return self.ode(jax.vmap(self.stem)(images), times, attention=attention)

    def _pooled(self, h):
        return jnp.mean(jax.nn.relu(self.norm(h)), axis=(0, 1))
