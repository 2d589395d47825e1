"""The rows of every table with their scores over seeds, beside the published numbers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..paper.published import COMPARABLE, EPOCHS, SEEDS, UNDEFINED, decimals, published
from ..paper.row import Row
from ..paper.tables import TABLES
from .statistics import ALPHA, Moments, gain, welch

Frame = Any  # a pandas.DataFrame; its type hints do not say what an operation returns
ROW = ["table", "dataset", "row"]
OURS = ["ours_table", "dataset", "ours_row", "metric"]  # under which name the runs of a line are kept


def full_runs(frame: Frame) -> Frame:
    """The runs that count: quick ones only where a row has no others."""
    return frame[~frame.quick | frame.groupby(ROW).quick.transform("all").astype(bool)]


def usual_runs(frame: Frame) -> Frame:
    """The runs of seeds that most rows of a data set have: a seed may be a fold, and rows are ranked by the same.

    All runs of a data set where no seed is in most rows.
    """
    runs, places = full_runs(frame), ["table", "dataset"]
    rows, having = (runs.groupby(by).row.transform("nunique") for by in (places, [*places, "seed"]))
    usual = having > rows / 2
    return runs[usual | ~usual.groupby([runs[name] for name in places]).transform("any")]


def scores(frame: Frame) -> Frame:
    """One line for each row and metric: mean, standard deviation and median over seeds on test data, and their runs.

    `validation` is the mean at the chosen epochs; `attention` counts the runs by its status.
    """
    runs = full_runs(frame)
    test, validation = (runs[runs.split == s].groupby([*ROW, "metric"], sort=False) for s in ("test", "validation"))
    made = test.agg(
        seeds=("seed", "size"),
        mean=("value", "mean"),
        sd=("value", "std"),
        median=("value", "median"),
        diverged=("diverged", "sum"),
        epochs=("epochs", "min"),
        quick=("quick", "any"),
        seconds=("seconds", "mean"),
        skipped=("skipped", "sum"),
        parameters=("parameters", "first"),
        protocol=("protocol", "first"),
        device=("device", lambda names: ", ".join(sorted(set(names)))),
        learning_rate=("learning_rate", lambda rates: ", ".join(f"{rate:g}" for rate in sorted(set(rates.dropna())))),
        attention=("attention", counted),
        attention_change=("attention_change", "median"),
        attention_entropy=("attention_entropy", "median"),
        unverified=("unverified", lambda why: " ".join(dict.fromkeys(filter(None, why)))),
        outdated=("outdated", lambda some: ", ".join(sorted({name for names in some for name in names}))),
    )
    return made.join(validation.agg(validation=("value", "mean"))).reset_index()


def counted(words: Any) -> str:
    """How often each word is there: `3 active, 2 inactive`."""
    return ", ".join(f"{count} {word}" for word, count in words[words != ""].value_counts().items())


def metrics_of(table: str) -> list[str]:
    """The metrics that a table shows: the published ones, that which chooses the epoch, and those the rows name."""
    rows = [row for row in TABLES.get(table, ()) if isinstance(row, Row)]
    named = [p.metric for p in published() if p.ours_table == table] + [row.task.monitor for row in rows]
    return list(dict.fromkeys([*named, *(metric for row in rows for metric in row.reported)]))


def lines(frame: Frame) -> Frame:
    """Every number of the paper in its order and, table by table, our other rows; ours where there are any.

    `standing` is our mean against the published one, `full_epochs` what a full run has.
    """
    named = pd.DataFrame([vars(p) for p in published()]).astype({"sd": float})
    numbers = named.rename(columns={"mean": "published", "sd": "published_sd", "parameters": "published_parameters"})
    numbers = numbers.drop_duplicates(OURS).drop(columns=["table", "row"])  # an ablation repeats them without deviation
    found: Frame = scores(frame).rename(columns={"table": "ours_table", "row": "ours_row"})
    own = found[OURS].assign(table=found.ours_table, row=found.ours_row)
    shown = {table: metrics_of(table) for table in own.table.unique()}
    rank = {(row.table, row.dataset, row.name): k for k, row in enumerate(r for rows in TABLES.values() for r in rows)}
    keys = [
        (rank.get(tuple(key), len(rank)), *key, shown[key[0]].index(metric) if shown[key[0]] else 0, k)
        for k, (*key, metric) in enumerate(own[OURS].itertuples(index=False, name=None))
        if metric in (shown[key[0]] or [metric])
    ]
    both: Frame = pd.concat([named[["table", "row", *OURS]], own.iloc[[key[-1] for key in sorted(keys)]]])
    made = both.drop_duplicates(["table", *OURS]).merge(numbers, "left", OURS).merge(found, "left", OURS)
    made = made.fillna({"seeds": 0, "published_parameters": "", "unverified": ""}).astype({"seeds": int})
    full = _full_epochs()
    made["full_epochs"] = [full.get(key, np.nan) for key in made[OURS[:3]].itertuples(index=False, name=None)]
    made["comparable"] = made.protocol.isin(COMPARABLE) & ~made.metric.isin(UNDEFINED)
    made = made.assign(**pd.DataFrame([_standing(line) for line in made.to_dict("records")], made.index))
    order = {table: k for k, table in enumerate(dict.fromkeys(made.table))}
    return made.sort_values("table", key=lambda tables: tables.map(order), kind="stable", ignore_index=True)


def _full_epochs() -> dict[tuple[str, str, str], int]:
    """Epochs of a full run of every row: as published; of one shorter than all that the paper has, its own."""
    known = {(p.ours_table, p.ours_row) for p in published()}
    rows = [row for rows in TABLES.values() for row in rows if isinstance(row, Row)]
    usual: dict[str, int] = {}
    for row in rows:
        if (row.table, row.name) in known:
            usual[row.table] = min(row.epochs, usual.get(row.table, row.epochs))
    return {
        (row.table, row.dataset, row.name): max(row.epochs, EPOCHS.get(row.table, 0))
        if row.epochs >= usual.get(row.table, math.inf)
        else row.epochs
        for row in rows
    }


def _standing(line: Mapping[str, Any]) -> dict[str, Any]:
    """Our mean against the published one, by Welch's test."""
    told: dict[str, Any] = {"difference": np.nan, "low": np.nan, "high": np.nan, "p": np.nan}
    if not line["seeds"] or np.isnan(line["published"]):
        return told | {"standing": "" if line["seeds"] else "not run"}
    if not line["comparable"] or line["diverged"]:
        return told | {"standing": "diverged" if line["comparable"] else "not comparable"}
    theirs, spread = line["published"], line["published_sd"]
    overlap = max((row.overlap for row in TABLES[line["ours_table"]] if isinstance(row, Row)), default=0.0)
    number = Moments(theirs) if np.isnan(spread) else Moments(theirs, spread, SEEDS, overlap)
    found = welch(Moments(line["mean"], line["sd"], line["seeds"], overlap), number)
    word = "inconclusive" if np.isnan(found.p) else "no significant difference"
    if found.p <= ALPHA:
        word = "better than published" if gain(found.difference, line["metric"]) > 0 else "worse than published"
    return {**found._asdict(), "standing": word}


def places(line: Mapping[str, Any]) -> int:
    """Decimal places of our numbers: as published but four at least, or else two digits of the standard deviation."""
    theirs = decimals(line["ours_table"], line["metric"])
    if theirs is not None or not line["seeds"] or line["diverged"] or not line["mean"]:
        return max(4, theirs or 0)
    spread = line["sd"] if line["sd"] > 1e-9 * abs(line["mean"]) else abs(line["mean"]) / 100
    return int(np.clip(1 - np.floor(np.log10(spread)), 4, 7))
