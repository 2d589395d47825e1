"""A class for each image."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Num

from ..models.image import ImageClassifier
from .task import Report


class Pictures(eqx.Module):
    """Images as stored, whole numbers from 0 to 255, and their classes."""

    pixels: Num[Array | np.ndarray, "batch y x channels"]
    label: Int[Array | np.ndarray, " batch"]

    @property
    def images(self) -> Float[Array, "batch y x channels"]:
        """From 0 to 1, as the models see them."""
        return jnp.asarray(self.pixels, float) / 255.0


def random_crops(images: Float[Array, "batch y x channels"], key, size: int, padding: int = 4) -> Float[Array, "..."]:
    """Each image with `padding` zeros around it, cut to `size` x `size` at a random place."""
    batch, height, width, channels = images.shape
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rooms = jnp.array([height, width]) + 2 * padding - size + 1
    corners = jax.random.randint(key, (batch, 2), 0, rooms)

    def cut(image, corner):
        return jax.lax.dynamic_slice(image, (*corner, 0), (size, size, channels))

    return jax.vmap(cut)(padded, corners)


@dataclass(frozen=True)
class LabelImages:
    """The class of each image; training sees random crops of the padded image, evaluation the image itself.

    Loss: mean cross entropy. Metrics: `accuracy`, a part of one, in which an image whose solve failed counts as wrong;
    `cross_entropy`; `nfe`, evaluations of the vector field in the forward pass.

    `crop` is the size of the crops, that of the images by default; the published CIFAR10 runs cut to 28, tested on 32.
    """

    crop: int | None = None
    padding: int = 4
    monitor: str = "accuracy"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: ImageClassifier, batch: Pictures, key, epoch):
        images = random_crops(batch.images, key, self.crop or batch.pixels.shape[1], self.padding)
        verdict = model(images)
        solved = ~verdict.stats.failed
        each = optax.softmax_cross_entropy_with_integer_labels(verdict.logits, jnp.asarray(batch.label))
        value = jnp.sum(jnp.where(solved, each, 0.0)) / jnp.maximum(solved.sum(), 1)
        return value, Report.of(verdict.stats)

    def first_states(self, model: ImageClassifier, batch: Pictures, key):
        return jax.vmap(model.stem)(batch.images), jnp.array([0.0, 1.0])

    def outputs(self, model: ImageClassifier, batch: Pictures, key) -> tuple[Array, Bool[Array, " batch"], Array]:
        """Logits, whether the solve failed, and evaluations of the vector field."""
        verdict = model(batch.images)
        return verdict.logits, verdict.stats.failed, verdict.stats.evaluations

    def metrics(self, outputs, batch: Pictures, weight) -> dict[str, Array]:
        logits, failed, evaluations = outputs
        label = jnp.asarray(batch.label)
        right = (jnp.argmax(logits, axis=-1) == label) & ~failed
        entropy = optax.softmax_cross_entropy_with_integer_labels(logits, label)

        def average(each):
            return jnp.sum(each * weight) / jnp.maximum(weight.sum(), 1)

        return {"accuracy": average(right), "cross_entropy": average(entropy), "nfe": average(evaluations)}
