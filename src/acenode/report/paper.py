"""The report on the paper's tables: every number of the paper, ours beside it, verdicts, files and figures."""

from collections.abc import Sequence
from pathlib import Path

from ..datasets.files import Folder
from ..paper.results import Result, place
from . import page, verdict, words
from .compared import Compared, tables
from .explanations import explained
from .overview import ABOUT, COLUMNS, TONES, findings, overview, pair_tone, title_of
from .pairs import Pair, pairs
from .paper_figures import galleries
from .reading import QUESTION, READING
from .sentences import disagreements, of_table

TITLE = "ACE-NODE: the paper's tables and ours"
INTERVAL = "[95\N{NO-BREAK SPACE}%]"


def file_of(run: Result) -> str:
    """The file of a run, as seen from the report and from the project."""
    return place(Path("results"), run).as_posix()


def sections(results: Sequence[Result], data_dir: Folder | None = None) -> list[page.Section]:
    """The parts of the page: a summary, then every table in the paper's order, run or not."""
    compared = tables(results)
    return [_summary(results, compared), *(_section(table, lines, data_dir) for table, lines in compared.items())]


def write(results: Sequence[Result], folder: Path, out: Path, data_dir: Folder | None = None) -> Path:
    """Write the report on the results that lie in `folder`, with a copy of each file, into the folder `out`.

    Where the images of a table are in `data_dir`, the attention is drawn over them.
    """
    lead = (
        f"Attentive co-evolving neural ODEs (KDD 2021), trained again. Made by acenode report from {len(results)} "
        "result files. Every number of ours opens to the files it comes from; they lie in the folder "
        "results beside this page."
    )
    copies = {file_of(run): place(folder, run) for run in results}
    return page.write(out, TITLE, lead, sections(results, data_dir), contents=True, copies=copies)


# --- the summary ------------------------------------------------------------------------------------------------


def _summary(results: Sequence[Result], compared: dict[str, list[Compared]]) -> page.Section:
    rows = []
    for table, lines in compared.items():
        title = title_of(table)
        rows.append([page.Cell(title, link=f"#{page.Section(title, ()).anchor}"), *overview(table, lines)])
    table = page.Table(["Table", *COLUMNS], rows, stacked=True, words=["Table", *COLUMNS])
    found = page.Bullets(QUESTION, findings(compared))
    return page.Section("In short", [], [found, table, page.Details("How to read this", READING)])


# --- one table --------------------------------------------------------------------------------------------------


def _section(table: str, lines: Sequence[Compared], data_dir: Folder | None) -> page.Section:
    title, what = title_of(table), ABOUT.get(table, "")
    metrics = list(dict.fromkeys(line.metric for line in lines))
    queried = "; ".join(f"{words.metric(m)}: {words.direction(m)}" for m in metrics)
    said = [f"{what} {queried[0].upper()}{queried[1:]}.".strip()]
    if not any(line.runs for line in lines):
        said.append("Not run yet: the published numbers alone.")
    pictures = galleries(table, lines, file_of, data_dir)
    return page.Section(title, said, [_numbers(lines), *_pairs(table, lines), *_explained(table, lines), *pictures])


def _numbers(lines: Sequence[Compared]) -> page.Table:
    several = len({line.metric for line in lines}) > 1
    columns = ["Row", *(["Metric"] if several else [])]
    if not any(line.runs for line in lines):
        alone = [[c.row, *([words.metric(c.metric)] if several else []), words.published(c)] for c in lines]
        return page.Table([*columns, "Published"], alone)
    compare = any(line.published for line in lines)
    columns += ["Published", "Ours", f"Difference {INTERVAL}", "Verdict"] if compare else ["Validation", "Test"]
    rows, below = [], {}
    for k, line in enumerate(lines):
        soft = "" if line.runs else "soft"
        metric = [words.metric(line.metric)] if several else []
        ours = page.Cell(words.ours(line), soft)
        gap = words.difference(line.gap, words.places(line))
        standing = page.Cell(words.against_paper(line), tone(line))
        cells = [words.published(line), ours, gap, standing] if compare else [words.validation(line), ours]
        rows.append([line.row, *metric, *cells])
        if line.runs:
            below[k] = _runs(line)
    return page.Table(columns, rows, below=below, stacked=True, words=["Metric"])


def tone(line: Compared) -> page.Tone:
    """A verdict has a colour where the runs had the paper's budget and setting."""
    if line.gap is None:
        return "soft"
    if line.short:
        return ""
    return TONES.get(verdict.standing(line.gap, line.metric), "")


def _runs(line: Compared) -> page.Details:
    runs, p = line.runs, line.published
    devices, protocols = (list(dict.fromkeys(each)) for each in ((r.device for r in runs), (r.protocol for r in runs)))
    weights = f"{words.span([r.parameters for r in runs], ',')} weights"
    seconds = f"{words.span([r.seconds for r in runs], ',.0f')} s on {words.listed(devices)}"
    parts = [
        *(["quick run"] if line.quick else []),
        f"{len(runs)} seed{'s' if len(runs) > 1 else ''}",
        words.budget(line),
        *([weights + (f" (published: {p.parameters})" if p and p.parameters else ""), seconds] if line.trained else []),
        f"protocol: {words.listed(protocols)}",
    ]
    others = list(dict.fromkeys(name for r in runs for name in r.metrics if name != line.metric))
    columns = ["Seed", "File", *map(words.metric, (line.metric, *others)), "Best epoch", "Seconds"]
    rows = [
        [
            str(r.seed),
            _link(r),
            words.number(value, words.places(line)),
            *(words.number(r.metrics[name], words.places(line)) if name in r.metrics else "" for name in others),
            str(r.best_epoch),
            f"{r.seconds:,.0f}",
        ]
        for r, value in zip(runs, line.values, strict=True)
    ]
    settings = dict.fromkeys(words.settings(r.config) for r in runs)
    notes = dict.fromkeys(note for r in runs for note in r.notes)
    said = [*(f"Settings: {each}." for each in settings if each), *notes]
    return page.Details(" · ".join(parts), said, page.Table(columns, rows, stacked=True))


def _link(run: Result) -> page.Cell:
    return page.Cell(file_of(run), link=file_of(run))


def _pairs(table: str, lines: Sequence[Compared]) -> list[page.Table]:
    held = pairs(table, lines)
    if not held:
        return []
    several = len({pair.one.metric for pair in held}) > 1
    columns = [
        "Row",
        "Against",
        *(["Metric"] if several else []),
        "Published difference",
        f"Our difference {INTERVAL}",
        "Verdict",
    ]
    rows, below = [], {}
    for k, pair in enumerate(held):
        metric = [words.metric(pair.one.metric)] if several else []
        said = page.Cell(words.pair(pair), pair_tone(pair))
        rows.append([pair.one.row, pair.other.row, *metric, words.claimed(pair), words.gap_of_pair(pair), said])
        if pair.gap:
            below[k] = _seeds(pair, pair.gap)
    caption = words.QUESTIONS.get(table, words.ATTENTION)
    return [page.Table(columns, rows, caption=caption, below=below, stacked=True, words=["Against", "Metric"])]


def _seeds(pair: Pair, gap: verdict.Gap) -> page.Details:
    count, metric = words.places(pair.one), pair.one.metric
    runs = sorted(((r, each.row) for each in (pair.one, pair.other) for r in each.runs), key=lambda each: each[0].seed)
    rows = [[f"seed {r.seed}", row, words.number(r.metrics[metric], count), _link(r)] for r, row in runs]
    return page.Details(
        words.seeds(gap),
        (),
        page.Table(["Run", "Row", words.metric(metric), "File"], rows, stacked=True, words=["Row"]),
    )


def _explained(table: str, lines: Sequence[Compared]) -> list[page.Bullets]:
    title = "What to know about these numbers"
    if disagreements(lines):
        title = "Where ours and the paper's differ, and what may explain it"
    said = [*of_table([line for line in lines if line.runs]), *explained(table, lines)]
    return [page.Bullets(title, said)] if said else []
