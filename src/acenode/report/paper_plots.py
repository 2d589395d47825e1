"""Figures of the paper's tables, drawn from result files. Every function returns a matplotlib figure.

Narrow ones, with letters that can be read on a phone. `Runs` holds, by row, one entry for each seed; a row without any
is not drawn, but keeps its colour for itself.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .style import CLASS_COLOURS, COLOURS, FAINT, figure_style

Runs = Mapping[str, Sequence[Any]]
WIDTH = 4.8
AT_MOST = 6  # matrices or maps beside each other


def _looks(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th row: after the colours are used up, they come again dashed."""
    dashes = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
    again, colour = divmod(k, len(CLASS_COLOURS))
    return {"color": CLASS_COLOURS[colour], "ls": dashes[again % len(dashes)]}


def _size(runs: Runs) -> tuple[float, float]:
    """Of a picture that has room for its axes above a legend of the rows that are drawn."""
    return WIDTH, 2.5 + 0.2 * sum(1 for seeds in runs.values() if seeds)


def _legend(figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 1 if longest > 31 else 3 if longest < 18 else 2
    figure.legend(handles, labels, loc="outside lower left", ncol=columns, fontsize=8)


def _leave_out_what_ran_away(axis, values: Sequence[float]) -> None:
    """End the picture above what most values are, where the largest would press all others flat."""
    if not values:
        return
    least, usual, most = np.percentile(values, [0, 85, 100])
    if most - least > 20 * (usual - least) > 0:
        axis.set_ylim(least - 0.1 * (usual - least), usual + (usual - least))


def by_epoch(runs: Runs, ylabel: str):
    """A quantity by epoch: for each row the mean over seeds and, as a band, their range."""
    with figure_style():
        import matplotlib.pyplot as plt
        from matplotlib.ticker import MaxNLocator

        figure, axis = plt.subplots(figsize=_size(runs), layout="constrained")
        told: list[float] = []
        for k, (row, seeds) in enumerate(runs.items()):
            if not seeds:
                continue
            values = np.full((len(seeds), max(map(len, seeds))), np.nan)
            for one, each in zip(values, seeds, strict=True):
                one[: len(each)] = each
            known = np.isfinite(values).any(axis=0)
            epochs, values = 1 + np.flatnonzero(known), values[:, known]
            look = _looks(k)
            axis.fill_between(epochs, np.nanmin(values, 0), np.nanmax(values, 0), color=look["color"], alpha=0.16, lw=0)
            axis.plot(epochs, np.nanmean(values, 0), lw=1.5, label=row, **look)
            told.extend(values[np.isfinite(values)])
        _leave_out_what_ran_away(axis, told)
        axis.set_xlabel("epoch")
        axis.set_ylabel(ylabel)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(figure)
        return figure


def error_over_time(runs: Runs, xlabel: str):
    """Squared error in bins of time, from `error_over_time` of each run: the mean over seeds and their range."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=_size(runs), layout="constrained")
        highest = []
        for k, (row, seeds) in enumerate(runs.items()):
            if not seeds:
                continue
            look = _looks(k)
            times, errors = _in_common_bins(seeds)
            low, high, mean = (reduce(errors, axis=0) for reduce in (np.nanmin, np.nanmax, np.nanmean))
            axis.fill_between(times, low, high, color=look["color"], alpha=0.16, lw=0)
            axis.plot(times, mean, "o", ms=3, lw=1.5, label=row, **look)
            highest.append(float(max(mean, default=0.0)))
        # A row that runs away leaves the picture, and does not press the others flat.
        top = min(1.05 * max(highest, default=0.0), 1.5 * float(np.median(highest or [0.0])))
        axis.set_ylim(0, top or None)
        axis.set_xlabel(xlabel)
        axis.set_ylabel("squared error")
        _legend(figure)
        return figure


def _in_common_bins(seeds: Sequence[Mapping[str, Any]], bins: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """The times of some bins, and the errors of each seed there, NaN where it has none.

    Seeds with bins of their own are put into common ones; the last holds the few values that come late.
    """
    times, counts = (np.concatenate([np.asarray(each[name], float) for each in seeds]) for name in ("time", "values"))
    middles = np.unique(times)
    if len(middles) <= bins:
        place = [np.searchsorted(middles, each["time"]) for each in seeds]
    else:
        order = np.argsort(times)
        most = times[order][np.searchsorted(np.cumsum(counts[order]), 0.95 * counts.sum())]
        edges = np.linspace(times.min(), most, bins)[1:]
        place = [np.searchsorted(edges, each["time"], side="right") for each in seeds]
        weights = np.bincount(np.concatenate(place), counts, bins)
        middles = np.bincount(np.concatenate(place), counts * times, bins) / np.maximum(weights, 1)
    made = np.full((len(seeds), len(middles)), np.nan)
    for row, each, at in zip(made, seeds, place, strict=True):
        total = np.bincount(at, np.multiply(each["values"], each["mse"]), len(middles))
        count = np.bincount(at, each["values"], len(middles))
        row[count > 0] = (total / np.maximum(count, 1))[count > 0]
    known = np.isfinite(made).any(axis=0)
    return middles[known], made[:, known]


def ablation(points: Sequence[tuple[str, float | None, Sequence[float]]], ylabel: str):
    """Published numbers (hollow) beside ours (a dot each seed, a bar for their mean); `points`: (name, theirs, ours).

    Points, not columns: columns have to start at zero, where such differences cannot be seen.
    """
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(WIDTH, 2.8), layout="constrained")
        for k, (_, theirs, ours) in enumerate(points):
            if theirs is not None:
                axis.plot([k - 0.1], [theirs], "D", ms=6, mfc="none", color=FAINT, mew=1.5, label="published")
            if ours:
                axis.plot([k + 0.1] * len(ours), ours, "o", ms=4, lw=0, alpha=0.7, color=COLOURS[0], label="ours")
                axis.plot([k, k + 0.2], [np.mean(ours)] * 2, color=COLOURS[0], lw=2, label="mean of ours")
        axis.set_xlim(-0.5, len(points) - 0.5)
        axis.set_xticks(range(len(points)), [name for name, _, _ in points])
        axis.grid(axis="x", visible=False)
        axis.margins(y=0.15)
        axis.set_ylabel(ylabel)
        handles = dict(reversed([*zip(*reversed(axis.get_legend_handles_labels()), strict=True)]))
        figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncol=3, fontsize=8)
        return figure


def attention_matrices(attention: Mapping[str, Any]):
    """The attention of one run at some moments; row: who attends, column: to whom."""
    with figure_style():
        import matplotlib.pyplot as plt

        times, matrices = np.asarray(attention["times"]), np.asarray(attention["matrices"], float)
        some = _some(len(times))
        columns = min(3, len(some))
        rows = math.ceil(len(some) / columns)
        size = (WIDTH, WIDTH / 3 * rows + 0.2)
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        drawn = None
        for axis in axes.flat[len(some) :]:
            axis.axis("off")
        for axis, k in zip(axes.flat, some, strict=False):
            drawn = axis.imshow(matrices[k], "magma_r", vmin=0, vmax=float(matrices.max()))
            axis.set_title(f"t = {times[k]:.3g}")
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
        assert drawn is not None
        figure.colorbar(drawn, ax=axes, fraction=0.04, pad=0.02, label="weight")
        return figure


def attention_entropy(runs: Runs, size: int):
    """The entropy of an attention among `size` over time, one line a run; dashed: that of attention to all alike."""
    even = math.log(size)
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=_size(runs), layout="constrained")
        for k, (row, seeds) in enumerate(runs.items()):
            for i, each in enumerate(seeds):
                axis.plot(each["times"], each["entropy"], lw=1.3, label="" if i else row, **_looks(k))
        axis.axhline(even, color=FAINT, lw=1.2, ls=(0, (4, 2)), label="attention to all alike")
        axis.set_ylim(0, 1.08 * even)
        axis.set_xlabel("time")
        axis.set_ylabel("entropy (nats)")
        _legend(figure)
        return figure


def embedding(points: Mapping[str, Any]):
    """Features of one run in the plane, coloured by class."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")
        x, y, label = (np.asarray(points[name]) for name in ("x", "y", "label"))
        for k, word in enumerate(np.unique(label)):
            own = label == word
            colour = CLASS_COLOURS[k % len(CLASS_COLOURS)]
            axis.scatter(x[own], y[own], s=6, lw=0, alpha=0.8, color=colour, label=str(word))
        axis.set_aspect("equal", adjustable="datalim")
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        figure.legend(loc="outside right center", markerscale=2.5, fontsize=8)
        return figure


def _some(count: int) -> np.ndarray:
    """At most six of `count` moments, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, AT_MOST)).round().astype(int))
