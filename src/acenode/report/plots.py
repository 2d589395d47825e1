"""Figures for forecasts and attention. Every function that draws returns a matplotlib figure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..series import Series
from .style import COLOURS, FAINT, INK, SHADE, TRUTH, figure_style

_LONGEST = 16  # letters of a name beside a small picture


@dataclass(frozen=True)
class Band:
    """A forecast of one model for one series: mean and standard deviation, each (times, variables)."""

    name: str
    mean: np.ndarray
    deviation: np.ndarray


def literal(name: str) -> str:
    """A name as matplotlib shows it letter by letter: what is between two dollar signs would be mathematics to it."""
    return name.replace("$", r"\$")


def short(names: Sequence[str]) -> list[str]:
    """Names for small pictures: the middle of a long one left out, where all remain different."""
    half = _LONGEST // 2
    cut = [n if len(n) <= _LONGEST else f"{n[:half]}…{n[1 - half :]}" for n in names]
    count = Counter(cut)
    return [c if count[c] == 1 else n for c, n in zip(cut, names, strict=True)]


def forecasts(
    times: np.ndarray,
    bands: Sequence[Band],
    series: Series,
    names: Sequence[str],
    split: float,
    truth: np.ndarray | None = None,
    later: str = "held out",
):
    """Forecast bands (90 %) of several models for one series, against what was observed and, where known, the truth.

    `later` says what the observations after `split` are; where there are none, it is not in the legend.
    """
    with figure_style():
        import matplotlib.pyplot as plt

        count = len(names)
        columns = min(3, count)
        rows = -(-count // columns)
        figure, axes = plt.subplots(rows, columns, figsize=(3.4 * columns, 2.1 * rows), sharex=True, squeeze=False)
        for i, axis in enumerate(axes.flat):
            if i >= count:
                axis.axis("off")
                continue
            if times[0] < split < times[-1]:
                axis.axvspan(split, times[-1], color=SHADE, zorder=0)
            if truth is not None:
                axis.plot(times, truth[:, i], color=TRUTH, lw=1.1, ls=(0, (4, 2)), label="truth", zorder=4)
            for k, band in enumerate(bands):
                colour, mean, spread = COLOURS[k], band.mean[:, i], 1.645 * band.deviation[:, i]
                axis.fill_between(times, mean - spread, mean + spread, color=colour, alpha=0.18, lw=0)
                axis.plot(times, mean, color=colour, lw=1.5, label=band.name, zorder=3)
            seen = series.observed[:, i]
            after = series.times > split
            at = seen & ~after
            axis.plot(series.times[at], series.values[at, i], "o", ms=3, color=INK, label="observed", zorder=5)
            if after.any():
                at = seen & after
                axis.plot(series.times[at], series.values[at, i], "o", ms=3, mfc="none", color=FAINT, label=later)
            axis.set_title(literal(names[i]))
        axes[0, 0].set_xlim(times[0], times[-1])
        for axis in axes[-1]:
            axis.set_xlabel("time")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncol=len(labels), bbox_to_anchor=(0.5, 1.05))
        figure.tight_layout()
        return figure


def attention_over_time(
    times: np.ndarray,
    rows: Sequence[tuple[str, np.ndarray]],
    names: Sequence[str],
):
    """Matrices at several moments, one row of pictures for each kind: learned attention, and the truth where known.

    `rows` holds (label, matrices) with matrices of shape (times, variables, variables).
    """
    with figure_style():
        import matplotlib.pyplot as plt

        labels = [literal(n) for n in short(names)]
        longest = max(map(len, labels))
        upright = longest > 3
        room = 0.05 * longest if upright else 0.0
        size = (1.55 * len(times) + 0.8 + room, 1.75 * len(rows) + room)
        figure, axes = plt.subplots(len(rows), len(times), figsize=size, squeeze=False, layout="constrained")
        image = None
        for r, (label, matrices) in enumerate(rows):
            for c, t in enumerate(times):
                axis = axes[r, c]
                image = axis.imshow(matrices[c], vmin=0, vmax=1, cmap="magma_r")
                axis.grid(False)
                below = labels if r == len(rows) - 1 else [""] * len(labels)
                axis.set_xticks(range(len(labels)), below, fontsize=6, rotation=90 if upright else 0)
                axis.set_yticks(range(len(labels)), labels if c == 0 else [""] * len(labels), fontsize=6)
                axis.tick_params(length=0)
                if r == 0:
                    axis.set_title(f"t = {t:.1f}")
                if c == 0:
                    axis.set_ylabel(label)
        assert image is not None
        figure.colorbar(image, ax=axes, fraction=0.015, pad=0.015, label="weight")
        return figure


def weight_curves(times: np.ndarray, curves: Sequence[tuple[str, np.ndarray]], offsets: Sequence[tuple[int, str]]):
    """How much every region listens in some directions of a ring, over time, averaged over the regions.

    `curves` holds (label, matrices over `times`), the first drawn as the truth; `offsets` holds (shift, words).
    """
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(6.6, 2.7))
        for k, (label, matrices) in enumerate(curves):
            size = matrices.shape[-1]
            for c, (shift, words) in enumerate(offsets):
                line = np.mean([matrices[:, i, (i + shift) % size] for i in range(size)], axis=0)
                dashes, width = ((0, (4, 2)), 1.2) if k == 0 else ("-", 2.0)
                axis.plot(times, line, color=COLOURS[c], label=f"{words}, {label}", ls=dashes, lw=width)
        axis.set_xlabel("time")
        axis.set_ylabel("weight")
        axis.set_ylim(0, 1)
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.tight_layout()
        return figure


def error_over_time(edges: np.ndarray, errors: Sequence[tuple[str, np.ndarray]], split: float, ylabel: str):
    """Mean error of several models in bins of time."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(6.6, 2.7))
        middle = (edges[1:] + edges[:-1]) / 2
        if split > edges[0]:
            axis.axvspan(split, edges[-1], color=SHADE, zorder=0)
        for k, (name, error) in enumerate(errors):
            axis.plot(middle, error, "o-", ms=3.5, lw=1.6, color=COLOURS[k], label=name)
        axis.set_xlim(edges[0], edges[-1])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("time (shaded: the forecast)" if split > edges[0] else "time since the first look")
        axis.set_ylabel(ylabel)
        axis.legend(fontsize=8)
        figure.tight_layout()
        return figure


def learning_curves(curves: Sequence[tuple[str, np.ndarray]], ylabel: str):
    """A quantity by epoch for several runs; several members are drawn as their mean and range."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(6.6, 2.7))
        for k, (name, values) in enumerate(curves):
            values = values.reshape(len(values), -1)
            epochs = np.arange(1, len(values) + 1)
            axis.fill_between(epochs, values.min(1), values.max(1), color=COLOURS[k], alpha=0.18, lw=0)
            axis.plot(epochs, values.mean(1), color=COLOURS[k], lw=1.6, label=name)
        axis.set_xlabel("epoch")
        axis.set_ylabel(ylabel)
        axis.legend(fontsize=8)
        figure.tight_layout()
        return figure
