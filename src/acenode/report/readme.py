"""The part of README that is made from the result files."""

import textwrap
from collections.abc import Mapping, Sequence

from ..paper.results import Result
from . import words
from .compared import ABLATIONS, Compared, tables
from .explanations import RELEASED, explained
from .overview import COLUMNS, findings, overview, title_of
from .pairs import Pair, pairs
from .reading import QUESTION, READING
from .sentences import of_table

BEGIN = '<!-- results: made by "acenode report --readme README.md" -->'
END = "<!-- /results -->"


class NoMarkers(ValueError):
    """A text that does not say where the results go."""


def with_results(text: str, results: Sequence[Result]) -> str:
    """A text with the part between the two markers made anew."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise NoMarkers(f"needs the lines {BEGIN} and {END}, once each and in this order")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{summary(results)}\n{END}{rest.split(END)[1]}"


def summary(results: Sequence[Result]) -> str:
    """Markdown: what was found, and each table that has runs of its own or, as an ablation, something to compare."""
    compared = tables(results)
    run = {table: lines for table, lines in compared.items() if _worth(table, lines)}
    missing = [title_of(table) for table in compared if table not in run]
    lead = (
        "`acenode report` makes a page of all of it, with figures, and every number with its files. Released code: "
        f"that of the authors, <{RELEASED}>."
    )
    if missing:
        lead += f" Nothing to compare yet: {words.listed(missing)}."
    found = "\n".join(_wrapped(f"- {each}", "  ") for each in findings(compared))
    how = "\n".join(_wrapped(f"- {each}", "  ") for each in READING)
    folded = f"<details><summary>How to read this</summary>\n\n{how}\n\n</details>"
    parts = [_wrapped(lead), f"**{QUESTION}**", found, folded, "\n".join(_overview(run))]
    return "\n\n".join([*parts, *(_table(table, lines) for table, lines in run.items())])


def _overview(run: Mapping[str, Sequence[Compared]]) -> list[str]:
    """A line for each table, with a link to it."""
    rows = [["Table", *COLUMNS]]
    for table, lines in run.items():
        title = title_of(table)
        link = f"[{title}](#{title.lower().replace(' ', '-')})"
        rows.append([link, *(cell.text for cell in overview(table, lines))])
    return _grid(rows)


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, from its head and its rows."""
    head, *body = rows
    lines = (head, ["---"] * len(head), *body)
    return ["| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines]


def _worth(table: str, lines: Sequence[Compared]) -> bool:
    if table in ABLATIONS:
        return any(pair.gap for pair in pairs(table, lines))
    return any(line.runs for line in lines)


def _table(table: str, lines: Sequence[Compared]) -> str:
    """One table, folded."""
    own = [line for line in lines if line.runs]
    several = len({line.metric for line in own}) > 1
    compare = any(line.published for line in lines)
    columns = ["published", "ours", "seeds x epochs", "difference", "verdict"]
    rows = [["row", *(["metric"] if several else []), *(columns if compare else ["validation", "test", columns[2]])]]
    for line in own:
        metric = [words.metric(line.metric)] if several else []
        gap = words.difference(line.gap, words.places(line))
        cells = [words.published(line), words.ours(line), words.size(line), gap, words.standing(line)]
        rows.append([line.row, *metric, *(cells if compare else [words.validation(line), *cells[1:3]])])
    folders = words.listed([f"[`results/{name}`](results/{name})" for name in dict.fromkeys(c.ours[0] for c in own)])
    said = _said(table, lines)
    parts = [
        f"### {title_of(table)}",
        "<details><summary>Numbers, verdicts and what to know of them</summary>",
        f"Files: {folders}.",
        "\n".join(_grid(rows)),
        "\n".join(_wrapped(f"- {each}", "  ") for each in said),
        "</details>",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _said(table: str, lines: Sequence[Compared]) -> list[str]:
    """The verdicts of the pairs; where ours is not the paper's number, and what may explain it."""
    said = [_verdict(pair) for pair in pairs(table, lines) if pair.gap]
    run = [line for line in lines if line.runs]
    for each in dict.fromkeys(line.other_protocol for line in run if line.other_protocol):
        metrics = dict.fromkeys(words.metric(line.metric) for line in run if line.other_protocol == each)
        every = len(metrics) == len({line.metric for line in run})
        what = "" if every else f" of the {words.listed(list(metrics))}"
        said.append(f"Not the paper's setting{what} ({each}): compare the rows with each other only.")
    return [*said, *of_table(lines), *explained(table, lines)]


def _verdict(pair: Pair) -> str:
    claimed = f" (published {words.claimed(pair)})" if pair.claimed is not None else ""
    found = ", ".join(filter(None, (words.gap_of_pair(pair), words.seeds(pair.gap)))) + claimed if pair.gap else ""
    why = ", ".join(filter(None, (words.reason(pair), words.fairness(pair))))
    what = f"{pair.one.row} against {pair.other.row}, {words.metric(pair.one.metric)}"
    return f"{what}: **{pair.effect}**, {found}" + (f"; {why}." if why else ".")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
