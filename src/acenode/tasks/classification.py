"""Classes: of a series (two or more), of every point of a series, and of an image."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from ..layers import mlp
from ..models.image import ImageClassifier
from ..models.trace import Trace
from ..series import Query, Series
from .heads import Headed
from .metrics import average_precision, calibration_error, roc_auc
from .reconstruction import negative_elbo
from .task import Report, trace_attention

ReadFrom = Literal["start", "end"]


# --- two classes, beside reconstruction -----------------------------------------------------------------------


class LabelledQuery(eqx.Module):
    """A query of each series, and its label (0 or 1)."""

    query: Query
    label: Float[Array | np.ndarray, " batch"]


class ClassificationHead(eqx.Module):
    """A decoder for the states and a network with two hidden layers for the label."""

    decoder: Callable
    classifier: eqx.nn.MLP

    def __init__(self, decoder: Callable, summary: int, width: int = 300, *, key: PRNGKeyArray):
        self.decoder = decoder
        self.classifier = mlp(summary, 1, width, 2, jax.nn.relu, key=key)


@dataclass(frozen=True)
class BinaryClassification:
    """A binary label for each series, with the reconstruction loss of the Latent-ODE family beside it.

    Loss: `label_weight * cross entropy` plus the negative evidence lower bound (`reconstruction.negative_elbo`).

    `read` says where the label is read: `start` is z(0), as published, so the generative ODE is not on the way to the
    label; `end` is the state at the last query time, which puts it there.

    `hide` is the part of the variables of each series that is hidden from the model while it trains, drawn anew at
    every step.

    Metrics: `auc` of the mean probability over the samples, `auprc`, `calibration`, `cross_entropy`.
    """

    read: ReadFrom = "start"
    label_weight: float = 100.0
    noise: float = 0.01
    kl_from: int = 10
    hide: float = 0.0
    monitor: str = "auc"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: Headed, batch: LabelledQuery, key, epoch):
        trace = model.model(hide_variables(batch.query.context, self.hide, key), batch.query.times, key)
        solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
        bound = negative_elbo(model.head, batch.query, trace, epoch, self.noise, self.kl_from)
        logit = self._logits(model, trace)
        entropy = jax.nn.softplus(logit) - batch.label * logit
        return self.label_weight * _mean(entropy, solved) + bound, Report.of(trace.stats)

    def first_states(self, model: Headed, batch: LabelledQuery, key):
        trace = model.model(batch.query.context, batch.query.times, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def attention_path(self, model: Headed, batch: LabelledQuery, key):
        return trace_attention(model.model(batch.query.context, batch.query.times, key, attention=True))

    def outputs(self, model: Headed, batch: LabelledQuery, key):
        """The probability of the label, averaged over the samples of the model."""
        trace = model.model(batch.query.context, batch.query.times, key)
        trace = trace.mask_failed() if self.read == "end" else trace  # z(0) does not depend on the solve
        return jnp.mean(jax.nn.sigmoid(self._logits(model, trace)), axis=0)

    def metrics(self, outputs, batch: LabelledQuery, weight) -> dict[str, Array]:
        p, y = outputs, jnp.asarray(batch.label)
        safe = jnp.clip(p, 1e-7, 1 - 1e-7)
        entropy = -(y * jnp.log(safe) + (1 - y) * jnp.log(1 - safe))
        return {
            "auc": roc_auc(p, y, weight),
            "auprc": average_precision(p, y, weight),
            "calibration": calibration_error(p, y, weight),
            "cross_entropy": _weighted(entropy, weight),
        }

    def _logits(self, model: Headed, trace: Trace) -> Float[Array, "samples batch"]:
        features = trace.summary if self.read == "start" else trace.states[:, :, -1]
        return jax.vmap(jax.vmap(model.head.classifier))(features)[..., 0]


def hide_variables(series: Series, part: float, key: PRNGKeyArray) -> Series:
    """The series, each as if a random `part` of its variables had never been measured; as they are for a part of 0."""
    if not part:
        return series
    batch, _, variables = series.observed.shape
    left = series.observed & jax.random.bernoulli(jax.random.fold_in(key, 1), 1 - part, (batch, 1, variables))
    return eqx.tree_at(lambda s: (s.values, s.observed), series, (jnp.where(left, series.values, 0.0), left))


# --- several classes of a series ------------------------------------------------------------------------------


class LabelledSeries(eqx.Module):
    """Series and the class of each, a number from 0."""

    series: Series
    label: Int[Array | np.ndarray, " batch"]


@dataclass(frozen=True)
class SeriesClassification:
    """Cross entropy of the class, from the summary of the series, plus `penalty` times the model's own penalty.

    Metrics: `accuracy`, `cross_entropy`. A model that samples answers with the mean probability.
    """

    penalty: float = 0.01
    monitor: str = "cross_entropy"
    better: Literal["lower", "higher"] = "lower"

    def loss(self, model: Headed, batch: LabelledSeries, key, epoch):
        trace = self._trace(model, batch.series, key)
        solved = ~trace.stats.failed.reshape(trace.summary.shape[:2])
        each = -jnp.take_along_axis(self._logs(model, trace), jnp.asarray(batch.label)[None, :, None], axis=2)[..., 0]
        return _mean(each, solved) + self.penalty * jnp.mean(trace.penalty), Report.of(trace.stats)

    def first_states(self, model: Headed, batch: LabelledSeries, key):
        trace = self._trace(model, batch.series, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def attention_path(self, model: Headed, batch: LabelledSeries, key):
        return trace_attention(model.model(batch.series, jnp.asarray(batch.series.times), key, attention=True))

    def outputs(self, model: Headed, batch: LabelledSeries, key) -> Float[Array, "batch classes"]:
        """The probability of each class."""
        return jnp.mean(jnp.exp(self._logs(model, self._trace(model, batch.series, key).mask_failed())), axis=0)

    def metrics(self, outputs, batch: LabelledSeries, weight) -> dict[str, Array]:
        label = jnp.asarray(batch.label)
        return {
            "accuracy": _weighted(jnp.argmax(outputs, axis=-1) == label, weight),
            "cross_entropy": _weighted(_cross_entropy(outputs, label), weight),
        }

    def _trace(self, model: Headed, series: Series, key):
        return model.model(series, jnp.asarray(series.times)[:, -1:], key)

    def _logs(self, model: Headed, trace) -> Float[Array, "samples batch classes"]:
        return jax.nn.log_softmax(jax.vmap(jax.vmap(model.head))(trace.summary), axis=-1)


# --- a class of every point -----------------------------------------------------------------------------------


class LabelledPoints(eqx.Module):
    """Series, the class of each of their rows, and which rows have one."""

    series: Series
    label: Int[Array | np.ndarray, "batch rows"]
    labelled: Bool[Array | np.ndarray, "batch rows"]


@dataclass(frozen=True)
class PointClassification:
    """Cross entropy of the class of each labelled row, read from the state at its time.

    Metrics over the labelled rows: `accuracy`; `auc`, the mean over the classes of the area under the curve of one
    against the rest, of those that have one; `cross_entropy`. A model that samples answers with the mean probability.
    `penalty` is the weight of the model's own penalty; the published runs leave it out.
    """

    penalty: float = 0.0
    monitor: str = "accuracy"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: Headed, batch: LabelledPoints, key, epoch):
        trace = self._trace(model, batch, key)
        solved = ~trace.stats.failed.reshape(trace.states.shape[:2])
        label = jnp.broadcast_to(jnp.asarray(batch.label), trace.states.shape[:3])
        each = -jnp.take_along_axis(self._logs(model, trace), label[..., None], axis=-1)[..., 0]
        value = _mean(each, solved[..., None] & jnp.asarray(batch.labelled))
        return value + self.penalty * jnp.mean(trace.penalty), Report.of(trace.stats)

    def first_states(self, model: Headed, batch: LabelledPoints, key):
        trace = self._trace(model, batch, key)
        return None if trace.h0 is None else (trace.h0, trace.times)

    def attention_path(self, model: Headed, batch: LabelledPoints, key):
        return trace_attention(model.model(batch.series, jnp.asarray(batch.series.times), key, attention=True))

    def outputs(self, model: Headed, batch: LabelledPoints, key) -> Float[Array, "batch rows classes"]:
        """The probability of each class at each row."""
        return jnp.mean(jnp.exp(self._logs(model, self._trace(model, batch, key).mask_failed())), axis=0)

    def metrics(self, outputs, batch: LabelledPoints, weight) -> dict[str, Array]:
        classes = outputs.shape[-1]
        counts = (jnp.asarray(batch.labelled) * weight[:, None]).reshape(-1)
        label, p = jnp.asarray(batch.label).reshape(-1), outputs.reshape(-1, classes)
        one_hot = jax.nn.one_hot(label, classes)
        return {
            "accuracy": _weighted(jnp.argmax(p, axis=-1) == label, counts),
            "auc": jnp.nanmean(jax.vmap(roc_auc, in_axes=(1, 1, None))(p, one_hot, counts)),
            "cross_entropy": _weighted(_cross_entropy(p, label), counts),
        }

    def _trace(self, model: Headed, batch: LabelledPoints, key):
        return model.model(batch.series, jnp.asarray(batch.series.times), key)

    def _logs(self, model: Headed, trace) -> Float[Array, "samples batch rows classes"]:
        return jax.nn.log_softmax(jax.vmap(jax.vmap(jax.vmap(model.head)))(trace.states), axis=-1)


# --- images ---------------------------------------------------------------------------------------------------


class LabelledImages(eqx.Module):
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
    places = jnp.array([height, width]) + 2 * padding - size + 1
    corners = jax.random.randint(key, (batch, 2), 0, places)

    def cut(image, corner):
        return jax.lax.dynamic_slice(image, (*corner, 0), (size, size, channels))

    return jax.vmap(cut)(padded, corners)


def random_flips(images: Float[Array, "batch y x channels"], key) -> Float[Array, "batch y x channels"]:
    """Each image as it is or, as often, mirrored left to right."""
    mirrored = jax.random.bernoulli(key, shape=(len(images), 1, 1, 1))
    return jnp.where(mirrored, images[:, :, ::-1], images)


def random_cutouts(images: Float[Array, "batch y x channels"], key, size: int) -> Float[Array, "batch y x channels"]:
    """Each image with zeros in a `size` x `size` square around a random pixel; what of it lies outside is lost."""
    batch, height, width, _ = images.shape
    first = jax.random.randint(key, (batch, 2), 0, jnp.array([height, width])) - size // 2
    rows, columns = (jnp.arange(n) - first[:, axis, None] for axis, n in enumerate((height, width)))
    inside = ((0 <= rows) & (rows < size))[:, :, None] & ((0 <= columns) & (columns < size))[:, None, :]
    return jnp.where(inside[..., None], 0.0, images)


@dataclass(frozen=True)
class ImageClassification:
    """The class of each image; training sees random crops of the padded image, evaluation the image itself.

    Loss: mean cross entropy, to labels of which the part `smoothing` is spread over all classes. Metrics: `accuracy`, a
    part of one, in which an image whose solve failed counts as wrong; `cross_entropy`; `nfe`, evaluations of the vector
    field in the forward pass.

    `crop` is the size of the crops, that of the images by default; the published CIFAR10 runs cut to 28, tested on 32.
    With `flip` half of them are mirrored left to right. `cutout` is the side of a square that is blackened in each
    (DeVries and Taylor, 2017).
    """

    crop: int | None = None
    padding: int = 4
    flip: bool = False
    cutout: int = 0
    smoothing: float = 0.0
    monitor: str = "accuracy"
    better: Literal["lower", "higher"] = "higher"

    def loss(self, model: ImageClassifier, batch: LabelledImages, key, epoch):
        images = random_crops(batch.images, key, self.crop or batch.pixels.shape[1], self.padding)
        if self.flip:
            images = random_flips(images, jax.random.fold_in(key, 1))
        if self.cutout:
            images = random_cutouts(images, jax.random.fold_in(key, 2), self.cutout)
        verdict = model(images)
        label, classes = jnp.asarray(batch.label), verdict.logits.shape[-1]
        if self.smoothing:
            smooth = optax.smooth_labels(jax.nn.one_hot(label, classes), self.smoothing)
            each = optax.softmax_cross_entropy(verdict.logits, smooth)
        else:
            each = optax.softmax_cross_entropy_with_integer_labels(verdict.logits, label)
        return _mean(each, ~verdict.stats.failed), Report.of(verdict.stats)

    def first_states(self, model: ImageClassifier, batch: LabelledImages, key):
        return jax.vmap(model.stem)(batch.images), jnp.array([0.0, 1.0])

    def attention_path(self, model: ImageClassifier, batch: LabelledImages, key):
        path = model.path(batch.images, jnp.linspace(0.0, 1.0, 4))
        assert path.a is not None
        return path.h, path.a

    def outputs(self, model: ImageClassifier, batch: LabelledImages, key) -> tuple[Array, Bool[Array, " batch"], Array]:
        """Logits, whether the solve failed, and evaluations of the vector field."""
        verdict = model(batch.images)
        return verdict.logits, verdict.stats.failed, verdict.stats.evaluations

    def metrics(self, outputs, batch: LabelledImages, weight) -> dict[str, Array]:
        logits, failed, evaluations = outputs
        label = jnp.asarray(batch.label)
        return {
            "accuracy": _weighted((jnp.argmax(logits, axis=-1) == label) & ~failed, weight),
            "cross_entropy": _weighted(optax.softmax_cross_entropy_with_integer_labels(logits, label), weight),
            "nfe": _weighted(evaluations, weight),
        }


# --- means ----------------------------------------------------------------------------------------------------


def _mean(each: Array, counts: Bool[Array, "..."]) -> Float[Array, ""]:
    """The mean of what counts, whatever stands elsewhere; 0 of nothing."""
    return jnp.sum(jnp.where(counts, each, 0.0)) / jnp.maximum(counts.sum(), 1)


def _weighted(each: Array, weight: Float[Array, " samples"]) -> Float[Array, ""]:
    return jnp.sum(each * weight) / jnp.maximum(weight.sum(), 1)


def _cross_entropy(p: Float[Array, "samples classes"], label: Int[Array, " samples"]) -> Float[Array, " samples"]:
    return -jnp.log(jnp.maximum(jnp.take_along_axis(p, label[:, None], axis=1)[:, 0], 1e-7))
