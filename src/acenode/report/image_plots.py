"""Pictures of what image classifiers learn: features in the plane, cost by epoch, the attention drawn over images."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..models import ImageClassifier
from ..ode import CoEvolvingODE
from ..paper import image_analysis as analysis
from ..paper.results import Result, slug
from ..tasks import Pictures
from ..train import take
from ..train.checkpoint import write_atomically
from .page import Picture, picture
from .style import CLASS_COLOURS, COLOURS, FAINT, figure_style

TIMES = tuple(np.linspace(0.0, 1.0, 6).round(2).tolist())
ATTENDED, SHOWN, CHANNELS = 500, 6, 6  # images that figures are averaged over, images and channels that are drawn


# --- figures ----------------------------------------------------------------------------------------------------


def embeddings(panels: Sequence[tuple[str, np.ndarray, np.ndarray]], classes: Sequence[str]):
    """Features in the plane, one panel for each (name, places, labels), coloured by class."""
    with figure_style():
        import matplotlib.pyplot as plt

        size = (4.0 * len(panels) + 1.2, 3.9)
        figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
        for axis, (name, places, labels) in zip(axes[0], panels, strict=True):
            for k, word in enumerate(classes):
                x, y = places[labels == k].T
                axis.scatter(x, y, s=6, lw=0, alpha=0.8, color=CLASS_COLOURS[k % len(CLASS_COLOURS)], label=word)
            axis.set_title(name)
            axis.set_aspect("equal", adjustable="datalim")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        handles, words = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside right center", markerscale=2.5, fontsize=8)
        return figure


def evaluations(results: Sequence[Result]):
    """Evaluations of the vector field for each image, forward and backward, by epoch; one thin line a seed."""
    with figure_style():
        import matplotlib.pyplot as plt

        rows = list(dict.fromkeys(r.row for r in results if any(v > 0 for v in r.history.get("nfe", ()))))
        figure, axes = plt.subplots(1, 2, figsize=(6.8, 2.7), sharex=True, sharey=True, layout="constrained")
        for axis, (key, words) in zip(axes, (("nfe", "forward"), ("nfe_backward", "backward")), strict=True):
            for k, row in enumerate(rows):
                seeds = [r.history[key] for r in results if r.row == row and key in r.history]
                for i, values in enumerate(seeds):
                    epochs = np.arange(1, len(values) + 1)
                    axis.plot(epochs, values, lw=1.2, color=COLOURS[k % len(COLOURS)], label=row if i == 0 else None)
            axis.set_title(words)
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("evaluations")
        if rows:
            handles, words = axes[0].get_legend_handles_labels()
            figure.legend(handles, words, loc="outside right center", fontsize=8)
        return figure


def attention_grid(
    images: np.ndarray,
    maps: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    edges: np.ndarray,
    label: str,
    *,
    change: bool = False,
):
    """Each image, then its `maps` (images, columns, y, x) drawn over it, all on one colour scale.

    Images are square, and `edges` are those of the cells in pixels (`cell_edges`). A `change` has a scale that is white
    at zero.
    """
    with figure_style():
        import matplotlib.pyplot as plt

        count, width = maps.shape[:2]
        size = (1.15 * (width + 1) + 1.1, 1.2 * count + 0.3)
        figure, axes = plt.subplots(count, width + 1, figsize=size, squeeze=False, layout="constrained")
        reach = float(np.abs(maps).max()) or 1.0
        low, high = (-reach, reach) if change else (float(maps.min()), float(maps.max()))
        drawn = None
        for r, (row, image) in enumerate(zip(axes, images, strict=True)):
            whole = (0, image.shape[1], image.shape[0], 0)
            # Light and of little contrast below the maps, so that a colour means the same on bright and dark.
            under = 0.5 + 0.5 * image.mean(axis=-1)
            for c, axis in enumerate(row):
                if c == 0:
                    axis.imshow(image[..., 0] if image.shape[-1] == 1 else image, "gray", vmin=0, vmax=1, extent=whole)
                else:
                    axis.imshow(under, "gray", vmin=0, vmax=1, extent=whole)
                    drawn = axis.imshow(
                        maps[r, c - 1],
                        "RdBu_r" if change else "viridis",
                        vmin=low,
                        vmax=high,
                        alpha=0.75,
                        interpolation="nearest",
                        extent=(edges[0], edges[-1], edges[-1], edges[0]),
                    )
                axis.set(xlim=whole[:2], ylim=whole[2:], xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
                if r == 0:
                    axis.set_title("image" if c == 0 else columns[c - 1], loc="center", fontsize=8.5)
            row[0].set_ylabel(rows[r], fontsize=8.5)
        assert drawn is not None
        figure.colorbar(drawn, ax=axes, fraction=0.02, pad=0.015, label=label)
        return figure


def attention_curves(curves: Sequence[tuple[str, Mapping]], times: Sequence[float]):
    """The attention over time: how it is spread, how far it moves, whether it tells places with detail from plain ones.

    `curves` holds (name, what `attention_summary` answers, and `attention_by` under "contrast"), one for each run.
    """
    with figure_style():
        import matplotlib.pyplot as plt

        figure, (spread, moved, detail) = plt.subplots(1, 3, figsize=(9.4, 2.7), layout="constrained")
        name, first = curves[0]
        for low, high, alpha in (("q05", "q95", 0.18), ("q25", "q75", 0.3)):
            spread.fill_between(times, first[low], first[high], color=COLOURS[0], alpha=alpha, lw=0)
        spread.plot(times, first["q50"], color=COLOURS[0], lw=1.6)
        spread.set_ylim(0, 1)
        spread.set_title(f"elements: median, 50 %, 90 %\n{name}")
        shades = list(dict.fromkeys(name for name, _ in curves))
        for i, (name, curve) in enumerate(curves):
            colour = COLOURS[shades.index(name) % len(COLOURS)]
            words = name if name not in [n for n, _ in curves[:i]] else None
            moved.plot(times, curve["moved"], color=colour, lw=1.2, label=words)
            detail.plot(times, np.subtract(curve["contrast"]["high"], curve["contrast"]["low"]), color=colour, lw=1.2)
        moved.set_ylim(bottom=0)
        moved.set_title("mean |change since t = 0|")
        detail.axhline(0, color=FAINT, lw=0.8, zorder=0)
        detail.set_title("places with detail minus plain ones")
        for axis in (spread, moved, detail):
            axis.set_xlabel("t")
            axis.set_xlim(times[0], times[-1])
        handles, words = moved.get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncol=len(words), fontsize=8)
        return figure


# --- all of them ------------------------------------------------------------------------------------------------


def image_pictures(
    models: Mapping[str, PyTree],
    images: Pictures,
    results: Sequence[Result],
    out: Path,
    *,
    controls: Mapping[str, PyTree] | None = None,
    classes: Sequence[str] | None = None,
    samples: int = analysis.SAMPLES,
    maps: bool = True,
    seed: int = 0,
) -> Path:
    """Write every picture and `figures.json`, the numbers behind them, into the folder `out`; return the JSON's path.

    - `models`: by name, ensembles in inference mode as `load_best` or `Fit.models` gives them. Pictures show member 0
      of each, figures have one entry a member.
    - `images`: test images and their classes. Features are of all of them, t-SNE of `samples`.
    - `results`: the runs whose evaluations by epoch are drawn.
    - `controls`: more ensembles, of which only the attention is looked at. Untrained ones show what is not learned.
    - `maps`: whether the silhouette of all of h(1) is computed beside that of the pooled features.
    """
    out.mkdir(parents=True, exist_ok=True)
    pixels, labels = np.asarray(images.images), np.asarray(images.label)
    words = classes or [str(k) for k in range(int(labels.max()) + 1)]
    clusters, panels = {}, []
    for name, ensemble in models.items():
        clusters[name] = []
        for k, model in enumerate(_members(ensemble)):
            found = analysis.features(model, pixels)
            logits = jax.vmap(model.linear)(jnp.asarray(found.pooled))
            entry: dict = {"accuracy": float(np.mean(np.argmax(logits, axis=-1) == labels))}
            entry["silhouette"] = analysis.silhouette(found.pooled, labels, seed)
            if maps:
                entry["silhouette_of_maps"] = analysis.silhouette(found.maps, labels, seed)
            clusters[name].append(entry)
            if k == 0:
                rows, places = analysis.embedding(found.pooled, seed, samples)
                panels.append((name, places, labels[rows]))
    attention, some = {}, slice(ATTENDED)
    for name, ensemble in {**models, **(controls or {})}.items():
        for k, model in enumerate(_members(ensemble)):
            if not isinstance(model.ode, CoEvolvingODE):
                break
            weights = analysis.attention_weights(model, pixels[some], TIMES)
            attention.setdefault(name, []).append(_attention_figures(model, pixels[some], weights))
            if k == 0:
                _write(out, _attention_pictures(name, model, pixels[some], labels[some], weights, words))
    _write(out, [picture("tsne", embeddings(panels, words), "t-SNE of the features, coloured by class")])
    _write(out, [picture("evaluations", evaluations(results), "evaluations of the vector field by epoch")])
    if attention:
        curves = [(name, each) for name, members in attention.items() for each in members]
        _write(out, [picture("attention-over-time", attention_curves(curves, TIMES), "the attention over time")])
    figures = {
        "images": len(pixels),
        "features": clusters,
        "attention": {"images": min(len(pixels), ATTENDED), "times": TIMES, "models": attention},
        "evaluations": [
            {"row": r.row, "seed": r.seed, **{n: r.history[n] for n in ("nfe", "nfe_backward") if n in r.history}}
            for r in results
        ],
    }
    path = out / "figures.json"
    write_atomically(path, json.dumps(figures, indent=1).encode() + b"\n")
    return path


def _members(ensemble: PyTree) -> Iterator[ImageClassifier]:
    count = next(x.shape[0] for x in jax.tree.leaves(ensemble) if eqx.is_array(x))
    return (take(ensemble, k) for k in range(count))


def _write(out: Path, pictures: Sequence[Picture]) -> None:
    for each in pictures:
        write_atomically(out / f"{each.name}.png", each.png)


def _attention_figures(model: ImageClassifier, pixels: np.ndarray, weights: np.ndarray) -> dict:
    places = weights.mean(axis=-1)
    below = analysis.cells(model, pixels)._asdict()
    return analysis.attention_summary(weights) | {n: analysis.attention_by(places, x) for n, x in below.items()}


def _attention_pictures(name: str, model, pixels, labels, weights, words) -> list[Picture]:
    """Grids of the attention, of its change, and of single channels, for an image of some classes and for the mean.

    The mean shows what the attention does at a place whatever the image.
    """
    kinds = np.unique(labels)[:SHOWN]
    first = [int(np.flatnonzero(labels == k)[0]) for k in kinds]
    rows = [*(words[k] for k in kinds), f"mean of {len(pixels)}"]
    edges = analysis.cell_edges(model, pixels.shape[1])
    shown, drawn = (np.concatenate([x[first], x.mean(axis=0, keepdims=True)]) for x in (pixels, weights))
    places = drawn.mean(axis=-1)
    at = [f"t = {t:g}" for t in TIMES]
    # The channels that differ most between places and images: an average over channels hides what they do.
    varied = np.argsort(-weights[:, -1].std(axis=(0, 1, 2)))[:CHANNELS]
    single = np.moveaxis(drawn[:, -1][..., varied], -1, 1)
    grids = {
        "attention": (places, at, "attention, mean of channels", False),
        "attention-change": (places[:, 1:] - places[:, :1], at[1:], "change of the attention since t = 0", True),
        "attention-channels": (single, [f"channel {c}" for c in varied], "attention of one channel, t = 1", False),
    }
    return [
        picture(f"{kind}-{slug(name)}", attention_grid(shown, maps, rows, columns, edges, label, change=change), label)
        for kind, (maps, columns, label, change) in grids.items()
    ]
