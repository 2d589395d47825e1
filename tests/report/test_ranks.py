"""Ranks over many data sets, against scipy and a published example of critical differences."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from acenode.report.ranks import cliques, critical_difference, for_page, over_sets, ranking

EFFECTS = {"good": -0.5, "fair": 0.0, "level": 0.01, "bad": 1.0}


def scored(sets=10, metric="mse", effects=EFFECTS, **more):
    draw = np.random.default_rng(0)
    level = draw.random(sets)
    lines = [
        {"row": row, "dataset": f"S{k}", "metric": metric, "mean": level[k] + effect + 0.05 * draw.normal()}
        for row, effect in effects.items()
        for k in range(sets)
    ]
    return pd.DataFrame(lines).assign(**more)


def test_ranks_wins_and_tests():
    scores = scored()
    found = ranking(scores, "mse")
    means = scores.pivot(index="row", columns="dataset", values="mean")
    ranks = stats.rankdata(means, axis=0)
    for row, line in found.rows.iterrows():
        own = ranks[list(means.index).index(row)]
        assert line["rank"] == own.mean() and line.wins == (own == 1).sum()
    assert found.rows.index[0] == "good" and found.rows.wins.sum() == 10 and found.shared == 10
    assert math.isnan(found.rows.p["good"])
    p = [stats.wilcoxon(means.loc[row] - means.loc["good"]).pvalue for row in found.rows.index[1:]]
    assert found.rows.p[1:].tolist() == pytest.approx(p) and found.rows.p_holm.iloc[-1] == pytest.approx(3 * min(p))
    assert found.friedman == pytest.approx(stats.friedmanchisquare(*means.to_numpy()).pvalue)


def test_higher_may_be_better():
    assert ranking(scored(metric="accuracy"), "accuracy").rows.index[0] == "bad"


def test_the_critical_difference_of_nemenyi():
    # Five classifiers on 30 sets at 5 %: q = 2.728, so CD = 2.728 sqrt(5 * 6 / (6 * 30)) (Demsar 2006, Table 5).
    found = ranking(scored(30, effects={str(k): 0.1 * k for k in range(5)}), "mse")
    assert found.critical == pytest.approx(2.728 * math.sqrt(5 * 6 / (6 * 30)), abs=1e-3)


def test_ranks_are_over_the_sets_that_all_rows_have():
    scores = scored()
    scores = scores[~((scores.row == "bad") & (scores.dataset == "S3"))]
    scores.loc[(scores.row == "fair") & (scores.dataset == "S4"), "mean"] = math.inf
    found = ranking(scores, "mse")
    assert found.shared == 8 and found.means.shape == (4, 10)


def test_rows_are_joined_in_the_largest_groups_that_do_not_differ():
    rows = pd.DataFrame({"rank": [1.0, 1.5, 2.6, 4.0]}, index=list("abcd"))
    assert cliques(rows, 1.2) == [(1.0, 1.5), (1.5, 2.6)]
    assert cliques(rows, 0.1) == [] and cliques(rows, 9.0) == [(1.0, 4.0)]


def test_the_picture_names_every_row():
    drawn = critical_difference("cd", ranking(scored(), "mse"))
    assert drawn.svg.startswith("<svg") and "10 data sets" in drawn.caption


def test_one_set_or_one_row_has_ranks_but_no_tests():
    one = ranking(scored(1), "mse")
    assert one.rows.shape[0] == 4 and math.isnan(one.friedman) and math.isnan(one.critical)
    alone = ranking(scored(effects={"a": 0.0}), "mse")
    assert alone.rows["rank"].tolist() == [1.0] and math.isnan(alone.critical)


def test_a_page_ranks_neither_controls_nor_rows_of_few_sets():
    scores = scored(seeds=5)
    scores = scores[~((scores.row == "fair") & (scores.dataset > "S2"))]
    shown = for_page("table", scores, "mse", ["level", "never run"])
    assert [line["row"] for line in shown["rows"]] == ["good", "bad"] and shown["shared"] == shown["sets"] == 10
    assert shown["short"] == {"fair": 3} and shown["controls"] == ["level"]


def test_a_page_ranks_on_the_sets_that_were_run():
    published = scored(12, seeds=0)
    ours = published[(published.row == "good") & (published.dataset < "S5")].assign(seeds=5, row="ours")
    shown = for_page("table", pd.concat([published, ours]), "mse")
    assert set(shown["means"]) == set(ours.dataset) and shown["sets"] == len(ours) == 7
    assert for_page("table", scored(4, seeds=5), "mse") is None


def test_a_row_beside_another_over_the_sets_that_both_have():
    scores = scored(seeds=5)
    scores = scores[~((scores.row == "level") & (scores.dataset > "S3"))]
    pairs = [("good", "fair"), ("fair", "bad"), ("good", "level"), ("good", "never run")]
    found = for_page("table", scores, "mse", pairs=pairs)["pairs"]
    means = scores.pivot(index="dataset", columns="row", values="mean")
    assert [(line["row"], line["other"]) for line in found] == pairs[:2]  # on four sets there is nothing to test
    for line in found:
        row, other = means[line["row"]], means[line["other"]]
        p = stats.wilcoxon(row - other).pvalue
        assert line["sets"] == 10 and line["wins"] == (row < other).sum() == 10
        assert line["p"] == pytest.approx(p) and line["p_holm"] == pytest.approx(2 * p)
        assert line["change"] == pytest.approx((row / other - 1).median())
    assert over_sets(scored(metric="accuracy"), "accuracy", pairs[:1])[0]["wins"] == 0
