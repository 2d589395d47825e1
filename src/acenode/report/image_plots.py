"""The elementwise attention of an image classifier, drawn over the images it was asked about."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..paper.images import Drawn
from .style import figure_style

_AT_MOST = 6


def attention_maps(attention: Mapping[str, Any], under: Drawn | None = None):
    """`attention_maps` of one run, mean over channels: a sample each row, a moment each column, one colour scale.

    `under` has the images that the maps are drawn over, if the data are at hand.
    """
    maps = np.asarray(attention["maps"], float)[:_AT_MOST]
    titles = [f"t = {t:.2g}" for t in attention["times"]]
    with figure_style():
        import matplotlib.pyplot as plt

        first = 0 if under is None else 1
        count, width = len(maps), len(titles) + first
        figure, axes = plt.subplots(
            count, width, figsize=(1.15 * width + 1.1, 1.2 * count + 0.3), squeeze=False, layout="constrained"
        )
        drawn = None
        for r, (row, sample) in enumerate(zip(axes, maps, strict=True)):
            if under is not None:
                _image(row[0], under.images[r])
            for axis, title, values in zip(row[first:], titles, sample, strict=True):
                look = {"cmap": "viridis", "vmin": float(maps.min()), "vmax": float(maps.max())}
                if under is not None:
                    low, high = under.edges[0], under.edges[-1]
                    look |= {"alpha": 0.75, "extent": (low, high, high, low)}
                    # Light and of little contrast below the map, so that a colour means the same on bright and dark.
                    _image(axis, 0.5 + 0.5 * under.images[r].mean(axis=-1, keepdims=True))
                drawn = axis.imshow(values, interpolation="nearest", **look)
                if under is not None:
                    size = under.images.shape[1]
                    axis.set(xlim=(0, size), ylim=(size, 0))
                if r == 0:
                    axis.set_title(title, loc="center", fontsize=8.5)
            for axis in row:
                axis.set(xticks=[], yticks=[])
                axis.grid(False)
                axis.spines[:].set_visible(False)
        assert drawn is not None
        figure.colorbar(drawn, ax=axes, fraction=0.03, pad=0.015, label="attention, mean over channels")
        return figure


def _image(axis, image: np.ndarray) -> None:
    whole = (0, image.shape[1], image.shape[0], 0)
    axis.imshow(image[..., 0] if image.shape[-1] == 1 else image, "gray", vmin=0, vmax=1, extent=whole)
