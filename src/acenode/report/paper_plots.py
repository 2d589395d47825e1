"""Figures of the paper's tables, drawn from result files. Every function returns a matplotlib figure.

Narrow ones, with letters that can be read on a phone. `Runs` holds, by row, one entry for each seed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import verdict
from .panels import Panel, Runs
from .style import CLASS_COLOURS, COLOURS, FAINT, figure_style

Curve = tuple[np.ndarray, np.ndarray]  # places, and the values of each seed there
Curves = dict[str, Curve]
WIDTH = 4.8
AT_MOST = 6  # matrices or maps beside each other


def _stacked(panels: Sequence[Panel], runs: Runs, curves: Callable[[Runs], Curves], ylabel: str, **look: Any):
    """An axes for each panel, below each other: of every row the mean over seeds and, as a band, their range.

    The scale of x is the same for all. `curves` makes those of one panel.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import ScaledTranslation

    shown = [(panel, curves(drawn)) for panel in panels if (drawn := panel.drawn(runs))]
    legends = [_legend(list(drawn)) for _, drawn in shown]
    height = sum(2.1 + 0.16 * math.ceil(len(labels) / columns) for labels, columns in legends)
    size = (WIDTH, height)
    figure, axes = plt.subplots(len(shown), figsize=size, sharex=True, squeeze=False, layout="constrained")
    for axis, (panel, drawn), (labels, columns) in zip(axes.flat, shown, legends, strict=True):
        for (row, (places, values)), label in zip(drawn.items(), labels, strict=True):
            low, high, mean = (reduce(values, axis=0) for reduce in (np.nanmin, np.nanmax, np.nanmean))
            axis.fill_between(places, low, high, color=panel.colours[row], alpha=0.12, lw=0)
            axis.plot(places, mean, lw=1.5, color=panel.colours[row], label=label, **look)
        axis.set_ylim(*_limits([values for _, values in drawn.values()]))
        axis.set_title(panel.title)
        axis.set_ylabel(ylabel)
        axis.tick_params(labelbottom=True)
        axis.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.ticklabel_format(axis="y", useOffset=False)
        below = ScaledTranslation(-0.45, -0.42 if axis is axes.flat[-1] else -0.25, figure.dpi_scale_trans)
        spaces = {"borderpad": 0, "borderaxespad": 0, "handlelength": 1.4, "columnspacing": 1, "labelspacing": 0.3}
        at = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": axis.transAxes + below}
        axis.legend(ncol=columns, fontsize=8, **at, **spaces)
        _by_turns(axis)
    return figure


def _legend(rows: Sequence[str]) -> tuple[list[str], int]:
    """Labels of rows in one axes, without what its title says of all of them, and how many of them fit on a line."""
    kinds = {row.partition(", ")[2] for row in rows}
    labels = list(rows) if len(kinds) > 1 else [row.partition(", ")[0] for row in rows]
    longest = max(map(len, labels))
    return labels, 1 if longest > 31 else 3 if longest < 18 else 2


def _limits(every: Sequence[np.ndarray]) -> tuple[float, float]:
    """Ends of a scale for all means over seeds and most values: the largest are not to press all others flat."""
    values = np.concatenate([each[np.isfinite(each)] for each in every])
    means = np.concatenate([np.nanmean(each, axis=0) for each in every])
    least, usual, most = np.percentile(values, [0, 85, 100])
    most = min(most, least + 1.3 * (means.max() - least))
    if most - least > 20 * (usual - least) > 0:
        most = 2 * usual - least
    room = max(0.05 * (most - least), 5e-4 * abs(most)) or 1.0
    return float(least - room), float(most + room)


def _by_turns(axis: Any) -> None:
    """Dashes for lines that lie on each other, so that every one of them is seen."""
    near = 0.015 * np.ptp(axis.get_ylim())
    together: list[list[Any]] = []
    for line in axis.lines:
        x, y = line.get_data()
        for group in together:
            other_x, other_y = group[0].get_data()
            if np.array_equal(x, other_x) and np.quantile(np.abs(y - other_y), 0.9) < near:
                group.append(line)
                break
        else:
            together.append([line])
    for group in together:
        for k, line in enumerate(group if len(group) > 1 else ()):
            line.set_linestyle((-5 * k, (5, 5 * (len(group) - 1))))


def by_epoch(panels: Sequence[Panel], runs: Runs, ylabel: str):
    """A quantity by epoch; NaN where there is none."""

    def curve(seeds: Sequence[Any]) -> Curve:
        values = np.full((len(seeds), max(map(len, seeds))), np.nan)
        for one, each in zip(values, seeds, strict=True):
            one[: len(each)] = each
        known = np.isfinite(values).any(axis=0)
        return 1 + np.flatnonzero(known), values[:, known]

    with figure_style():
        from matplotlib.ticker import MaxNLocator

        figure = _stacked(panels, runs, lambda some: {row: curve(some[row]) for row in some}, ylabel)
        figure.axes[-1].set_xlabel("epoch")
        figure.axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        return figure


def error_over_time(panels: Sequence[Panel], runs: Runs, xlabel: str):
    """Squared error in bins of time, from `error_over_time` of each run; rows in one axes have the same bins."""

    def curves(some: Runs) -> Curves:
        times, errors = _in_common_bins([each for seeds in some.values() for each in seeds])
        ends = np.cumsum([len(seeds) for seeds in some.values()])
        parts = zip(some, np.split(errors, ends[:-1]), strict=True)
        known = {row: (np.isfinite(part).any(axis=0), part) for row, part in parts}
        return {row: (times[at], part[:, at]) for row, (at, part) in known.items()}

    with figure_style():
        figure = _stacked(panels, runs, curves, "squared error", marker="o", ms=3)
        for axis in figure.axes:
            axis.set_ylim(bottom=0)
        figure.axes[-1].set_xlabel(xlabel)
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
            if ours and np.isfinite(ours).all():
                axis.plot([k, k + 0.2], [np.mean(ours)] * 2, color=COLOURS[0], lw=2, label="mean of ours")
        axis.set_xlim(-0.5, len(points) - 0.5)
        axis.set_xticks(range(len(points)), [name for name, _, _ in points])
        axis.grid(axis="x", visible=False)
        axis.margins(y=0.15)
        axis.set_ylabel(ylabel)
        handles = dict(reversed([*zip(*reversed(axis.get_legend_handles_labels()), strict=True)]))
        figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncol=3, fontsize=8)
        return figure


def differences(rows: Mapping[str, tuple[Sequence[float], verdict.Gap]], xlabel: str):
    """Differences to another row, which is at zero: a dot each seed, a bar for the mean and a line for its interval."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(WIDTH, 0.8 + 0.28 * len(rows)), layout="constrained")
        axis.axvline(0, color=FAINT, lw=1.2)
        for k, (seeds, gap) in enumerate(rows.values()):
            axis.plot(seeds, [k] * len(seeds), "o", ms=4, alpha=0.5, color=COLOURS[0], mew=0)
            axis.plot([gap.difference], [k], "|", ms=11, mew=2.5, color=COLOURS[0])
            if gap.low is not None and gap.high is not None:
                axis.plot([gap.low, gap.high], [k, k], lw=1.6, color=COLOURS[0])
        axis.set_yticks(range(len(rows)), list(rows))
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.ticklabel_format(axis="x", style="plain", useOffset=False)
        axis.locator_params(axis="x", nbins=5)
        axis.set_xlabel(xlabel)
        return figure


def attention_over_time(attention: Mapping[str, Any], names: Sequence[str] = ()):
    """The attention of one run at some moments."""
    some = _some(len(attention["times"]))
    return attention_matrices({f"t = {attention['times'][k]:.3g}": attention["matrices"][k] for k in some}, names)


def attention_matrices(matrices: Mapping[str, Any], names: Sequence[str] = ()):
    """Attentions by their titles; row: who attends, column: to whom."""
    with figure_style():
        import matplotlib.pyplot as plt

        columns = min(3, len(matrices))
        rows = math.ceil(len(matrices) / columns)
        size = (WIDTH, (WIDTH / 3 + 0.1 * bool(names)) * rows + 0.2)
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        largest = max(float(np.max(matrix)) for matrix in matrices.values())
        even = 1 / len(next(iter(matrices.values())))
        most = 1.0 if names else max(largest, 4 * even)  # so that even weights are pale
        drawn = None
        for axis in axes.flat[len(matrices) :]:
            axis.axis("off")
        for k, (axis, (title, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
            drawn = axis.imshow(np.asarray(matrix, float), "magma_r", vmin=0, vmax=most)
            axis.set_title(title)
            axis.set(xticks=range(len(names)), yticks=range(len(names)))
            axis.set_xticklabels(names, rotation=90, fontsize=7)
            axis.set_yticklabels(names if k % columns == 0 else [], fontsize=7)
            axis.tick_params(length=0)
            axis.grid(False)
        assert drawn is not None
        figure.colorbar(drawn, ax=axes, fraction=0.04, pad=0.02, label="weight")
        return figure


def attention_entropy(panels: Sequence[Panel], runs: Runs, size: int):
    """The entropy of an attention among `size` over time; grey: that of attention to all alike."""

    def curve(seeds: Sequence[Any]) -> Curve:
        times = np.asarray(seeds[0]["times"], float)
        return times, np.array([np.interp(times, each["times"], each["entropy"]) for each in seeds])

    even = math.log(size)
    with figure_style():
        figure = _stacked(panels, runs, lambda some: {row: curve(some[row]) for row in some}, "entropy (nats)")
        for axis in figure.axes:
            axis.axhline(even, color=FAINT, lw=1.2, ls=(0, (4, 2)))
            at = {"transform": axis.get_yaxis_transform(), "ha": "right", "va": "bottom"}
            axis.text(0.99, even, "attention to all alike", color=FAINT, fontsize=8, **at)
            axis.set_ylim(0, 1.16 * even)
        figure.axes[-1].set_xlabel("time")
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
