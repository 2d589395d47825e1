"""Rows compared over many data sets: ranks, wins, Wilcoxon's and Friedman's tests, and critical differences."""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .page import Picture, picture
from .plots import FAINT, INK, WIDTH, figure_style, literal
from .scores import Frame
from .statistics import ALPHA, gain, holm

LEAST = 5  # data sets for a ranking
ENOUGH = 0.75  # of the data sets for a row in it


class Ranking(NamedTuple):
    """`means`: rows by data sets. `rows`, best first, over the `shared` sets: average rank, wins, p to the best (Holm).

    `friedman` is the p-value that all rows are the same, `critical` Nemenyi's difference of average ranks.
    """

    means: Frame
    rows: Frame
    shared: int
    friedman: float
    critical: float


def ranking(scores: Frame, metric: str) -> Ranking:
    """Of the mean scores of a table with several data sets; those that all rows have are shared."""
    from scipy import stats

    own = scores[scores.metric == metric]
    means = own.pivot(index="row", columns="dataset", values="mean").reindex(own.row.unique())
    shared = means.map(lambda value: gain(value, metric)).replace(-np.inf, np.nan).dropna(axis=1)
    means = means[[*shared, *(name for name in means if name not in shared)]]
    count, sets = shared.shape
    ranks = shared.rank(ascending=False)
    rows = pd.DataFrame({"rank": ranks.mean(axis=1), "wins": (ranks == ranks.min()).sum(axis=1)}).sort_values("rank")
    rows["p"] = [_wilcoxon(shared.loc[name] - shared.loc[rows.index[0]]) for name in rows.index]
    rows["p_holm"] = holm(rows.p.tolist())
    friedman, critical = math.nan, math.nan
    if count > 2 and sets > 1:
        friedman = float(stats.friedmanchisquare(*shared.to_numpy()).pvalue)
    if count > 1 and sets > 1:
        quantile = float(stats.studentized_range.ppf(1 - ALPHA, count, math.inf)) / math.sqrt(2)
        critical = quantile * math.sqrt(count * (count + 1) / (6 * sets))
    return Ranking(means, rows, sets, friedman, critical)


def _wilcoxon(differences: Any) -> float:
    """The p-value of the signed ranks of what differs; not a number where nothing does."""
    from scipy import stats

    signed: Any = stats.wilcoxon
    return float(signed(differences[differences != 0]).pvalue) if differences.any() else math.nan


def over_sets(scores: Frame, metric: str, pairs: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Each row beside another over the data sets that both have, if there are enough: how often it is better, by how
    much in the median, and Wilcoxon's p, with Holm's correction over all pairs."""
    own = scores[scores.metric == metric]
    means = own.pivot(index="dataset", columns="row", values="mean").replace([np.inf, -np.inf], np.nan)
    made = []
    for row, other in pairs:
        both = means[[row, other]].dropna() if {row, other} <= set(means) else means.iloc[:0]
        if len(both) < LEAST:
            continue
        ahead = both[row].map(lambda v: gain(v, metric)) - both[other].map(lambda v: gain(v, metric))
        change = float((both[row] / both[other] - 1).median())
        made.append(
            {"row": row, "other": other, "sets": len(both), "wins": int((ahead > 0).sum()), "change": change}
            | {"p": _wilcoxon(ahead)}
        )
    return [{**line, "p_holm": p} for line, p in zip(made, holm([line["p"] for line in made]), strict=True)]


def for_page(
    table: str,
    scores: Frame,
    metric: str,
    controls: Collection[str] = (),
    pairs: Collection[tuple[str, str]] = (),
) -> dict[str, Any] | None:
    """The ranking of a table, or nothing where too few data sets have been run for one; and `pairs` of rows over the
    data sets.

    `controls` are variants of a row that is ranked, there to explain it, and not ranked themselves; nor are rows that
    lack many of the data sets, which would leave few to compare all others on.
    """
    own = scores[scores.metric == metric]
    run = own[own.seeds > 0].dataset.unique()
    if len(run) < LEAST:
        return None
    own = own[own.dataset.isin(run)]
    count = own.groupby("row").dataset.nunique()
    short = count[count < ENOUGH * len(run)].drop(labels=list(controls), errors="ignore")
    ranked = own[~own.row.isin([*controls, *short.index])]
    found = ranking(ranked, metric)
    if found.shared < LEAST:
        return None
    drawn = critical_difference(f"{table}-{metric}-ranks", found) if found.critical > 0 else None
    rows = found.rows.reset_index(names="row").to_dict("records")
    shown = {"metric": metric, "shared": found.shared, "means": found.means.to_dict(), "rows": rows, "picture": drawn}
    left = {"short": short.to_dict(), "controls": [each for each in controls if each in count]}
    return shown | {"sets": len(run), "pairs": over_sets(own, metric, pairs), **left}


def cliques(rows: Frame, critical: float) -> list[tuple[float, float]]:
    """The least and the greatest rank of each largest group of rows whose average ranks differ less than critically."""
    ranks = rows["rank"].to_numpy()
    ends = [int(np.flatnonzero(ranks <= start + critical).max()) for start in ranks]
    return [(ranks[k], ranks[end]) for k, end in enumerate(ends) if end > k and (k == 0 or end > ends[k - 1])]


def critical_difference(name: str, found: Ranking) -> Picture:
    """Average ranks on one line; a bar joins rows that Nemenyi's test does not tell apart."""
    joined, count = cliques(found.rows, found.critical), len(found.rows)
    top = -0.6 * len(joined) - 0.4
    with figure_style():
        import matplotlib.pyplot as plt

        size = (WIDTH, 0.6 + 0.24 * count + 0.14 * len(joined))
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        for k, (row, rank) in enumerate(found.rows["rank"].items(), 1):
            axis.plot([rank, rank, count + 0.3], [top, k, k], color=FAINT, lw=0.9)
            axis.plot([rank], [top], "o", ms=4, color=INK)
            axis.text(count + 0.4, k, f"{literal(str(row))} ({rank:.2f})", va="center", fontsize=8)
        for k, (low, high) in enumerate(joined):
            axis.plot([low - 0.05, high + 0.05], [top + 0.5 + 0.6 * k] * 2, color=INK, lw=3, solid_capstyle="butt")
        axis.plot([1, 1 + found.critical], [top - 1.0] * 2, color=INK, lw=1.2, marker="|")
        axis.text(1, top - 1.5, f"critical difference {found.critical:.2f}", fontsize=8)
        axis.set(xlim=(0.8, count * 1.9 + 1), ylim=(count + 0.6, top - 2.6), yticks=[])
        axis.set_xticks(range(1, count + 1, 1 + count // 12))
        axis.xaxis.set_ticks_position("top")
        axis.grid(False)
        axis.spines[:].set_visible(False)
    says = f"Average ranks over {found.shared} data sets; bars join rows that Nemenyi's test does not tell apart"
    return picture(name, figure, says, f"{says}. Friedman's test: p = {found.friedman:.2g}.")
