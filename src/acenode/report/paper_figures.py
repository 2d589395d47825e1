"""Which figures a table of the paper gets: those that its runs have something for."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..datasets import ou, ushcn_raw
from ..datasets.files import Folder
from ..paper import images, settings
from ..paper.results import Result, slug
from ..paper.row import Row
from ..paper.tables import TABLES
from . import paper_plots, verdict, words
from .compared import ABLATIONS, Compared
from .image_plots import attention_maps
from .page import Gallery, Picture, picture
from .pairs import eligible
from .panels import panels

_MONITORS = {
    (row.table, row.name): row.task.monitor for rows in TABLES.values() for row in rows if isinstance(row, Row)
}
_VARIABLES = {"ushcn": ushcn_raw.ELEMENTS, "double-ou": ou.VARIABLES}
_WHO = "who (row) attends to whom (column)"
_BANDS = (
    "Lines are means over seeds, dashed where they lie on each other; bands are the range. From every result file of "
    "the table above."
)


def galleries(
    table: str, lines: Sequence[Compared], file_of: Callable[[Result], str], data_dir: Folder | None = None
) -> list[Gallery]:
    """The pictures of one table; `file_of` names the file of a run, sample images are looked for in `data_dir`."""
    if table in ABLATIONS:
        made = _ablation(table, lines)
    else:
        attentive_first = sorted(lines, key=lambda c: "ACE" not in c.row)
        runs = {c.row: _steady_first(c, lines) for c in attentive_first if c.runs and c.trained}
        alone = _single_runs(table, runs, file_of, data_dir)
        tried = _settings(lines) if table == settings.TABLE else []
        made = [*tried, *_by_epoch(table, lines, runs), *_over_time(table, runs), *alone, *_ends(table, runs)]
    return [Gallery(made)] if made else []


Runs = dict[str, tuple[Result, ...]]


def _steady_first(line: Compared, lines: Sequence[Compared]) -> tuple[Result, ...]:
    """Its runs, those that diverged by any metric last: one that did not is to be the example."""
    scores = [score for c in lines if c.row == line.row for score in c.by_seed.items()]
    away = {seed for seed, value in scores if not math.isfinite(value)}
    return tuple(sorted(line.runs, key=lambda r: r.seed in away))


# --- over epochs and over time ----------------------------------------------------------------------------------


def _by_epoch(table: str, lines: Sequence[Compared], runs: Runs) -> list[Picture]:
    metric = _monitor(lines, runs)
    kinds = [
        (f"validation_{metric}", "learning", f"validation {words.metric(metric)}", f"{words.direction(metric)}"),
        ("nfe", "calls-forward", "calls of f, forward", "for each sample, mean over the epoch"),
        ("nfe_backward", "calls-backward", "calls of f, backward", "for each sample, mean over the epoch"),
    ]
    made = []
    for key, name, what, more in kinds:
        found = {row: [r.history[key] for r in own if any(r.history.get(key, ()))] for row, own in runs.items()}
        score = name == "learning"
        kept, lost = _without(found, _ran_away(found) if score else lambda calls: ~(calls > 0))
        values = [each[np.isfinite(each)] for seeds in kept.values() for each in seeds]
        if not values:
            continue
        low, high = (reduce(np.concatenate(values)) for reduce in (np.min, np.max))
        if made and not score and high - low <= 1e-3 * high:
            same = f"{what[0].upper()}{what[1:]}: {high:.4g}, the same in every epoch of every row that has any."
            made[0] = replace(made[0], caption=_sentences(made[0].caption, same))
            continue
        figure = paper_plots.by_epoch(panels(list(runs)), kept, what)
        why = "it diverged" if score else "no update was finite: all were skipped, and no calls counted"
        said = f"Not drawn: {words.listed(lost)}, where {why}." if lost else ""
        caption = _sentences(f"{what[0].upper()}{what[1:]} by epoch ({more}).", said, _scales(figure), _BANDS)
        made.append(picture(f"{table}-{name}", figure, f"{what} by epoch", caption))
    return made


def _without(
    found: Mapping[str, Sequence[Sequence[float]]], lost: Callable[[np.ndarray], np.ndarray]
) -> tuple[dict[str, list[np.ndarray]], list[str]]:
    """Values by epoch, NaN where they are lost, and in words how many epochs of which rows that are."""
    kept, names = {}, []
    for row, seeds in found.items():
        values = [np.where(lost(np.asarray(each, float)), np.nan, each) for each in seeds]
        kept[row] = [each for each in values if np.isfinite(each).any()]
        count = sum(int(np.isnan(each).sum()) for each in values)
        if count:
            names.append(f"{count} of {sum(map(len, values))} epochs of {row}")
    return kept, names


def _ran_away(found: Mapping[str, Sequence[Sequence[float]]]) -> Callable[[np.ndarray], np.ndarray]:
    """Tells which values diverged: they are not finite, or far beyond what is usual among those found."""
    values = np.abs(np.array([value for seeds in found.values() for each in seeds for value in each], float))
    finite = values[np.isfinite(values)]
    most = verdict.RAN_AWAY * np.median(finite) if finite.any() else math.inf
    return lambda some: ~(np.isfinite(some) & (np.abs(some) <= most))


def _scales(figure: Any) -> str:
    """What to know of the scales of a figure of panels."""
    own = "Each panel has a scale of its own." if len(figure.axes) > 1 else ""
    cut = any(axis.dataLim.y1 > axis.get_ylim()[1] for axis in figure.axes)
    return _sentences(own, "Some values lie above the picture." if cut else "")


def _sentences(*some: str) -> str:
    return " ".join(filter(None, some))


def _monitor(lines: Sequence[Compared], runs: Runs) -> str:
    """The metric that chose the best epoch."""
    known = [_MONITORS.get((r.table, r.row)) for own in runs.values() for r in own]
    candidates = [*filter(None, known), *(line.metric for line in lines)]
    had = {key for own in runs.values() for r in own for key in r.history}
    return next((m for m in candidates if f"validation_{m}" in had), candidates[0])


def _having(runs: Runs, kind: str, values: str) -> tuple[dict[str, list], str]:
    """Figures of a kind by row, without those of runs whose values diverged, and a sentence that names these."""
    found = {row: [r for r in own if kind in r.figures] for row, own in runs.items()}
    away = _ran_away({row: [r.figures[kind][values] for r in own] for row, own in found.items()})
    lost = {
        row: [r for r in own if away(np.asarray(r.figures[kind][values], float)).any()] for row, own in found.items()
    }
    kept = {row: [r.figures[kind] for r in own if r not in lost[row]] for row, own in found.items()}
    names = [f"{row} (seed {words.listed([str(r.seed) for r in own])})" for row, own in lost.items() if own]
    return kept, f"Not drawn: {words.listed(names)} diverged." if names else ""


def _over_time(table: str, runs: Runs) -> list[Picture]:
    made = []
    errors, lost = _having(runs, "error_over_time", "mse")
    if any(errors.values()):
        unit = next((each["unit"] for seeds in errors.values() for each in seeds if "unit" in each), "")
        figure = paper_plots.error_over_time(panels(list(runs)), errors, f"time ({unit})" if unit else "time")
        caption = _sentences("Squared error over time, in bins.", lost, _scales(figure), _BANDS)
        made.append(picture(f"{table}-error", figure, "Squared error over time", caption))
    attention, lost = _having(runs, "attention", "entropy")
    groups = sorted({(len(each["matrices"][0]), _among(row)) for row, seeds in attention.items() for each in seeds})
    for size, among in groups:
        alike = {
            row: [each for each in seeds if (len(each["matrices"][0]), _among(row)) == (size, among)]
            for row, seeds in attention.items()
        }
        says = (
            f"How widely the attention among {size} {among} is spread, over time. On the grey line everything "
            "attends to everything alike, and the attention tells nothing."
        )
        name = f"{table}-entropy" if len(groups) == 1 else f"{table}-entropy-{size}-{slug(among)}"
        figure = paper_plots.attention_entropy(panels(list(runs)), alike, size)
        what = f"Entropy of the attention among {size} {among} over time"
        made.append(picture(name, figure, what, _sentences(says, lost, _BANDS)))
    return made


def _among(row: str) -> str:
    """What attends to what in a row."""
    return "variables" if "between variables" in row else "hidden dimensions"


# --- of one run -------------------------------------------------------------------------------------------------


def _single_runs(table: str, runs: Runs, file_of: Callable[[Result], str], data_dir: Folder | None) -> list[Picture]:
    """Pictures of one run each: the first seed that has them."""

    def over_time(row, attention):
        return paper_plots.attention_over_time(attention, _names(table, row))

    def over_images(row, attention):
        return attention_maps(attention, images.drawn(table, len(attention["maps"]), data_dir))

    def embedded(row, points):
        return paper_plots.embedding(points)

    kinds = {
        "attention": (over_time, f"{_WHO}, mean over samples"),
        "attention_maps": (over_images, "the attention to each place, mean over channels, a sample each row"),
        "embedding": (embedded, "test features in the plane (t-SNE), coloured by class"),
    }
    made = []
    for kind, (draw, says) in kinds.items():
        for row, own in runs.items():
            run = next((r for r in own if kind in r.figures), None)
            if run is not None:
                name = f"{table}-{slug(kind)}-{slug(row)}"
                more = _dimensions(row) if kind == "attention" else _spread(run.figures[kind])
                caption = _sentences(f"{row}: {says}.", more, f"From {file_of(run)}")
                made.append(picture(name, draw(row, run.figures[kind]), f"{row}: {says}", caption))
    return made


def _ends(table: str, runs: Runs) -> list[Picture]:
    """The last attention between variables of every run: whether they agree."""
    made = []
    for row, own in runs.items():
        last = {f"seed {r.seed}": r.figures["attention"]["matrices"][-1] for r in own if "attention" in r.figures}
        if last and _among(row) == "variables":
            says = f"{row}: {_WHO}, at the end, a run each"
            caption = f"{says}; mean over samples. From every result file of the row."
            figure = paper_plots.attention_matrices(last, _names(table, row))
            made.append(picture(f"{table}-ends-{slug(row)}", figure, says, caption))
    return made


def _names(table: str, row: str) -> tuple[str, ...]:
    """Of what attends to what, where these are variables."""
    return _VARIABLES.get(table, ()) if _among(row) == "variables" else ()


def _dimensions(row: str) -> str:
    """What the rows and columns of an attention matrix are."""
    if _among(row) == "variables":
        return "Rows and columns are the variables of the data: the state has a row for each."
    return "Rows and columns are hidden (latent) dimensions of the model, not variables of the data."


def _spread(figure: Mapping[str, Any]) -> str:
    """How the gates of an elementwise attention stand, first and last, where the run tells."""
    if "moved" not in figure:
        return ""
    (first, last), moved = (figure["entropy"][k] for k in (0, -1)), figure["moved"][-1]
    return (
        f"Entropy of the gates: {first:.3f} bits at first, {last:.3f} at last (1: all half open); mean change "
        f"of a gate {moved:.3f}. Both are of each gate before the mean over channels, over more images; the means "
        "that are drawn lie nearer to one half than the gates."
    )


def _settings(lines: Sequence[Compared]) -> list[Picture]:
    """What every setting of the attention adds, as far as validation tells: that is what chooses."""
    ranked = eligible(lines)
    base = next((line for line in ranked if line.row == settings.BASE), None)
    if base is None or len(ranked) < 2:
        return []
    rows, zero = {}, base.validation_by_seed
    for line in (line for line in ranked if line.base):
        own = line.validation_by_seed
        rows[line.row.partition(", ")[2]] = ([own[s] - zero[s] for s in own], verdict.from_values(own, zero))
    metric = words.metric(base.metric)
    says = f"Validation {metric} of the attention's settings less that of {base.row}, best first"
    caption = (
        f"{says} ({words.direction(base.metric)}). A dot for each seed, the mean, and the interval that holds it with "
        "95 % confidence. From every result file of the table above."
    )
    figure = paper_plots.differences(rows, f"validation {metric}, less that of {base.row}")
    return [picture(f"{settings.TABLE}-validation", figure, says, caption)]


def _ablation(table: str, lines: Sequence[Compared]) -> list[Picture]:
    made = []
    for ours, metric in dict.fromkeys((line.ours[0], line.metric) for line in lines):
        own = [line for line in lines if (line.ours[0], line.metric) == (ours, metric)]
        if not any(line.runs for line in own):
            continue
        points = [(_short(line.row), line.published.mean if line.published else None, line.values) for line in own]
        what = f"{ours}: {words.metric(metric)}"
        lost = [f"{_short(line.row)} ({words.ran_away(line)})" for line in own if line.ran_away]
        caption = _sentences(
            f"{what} ({words.direction(metric)}), published beside ours.",
            f"Without what diverged, and without a mean: {words.listed(lost)}." if lost else "",
            "From the files of the table above.",
        )
        made.append(picture(f"{table}-{ours}", paper_plots.ablation(points, words.metric(metric)), what, caption))
    return made


def _short(row: str) -> str:
    return row.split(", ")[0].removeprefix("ACE-ODE-Net ").strip("()")
