"""What the result file of an image classifier keeps besides its accuracy: Table 5, Figure 5, and its attention."""

import jax.numpy as jnp
import numpy as np

from ..models import ImageClassifier
from ..tasks import ImageClassification, LabelledImages
from .figures import rounded
from .image_analysis import (
    attention_by,
    attention_summary,
    attention_weights,
    cells,
    embedding,
    features,
    silhouette,
)

_CLUSTERED, _CLUSTERED_MAPS, _EMBEDDED, _SUMMARISED, _DRAWN = 5000, 2000, 1000, 500, 6
_TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)


def silhouettes(model: ImageClassifier, task: ImageClassification, data: LabelledImages, test) -> dict[str, float]:
    """Table 5: of the clusters K-Means finds in the features of test images, and of their classes.

    The paper does not say which features: they are what the classifier reads, and beside them h(1) itself, of fewer.
    """
    some = _some(data, test, _CLUSTERED)
    label, found = np.asarray(some.label), features(model, some.images)
    ensemble_task = silhouette(found.ensemble_task, label, seed=0)
    maps = silhouette(found.maps[:_CLUSTERED_MAPS], label[:_CLUSTERED_MAPS], seed=0)
    return {
        "silhouette": ensemble_task["kmeans"],
        "silhouette_classes": ensemble_task["classes"],
        "silhouette_maps": maps["kmeans"],
        "silhouette_maps_classes": maps["classes"],
    }


def tsne(model: ImageClassifier, task: ImageClassification, data: LabelledImages, test) -> dict:
    """Figure 5: the features of some test images in the plane."""
    some = _some(data, test, _EMBEDDED)
    placed = embedding(features(model, some.images).ensemble_task, seed=0)
    label = np.asarray(some.label)[placed.rows].tolist()
    return {"x": rounded(placed.places[:, 0], 2), "y": rounded(placed.places[:, 1], 2), "label": label}


def attention_maps(model: ImageClassifier, task: ImageClassification, data: LabelledImages, test) -> dict:
    """phi(a(t)) over the places of the feature map, mean over the channels, for the first test images.

    Beside it, over more of them: how it is spread, how far it moves, and whether it is more open on detail.
    """
    images = _some(data, test, _SUMMARISED).images
    weights = attention_weights(model, images, _TIMES)
    places = weights.mean(axis=-1)
    told = attention_summary(weights)
    detail = attention_by(places, cells(model, np.asarray(images)).contrast)
    return {
        "times": list(_TIMES),
        "maps": rounded(places[:_DRAWN], 4),
        **{name: rounded(told[name], 4) for name in ("mean", "spread", "entropy", "moved", "same_for_all")},
        "on_detail": rounded(np.subtract(detail["high"], detail["low"]), 4),
    }


def _some(data: LabelledImages, test, count: int) -> LabelledImages:
    chosen = np.asarray(test)[:count]
    return LabelledImages(jnp.asarray(data.pixels)[chosen], jnp.asarray(data.label)[chosen])
