"""The report on all tables: published numbers and ours, comparisons with verdicts, explanations, files and figures."""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from .. import paper
from ..datasets.files import Folder
from ..paper.published import HIGHER_IS_BETTER, decimals
from ..paper.results import Result, frame, place, slug
from ..paper.row import Row
from ..paper.tables import TABLES, rows_of
from .page import Picture, environment, write_page
from .paper_plots import pictures_of, pictures_over_sets
from .ranks import for_page
from .scores import OURS, ROW, Frame, counted, full_runs, lines, places, scores, usual_runs
from .verdicts import comparisons

Line = Mapping[str, Any]


def write(results: Sequence[Result], folder: Path, out: Path, data_dir: Folder | None = None) -> Path:
    """Write the report on the results that lie in `folder`, with a copy of each file, into the folder `out`.

    Beside the page are `summary.csv`, all comparisons, and `scores.csv`, the scores of every row. Where the images of
    a table are in `data_dir`, the attention is drawn over them.
    """
    found = {place(Path("results"), result).as_posix(): result for result in results}
    runs = frame(results)
    compared, kept, numbers = comparisons(runs), full_runs(runs), lines(runs).groupby("table", sort=False)
    usual = lines(usual_runs(runs))
    tables = [_table(str(name), own, _of_table(compared, own), kept, usual, found, data_dir) for name, own in numbers]
    pictures = [p for t in tables for p in (*t["pictures"], *(r["picture"] for r in t["rankings"] if r["picture"]))]
    frames = {"summary.csv": compared, "scores.csv": scores(runs)}
    beside: dict[str, bytes | Path] = {name: place(folder, result) for name, result in found.items()}
    beside |= {each.file: each.svg.encode() for each in pictures}
    beside |= {name: made.to_csv(index=False).encode() for name, made in frames.items()}
    given = {"runs": len(results), "summary": explanation("summary"), "tables": tables, "higher": HIGHER_IS_BETTER}
    return write_page(out, "report.html.j2", beside, **given)


def explanation(table: str) -> dict[str, str]:
    """Title, what the table is about, and the explanations as HTML, from `explanations/<table>.md`.

    Numbers in them are template variables: `rows` by name, and the modules of `paper` for what no row says.
    """
    from markdown_it import MarkdownIt

    file = files("acenode.report").joinpath("explanations", f"{table}.md")
    if not file.is_file():
        return {"title": table, "about": "", "html": ""}
    source = environment().overlay(autoescape=False).from_string(file.read_text(encoding="utf-8"))
    title, about, *rest = source.render(rows=rows_of(table), paper=paper).split("\n\n", 2)
    return {"title": title.removeprefix("# "), "about": about, "html": MarkdownIt().render("".join(rest))}


def number(value: float, count: int, sign: bool = False) -> str:
    """A number with a true minus, a large one in powers of ten; nothing for what is not a number."""
    if math.isnan(value):
        return ""
    text = f"{value:{'+' if sign else ''}{f'.{count}f' if abs(value) < 1e5 else '.1e'}}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text) else text.lstrip("+-")


def p_value(p: float) -> str:
    """Three decimals, of which a small one has none but zeros."""
    return "< 0.001" if p < 0.0005 else number(p, 3)


def interval(line: Line, count: int) -> str:
    """A difference and its interval, as far as there are."""
    low, high = (number(line[end], count, sign=True) for end in ("low", "high"))
    return number(line["difference"], count, sign=True) + (f" [{low}, {high}]" if low else "")


def spread(mean: float, sd: float, count: int) -> str:
    """Mean and standard deviation."""
    return " ± ".join(filter(None, (number(mean, count), number(sd, count))))


def theirs(line: Line) -> str:
    return spread(line["published"], line["published_sd"], decimals(line["ours_table"], line["metric"]) or 0)


def ours(line: Line) -> str:
    """Mean and standard deviation; the median where runs diverged; marked where the numbers may be wrong."""
    mark = " (not verified)" if line["unverified"] else ""
    if not line["seeds"] or not line["diverged"]:
        return spread(line["mean"], line["sd"], places(line)) + mark if line["seeds"] else "not run"
    middle = f", median {number(line['median'], places(line))}" if math.isfinite(line["median"]) else ""
    return f"{line['diverged']:.0f} of {line['seeds']} diverged{middle}{mark}"


def budget(line: Line) -> str:
    """Seeds and epochs, beside those of a full run."""
    if not line["seeds"] or not line["parameters"]:
        return f"{line['seeds']}, not trained" if line["seeds"] else ""
    short = f" of {line['full_epochs']:.0f}" if line["epochs"] < line["full_epochs"] else ""
    return f"{line['seeds']} x {line['epochs']:.0f}{short}" + (", quick" if line["quick"] else "")


environment().filters |= {
    "number": number,
    "p_value": p_value,
    "interval": interval,
    "ours": ours,
    "theirs": theirs,
    "budget": budget,
}


def _of_table(compared: Frame, own: Frame) -> Frame:
    """The comparisons of a table; of one that takes its numbers from others, those between its rows."""
    keys = {*own[OURS].itertuples(index=False, name=None)}
    whole = set(own.table) == set(own.ours_table)
    pairs = compared[["table", "dataset", "row", "other", "metric"]].itertuples(index=False, name=None)
    wanted = [(t, d, row, m) in keys and (whole or (t, d, other, m) in keys) for t, d, row, other, m in pairs]
    return compared[pd.Series(wanted, compared.index, dtype=bool)]


def _table(name: str, own: Frame, held: Frame, kept: Frame, usual: Frame, found, data_dir) -> dict[str, Any]:
    run, printed, several = set(own.row[own.seeds > 0]), set(own.row[own.published.notna()]), own.dataset.nunique() > 1
    primary, attention = held[held.primary | ~held.primary.any()], held.kind.isin(["base", "control"])
    verdicts = primary[primary.split == "test"].groupby("kind").verdict.agg(counted)
    runs, alone = kept[kept.table == name], name in TABLES and not several
    results = [found[file] for file in runs.file.unique()]
    return explanation(name) | {
        "anchor": slug(name),
        "published": len(printed),
        "run": len(run & printed),
        "more": len(run - printed),
        "against_base": verdicts.get("base", ""),
        "against_controls": verdicts.get("control", ""),
        "standing": counted(own.standing[own.published.notna() & (own.standing != "not run")]),
        "metrics": list(own.metric.unique()),
        "datasets": several,
        "numbers": _numbers(_of_sets_run(own) if several else own, kept[kept.table.isin(own.ours_table)]),
        "attention": _compared(held[attention]),
        "training": _compared(held[~attention]),
        "rankings": rankings(name, usual[usual.table == name]) if several else [],
        "left": [row for row in rows_of(name) if row not in run] if alone else [],
        "pictures": pictures_of(name, results, held, data_dir) if alone else _over_sets(name, results, several),
    }


def _over_sets(name: str, results: Sequence[Result], several: bool) -> list[Picture]:
    return pictures_over_sets(name, results) if several else []


def _of_sets_run(own: Frame) -> Frame:
    """The lines of the data sets on which any row was run, if any was: a leaderboard may have many more."""
    run = own.dataset[own.seeds > 0]
    return own[own.dataset.isin(run)] if len(run) else own


def rankings(table: str, own: Frame) -> list[dict[str, Any]]:
    """One for every metric of a table with several data sets."""
    of_rows = [row for row in TABLES.get(table, ()) if isinstance(row, Row)]
    controls = {name for row in of_rows for name in row.controls} - {row.base for row in of_rows}
    pairs = dict.fromkeys((r.name, other) for r in of_rows if r.base for other in (r.base, *r.controls))
    scores = _with_published(own)
    made = (for_page(table, scores, metric, sorted(controls), pairs) for metric in own.metric.unique())
    return [each for each in made if each is not None]


def _with_published(own: Frame) -> Frame:
    """Our mean and the published one of every row and data set, each as a row of its own."""
    theirs = own.assign(row=own.row + " (published)", mean=own.published)
    return pd.concat([own, theirs]).dropna(subset="mean")


def _compared(held: Frame) -> list[dict[str, Any]]:
    lined = [{**line, "ours_table": line["table"], "diverged": 0} for line in held.to_dict("records")]
    return [{**line, "places": places(line)} for line in lined]


def _numbers(own: Frame, kept: Frame) -> list[dict[str, Any]]:
    """The lines of a table; the first of each row with its runs."""
    by_row = dict(iter(kept[kept.split == "test"].groupby(ROW)))
    made = []
    for line in own.to_dict("records"):
        runs = by_row.pop((line["ours_table"], line["dataset"], line["ours_row"]), None)
        made.append({**line, "places": places(line), "runs": None if runs is None else _runs(runs)})
    return made


def _runs(test: Frame) -> dict[str, Any]:
    """The runs of a row: every score with its file, settings and notes."""
    runs = test.drop_duplicates("file").sort_values("seed")
    values = test.pivot(index="file", columns="metric", values="value")
    known = [{k: f"of {len(v)}" if isinstance(v, list) else v for k, v in sorted(c.items())} for c in runs.config]
    settings = dict.fromkeys(", ".join(f"{k} {v}" for k, v in each.items() if v is not None) for each in known)
    return {
        "metrics": list(values.columns),
        "runs": [{**run, "scores": values.loc[run["file"]].to_dict()} for run in runs.to_dict("records")],
        "tried": sorted({each["learning_rate"] for config in runs.config for each in config.get("grid", ())}),
        "words": [*filter(None, settings), *dict.fromkeys(note for some in runs.notes for note in some)],
    }
