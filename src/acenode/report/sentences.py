"""What to know about the numbers of a table, in sentences."""

import re
import statistics
from collections.abc import Sequence
from typing import cast

from ..paper import settings
from ..paper.results import Result
from . import verdict, words
from .compared import COPIES, Compared
from .movement import ends_even, moved_gates, moved_weight, stands_still, steady
from .pairs import chosen, eligible


def disagreements(lines: Sequence[Compared]) -> list[str]:
    """Which rows are not as published, in sentences."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.gap and verdict.standing(line.gap, line.metric) in ("worse", "better"):
            rows.setdefault(words.standing(line), []).append(line.row)
    return [f"{said.capitalize()}: {words.listed(list(dict.fromkeys(of)))}." for said, of in sorted(rows.items())]


def not_run(lines: Sequence[Compared]) -> list[str]:
    """Which of the paper's rows have no runs."""
    rows = list(dict.fromkeys(line.row for line in lines if not line.runs))
    return [f"Not run yet: {words.listed(rows)}."] if rows else []


def accidents(lines: Sequence[Compared]) -> list[str]:
    """What went wrong in training, by the notes of the runs."""
    skipped = {line.row: [n for r in line.runs for n in map(_skipped, r.notes) if n] for line in lines}
    return [
        f"In {len(counts)} of the runs of {row}, {words.span(counts, 'd')} updates were left out because the loss or "
        "its gradient was not finite."
        for row, counts in skipped.items()
        if counts
    ]


def _skipped(note: str) -> int:
    found = re.search(r"(\d+) updates? (?:was|were) skipped", note)
    return int(found[1]) if found else 0


def movements(lines: Sequence[Compared]) -> list[str]:
    """How much the attention changes over time, in runs that did not diverge."""
    kinds = {
        "Largest change over time of an attention weight, averaged over test samples": moved_weight,
        "Mean change of a gate of the attention from first to last": moved_gates,
    }
    said = []
    for what, moved in kinds.items():
        found = {line.row: [each for each in map(moved, steady(line)) if each is not None] for line in lines}
        listed = [f"{row} {words.span(some, '.4f')}" for row, some in found.items() if some]
        said += [f"{what}, least and most of the runs: {words.listed(listed)}."] if listed else []
    still = list(dict.fromkeys(line.row for line in lines if stands_still(line)))
    rows = "these rows tell" if len(still) > 1 else "this row tells"
    if still:
        said.append(f"The attention stands still in {words.listed(still)}: {rows} nothing of one that moves.")
    return said


def evenness(lines: Sequence[Compared]) -> list[str]:
    """Where a pairwise attention ends as a plain mean."""
    ends = {line.row: [even for even in map(ends_even, steady(line)) if even is not None] for line in lines}
    found = [f"{row} ({sum(some)} of {len(some)} runs)" for row, some in ends.items() if any(some)]
    return [f"At the end the attention is even and does not choose: {words.listed(found)}."] if found else []


def copies(lines: Sequence[Compared]) -> list[str]:
    """What the data are, where they are a copy of the paper's."""
    protocols = dict.fromkeys(run.protocol for line in lines for run in line.runs)
    return [COPIES[each] for each in protocols if each in COPIES]


def budgets(lines: Sequence[Compared]) -> list[str]:
    """That runs had less than a full budget, where they had."""
    said = {
        True: "Runs had fewer epochs than the published ones ({}): as long as that is so, a distance to the paper says "
        "little about the method.",
        False: "Runs of rows that the paper does not have had fewer epochs than its rows or their recipe ({}).",
    }
    short = {
        known: list(dict.fromkeys(words.budget(line) for line in lines if line.short and line.in_paper == known))
        for known in said
    }
    told = [sentence.format(words.listed(short[known])) for known, sentence in said.items() if short[known]]
    runs = {(r.table, r.row, r.seed): r for line in lines if line.short for r in line.runs}.values()
    last = sum(r.best_epoch == r.epochs for r in runs)
    return told + (
        [f"{last} of these {len(runs)} runs were best in their last epoch: more may change them."] if last else []
    )


def outdated(lines: Sequence[Compared]) -> list[str]:
    """Which rows would be trained otherwise today."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.outdated and line.row not in rows.setdefault(line.outdated, []):
            rows[line.outdated].append(line.row)
    return [
        f"The runs of {words.listed(of)} do not have today's settings, or did not write them down "
        f"({words.listed(list(names))}): to reproduce them is to train them again."
        for names, of in rows.items()
    ]


def choices(lines: Sequence[Compared]) -> list[str]:
    """Among which learning rates those of the rows were chosen by validation."""
    trained = {c.row: c for c in lines if c.runs and c.trained}
    picked = {row: c for row, c in trained.items() if c.tried("learning_rate")}
    if not picked:
        return []
    rate = {row: cast(float, c.runs[0].config["learning_rate"]) for row, c in trained.items()}
    others = {rate[row] for row in trained if row not in picked}
    alike: dict[tuple[float, str], list[str]] = {}
    for row, c in picked.items():
        alike.setdefault((rate[row], _numbers(c.tried("learning_rate"))), []).append(row)
    said = [
        f"Validation data chose a learning rate of {best} among {tried} for {words.listed(rows)}."
        for (best, tried), rows in alike.items()
    ]
    weighed = [row for row, c in picked.items() if len(c.tried("penalty")) > 1]
    said += [f"They also chose lambda for {words.listed(weighed)}."] if weighed else []
    return said + ([f"For the other rows, which had {_numbers(others)}, nothing was chosen."] if others else [])


def rates(lines: Sequence[Compared]) -> list[str]:
    """Which rows had another learning rate than that of their recipe, not chosen among several."""
    other: dict[tuple[float, float], list[str]] = {}
    for line in lines:
        if line.trained_as is None:
            continue
        usual = line.trained_as.learning_rate
        had = {cast(float, r.config.get("learning_rate", usual)) for r in line.runs if "grid" not in r.config}
        for rate in had - {usual}:
            if line.row not in other.setdefault((rate, usual), []):
                other[rate, usual].append(line.row)
    return [
        f"{words.listed(rows)} had a learning rate of {rate:g}, where the recipe has {usual:g}."
        for (rate, usual), rows in other.items()
    ]


def search(lines: Sequence[Compared]) -> list[str]:
    """Which of the settings of the attention validation chose, and by which scores."""
    ranked = eligible([line for line in lines if line.table == settings.TABLE])
    best = chosen(ranked)
    if best is None:
        return []
    base = next(line for line in ranked if line.row == settings.BASE)
    gaps = {c.row: verdict.from_values(c.validation_by_seed, base.validation_by_seed) for c in ranked if c.base}
    low, high = (
        words.number(reduce(g.difference for g in gaps.values()), words.places(base), sign=True)
        for reduce in (min, max)
    )
    beyond = [row for row, gap in gaps.items() if gap.sign]
    doubt = f"zero is not in the intervals of {words.listed(beyond)}" if beyond else "every interval holds zero"
    return [
        f"On validation data the mean {words.metric(base.metric)} of {len(gaps)} settings differs from that of "
        f"{base.row} by {low} to {high}; {doubt}. The best, {best}, and {settings.USUAL} are compared with {base.row} "
        "on test data, no others."
    ]


def mixtures(lines: Sequence[Compared]) -> list[str]:
    """Rows whose runs are not of one kind."""
    unlike = [line.row for line in lines if len({_kind(r) for r in line.runs}) > 1]
    return [f"The runs of {words.listed(list(dict.fromkeys(unlike)))} are not of one kind."] if unlike else []


def _kind(run: Result) -> tuple:
    return tuple(run.config.get(name) for name in ("epochs", "learning_rate", "penalty"))


def _numbers(rates: set[float]) -> str:
    return words.listed([str(rate) for rate in sorted(rates)])


def optima(lines: Sequence[Compared]) -> list[str]:
    """By how much the rows miss the best possible NegLL, where it is known."""
    scores = {c.row: statistics.fmean(c.values) for c in lines if c.metric == "negll" and c.runs and not c.ran_away}
    best = scores.pop("exact filter", None)
    if best is None or not scores:
        return []
    above = [f"{row} {words.number(score - best, 4)}" for row, score in scores.items()]
    return [
        f"The exact filter knows the process, and its NegLL of {words.number(best, 4)} is the best there can be. By so "
        f"much the models lie above it: {words.listed(above)}."
    ]


def without_training(lines: Sequence[Compared]) -> list[str]:
    """Which rows are not better than the best that needs no training, metric by metric; those asked alike."""
    said = []
    for metric, queried in dict.fromkeys((c.metric, _asked(c)) for c in lines if c.runs and not c.trained):
        own = [c for c in lines if c.runs and (c.metric, _asked(c)) == (metric, queried) and c.row != "exact filter"]
        simple = [c for c in own if not c.trained]
        trained = [c for c in own if c.trained]
        if not (simple and trained):
            continue
        best = max(simple, key=lambda c: verdict.gain(c.mean or 0.0, metric))
        others = [c.row for c in trained if _standing(c, best) != "better"]
        than = f"better than {best.row} ({words.metric(metric)})"
        rows = "trained row of this question" if queried else "trained row"
        if not others:
            said.append(f"Every {rows} is {than}.")
        elif len(others) == len(trained):
            said.append(f"No {rows} is {than} without doubt.")
        else:
            said.append(f"Not {than} without doubt: {words.listed(others)}.")
    return said


def _standing(line: Compared, simple: Compared) -> str:
    """Against a row of one number for all seeds, or of one for each."""
    if len(simple.runs) > 1:
        return verdict.standing(verdict.from_values(line.by_seed, simple.by_seed), line.metric)
    return verdict.standing(verdict.from_number(line.values, simple.values[0]), line.metric)


def _asked(line: Compared) -> object:
    """The question, where a table has several, as its rows' names tell."""
    return line.row.rpartition(", ")[2] if line.ours[0] == "physionet-regression" else None


def of_table(lines: Sequence[Compared]) -> list[str]:
    """All of these."""
    about = (
        disagreements,
        not_run,
        accidents,
        movements,
        evenness,
        optima,
        without_training,
        search,
        choices,
        rates,
        mixtures,
        outdated,
        copies,
        budgets,
    )
    return [sentence for each in about for sentence in each(lines)]
