"""Rows compared with each other: what an attention adds to the model that it extends, and to its controls."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ..paper.published import COMPARABLE, UNDEFINED, published
from ..paper.row import ALIKE, Row
from ..paper.tables import TABLES
from .scores import ROW, Frame, full_runs, metrics_of
from .statistics import ALPHA, Difference, Moments, difference, gain, holm, moments, welch

EFFECT = 0.1  # of the score of the other row: the effect of interest where the paper has none
UNIFORM = 0.99  # normalised entropy of an attention that does not choose

# Settings that a comparison does not hang on.
_OWN = {"grid", "rates", "penalty", "eval_batch", "reference", "self_check"}
_OF_ATTENTION = {  # without effect where there is no g
    *("algorithm", "unit", "main_gradient", "norm", "attention_rate", "attention_decay", "attention_optimiser"),
    *("initial_with", "initial_rate", "initial_decay", "initial_optimiser"),
}
_ATTENTION = ["base", "control"]

COLUMNS = [
    *("table", "dataset", "row", "other", "kind", "split", "metric", "primary", "seeds", "other_seeds", "mean", "sd"),
    *("other_mean", "other_sd", "difference", "low", "high", "p", "p_holm", "effect", "published"),
    *("verdict", "note"),
]

Found = Mapping[tuple[str, ...], Frame]  # runs by table, data set, row, split and metric; the seed is the index


def comparisons(frame: Frame) -> Frame:
    """One line for each two rows, split and metric, with the difference, its interval and a verdict.

    `kind` says what the other row is: the `base` that an attentive row extends, a `control` that it names, or a row
    without training (`untrained`). p-values are adjusted by Holm over the comparisons of a table, split and metric:
    those of the attention, and those with rows without training. `primary` is the metric that chooses the epoch.
    """
    groups = full_runs(frame).groupby([*ROW, "split", "metric"], sort=False)
    found: Found = {key: own.set_index("seed") for key, own in groups}
    made: Frame = pd.DataFrame([_compared(*pair, found) for pair in _pairs(found)], columns=COLUMNS)
    sound = made.verdict == ""
    family = [made.table, made.split, made.metric, made.kind.isin(_ATTENTION)]
    made["p_holm"] = made.p.where(sound).groupby(family).transform(lambda p: holm(p.tolist()))
    made.loc[sound, "verdict"] = [verdict(line) for line in made[sound].to_dict("records")]
    return made


def verdict(line: Mapping[str, Any]) -> str:
    """A word for a valid comparison: inconclusive if not significant, and the interval reaches beyond the effect of
    interest."""
    if line["p_holm"] <= ALPHA:
        return "significant gain" if gain(line["difference"], line["metric"]) > 0 else "significant loss"
    within = max(-line["low"], line["high"]) <= line["effect"]
    return "no significant difference" if within else "inconclusive"


def _pairs(found: Found) -> Iterator[tuple[Row, str, str, str, str]]:
    """Every row that was run with its base, its controls, and the rows without training for the same query.

    Of rows that are candidates only the best by validation is compared on test data, all of them on validation data.
    """
    for table, rows in TABLES.items():
        trained = [row for row in rows if isinstance(row, Row)]
        simple = [row for row in rows if not isinstance(row, Row)]
        tried = {(row.dataset, row.base) for row in trained if row.candidate}
        chosen = {_best(found, [r for r in trained if r.candidate and (r.dataset, r.base) == key]) for key in tried}
        for row, metric in ((row, metric) for row in trained for metric in metrics_of(table)):
            test = not row.candidate or (row.dataset, row.name) in chosen
            for split in ("test",) * test + ("validation",) * ((row.dataset, row.base) in tried):
                if (table, row.dataset, row.name, split, metric) not in found:
                    continue
                others = [(row.base, "base"), *((name, "control") for name in row.controls)] if row.base else []
                same = [r.name for r in simple if (r.dataset, r.query) == (row.dataset, row.query)]
                # Not all rows have every metric: where there is no influence, none is recovered.
                primary = (split, row.task.monitor)
                others = [
                    (name, kind)
                    for name, kind in others
                    if (table, row.dataset, name, *primary) not in found
                    or (table, row.dataset, name, split, metric) in found
                ]
                others += [(r, "untrained") for r in same if (table, row.dataset, r, split, metric) in found]
                yield from ((row, name, kind, split, metric) for name, kind in others)


def _best(found: Found, candidates: list[Row]) -> tuple[str, str] | None:
    """The candidate with the best mean validation score, among those with the seeds and epochs of their base."""
    scored = {}
    for row in candidates:
        keys = [(row.table, row.dataset, name, "validation", row.task.monitor) for name in (row.name, row.base)]
        if all(key in found for key in keys):
            own, base = (found[key] for key in keys)
            if sorted(own.index) == sorted(base.index) and own.epochs.min() == base.epochs.min():
                scored[row.dataset, row.name] = gain(own.value.mean(), row.task.monitor)
    return max(scored, key=lambda key: scored[key], default=None)


def _compared(row: Row, name: str, kind: str, split: str, metric: str, found: Found) -> dict[str, Any]:
    one, other = (found.get((row.table, row.dataset, each, split, metric)) for each in (row.name, name))
    assert one is not None
    line: dict[str, Any] = {"table": row.table, "dataset": row.dataset, "row": row.name, "other": name, "kind": kind}
    own, theirs, gap = moments(one.value.tolist()), Moments(math.nan), Difference(*[math.nan] * 4)
    word, notes = "not run", []
    if other is not None:
        if kind in _ATTENTION:
            one, other = _on_shared_seeds(one, other)
        own, theirs = (moments(runs.value.tolist(), row.overlap) for runs in (one, other))
        word, notes = _validity(row, name, one, other, kind in _ATTENTION)
        if word != "diverged":
            alone = kind not in _ATTENTION and len(other) == 1  # a prediction without training has no seed
            both = one.value.to_dict(), other.value.to_dict()
            gap = welch(own, Moments(theirs.mean)) if alone else difference(*both, row.overlap)
    claimed, effect = _effect(row, name, metric, one)
    line |= {"split": split, "metric": metric, "primary": metric == row.task.monitor, "seeds": len(one)}
    line |= {"mean": own.mean, "sd": own.sd, "other_mean": theirs.mean, "other_sd": theirs.sd, "published": claimed}
    line |= {**gap._asdict(), "other_seeds": 0 if other is None else len(other)}
    return line | {"effect": effect or EFFECT * abs(theirs.mean), "verdict": word, "note": "; ".join(notes)}


def _on_shared_seeds(one: Frame, other: Frame) -> tuple[Frame, Frame]:
    """The runs of the seeds that both have, where one has all of the other's: a seed may be a fold of the data."""
    shared = [seed for seed in one.index if seed in other.index]
    return (one.loc[shared], other.loc[shared]) if len(shared) == min(len(one), len(other)) else (one, other)


def _validity(row: Row, name: str, one: Frame, other: Frame, attention: bool) -> tuple[str, list[str]]:
    """Why a comparison is no evidence, and notes on it; no word for one that is valid."""
    lost = {each: runs.diverged for each, runs in ((row.name, one), (name, other)) if runs.diverged.any()}
    notes = [f"{gone.sum()} of {len(gone)} runs of {each}" for each, gone in lost.items()]
    unsure = sum((runs.unverified != "").sum() for runs in (one, other))
    notes += [f"{unsure} of {len(one) + len(other)} runs were not tested again"] * bool(unsure)
    word = "diverged" if lost else "not verified" if unsure else ""
    if not attention:
        return word, notes
    status = {"inactive": one.attention == "inactive", "not recorded": one.attention == "unknown"}
    for said, runs in {**status, "uniform at the end": one.attention_entropy >= UNIFORM}.items():
        notes += [f"attention {said} in {runs.sum()} of {len(runs)} runs"] if runs.any() else []
    if (one.attention == "inactive").mean() > 0.5:
        word = word or "attention inactive"
    base = next((r for r in TABLES[row.table] if (r.dataset, r.name) == (row.dataset, name)), None)
    theirs, settings = getattr(base, "differs", ""), unequal_settings(row, base, one, other)
    meant = {*row.own_settings, *getattr(base, "own_settings", ())}
    differs = [row.differs or theirs] * (row.differs != theirs)
    if names := sorted(set(settings) - meant):
        differs.append(f"other settings: {', '.join(names)}")
    if names := sorted(set(settings) & meant):
        notes.append(f"other by design: {', '.join(names)}")
    return word or ("confounded" if differs else ""), [*differs, *notes]


def unequal_settings(row: Row, base: Any, one: Frame, other: Frame) -> list[str]:
    """Settings, beside those of the attention, that the runs of two rows do not have in common.

    Where validation chose the learning rates of both among the same, each may have its own. Products in tf32 count as
    those in float32.
    """
    both = [list(one.config), list(other.config)]
    recorded = [set.intersection(*(set(config) for config in configs)) for configs in both]
    names = set.intersection(*recorded) | (set(row.config) & set(getattr(base, "config", ())))
    names -= _OWN | (set() if getattr(base, "base", "") else _OF_ATTENTION)
    tried = [[_rates_tried(one, config) for config in configs] for one, configs in zip((row, base), both, strict=True)]
    if all(tried[0] + tried[1]) and set().union(*tried[0]) == set().union(*tried[1]):
        names.discard("learning_rate")
    if {config.get("precision") for configs in both for config in configs} <= ALIKE:
        names.discard("precision")
    return sorted(n for n in names if {repr(c.get(n)) for c in both[0]} != {repr(c.get(n)) for c in both[1]})


def _rates_tried(row: Any, config: Mapping[str, Any]) -> list[float]:
    """The learning rates that validation chose among: in whole runs, or in short ones before, as a row says of its own
    rate and so of a run that has it."""
    grid = [each["learning_rate"] for each in config.get("grid", ())]
    own = config if config.get("learning_rate") != getattr(row, "learning_rate", None) else getattr(row, "config", {})
    return grid or list(config.get("rates", own.get("rates", ())))


def _effect(row: Row, name: str, metric: str, runs: Frame) -> tuple[float, float]:
    """The published difference between two rows, and the effect of interest: that, or the largest published gain.

    It is 0 if the data or the query are not the published ones, or there is no such number.
    """
    key = (row.table, row.dataset, metric)
    number = {p.ours_row: p.mean for p in published() if (p.ours_table, p.dataset, p.metric) == key}
    claimed = number.get(row.name, math.nan) - number.get(name, math.nan)
    if not set(runs.protocol) <= COMPARABLE or metric in UNDEFINED:
        return claimed, 0.0
    if not math.isnan(claimed):
        return claimed, abs(claimed)
    bases = {r.name: r.base for r in TABLES[row.table] if isinstance(r, Row) and {r.name, r.base} <= number.keys()}
    return claimed, max([gain(number[one] - number[base], metric) for one, base in bases.items()] + [0.0])
