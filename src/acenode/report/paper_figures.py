"""Which figures a table of the paper gets: those that its runs have something for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..datasets.files import Folder
from ..paper import images
from ..paper.results import Result, slug
from ..paper.row import Row
from ..paper.tables import TABLES
from . import paper_plots, words
from .compared import ABLATIONS, Compared
from .image_plots import attention_maps
from .page import Gallery, Picture, picture

_MONITORS = {
    (row.table, row.name): row.task.monitor for rows in TABLES.values() for row in rows if isinstance(row, Row)
}
_ALL_FILES = "From every result file of the table above; the band is the range over seeds."


def galleries(
    table: str, lines: Sequence[Compared], file_of: Callable[[Result], str], data_dir: Folder | None = None
) -> list[Gallery]:
    """The pictures of one table; `file_of` names the file of a run, sample images are looked for in `data_dir`."""
    if table in ABLATIONS:
        made = _ablation(table, lines)
    else:
        # Attentive rows first: they have the clearest colours.
        runs = {c.row: c.runs for c in sorted(lines, key=lambda c: "ACE" not in c.row) if c.runs and c.trained}
        alone = _single_runs(table, runs, file_of, data_dir)
        made = [*_by_epoch(table, lines, runs), *_over_time(table, runs), *alone]
    return [Gallery(made)] if made else []


Runs = dict[str, tuple[Result, ...]]


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
        if any(found.values()):
            caption = f"{what[0].upper()}{what[1:]} by epoch ({more}). {_ALL_FILES}"
            figure = paper_plots.by_epoch(found, what)
            made.append(picture(f"{table}-{name}", figure, f"{what} by epoch", caption))
    return made


def _monitor(lines: Sequence[Compared], runs: Runs) -> str:
    """The metric that chose the best epoch."""
    known = [_MONITORS.get((r.table, r.row)) for own in runs.values() for r in own]
    candidates = [*filter(None, known), *(line.metric for line in lines)]
    had = {key for own in runs.values() for r in own for key in r.history}
    return next((m for m in candidates if f"validation_{m}" in had), candidates[0])


def _having(runs: Runs, kind: str) -> dict[str, list]:
    return {row: [r.figures[kind] for r in own if kind in r.figures] for row, own in runs.items()}


def _over_time(table: str, runs: Runs) -> list[Picture]:
    made = []
    errors = _having(runs, "error_over_time")
    if any(errors.values()):
        unit = next((each["unit"] for seeds in errors.values() for each in seeds if "unit" in each), "")
        figure = paper_plots.error_over_time(errors, f"time ({unit})" if unit else "time")
        caption = f"Squared error over time, in bins. {_ALL_FILES}"
        made.append(picture(f"{table}-error", figure, "Squared error over time", caption))
    attention = _having(runs, "attention")
    sizes = sorted({len(each["matrices"][0]) for seeds in attention.values() for each in seeds})
    for size in sizes:
        alike = {row: [each for each in seeds if len(each["matrices"][0]) == size] for row, seeds in attention.items()}
        caption = (
            "How widely the attention is spread, over time: one line a run. On the dashed line everything attends to "
            "everything alike, and the attention tells nothing."
        )
        name = f"{table}-entropy" if len(sizes) == 1 else f"{table}-entropy-{size}"
        what = f"Entropy of the attention among {size} over time"
        made.append(picture(name, paper_plots.attention_entropy(alike, size), what, caption))
    return made


def _single_runs(table: str, runs: Runs, file_of: Callable[[Result], str], data_dir: Folder | None) -> list[Picture]:
    """Pictures of one run each: the first seed that has them."""

    def over_images(attention):
        return attention_maps(attention, images.drawn(table, len(attention["maps"]), data_dir))

    kinds = {
        "attention": (paper_plots.attention_matrices, "who (row) attends to whom (column), mean over samples"),
        "attention_maps": (over_images, "the attention to each place, a sample each row"),
        "embedding": (paper_plots.embedding, "test features in the plane (t-SNE), coloured by class"),
    }
    made = []
    for kind, (draw, says) in kinds.items():
        for row, own in runs.items():
            run = next((r for r in own if kind in r.figures), None)
            if run is not None:
                name = f"{table}-{slug(kind)}-{slug(row)}"
                caption = f"{row}: {says}. {_spread(run.figures[kind])}From {file_of(run)}"
                made.append(picture(name, draw(run.figures[kind]), f"{row}: {says}", caption))
    return made


def _spread(figure: Mapping[str, Any]) -> str:
    """How the gates of an elementwise attention stand, first and last, where the run tells."""
    if "moved" not in figure:
        return ""
    (first, last), moved = (figure["entropy"][k] for k in (0, -1)), figure["moved"][-1]
    return (
        f"Entropy of the gates: {first:.3f} bits at first, {last:.3f} at last (1: all half open); mean change "
        f"{moved:.3f}. "
    )


def _ablation(table: str, lines: Sequence[Compared]) -> list[Picture]:
    made = []
    for ours, metric in dict.fromkeys((line.ours[0], line.metric) for line in lines):
        own = [line for line in lines if (line.ours[0], line.metric) == (ours, metric)]
        if not any(line.runs for line in own):
            continue
        points = [(_short(line.row), line.published.mean if line.published else None, line.values) for line in own]
        what = f"{ours}: {words.metric(metric)}"
        caption = f"{what} ({words.direction(metric)}), published beside ours. From the files of the table above."
        made.append(picture(f"{table}-{ours}", paper_plots.ablation(points, words.metric(metric)), what, caption))
    return made


def _short(row: str) -> str:
    return row.split(", ")[0].removeprefix("ACE-ODE-Net ").strip("()")
