"""A page for each table of results, from the files in `results/` through acenode's own report."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from acenode.paper.published import HIGHER_IS_BETTER
from acenode.paper.results import Result, frame, load, slug
from acenode.paper.tables import TABLES
from acenode.report.page import Picture
from acenode.report.paper import budget, explanation, interval, ours, p_value, rankings, spread, theirs
from acenode.report.paper_plots import pictures_of, pictures_over_sets
from acenode.report.scores import Frame, counted, full_runs, lines, places, usual_runs
from acenode.report.verdicts import comparisons

from . import ROOT, plain, put, table

MANY = 3  # data sets, from which on a table has a line for each of them
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{ :root \{[^}]*\} \}")


@cache
def found() -> list[Result]:
    """Every result of this checkout."""
    return load(ROOT / "results")


@cache
def runs() -> Frame:
    return frame(found())


@cache
def numbers() -> Frame:
    """Every row of every table, published and ours."""
    return lines(runs())


@cache
def usual_numbers() -> Frame:
    """The same over the seeds that most rows of a data set have."""
    return lines(usual_runs(runs()))


@cache
def compared() -> Frame:
    """Every attentive row with its base and its controls."""
    return comparisons(runs())


def write(docs: Path) -> None:
    """Write `results/index.md` and a page for each table that has results; drawing takes a minute."""
    stamp, state = docs / "results" / ".made-from", _state()
    if stamp.exists() and stamp.read_text() == state:
        return
    every = numbers()
    shown = {str(name): own for name, own in every.groupby("table", sort=False) if (own.seeds > 0).any()}
    for name, own in shown.items():
        put(docs / "results" / f"{name}.md", "\n".join(_page(docs, name, own)))
    put(docs / "results" / "index.md", "\n".join(_index(shown)))
    put(stamp, state)


def _state() -> str:
    """What the pages are made from: the result files, and the code that reads them."""
    files = [*(ROOT / "results").rglob("*.json"), *(ROOT / "src" / "acenode").rglob("*"), Path(__file__)]
    known = sorted(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files if path.is_file())
    return hashlib.sha256("\n".join(each for each in known if "__pycache__" not in each).encode()).hexdigest()


def comparisons_of(name: str, own: Frame) -> Frame:
    """The comparisons between rows of a table."""
    keys = {*own[["ours_table", "dataset", "ours_row"]].itertuples(index=False, name=None)}
    held = compared()
    pairs = held[["table", "dataset", "row", "other"]].itertuples(index=False, name=None)
    wanted = [(t, d, r) in keys and ((t, d, o) in keys or name in TABLES) for t, d, r, o in pairs]
    return held[wanted]


def verdict_counts(held: Frame, kind: str) -> str:
    """How often each verdict is there on test data, for the metric that chose the epoch."""
    own = held[held.primary & (held.split == "test") & (held.kind == kind)]
    return counted(own.verdict) or "none"


def _index(shown: dict[str, Frame]) -> list[str]:
    rows = []
    for name, own in shown.items():
        held = comparisons_of(name, own)
        printed = own[own.published.notna()]
        run = f"{(printed.seeds > 0).sum()} of {len(printed)}" if len(printed) else "no published numbers"
        standing = counted(printed.standing[printed.standing != "not run"]) or "none"
        against = (verdict_counts(held, "base"), verdict_counts(held, "control"))
        rows.append([f"[{explanation(name)['title']}]({name}.md)", run, *map(plain, against), plain(standing)])
    heads = ["table", "published numbers run again", "attention and its base", "attention and its controls"]
    return [
        "# Results",
        "",
        explanation("summary")["about"],
        "",
        f"These pages are made from {len(found())} result files in the folder `results` of the source, one file for "
        "each run. `acenode report` makes a page of your own runs, `acenode reproduce TABLE` trains what is missing.",
        "",
        *table([*heads, "ours and the published numbers"], rows),
        "How to read a verdict:",
        "",
        *_VERDICTS,
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *shown,
        "```",
        "",
    ]


_VERDICTS = (
    "- *significant gain* or *loss*: at the 5 % level, by Holm's adjustment over the comparisons of a table;",
    "- *no significant difference*: the interval is narrower than the effect of interest;",
    "- *inconclusive*: it is wider, so the runs say nothing;",
    "- *confounded*: the two rows differ in more than the attention;",
    "- *attention inactive*: in most runs the weights did not change along the solve, so they are no evidence;",
    "- *not run* and *diverged*: there is nothing to compare.",
)


def _page(docs: Path, name: str, own: Frame) -> list[str]:
    told, held = explanation(name), comparisons_of(name, own)
    metrics = list(own.metric[own.seeds > 0].unique())
    better = ", ".join(f"{m} ({'higher' if m in HIGHER_IS_BETTER else 'lower'} is better)" for m in metrics)
    several = own.dataset.nunique() > 1
    parts = [f"# {told['title']}", "", f"{told['about']} Metrics: {plain(better)}.", ""]
    usual = usual_numbers()[usual_numbers().table == name]
    parts += _ranks(docs, name, usual) if several else []
    many = own.dataset.nunique() > MANY
    which = "the seeds or folds that most rows have" if many else "seeds or folds"
    parts += ["## Scores", "", f"Mean ± standard deviation over {which}, on test data.", ""]
    parts += _by_set(usual, metrics) if many else _scores(own, metrics, several)
    parts += _attention(held, several)
    if told["html"]:
        parts += ["## Notes", "", f'<div class="notes">{told["html"]}</div>', ""]
    parts += _pictures(docs, name, held, several) if name in TABLES else []
    return [*parts, *_runs(own)]


def _whole(score: str) -> str:
    """Mean and deviation that stay on one line."""
    return score.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _scores(own: Frame, metrics: list[str], several: bool) -> list[str]:
    made = []
    for metric in metrics:
        some = own[own.metric == metric]
        printed = bool(some.published.notna().any())
        columns = ["row", *(["data set"] * several), *(["published"] * printed), "ours", "seeds x epochs"]
        rows = []
        for line in some.to_dict("records"):
            cells = [plain(line["row"]), *([line["dataset"]] * several), *([_whole(theirs(line))] * printed)]
            cells += [_whole(ours(line)), budget(line)] + ([line["standing"] or "not published"] * printed)
            rows.append(cells)
        made += [f"### {plain(metric)}", ""] if len(metrics) > 1 else []
        made += table([*columns, *(["against published"] * printed)], rows)
    return made


def _by_set(own: Frame, metrics: list[str]) -> list[str]:
    """A line for each data set: our rows, and the best published one."""
    made = []
    for metric in metrics:
        some = own[own.metric == metric]
        some = some[some.dataset.isin(some.dataset[some.seeds > 0])]
        names = list(some.row[some.seeds > 0].unique())
        printed = bool(some.published.notna().any())
        rows = []
        for dataset, every in some.groupby("dataset", sort=False):
            mine = {line["row"]: _whole(ours(line)) for line in every.to_dict("records") if line["seeds"]}
            told = every[every.published.notna()].sort_values("published", ascending=metric not in HIGHER_IS_BETTER)
            best = f"{told.published.iloc[0]:g} {plain(told.row.iloc[0])}" if len(told) else ""
            rows.append([dataset, *(mine.get(each, "not run") for each in names), *([best] * printed)])
        made += [f"### {plain(metric)}", ""] if len(metrics) > 1 else []
        made += table(["data set", *map(plain, names), *(["best published"] * printed)], rows)
    return made


def comparison_table(held: Frame, several: bool) -> list[str]:
    """Rows compared, with the difference, its interval, the adjusted p-value and the verdict."""
    columns = ["row", "compared with", *(["data set"] * several), "metric", "difference [95 %]", "p (Holm)", "verdict"]
    rows = []
    for line in held.to_dict("records"):
        count = places({**line, "ours_table": line["table"], "diverged": 0})
        split = " (validation)" if line["split"] == "validation" else ""
        told = f"{line['verdict']}: {line['note']}" if line["note"] else line["verdict"]
        cells = [plain(line["row"]), plain(line["other"]), *([line["dataset"]] * several)]
        rows.append(
            [*cells, plain(line["metric"]) + split, interval(line, count), p_value(line["p_holm"]), plain(told)]
        )
    return table(columns, rows)


def _attention(held: Frame, several: bool) -> list[str]:
    own = held[held.kind.isin(["base", "control"])]
    if not len(own):
        return []
    main = own[own.primary & (own.split == "test")]
    rest = own.drop(main.index)
    parts = ["## Does the attention help?", "", *comparison_table(main, several)]
    if len(rest):
        parts += ["<details><summary>Other metrics and validation data</summary>", ""]
        parts += [*comparison_table(rest, several), "</details>", ""]
    return parts


def _ranks(docs: Path, name: str, own: Frame) -> list[str]:
    """Average ranks over the data sets, beside the published forecasters."""
    made = []
    for each in rankings(name, own):
        rows = [[plain(r["row"]), f"{r['rank']:.2f}", str(r["wins"]), p_value(r["p_holm"])] for r in each["rows"]]
        made += [f"## Ranks by {plain(each['metric'])}", ""]
        made += [f"Over the {each['shared']} data sets that all of these rows have; p to the first row.", ""]
        made += table(["row", "average rank", "wins", "p (Wilcoxon, Holm)"], rows)
        made += _figure(docs, each["picture"]) if each["picture"] else []
        if each["pairs"]:
            made += ["Attentive rows over the data sets that both of a pair have:", ""]
            lines = [
                [
                    plain(p["row"]),
                    plain(p["other"]),
                    f"{p['wins']} of {p['sets']}",
                    f"{p['change']:+.1%}",
                    p_value(p["p_holm"]),
                ]
                for p in each["pairs"]
            ]
            made += table(["row", "compared with", "better on", "median change", "p (Wilcoxon, Holm)"], lines)
        if each["controls"]:
            made += [f"Not ranked, as a variant of a row that is: {plain('; '.join(each['controls']))}.", ""]
        if each["short"]:
            short = "; ".join(f"{row} ({count})" for row, count in each["short"].items())
            made += [f"Not ranked, as run on few of the {each['sets']} data sets: {plain(short)}.", ""]
    return made


def _pictures(docs: Path, name: str, held: Frame, several: bool) -> list[str]:
    kept = full_runs(runs())
    by_file = {(r.table, r.dataset, r.row, r.seed, bool(r.config.get("quick"))): r for r in found()}
    keys = kept[kept.table == name][["table", "dataset", "row", "seed", "quick"]].drop_duplicates()
    results = [by_file[key] for key in keys.itertuples(index=False, name=None)]
    drawn = pictures_over_sets(name, results) if several else pictures_of(name, results, held, None)
    parts = [line for each in drawn for line in _figure(docs, each)]
    return ["## Pictures", "", *parts] if parts else []


def _figure(docs: Path, drawn: Picture) -> list[str]:
    put(docs / "results" / drawn.file, _DARK.sub("", drawn.svg))
    width, _ = drawn.size
    head = [f"```{{figure}} {drawn.file}", f":alt: {drawn.alt}", f":width: {width}px", ""]
    return [*head, plain(drawn.caption), "```", ""]


def _runs(own: Frame) -> list[str]:
    """How each row was trained."""
    done = own[own.seeds > 0].drop_duplicates(["ours_table", "dataset", "ours_row"])
    rows = []
    for line in done.to_dict("records"):
        told = [f"{line['parameters']:,.0f}" if line["parameters"] else "not trained", f"{line['seconds']:,.0f}"]
        prefix = "-".join(filter(None, (slug(line["dataset"]), slug(line["ours_row"]))))
        file = f"`{line['ours_table']}/{prefix}-seed*.json`"
        health = plain(line["attention"] or "none")
        name = ", ".join(filter(None, (line["dataset"], line["row"])))
        rows.append([plain(name), *told, line["device"], line["learning_rate"], health, line["protocol"], file])
    heads = ["row", "parameters", "seconds", "device", "learning rate", "attention", "protocol", "files in `results`"]
    return ["## Runs", "", *table(heads, rows)]


def mean_of(line: dict[str, Any]) -> str:
    """Mean and standard deviation with as many places as the page of its table has."""
    return _whole(spread(line["mean"], line["sd"], places(line)))
