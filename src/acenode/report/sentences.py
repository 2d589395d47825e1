"""What to know about the numbers of a table, in sentences."""

import statistics
from collections.abc import Sequence
from typing import cast

from . import verdict, words
from .compared import COPIES, Compared


def disagreements(lines: Sequence[Compared]) -> list[str]:
    """Which rows are not as published, in sentences."""
    said = []
    for side in ("worse", "better"):
        rows = [c.row for c in lines if c.gap and not c.other_protocol and verdict.standing(c.gap, c.metric) == side]
        if rows:
            said.append(f"{side.capitalize()} than published: {words.listed(list(dict.fromkeys(rows)))}.")
    return said


def copies(lines: Sequence[Compared]) -> list[str]:
    """What the data are, where they are a copy of the paper's."""
    protocols = dict.fromkeys(run.protocol for line in lines for run in line.runs)
    return [COPIES[each] for each in protocols if each in COPIES]


def budgets(lines: Sequence[Compared]) -> list[str]:
    """That runs had less than a full budget, where they had."""
    said = {
        True: "Runs had fewer epochs than the published ones ({}): as long as that is so, a distance to the paper says "
        "little about the method.",
        False: "Runs of rows that the paper does not have had fewer epochs than their recipe ({}).",
    }
    short = {
        known: list(dict.fromkeys(words.budget(line) for line in lines if line.short and line.in_paper == known))
        for known in said
    }
    return [sentence.format(words.listed(short[known])) for known, sentence in said.items() if short[known]]


def outdated(lines: Sequence[Compared]) -> list[str]:
    """Which rows would be trained otherwise today."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.outdated and line.row not in rows.setdefault(line.outdated, []):
            rows[line.outdated].append(line.row)
    return [
        f"Settings have changed since the runs of {words.listed(of)} ({words.listed(list(names))}): to reproduce them "
        "today is to train them again."
        for names, of in rows.items()
    ]


def choices(lines: Sequence[Compared]) -> list[str]:
    """Which rows had their learning rate chosen by validation, where only some had."""
    trained = {c.row: c.runs[0].config for c in lines if c.runs and c.trained}
    chosen = {row: config for row, config in trained.items() if "grid" in config}
    if not chosen or len(chosen) == len(trained):
        return []
    tried = {each["learning_rate"] for config in chosen.values() for each in cast(list[dict], config["grid"])}
    others = {cast(float, config["learning_rate"]) for row, config in trained.items() if row not in chosen}
    return [
        f"The learning rate of {words.listed(list(chosen))} was chosen on validation data among {_numbers(tried)}; "
        f"for the other rows, which had {_numbers(others)}, nothing was chosen."
    ]


def _numbers(rates: set[float]) -> str:
    return words.listed([str(rate) for rate in sorted(rates)])


def optima(lines: Sequence[Compared]) -> list[str]:
    """How much of the best possible NegLL the rows reach, where it is known."""
    scores = {c.row: statistics.fmean(c.values) for c in lines if c.metric == "negll" and c.runs}
    best = scores.pop("exact filter", None)
    if best is None or not scores:
        return []
    reached = [f"{row} {score / best:.3f}" for row, score in scores.items()]
    return [
        f"The exact filter knows the process, and its NegLL of {words.number(best, 4)} is the best there can be. The "
        f"models' NegLL over it: {words.listed(reached)}."
    ]
