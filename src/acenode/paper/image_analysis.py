"""What an image classifier has learned: clusters of its features, and its attention over time.

Neither the paper nor its code says what its silhouette score and t-SNE were computed from. Here: from the vectors that
the last layer sees, on test images.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..models import ImageClassifier
from ..ode import CoEvolvingODE, Elementwise
from ..ode.solve import sentence
from ..train.fit import load_best as load_best

CLUSTERS, RESTARTS = 10, 10
SAMPLES, PERPLEXITY = 2000, 30.0

Images = Float[Array | np.ndarray, "images y x channels"]


# --- features ---------------------------------------------------------------------------------------------------


def features(
    model: ImageClassifier, images: Images, *, batch: int = 250, kind: Literal["pooled", "map"] = "pooled"
) -> Float[np.ndarray, "images numbers"]:
    """A vector for each image, `batch` images at a time.

    `pooled` is what the last layer sees: h(1) after group norm and ReLU, averaged over the map. `map` is all of h(1).
    """
    ask = {"pooled": _ask_pooled, "map": _ask_map}
    if kind not in ask:
        raise ValueError(f"features(kind={kind!r}): choose from {', '.join(ask)}.")
    return _in_batches("features", lambda some: ask[kind](model, some), images, batch)


@eqx.filter_jit
def _ask_pooled(model: ImageClassifier, images):
    verdict = model(images)
    return verdict.features, verdict.stats.status


@eqx.filter_jit
def _ask_map(model: ImageClassifier, images):
    path = model.path(images, jnp.array([0.0, 1.0]), attention=False)
    return path.h[:, -1].reshape(len(images), -1), path.stats.status


def _in_batches(name: str, ask: Callable, images, batch: int) -> np.ndarray:
    """`ask` for some images at a time, always as many, so that one program serves them all."""
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(f"{name}: the images are {images.dtype}; give numbers from 0 to 1, e.g. Pictures(...).images.")
    if batch < 1 or len(images) == 0:
        raise ValueError(f"{name}: {len(images)} images in batches of {batch}; give at least one image and batch >= 1.")
    size = min(batch, len(images))
    parts = []
    for first in range(0, len(images), size):
        rows = np.minimum(np.arange(first, first + size), len(images) - 1)
        answer, status = (np.asarray(x)[: len(images) - first] for x in ask(jnp.asarray(images[rows])))
        if status.any():
            row = int(np.flatnonzero(status)[0])
            raise ValueError(f"{name}: the solve failed for image {first + row}: {sentence(status[row])}")
        parts.append(answer)
    return np.concatenate(parts)


# --- clusters ---------------------------------------------------------------------------------------------------


def silhouette(
    features: Float[np.ndarray, "images numbers"],
    labels: Int[np.ndarray, " images"],
    seed: int,
    clusters: int = CLUSTERS,
) -> dict[str, float]:
    """Silhouette scores, from -1 to 1, Euclidean: `kmeans` of the clusters K-Means finds, `classes` of the true classes.

    The paper's Table 5 is the first, which tells how well the features fall into clusters of any meaning; the second
    tells how well they fall into the classes. K-Means starts `RESTARTS` times and keeps its best.
    """
    with _scikit_learn():
        from sklearn.cluster import KMeans
        from sklearn.metrics import silhouette_score
    found = KMeans(clusters, n_init=RESTARTS, random_state=seed).fit_predict(features)
    return {
        "kmeans": float(silhouette_score(features, found)),
        "classes": float(silhouette_score(features, labels)),
    }


class Embedding(NamedTuple):
    """Some samples in the plane: which they are, and where they lie."""

    rows: Int[np.ndarray, " some"]
    places: Float[np.ndarray, "some 2"]


def embedding(features: Float[np.ndarray, "images numbers"], seed: int, samples: int = SAMPLES) -> Embedding:
    """t-SNE of `samples` of the vectors, chosen at random, or of all where there are fewer: PCA start, perplexity 30."""
    with _scikit_learn():
        from sklearn.manifold import TSNE
    if len(features) <= PERPLEXITY:
        raise ValueError(
            f"embedding: {len(features)} vectors; t-SNE with perplexity {PERPLEXITY:g} needs more of them."
        )
    rows = np.sort(np.random.default_rng(seed).permutation(len(features))[:samples])
    placed = TSNE(perplexity=PERPLEXITY, init="pca", random_state=seed).fit_transform(features[rows])
    return Embedding(rows, placed)


class _scikit_learn:
    """Says what to install where scikit-learn is missing."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, ModuleNotFoundError):
            raise ModuleNotFoundError("This needs scikit-learn: pip install 'acenode[report]'.") from error


# --- attention --------------------------------------------------------------------------------------------------


def attention_weights(
    model: ImageClassifier, images: Images, times: Sequence[float] | np.ndarray, *, batch: int = 50
) -> Float[np.ndarray, "images times y x channels"]:
    """phi(a(t)) of every element of the feature map (Equation 5), at `times` from 0 on."""
    ode = model.ode
    if not (isinstance(ode, CoEvolvingODE) and isinstance(ode.attention, Elementwise)):
        raise ValueError(
            f"attention_weights: the model's ODE is {type(ode).__name__}, which has no elementwise attention; give a "
            "model whose ODE is CoEvolvingODE(..., attention=Elementwise(), ...)."
        )
    asked = np.asarray(times, float)
    if asked.ndim != 1 or asked.size == 0 or asked[0] != 0:
        raise ValueError(f"attention_weights(times={times}): the images stand at time 0, so the first time must be 0.")
    # One time alone is no solve at all.
    return _in_batches("attention_weights", lambda some: _ask_weights(model, some, jnp.asarray(asked)), images, batch)


@eqx.filter_jit
def _ask_weights(model: ImageClassifier, images, times):
    path = model.path(images, times)
    return model.ode.attention.weights(path.a), path.stats.status


def attention_over_time(
    model: ImageClassifier, images: Images, times: Sequence[float] | np.ndarray, *, batch: int = 50
) -> Float[np.ndarray, "images times y x"]:
    """phi(a(t)) averaged over the channels: how far each place of the map is open, at `times` from 0 on."""
    return attention_weights(model, images, times, batch=batch).mean(axis=-1)
