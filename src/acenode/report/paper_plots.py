"""The figures of a table, drawn from its result files: those that its runs have something for."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.files import Folder
from ..paper import images
from ..paper.results import Result, diverged, place, slug
from ..paper.tables import TABLES
from .page import Picture, picture
from .plots import COLOURS, FAINT, INK, WIDTH, Curve, attention_grid, curves, figure_style, literal
from .scores import Frame

FOLDER = Path("results")  # beside the page
LINES = 8  # at most, in one panel
BINS = 12  # of time
_LABEL = 72  # letters of a label that fit beside each other; longer ones are drawn smaller
_TONES = {"significant gain": COLOURS[5], "significant loss": COLOURS[0]}

Runs = Mapping[str, Sequence[Result]]
Panels = Mapping[str, Sequence[str]]


def pictures_of(table: str, results: Sequence[Result], compared: Frame, data_dir: Folder | None) -> list[Picture]:
    """All figures of a table; sample images are looked for in `data_dir`."""
    rows = {row.name: row for row in TABLES[table]}
    trained = sorted((result for result in results if result.parameters), key=lambda result: result.seed)
    named = {name: [r for r in trained if r.row == name] for name in dict.fromkeys([*rows, *(r.row for r in trained)])}
    runs = {name: own for name, own in named.items() if own}
    panels = groups(list(runs), rows)
    made = [*_intervals(table, compared), *_training(table, runs, rows, panels), *_errors(table, runs, panels)]
    return [*made, *_attention(table, runs, rows), *_maps(table, runs, data_dir), *_embedding(table, runs)]


def pictures_over_sets(table: str, results: Sequence[Result]) -> list[Picture]:
    """The figures of a table with several data sets, over those sets that give most runs which have all of them.

    Runs that diverged are left out.
    """
    kept: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
    for result in results:
        error = result.figures.get("error_over_time", {})
        if error and np.isfinite(error["mse"]).all() and np.min(error["mse"]) > 0:
            kept.setdefault((result.row, result.seed), {})[result.dataset] = error
    if not kept:
        return []
    counts = Counter(each for own in kept.values() for each in own)
    order = sorted(counts, key=lambda each: (-counts[each], each))
    having = lambda sets: [key for key, own in kept.items() if {*sets} <= {*own}]  # noqa: E731
    most = max(range(1, len(order) + 1), key=lambda count: count * len(having(order[:count])))
    shared = sorted(order[:most])
    kept = {key: kept[key] for key in having(shared)}
    times = np.unique(np.concatenate([own[each]["time"] for own in kept.values() for each in shared]))
    lines: dict[str, list[np.ndarray]] = {}
    for (row, _), own in kept.items():
        logs = np.full((len(shared), len(times)), np.nan)
        for line, each in zip(logs, shared, strict=True):
            line[np.searchsorted(times, own[each]["time"])] = np.log(own[each]["mse"])
        lines.setdefault(row, []).append(np.exp(logs.mean(axis=0)))
    found = {row: (times, np.stack(own)) for row, own in lines.items()}
    panels = {f"({k})" * (len(found) > LINES): part for k, part in enumerate(_parts(list(found), LINES), 1)}
    over = f"geometric mean over {', '.join(shared)}" if len(shared) > 1 else f"on {shared[0]}"
    says = f"Squared error of the test values over the horizon, {over}"
    return [*_curves(f"{table}-error", found, panels, ("time", "squared error"), says, log=True, marker="o", ms=3)]


def groups(names: Sequence[str], rows: Mapping[str, Any]) -> dict[str, list[str]]:
    """Rows to draw in one panel, by its title: each base with what extends it and their controls, then all others.

    The first attentive row comes first and its base second, so that these have the same colours everywhere.
    """
    bases: dict[str, list[str]] = {}
    for name in names:
        row = rows.get(name)
        if row is not None and getattr(row, "base", "") in names:
            bases.setdefault(row.base, []).extend((name, *(each for each in row.controls if each in names)))
    made: dict[str, list[str]] = {}
    for base, own in bases.items():
        first, *more = [name for name in dict.fromkeys(own) if name != base]
        parts = _parts(more, LINES - 2) or [[]]
        made |= {base + f" ({k})" * (len(parts) > 1): [first, base, *part] for k, part in enumerate(parts, 1)}
    parts = _parts([name for name in names if not any(name in own for own in made.values())], LINES)
    return made | {"other rows" * bool(made) + f" ({k})" * (len(parts) > 1): part for k, part in enumerate(parts, 1)}


def _parts(names: Sequence[str], most: int) -> list[list[str]]:
    count = math.ceil(len(names) / most)
    return [list(part) for part in np.array_split(np.array(names, object), count)] if count else []


def _curves(name: str, found: Mapping[str, Curve], panels: Panels, axes: tuple[str, str], says: str, more="", **look):
    """A picture of curves, in the panels that have any; nothing without curves."""
    found = {row: (places, values) for row, (places, values) in found.items() if np.isfinite(values).any()}
    filled = {title: {row: found[row] for row in rows if row in found} for title, rows in panels.items()}
    filled = {title: rows for title, rows in filled.items() if rows}
    if filled:
        caption = (
            f"{says}. Lines are means over seeds, bands their range; values far above the others are cut off.{more}"
        )
        yield picture(name, curves(filled, *axes, **look), says, caption)


def _examples(runs: Runs, kind: str) -> dict[str, Result]:
    """Of each row the first run with such a figure whose scores are finite."""
    finite = {name: [r for r in own if np.isfinite([*r.metrics.values()]).all()] for name, own in runs.items()}
    kept = {name: [r for r in own if kind in r.figures] for name, own in finite.items()}
    return {name: own[0] for name, own in kept.items() if own}


def _intervals(table: str, compared: Frame) -> Iterator[Picture]:
    """Differences to the base and the controls, with their intervals."""
    known = compared[compared.kind.isin(["base", "control"]) & compared.low.notna()]
    for (split, metric), own in known.groupby(["split", "metric"], sort=False):
        reach = np.maximum(own.low.abs(), own.high.abs())
        limit = min(reach.max(), 5 * reach.median()) or 1.0
        with figure_style():
            import matplotlib.pyplot as plt

            figure, axis = plt.subplots(figsize=(WIDTH, 0.7 + 0.42 * len(own)), layout="constrained")
            axis.axvline(0, color=FAINT, lw=1.2)
            for k, line in enumerate(own.itertuples()):
                colour = _TONES.get(line.verdict, INK)
                axis.plot([line.low, line.high], [k, k], lw=1.6, color=colour)
                axis.plot([line.difference], [k], "o", ms=5, color=colour)
                label = literal(f"{line.row} less {line.other}")
                size = 7.5 * min(1, _LABEL / len(label))
                axis.text(0, k - 0.28, label, transform=axis.get_yaxis_transform(), fontsize=size, va="center")
            axis.set(xlim=(-1.08 * limit, 1.08 * limit), ylim=(len(own) - 0.5, -0.6), xlabel=f"{metric} ({split})")
            axis.set(yticks=[])
            axis.ticklabel_format(axis="x", style="plain", useOffset=False)
            axis.locator_params(axis="x", nbins=5)
        says = f"Differences in {metric} on {split} data with 95 % intervals, not adjusted"
        cut = " Intervals that end at the border are longer." * bool(reach.max() > limit)
        caption = f"{says}. Green: significant gain, red: significant loss, after Holm's adjustment.{cut}"
        yield picture(f"{table}-differences-{split}-{slug(str(metric))}", figure, says, caption)


def _training(table: str, runs: Runs, rows: Mapping[str, Any], panels: Panels) -> Iterator[Picture]:
    """The validation score that chose the epoch."""
    had = {key for own in runs.values() for r in own for key in r.history}
    monitors = (rows[name].task.monitor for name in runs if name in rows)
    metric = next((metric for metric in monitors if f"validation_{metric}" in had), "")
    found = {}
    for name, own in runs.items():
        scores = [r.history.get(f"validation_{metric}", []) for r in own]
        values = np.full((len(own), max(map(len, scores))), np.nan)
        for line, each in zip(values, scores, strict=True):
            line[: len(each)] = np.where(np.isfinite(each), each, np.nan)
        found[name] = (1 + np.arange(values.shape[1]), values)
    axes = ("epoch", f"validation {metric}")
    yield from _curves(f"{table}-training", found, panels, axes, f"Validation {metric} by epoch")


def _errors(table: str, runs: Runs, panels: Panels) -> Iterator[Picture]:
    """The squared error of test values over time."""
    kept = {
        name: [r.figures["error_over_time"] for r in own if "error_over_time" in r.figures]
        for name, own in runs.items()
    }
    lost = {
        name: diverged([np.average(e["mse"], weights=e["values"]) for e in some], "mse") for name, some in kept.items()
    }
    kept = {name: [e for e, gone in zip(some, lost[name], strict=True) if not gone] for name, some in kept.items()}
    found: dict[str, Curve] = {}
    for own in panels.values():  # bins are shared within a panel
        found |= binned({name: kept[name] for name in own if kept[name]})
    unit = next((f" ({e['unit']})" for some in kept.values() for e in some if "unit" in e), "")
    more = " Runs that diverged are not drawn." * any(gone.any() for gone in lost.values())
    says, axes = "Squared error of the test values over time", (f"time{unit}", "squared error")
    yield from _curves(f"{table}-error", found, panels, axes, says, more, marker="o", ms=3)


def binned(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Curve]:
    """The error of every seed in bins of time that all share, NaN where it has none; the last has the latest 5 %."""
    parts = [np.stack([each[part] for part in ("time", "values")]) for own in rows.values() for each in own]
    times, counts = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0))
    middles = np.unique(times)
    edges = (middles[1:] + middles[:-1]) / 2
    if len(middles) > BINS:
        order = np.argsort(times)
        late = times[order][np.searchsorted(np.cumsum(counts[order]), 0.95 * counts.sum())]
        edges = np.linspace(times.min(), late, BINS)[1:]
        at = np.searchsorted(edges, times, side="right")
        middles = np.bincount(at, counts * times, BINS) / np.maximum(np.bincount(at, counts, BINS), 1)
    made: dict[str, Curve] = {}
    for name, own in rows.items():
        values = np.full((len(own), len(middles)), np.nan)
        for line, each in zip(values, own, strict=True):
            at = np.searchsorted(edges, each["time"], side="right")
            count = np.bincount(at, each["values"], len(middles))
            error = np.bincount(at, np.multiply(each["values"], each["mse"]), len(middles))
            line[count > 0] = error[count > 0] / count[count > 0]
        made[name] = (middles, values)
    return made


def _attention(table: str, runs: Runs, rows: Mapping[str, Any]) -> Iterator[Picture]:
    """The attention of one run of every row, at some times."""
    examples = _examples(runs, "attention")
    names = {name: getattr(rows.get(name), "variables", ()) for name in examples}
    for variables in dict.fromkeys(names.values()):
        own = {name: run.figures["attention"] for name, run in examples.items() if names[name] == variables}
        times = next(iter(own.values()))["times"]
        some = np.unique(np.linspace(0, len(times) - 1, 4).round().astype(int))
        wrapped = {name: name.replace(", ", ",\n").replace(" (", "\n(") for name in own}
        grid = [(wrapped[name], np.asarray(kept["matrices"], float)[some]) for name, kept in own.items()]
        figure = attention_grid([f"t = {times[k]:.3g}" for k in some], grid, variables)
        what = "the variables of the data" if variables else "hidden dimensions, not variables of the data"
        says = "Attention over time, the mean over test samples: row attends to column"
        files = ", ".join(place(FOLDER, examples[name]).as_posix() for name in own)
        caption = f"{says}. Rows and columns are {what}. From {files}."
        yield picture(f"{table}-attention-{'variables' if variables else 'hidden'}", figure, says, caption)


def _maps(table: str, runs: Runs, data_dir: Folder | None) -> Iterator[Picture]:
    """The elementwise attention of image classifiers, over the images where they are at hand."""
    for name, run in _examples(runs, "attention_maps").items():
        kept = run.figures["attention_maps"]
        which = kept.get("drawn", range(len(kept["maps"])))
        figure = attention_maps(kept, images.drawn(table, which, data_dir), images.class_names(table))
        says = f"{name}: the elementwise attention at each place, mean over channels; an image each row"
        says += ", and what it is taken for" * ("said" in kept)
        gates = f" Mean change of a gate: {kept['moved'][-1]:.3f}." if "moved" in kept else ""
        yield picture(
            f"{table}-maps-{slug(name)}", figure, says, f"{says}.{gates} From {place(FOLDER, run).as_posix()}."
        )


def attention_maps(kept: Mapping[str, Any], under: images.Drawn | None = None, classes: Sequence[str] = images.DIGITS):
    """`attention_maps` of one run: a sample each row, a time each column, one colour scale; `under` has the images."""
    maps, times = np.asarray(kept["maps"], float)[:6], [f"t = {t:.2g}" for t in kept["times"]]
    words = [""] * len(maps)
    if "said" in kept:
        words = [
            f"{classes[a]}" if a == b else f"{classes[a]},\nnot {classes[b]}"
            for a, b in zip(kept["said"], kept["label"], strict=True)
        ]
    if "untrained" in kept:
        maps = np.concatenate([maps, np.asarray(kept["untrained"], float)[:, None]], axis=1)
        times.append("untrained, t = 1")
    look: dict[str, Any] = {"cmap": "viridis", "vmin": float(maps.min()), "vmax": float(maps.max())}
    if under is not None:
        low, high = under.edges[0], under.edges[-1]
        look |= {"alpha": 0.75, "extent": (low, high, high, low), "zorder": 2}
    figure = attention_grid(times, list(zip(words, maps, strict=True)), **look)
    for k, axis in enumerate(figure.axes[: maps.shape[0] * maps.shape[1]]):
        axis.set(xticks=[], yticks=[])
        if under is not None:
            image = under.images[k // maps.shape[1]]
            grey, size = image.mean(axis=-1), len(image)  # pale, so that a colour means the same on bright and dark
            axis.imshow(0.5 + 0.5 * grey, "gray", vmin=0, vmax=1, extent=(0, size, size, 0), zorder=1)
            axis.set(xlim=(0, size), ylim=(size, 0))
    return figure


def _embedding(table: str, runs: Runs) -> Iterator[Picture]:
    """Test features in the plane, one run of every row."""
    examples = _examples(runs, "embedding")
    if not examples:
        return
    classes = images.class_names(table)
    with figure_style():
        import matplotlib.pyplot as plt

        count = math.ceil(len(examples) / 2)
        figure, axes = plt.subplots(count, 2, figsize=(WIDTH, 2.2 * count + 0.4), squeeze=False, layout="constrained")
        for axis in axes.flat:
            axis.axis("off")
        for axis, (name, run) in zip(axes.flat, examples.items(), strict=False):
            x, y, label = (np.asarray(run.figures["embedding"][part]) for part in ("x", "y", "label"))
            for colour, each in zip(COLOURS, np.unique(label), strict=False):
                axis.scatter(x[label == each], y[label == each], s=3, lw=0, color=colour, label=classes[each])
            axis.set_title(literal(name), fontsize=8)
            axis.set_aspect("equal", adjustable="datalim")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncol=5, markerscale=3, fontsize=7, handletextpad=0)
    says = "Features of test images in the plane (t-SNE), coloured by class; one run of every row"
    yield picture(f"{table}-embedding", figure, says, f"{says}.")
