"""The report on the paper's tables: every number of the paper, ours beside it, verdicts, files and figures."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..datasets.files import Folder
from ..paper.results import BrokenResult, Result, path_of
from . import page, verdict, words
from .compared import ABLATIONS, SETTINGS, Compared, Pair, pairs, tables
from .explanations import explained
from .paper_figures import galleries
from .sentences import disagreements, of_table

TITLE = "ACE-NODE: the paper's tables and ours"
TITLES = {
    "mnist": ("MNIST", "Handwritten digits: the part of the test images that is classified right."),
    "svhn": ("SVHN", "House numbers: the part of the test images that is classified right."),
    "cifar10": ("CIFAR10", "Photographs of ten kinds of things: the part of the test images that is classified right."),
    "silhouette": ("Silhouette", "How clearly the features of CIFAR10 classifiers fall into clusters."),
    "ushcn": ("USHCN", "Daily climate, seen sporadically: a forecast of what is seen next."),
    "physionet-classification": ("PhysioNet mortality", "Who dies in hospital, from 48 hours of intensive care."),
    "physionet-regression": ("PhysioNet values", "Measurements of intensive care, reconstructed and forecast."),
    "activity": ("Human Activity", "What a person is doing, at each point of time, from four sensors."),
    "double-ou": ("Double Ornstein-Uhlenbeck", "A generated process whose best possible forecast is known."),
    SETTINGS: (
        "Settings of the attention",
        "What the paper leaves open, tried one by one where the path counts: PhysioNet's extrapolation.",
    ),
    "attention-size": ("Size of attention", "Ablation: the image classifiers with a small and a large attention."),
    "attention-type": ("Kind of attention", "Ablation: the first attention from a dense layer, fixed, or evolving."),
}
READING = (
    "Ours: mean ± standard deviation over seeds, on test data. Those chose nothing: validation data chose the epoch "
    "and, where there was a choice, the settings. Published: as the paper prints it.",
    "Difference: ours minus published, and in brackets the interval that holds it with 95 % confidence, by Welch's t "
    "over our seeds and the five that the paper says it had; where it prints no spread, its number is taken as exact. "
    "With one seed there is no interval.",
    "Rows against each other: where both have the same seeds (the same split, or the same fold), the differences are "
    "taken seed by seed and the interval is theirs (paired); otherwise it is Welch's.",
    "The attention helps or hurts where the interval leaves out zero. It does not help where the interval holds zero "
    "and leaves out the paper's gain, or for a row that the paper does not have, its gain in that table and metric. "
    "There is no telling where it holds both. Where there is no such gain, no difference is seen. Each interval is for "
    "itself: among many, one in twenty errs. A verdict has a colour where both rows had all epochs and the same "
    "settings.",
    "A run ran away if its error is a thousand times the smallest of its row, or not a number.",
    "Protocol sound: the paper's data and question. Anything else is named, and such a number is not comparable with "
    "the published one. A quick run, or one with fewer epochs than the paper's, is marked where it stands; "
    "full runs of a row take the place of quick ones.",
)


OVERVIEW = ("Rows run", "The attention", "Ours against the paper")
INTERVAL = "[95\N{NO-BREAK SPACE}%]"
TONES: dict[str, page.Tone] = {"better": "good", "worse": "bad", "helps": "good", "hurts": "bad"}


def file_of(run: Result) -> str:
    """The file of a run, as seen from the report and from the project."""
    return _path(Path("results"), run).as_posix()


def _path(folder: Path, run: Result) -> Path:
    return path_of(folder, run.table, run.row, run.seed, quick=bool(run.config.get("quick")))


def sections(results: Sequence[Result], data_dir: Folder | None = None) -> list[page.Section]:
    """The parts of the page: a summary, then every table in the paper's order, run or not."""
    compared = tables(results)
    return [_summary(results, compared), *(_section(table, lines, data_dir) for table, lines in compared.items())]


def write(results: Sequence[Result], folder: Path, out: Path, data_dir: Folder | None = None) -> Path:
    """Write the report on the results that lie in `folder`, with a copy of each file, into the folder `out`.

    Where the images of a table are in `data_dir`, the attention is drawn over them.
    """
    paths = [_path(folder, r) for r in results]
    for path in paths:
        if paths.count(path) > 1 or not path.is_file():
            raise BrokenResult(f"{path}: two result files have this table, row and seed, or one is not in its place.")
    lead = (
        f"Attentive co-evolving neural ODEs (KDD 2021), trained again. Made by acenode report from {len(results)} "
        "result files. Every number of ours opens to the files it comes from; they lie in the folder "
        "results beside this page."
    )
    copies = {file_of(run): path for run, path in zip(results, paths, strict=True)}
    return page.write(out, TITLE, lead, sections(results, data_dir), contents=True, copies=copies)


# --- the summary ------------------------------------------------------------------------------------------------


def _summary(results: Sequence[Result], compared: dict[str, list[Compared]]) -> page.Section:
    rows = []
    for table, lines in compared.items():
        title = TITLES.get(table, (table, ""))[0]
        rows.append([page.Cell(title, link=f"#{page.Section(title, ()).anchor}"), *overview(table, lines)])
    table = page.Table(["Table", *OVERVIEW], rows, stacked=True, words=["Table", *OVERVIEW])
    return page.Section("In short", [attention_sentence(compared)], [table, page.Details("How to read this", READING)])


def overview(table: str, lines: Sequence[Compared]) -> list[page.Cell]:
    """A table in the words of `OVERVIEW`."""
    own = [line for line in lines if line.runs]
    if not own:
        return [page.Cell("not run yet", "soft"), page.Cell(""), page.Cell("")]
    return [_count(lines), _effects(table, lines), _standings(own)]


def attention_sentence(compared: dict[str, list[Compared]]) -> str:
    """Over all tables that are not ablations: how often the attention helps, where the two rows had the same chance."""
    every = [p for table, lines in compared.items() if table not in ABLATIONS for p in pairs(table, lines) if p.gap]
    once = {p.one.ours: p for p in reversed(every)}.values()  # by the first metric of the row
    held = [p for p in once if p.alike]
    if not held:
        return "No attentive model has been run beside the model it extends with the same settings."
    count = Counter(p.effect for p in held)
    parts = [f"{e} in {count[e] or 'none'}" for e in ("helps", "does not help", "hurts")]
    times = f"{len(held)} comparison{'s' if len(held) > 1 else ''}"
    full = sum(not (p.one.short or p.other.short) for p in held)
    return (
        f"In {times} of an attentive model with the one it extends, trained with the same settings, the attention "
        f"{words.listed(parts)}; no difference is seen in {count['no difference seen'] or 'none'}, and in "
        f"{count['cannot tell'] or 'none'} the runs cannot tell. {full} of them had all their epochs."
    )


def _count(lines: Sequence[Compared]) -> page.Cell:
    """How many of the paper's rows were run, and how many others."""
    theirs = {line.row for line in lines if line.published}
    run = {line.row for line in lines if line.runs}
    more = f", {len(run - theirs)} not in the paper" if run - theirs else ""
    return page.Cell(f"{len(run & theirs)} of {len(theirs)}{more}" if theirs else f"{len(run)}, not in the paper")


def _effects(table: str, lines: Sequence[Compared]) -> page.Cell:
    held = [p for p in pairs(table, lines) if p.gap]
    if not held:
        return page.Cell("")
    count = Counter(p.effect for p in held)
    first = _pair_tone(held[0])
    tone = first if all(_pair_tone(p) == first for p in held) else ""
    return page.Cell(", ".join(e if n == len(held) else f"{e} ({n})" for e, n in count.items()), tone)


def _standings(lines: Sequence[Compared]) -> page.Cell:
    gaps = [(line.gap, line.metric) for line in lines if line.gap and not line.other_protocol]
    count = Counter(verdict.standing(gap, metric) for gap, metric in gaps)
    said = {"better": "better", "worse": "worse", "level": "no difference seen", "unknown": "no interval"}
    short = [line for line in lines if line.short and line.in_paper]
    marks = []
    if short:
        full = words.span([line.full_epochs or 0 for line in short], "d")
        marks.append(f"after {words.span([line.epochs for line in short], 'd')} of {full} epochs")
    if any(line.other_protocol for line in lines):
        marks.append("not the paper's setting")
    return page.Cell("; ".join([", ".join(f"{n} {said[s]}" for s, n in count.items()), *marks]).strip("; "))


# --- one table --------------------------------------------------------------------------------------------------


def _section(table: str, lines: Sequence[Compared], data_dir: Folder | None) -> page.Section:
    title, what = TITLES.get(table, (table, ""))
    metrics = list(dict.fromkeys(line.metric for line in lines))
    asked = "; ".join(f"{words.metric(m)}: {words.direction(m)}" for m in metrics)
    said = [f"{what} {asked[0].upper()}{asked[1:]}.".strip()]
    if not any(line.runs for line in lines):
        said.append("Not run yet: the published numbers alone.")
    pictures = galleries(table, lines, file_of, data_dir)
    return page.Section(title, said, [_numbers(lines), *_pairs(table, lines), *_explained(table, lines), *pictures])


def _numbers(lines: Sequence[Compared]) -> page.Table:
    several = len({line.metric for line in lines}) > 1
    columns = ["Row", *(["Metric"] if several else []), "Published"]
    if not any(line.runs for line in lines):
        alone = [[c.row, *([words.metric(c.metric)] if several else []), words.published(c)] for c in lines]
        return page.Table(columns, alone)
    columns += ["Ours", f"Difference {INTERVAL}", "Verdict"]
    rows, below = [], {}
    for k, line in enumerate(lines):
        soft = "" if line.runs else "soft"
        metric = [words.metric(line.metric)] if several else []
        cells = [
            words.published(line),
            page.Cell(words.ours(line), soft),
            words.difference(line.gap, words.places(line)),
        ]
        rows.append([line.row, *metric, *cells, page.Cell(words.against_paper(line), tone(line))])
        if line.runs:
            below[k] = _runs(line)
    return page.Table(columns, rows, below=below, stacked=True, words=["Metric"])


def tone(line: Compared) -> page.Tone:
    """A verdict has a colour where the runs had the paper's budget and setting."""
    if line.gap is None:
        return "soft"
    if line.short or line.other_protocol:
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
    columns = ["Seed", *map(words.metric, (line.metric, *others)), "Best epoch", "Seconds", "File"]
    rows = [
        [
            str(r.seed),
            words.number(value, words.places(line)),
            *(words.number(r.metrics[name], words.places(line)) if name in r.metrics else "" for name in others),
            str(r.best_epoch),
            f"{r.seconds:,.0f}",
            _link(r),
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
        said = page.Cell(words.pair(pair), _pair_tone(pair))
        rows.append([pair.one.row, pair.other.row, *metric, words.claimed(pair), words.gap_of_pair(pair), said])
        if pair.gap:
            below[k] = _seeds(pair, pair.gap)
    caption = words.QUESTIONS.get(table, words.ATTENTION)
    return [page.Table(columns, rows, caption=caption, below=below, stacked=True, words=["Against", "Metric"])]


def _pair_tone(pair: Pair) -> page.Tone:
    fair = pair.alike and not (pair.one.short or pair.other.short)
    return TONES.get(pair.effect, "") if fair else ""


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
