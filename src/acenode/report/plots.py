"""Figures of forecasts, attention and training, in one style. Every function that draws returns a matplotlib figure.

Narrow ones, so that their letters can be read on a phone.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..series import Series

INK, FAINT, GRID, SHADE = "#1f2933", "#7b8794", "#e4e7eb", "#f5f1e6"
COLOURS = tuple("#d1495b #2e86ab #8f9779 #edae49 #66546e #3a7d44 #5bc0be #b5651d #e39ec1 #15616d".split())
_DARK = "#f2707f #58b4db #b3bb9c #f0bd66 #ae97ba #6cb878 #5bc0be #d98a4a #e39ec1 #3f9fb0".split()
THEME = {INK: "#e4e7eb", FAINT: "#8b97a3", GRID: "#323f4b", SHADE: "#2a2a24", **dict(zip(COLOURS, _DARK, strict=True))}
"""What takes the place of each colour where the page is dark."""

WIDTH = 4.8  # inches
_LONGEST = 16  # letters of a name beside a small picture

_DASHES = ("-", (0, (5, 2)), (0, (2, 2)), (0, (7, 2, 2, 2)))  # of lines that may lie on each other

Curve = tuple[np.ndarray, np.ndarray]  # places, and values there: one row for each seed


@contextmanager
def figure_style():
    """Matplotlib settings for everything drawn inside; needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    settings: dict[Any, Any] = {
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), FAINT),
        **dict.fromkeys(("axes.labelcolor", "axes.titlecolor", "text.color"), INK),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        **{"font.size": 9, "axes.titlesize": 9.5, "axes.titlelocation": "left", "figure.facecolor": "white"},
        **{"axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6},
    }
    with matplotlib.rc_context(settings):
        yield


def literal(name: str) -> str:
    """A name as matplotlib shows it letter by letter: what is between two dollar signs would be mathematics to it."""
    return name.replace("$", r"\$")


def short(names: Sequence[str]) -> list[str]:
    """Names for small pictures: the middle of a long one left out, where all remain different."""
    half = _LONGEST // 2
    cut = [n if len(n) <= _LONGEST else f"{n[:half]}…{n[1 - half :]}" for n in names]
    count = Counter(cut)
    return [c if count[c] == 1 else n for c, n in zip(cut, names, strict=True)]


# --- forecasts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """A forecast of one model for one series: mean and standard deviation, each (times, variables)."""

    name: str
    mean: np.ndarray
    deviation: np.ndarray


def forecasts(
    times: np.ndarray,
    bands: Sequence[Band],
    series: Series,
    names: Sequence[str],
    split: float,
    truth: np.ndarray | None = None,
    later: str = "held out",
):
    """Forecast bands (90 %) of several models for one series, with what was observed and, where known, the truth.

    `later` says what the observations after `split` are; where there are none, it is not in the legend.
    """
    with figure_style():
        import matplotlib.pyplot as plt

        count = len(names)
        columns = min(3, count)
        rows = -(-count // columns)
        size = (3.4 * columns, 2.1 * rows)
        figure, axes = plt.subplots(rows, columns, figsize=size, sharex=True, squeeze=False, layout="constrained")
        for axis in axes.flat[count:]:
            axis.axis("off")
        for i, (axis, name) in enumerate(zip(axes.flat, names, strict=False)):
            if times[0] < split < times[-1]:
                axis.axvspan(split, times[-1], color=SHADE, zorder=0)
            if truth is not None:
                axis.plot(times, truth[:, i], color=INK, lw=1.1, ls=(0, (4, 2)), label="truth", zorder=4)
            for colour, band in zip(COLOURS, bands, strict=False):
                mean, spread = band.mean[:, i], 1.645 * band.deviation[:, i]
                axis.fill_between(times, mean - spread, mean + spread, color=colour, alpha=0.18, lw=0)
                axis.plot(times, mean, color=colour, lw=1.5, label=band.name, zorder=3)
            seen, after = series.observed[:, i], series.times > split
            looks = [(seen & ~after, INK, "observed", {"zorder": 5})]
            looks += [(seen & after, FAINT, later, {"mfc": "none"})] if after.any() else []
            for at, colour, label, more in looks:
                axis.plot(series.times[at], series.values[at, i], "o", ms=3, color=colour, label=label, **more)
            axis.set_title(literal(name))
        axes[0, 0].set_xlim(times[0], times[-1])
        for axis in axes[-1]:
            axis.set_xlabel("time")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncol=len(labels))
        return figure


# --- curves -----------------------------------------------------------------------------------------------------


def curves(panels: Mapping[str, Mapping[str, Curve]], xlabel: str, ylabel: str, log: bool = False, **look: Any):
    """A panel below each other for each title: of every row the mean over seeds and, as a band, their range.

    `log` is for positive values of which some are many times others.
    """
    with figure_style():
        import matplotlib.pyplot as plt
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        columns = [1 if max(map(len, rows)) > 31 else 3 if max(map(len, rows)) < 18 else 2 for rows in panels.values()]
        heights = [2.1 + 0.17 * math.ceil(len(rows) / n) for rows, n in zip(panels.values(), columns, strict=True)]
        figure = plt.figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        parts: Any = figure.subfigures(len(panels), 1, squeeze=False, height_ratios=heights)  # each with a legend
        for part, (title, rows), count in zip(parts.flat, panels.items(), columns, strict=True):
            axis = part.subplots()
            for k, (row, (places, values)) in enumerate(rows.items()):
                known = np.isfinite(values).any(axis=0)
                places, values = places[known], values[:, known]
                low, high, mean = (reduce(values, axis=0) for reduce in (np.nanmin, np.nanmax, np.nanmean))
                colour, dashes = COLOURS[k % len(COLOURS)], _DASHES[k % len(_DASHES)]
                axis.fill_between(places, low, high, color=colour, alpha=0.12, lw=0)
                axis.plot(places, mean, color=colour, ls=dashes, lw=1.5, label=literal(row), **look)
            if log:
                axis.set_yscale("log")
                axis.yaxis.set(
                    major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}", minor_locator=NullLocator()
                )
            else:
                axis.set_ylim(*_limits([values for _, values in rows.values()]))
                axis.ticklabel_format(axis="y", useOffset=False)
            axis.set(xlabel=xlabel, ylabel=ylabel)
            axis.set_title(literal(title))
            axis.xaxis.set_major_locator(MaxNLocator(integer=xlabel == "epoch"))
            part.legend(loc="outside lower left", ncol=count, fontsize=8, handlelength=1.8, columnspacing=1)
        return figure


def _limits(every: Sequence[np.ndarray]) -> tuple[float, float]:
    """Ends of a scale for all means over seeds and most values: the largest do not press all others flat."""
    values = np.concatenate([each[np.isfinite(each)] for each in every])
    means = [np.nanmean(each[:, np.isfinite(each).any(axis=0)], axis=0) for each in every]
    if not len(values):
        return 0.0, 1.0
    least, usual, most = np.percentile(values, [0, 85, 100])
    most = min(
        most,
        least + 1.3 * (np.concatenate(means).max() - least),
        least + 20 * (usual - least) if usual > least else most,
    )
    margin = max(0.05 * (most - least), 5e-4 * abs(most)) or 1.0
    return float(least - margin), float(most + margin)


def learning_curves(named: Sequence[tuple[str, np.ndarray]], ylabel: str):
    """A quantity by epoch for several models; several members are drawn as their mean and range."""
    rows = {name: (np.arange(1, len(v) + 1), v.reshape(len(v), -1).T) for name, v in named}
    return curves({"": rows}, "epoch", ylabel)


def error_over_time(edges: np.ndarray, errors: Sequence[tuple[str, np.ndarray]], ylabel: str):
    """Mean error of several models in bins of time."""
    middles = (edges[1:] + edges[:-1]) / 2
    rows = {name: (middles[np.isfinite(error)], error[None, np.isfinite(error)]) for name, error in errors}
    figure = curves({"": rows}, "time", ylabel, marker="o", ms=3.5)
    figure.axes[0].set(xlim=(edges[0], edges[-1]), ylim=(0, figure.axes[0].get_ylim()[1]))
    return figure


# --- attention --------------------------------------------------------------------------------------------------


def attention_over_time(times: np.ndarray, rows: Sequence[tuple[str, np.ndarray]], names: Sequence[str]):
    """Matrices (times, variables, variables) in a row for each label: learned attention, and the truth where known."""
    return attention_grid([f"t = {t:.3g}" for t in times], rows, names)


def matrix(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], row: str, column: str, meaning: str):
    """A matrix of numbers from 0 with a name for each row and column; `meaning` is that of the colours."""
    with figure_style():
        import matplotlib.pyplot as plt

        below, beside = ([literal(name) for name in short(names)] for names in (columns, rows))
        width, height = (max(2.2, 0.35 * len(labels)) for labels in (below, beside))
        figure, axis = plt.subplots(figsize=(width + 1.8, height + 0.8), layout="constrained")
        image = axis.imshow(values, vmin=0, vmax=max(float(values.max()), 1e-6), cmap="magma_r")
        axis.grid(False)
        axis.set_xticks(range(len(below)), below, rotation=90)
        axis.set_yticks(range(len(beside)), beside)
        axis.tick_params(length=0)
        axis.set(xlabel=column, ylabel=row)
        figure.colorbar(image, ax=axis, shrink=0.8, label=meaning)
        return figure


def attention_grid(titles: Sequence[str], rows: Sequence[tuple[str, Any]], names: Sequence[str] = (), **look: Any):
    """Attention matrices in a row for each label; row of a matrix: what attends, column: to what.

    Without names, as for hidden dimensions, uniform weights are pale. `look` is that of matplotlib's `imshow`.
    """
    with figure_style():
        import matplotlib.pyplot as plt

        labels = [literal(name) for name in short(names)]
        longest = max(map(len, labels), default=0)
        margin = 0.05 * longest if longest > 3 else 0.0
        size = (1.25 * len(titles) + 0.8 + margin, 1.5 * len(rows) + 0.2 + margin)
        figure, axes = plt.subplots(len(rows), len(titles), figsize=size, squeeze=False, layout="constrained")
        largest = max(float(np.max(matrices)) for _, matrices in rows)
        most = 1.0 if names else max(largest, 4 / len(rows[0][1][0]))
        image = None
        for r, (label, matrices) in enumerate(rows):
            for c, (axis, title, matrix) in enumerate(zip(axes[r], titles, matrices, strict=True)):
                image = axis.imshow(matrix, **{"vmin": 0, "vmax": most, "cmap": "magma_r", **look})
                axis.grid(False)
                below = labels if r == len(rows) - 1 else [""] * len(labels)
                axis.set_xticks(range(len(labels)), below, fontsize=7, rotation=90 if longest > 3 else 0)
                axis.set_yticks(range(len(labels)), labels if c == 0 else [""] * len(labels), fontsize=7)
                axis.tick_params(length=0)
                axis.set_title(title if r == 0 else "")
                axis.set_ylabel(literal(label) if c == 0 else "", fontsize=8)
        assert image is not None
        figure.colorbar(image, ax=axes, fraction=0.02, pad=0.015, label="weight")
        return figure
