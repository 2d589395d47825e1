"""What an image classifier has learned, and what its result file keeps of it: Table 5, Figure 5 and its attention.

Neither the paper nor its code says what its silhouette score and t-SNE were computed from. Here: from the vectors that
the last layer sees, on test images.
"""

import functools as ft
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import entr

from ..compiled import compiled
from ..models import ImageClassifier, Stem
from ..ode import CoEvolvingODE, Elementwise
from ..tasks import ImageClassification, LabelledImages
from .figures import rounded

CLUSTERS, RESTARTS = 10, 10
SAMPLES, PERPLEXITY = 2000, 30.0
_ROUNDING = 1e-12
_CLUSTERED, _CLUSTERED_MAPS, _EMBEDDED, _SUMMARISED, _DRAWN = 5000, 2000, 1000, 500, 6
_TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)

Images = Float[Array | np.ndarray, "images rows columns colours"]


# --- what a result file keeps --------------------------------------------------------------------------------


def silhouettes(model: ImageClassifier, task: ImageClassification, data: LabelledImages, test) -> dict[str, float]:
    """Table 5: of the clusters K-Means finds in the features of test images, and of their classes.

    The paper does not say which features: they are what the classifier reads, and beside them h(1) itself, of fewer.
    """
    some = _some(data, test, _CLUSTERED)
    label, found = np.asarray(some.label), features(model, some.images)
    pooled = silhouette(found.pooled, label, seed=0)
    maps = silhouette(found.maps[:_CLUSTERED_MAPS], label[:_CLUSTERED_MAPS], seed=0)
    return {
        "silhouette": pooled["kmeans"],
        "silhouette_classes": pooled["classes"],
        "silhouette_maps": maps["kmeans"],
        "silhouette_maps_classes": maps["classes"],
    }


def tsne(model: ImageClassifier, task: ImageClassification, data: LabelledImages, test) -> dict:
    """Figure 5: the features of some test images in the plane."""
    some = _some(data, test, _EMBEDDED)
    placed = embedding(features(model, some.images).pooled, seed=0)
    label = np.asarray(some.label)[placed.rows].tolist()
    return {"x": rounded(placed.places[:, 0], 2), "y": rounded(placed.places[:, 1], 2), "label": label}


def attention_maps(
    model: ImageClassifier,
    task: ImageClassification,
    data: LabelledImages,
    test,
    build: Callable[[Array], ImageClassifier] | None = None,
) -> dict:
    """phi(a(t)) over the places of the feature map, mean over the channels, for some test images.

    These are the first that the model takes for what they are, and the first that it takes for something else. With
    `build` their last maps by an untrained model too. Beside it, over more images: how it is spread, how far it moves,
    and whether it is more open on detail.
    """
    some = _some(data, test, _SUMMARISED)
    weights = attention_weights(model, some.images, _TIMES)
    places = weights.mean(axis=-1)
    summary = attention_summary(weights)
    label, said = np.asarray(some.label), predictions(model, some.images)
    right, wrong = np.flatnonzero(label == said)[: _DRAWN // 2], np.flatnonzero(label != said)[: _DRAWN // 2]
    chosen = np.concatenate([right, wrong])
    kept = {
        "times": list(_TIMES),
        "maps": rounded(places[chosen], 4),
        "drawn": chosen.tolist(),
        "label": label[chosen].tolist(),
        "said": said[chosen].tolist(),
        **{name: rounded(summary[name], 4) for name in ("mean", "spread", "entropy", "moved", "same_for_all")},
        "on_detail": rounded(_on_detail(model, some, places, label >= 0), 4),
        "on_detail_right": rounded(_on_detail(model, some, places, label == said), 4),
        "on_detail_wrong": rounded(_on_detail(model, some, places, label != said), 4),
    }
    if build is not None:
        untrained = attention_weights(build(jax.random.key(0)), some.images, _TIMES)
        kept["untrained"] = rounded(untrained[chosen].mean(axis=-1)[:, -1], 4)
        kept["untrained_on_detail"] = rounded(_on_detail(model, some, untrained.mean(axis=-1), label >= 0), 4)
    return kept


def _on_detail(model: ImageClassifier, some: LabelledImages, places, which) -> np.ndarray:
    """How much more open the attention is where the images have more contrast, at each time."""
    if not which.any():
        return np.full(places.shape[1], np.nan)
    detail = attention_by(places[which], cells(model, np.asarray(some.images)[which]).contrast)
    return np.subtract(detail["high"], detail["low"])


def _some(data: LabelledImages, test, count: int) -> LabelledImages:
    chosen = np.asarray(test)[:count]
    return LabelledImages(jnp.asarray(data.pixels)[chosen], jnp.asarray(data.label)[chosen])


# --- features ---------------------------------------------------------------------------------------------------


class Features(NamedTuple):
    """What a model makes of each image: the vector that its last layer sees, and all of h(1) as one vector."""

    pooled: Float[np.ndarray, "images width"]
    maps: Float[np.ndarray, "images numbers"]


def features(model: ImageClassifier, images: Images, batch: int = 100) -> Features:
    """The features of images, `batch` of them at a time.

    `pooled` is h(1) after group norm and ReLU, averaged over the map; `maps` is h(1) itself, flattened.
    """
    return Features(*_in_batches("features", ft.partial(_ask_features, model), images, batch))


@compiled
def _ask_features(model: ImageClassifier, images):
    path = model.path(images, jnp.array([0.0, 1.0]), attention=False)
    h = path.finite[:, -1]
    return (jax.vmap(model._pooled)(h), h.reshape(len(images), -1)), path.stats


def _in_batches(name: str, ask: Callable, images, batch: int) -> tuple[np.ndarray, ...]:
    """`ask` for some images at a time, always as many, so that one program serves them all; arrays and stats."""
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"{name}: the images are {images.dtype}; give numbers from 0 to 1, e.g. LabelledImages(...).images."
        )
    if batch < 1 or len(images) == 0:
        raise ValueError(f"{name}: {len(images)} images in batches of {batch}; give at least one image and batch >= 1.")
    size = min(batch, len(images))
    parts = []
    for first in range(0, len(images), size):
        rows = np.minimum(np.arange(first, first + size), len(images) - 1)
        answers, stats = ask(jnp.asarray(images[rows]))
        failed = np.flatnonzero(stats.failed)
        if failed.size:
            why = stats.message(int(failed[0]))
            raise ValueError(f"{name}: the solve failed for image {rows[failed[0]]} (counted from 0): {why}")
        parts.append([np.asarray(x)[: len(images) - first] for x in answers])
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


# --- clusters ---------------------------------------------------------------------------------------------------


def silhouette(
    features: Float[np.ndarray, "images numbers"],
    labels: Int[np.ndarray, " images"],
    seed: int,
    clusters: int = CLUSTERS,
) -> dict[str, float]:
    """Silhouette scores, from -1 to 1, Euclidean: `kmeans` of the clusters K-Means finds, `classes` of the true ones.

    The paper's Table 5 is the first, which tells how well the features fall into clusters of any meaning; the second
    tells how well they fall into the classes. K-Means starts `RESTARTS` times and keeps its best.
    """
    from sklearn.cluster import KMeans  # slow to import
    from sklearn.metrics import silhouette_score

    points = features.astype(float)  # of other numbers scikit-learn makes these for every distance it takes
    means = KMeans(clusters, n_init=RESTARTS, random_state=seed)  # pyright: ignore[reportArgumentType]
    found = means.fit_predict(points)
    return {
        "kmeans": float(silhouette_score(points, found)),
        "classes": float(silhouette_score(points, labels)),
    }


class Embedding(NamedTuple):
    """Some samples in the plane: which they are, and where they lie."""

    rows: Int[np.ndarray, " some"]
    places: Float[np.ndarray, "some 2"]


def embedding(features: Float[np.ndarray, "images numbers"], seed: int, samples: int = SAMPLES) -> Embedding:
    """t-SNE of `samples` of the vectors, chosen at random, or of all if there are fewer: PCA start, perplexity 30."""
    from sklearn.manifold import TSNE

    if len(features) <= PERPLEXITY:
        raise ValueError(
            f"embedding: {len(features)} vectors; t-SNE with perplexity {PERPLEXITY:g} needs more of them."
        )
    rows = np.sort(np.random.default_rng(seed).permutation(len(features))[:samples])
    placed = TSNE(perplexity=PERPLEXITY, init="pca", random_state=seed).fit_transform(features[rows])
    return Embedding(rows, placed)


# --- attention --------------------------------------------------------------------------------------------------


def attention_weights(
    model: ImageClassifier, images: Images, times: Sequence[float] | np.ndarray, *, batch: int = 100
) -> Float[np.ndarray, "images times y x channels"]:
    """phi(a(t)) of every element of the feature map (Equation 5), at `times` from 0 on."""
    attention = _elementwise(model)
    queried = np.asarray(times, float)
    if queried.ndim != 1 or queried.size == 0 or queried[0] != 0:
        raise ValueError(f"attention_weights(times={times}): the images stand at time 0, so the first time must be 0.")
    ask = ft.partial(_ask_weights, model, attention, jnp.asarray(queried))
    return _in_batches("attention_weights", ask, images, batch)[0]


def _elementwise(model: ImageClassifier) -> Elementwise:
    ode = model.ode
    if isinstance(ode, CoEvolvingODE) and isinstance(ode.attention, Elementwise):
        return ode.attention
    raise ValueError(
        f"attention_weights: the model's ODE is {type(ode).__name__}, which has no elementwise attention; give a model "
        "whose ODE is a CoEvolvingODE with Elementwise() attention."
    )


def predictions(model: ImageClassifier, images: Images, batch: int = 100) -> Int[np.ndarray, " images"]:
    """The class that a model takes each image for."""
    return _in_batches("predictions", ft.partial(_ask_classes, model), images, batch)[0]


@compiled
def _ask_classes(model: ImageClassifier, images):
    verdict = model(images)
    return (jnp.argmax(verdict.logits, axis=-1),), verdict.stats


@compiled
def _ask_weights(model: ImageClassifier, attention: Elementwise, times, images):
    path = model.path(images, times)
    assert path.a is not None  # of such an ODE
    return (attention.weights(path.a),), path.stats


def attention_summary(weights: Float[np.ndarray, "images times y x channels"]) -> dict[str, list[float]]:
    """How phi(a(t)) is spread and how it moves; each entry has one number a time.

    - `mean`, `spread` (standard deviation) and the quantiles `q05` to `q95` of all elements;
    - `entropy`: the mean of the binary entropy of phi in bits; 1 where all gates are half open, 0 where each is open
      or closed;
    - `over_channels` and `over_places`: the standard deviation over the channels of a place, and over the places of an
      image after averaging over channels;
    - `same_for_all`: the part of the variance over places that is one pattern for all images;
    - `moved` and `places_moved`: the mean of |phi(a(t)) - phi(a(0))| of the elements, and of the means over channels.
    """
    everything = (0, 2, 3, 4)
    places = weights.mean(axis=-1)
    varied = places - places.mean(axis=(2, 3), keepdims=True)
    entropy = (entr(weights) + entr(1 - weights)) / np.log(2)
    total = np.square(varied).mean(axis=(0, 2, 3))
    quantiles = np.quantile(weights, [0.05, 0.25, 0.5, 0.75, 0.95], axis=everything)
    figures = {
        "mean": weights.mean(axis=everything),
        "spread": weights.std(axis=everything),
        **dict(zip(("q05", "q25", "q50", "q75", "q95"), quantiles, strict=True)),
        "entropy": entropy.mean(axis=everything),
        "over_channels": weights.std(axis=-1).mean(axis=(0, 2, 3)),
        "over_places": places.std(axis=(2, 3)).mean(axis=0),
        "same_for_all": np.square(varied.mean(axis=0)).mean(axis=(1, 2)) / np.where(total > 0, total, 1.0),
        "moved": np.abs(weights - weights[:, :1]).mean(axis=everything),
        "places_moved": np.abs(places - places[:, :1]).mean(axis=(0, 2, 3)),
    }
    return {name: np.asarray(value, float).tolist() for name, value in figures.items()}


# --- where on the image -----------------------------------------------------------------------------------------


def cell_edges(model: ImageClassifier, size: int) -> Float[np.ndarray, " edges"]:
    """Where the cells of the feature map lie along one axis of an image of `size` pixels; pixel i is from i to i + 1.

    A cell sees more than its own square: the squares are as wide as the stem's stride, around what each sees.
    """
    if not isinstance(model.stem, Stem):
        raise ValueError(f"cell_edges: the model's stem is {type(model.stem).__name__}; only a Stem's cells are known.")
    middle, step = 0.5, 1
    for conv in model.stem.convs:
        kernel = conv.weight.shape[1]
        middle += step * ((kernel - 1) / 2 - conv.padding)
        step *= conv.stride
        size = (size + 2 * conv.padding - kernel) // conv.stride + 1
    return middle + step * (np.arange(size + 1) - 0.5)


class Cells(NamedTuple):
    """What the image shows under each cell of the feature map: mean and standard deviation of its grey."""

    brightness: Float[np.ndarray, "images y x"]
    contrast: Float[np.ndarray, "images y x"]


def cells(model: ImageClassifier, images: Images) -> Cells:
    """Brightness and contrast of the images under each cell of the feature map; colours are averaged."""
    grey = np.asarray(images, float).mean(axis=-1)
    edges = [np.clip(np.round(cell_edges(model, n)), 0, n).astype(int) for n in grey.shape[1:]]

    def average(x):
        for axis, ends in enumerate(edges, 1):
            x = np.stack([x.take(range(*both), axis=axis).mean(axis=axis) for both in pairwise(ends)], axis=axis)
        return x

    brightness = average(grey)
    return Cells(brightness, np.sqrt(np.maximum(average(np.square(grey)) - np.square(brightness), 0.0)))


def attention_by(
    attention: Float[np.ndarray, "images times y x"], quantity: Float[np.ndarray, "images y x"]
) -> dict[str, list[float]]:
    """How the attention goes with a quantity of the places, such as one of `cells`; each entry has one number a time.

    - `high` and `low`: the mean attention where the quantity is above and below its mean over the image. With contrast
      on MNIST these are the strokes and what is around them.
    - `correlation` of the two over the places of an image, averaged over images.
    - `own_correlation`: the same after subtracting from both their mean over all images at the place, so that only
      what differs between images counts, and not that objects are in the middle.
    """
    attention = attention.astype(float)
    quantity = np.broadcast_to(quantity[:, None], attention.shape)
    over = quantity - quantity.mean(axis=(2, 3), keepdims=True)
    figures = {
        "high": (attention * (over > 0)).sum(axis=(0, 2, 3)) / np.maximum((over > 0).sum(axis=(0, 2, 3)), 1),
        "low": (attention * (over <= 0)).sum(axis=(0, 2, 3)) / np.maximum((over <= 0).sum(axis=(0, 2, 3)), 1),
        "correlation": _correlation(attention, quantity),
        "own_correlation": _correlation(attention - attention.mean(axis=0), quantity - quantity.mean(axis=0)),
    }
    return {name: np.asarray(value, float).tolist() for name, value in figures.items()}


def _correlation(x, y) -> np.ndarray:
    """Over the places of each image, averaged over images; 0 for an image without any variation."""
    x, y = (z - z.mean(axis=(2, 3), keepdims=True) for z in (x, y))
    size = np.sqrt(np.square(x).sum(axis=(2, 3)) * np.square(y).sum(axis=(2, 3)))
    return np.where(size > _ROUNDING, (x * y).sum(axis=(2, 3)) / np.maximum(size, _ROUNDING), 0.0).mean(axis=0)
