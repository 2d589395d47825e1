"""Verdicts: every word, from the runs that call for it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from runs import accuracies, result, weights

from acenode.paper.results import frame
from acenode.paper.tables import TABLES
from acenode.report.verdicts import comparisons, verdict

ACTIVE = weights(0.5, 0.7)


def compared(runs, row, other, **where):
    """The line of two rows, in the only metric that there is or in the one that is named."""
    lines = comparisons(frame(runs))
    lines = lines[(lines.row == row) & (lines.other == other)]
    for column, value in where.items():
        lines = lines[lines[column] == value]
    (line,) = lines.to_dict("records")
    return line


def pair(base, own, table="cifar10", metric="accuracy", **more):
    """Runs of a base and of an attentive row that differ in nothing else."""
    names = {"cifar10": ("ODE-Net", "ACE-ODE-Net"), "ushcn": ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes")}[table]
    return [
        result(table, name, seed, {metric: value}, **({"figures": ACTIVE} | more if name == names[1] else {}))
        for name, values in zip(names, (base, own), strict=True)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    "base, own, word",
    [
        ((0.80, 0.81, 0.82), (0.90, 0.91, 0.925), "significant gain"),
        ((0.90, 0.91, 0.925), (0.80, 0.81, 0.82), "significant loss"),
        ((0.80, 0.81, 0.82), (0.801, 0.809, 0.8205), "no significant difference"),  # published: 0.0064
        ((0.80, 0.81, 0.82), (0.85, 0.78, 0.83), "inconclusive"),
        ((0.80,), (0.90,), "inconclusive"),
        ((0.80, 0.81, 0.82), (0.80, 0.81, math.nan), "diverged"),
        ((0.80, math.inf, 0.82), (0.80, 0.81, 0.82), "diverged"),
    ],
)
def test_a_verdict_from_the_scores(base, own, word):
    line = compared(pair(base, own), "ACE-ODE-Net", "ODE-Net")
    assert line["verdict"] == word and line["published"] == pytest.approx(0.8599 - 0.8535)
    assert line["effect"] == pytest.approx(0.0064) and line["kind"] == "base" and line["primary"]


def test_for_an_error_less_is_a_gain():
    runs = pair((0.5, 0.52, 0.51), (0.3, 0.31, 0.32), "ushcn", "negll")
    assert compared(runs, "ACE-GRU-ODE-Bayes", "GRU-ODE-Bayes")["verdict"] == "significant gain"


@pytest.mark.parametrize(
    "inactive, word", [(0, "significant gain"), (1, "significant gain"), (2, "attention inactive")]
)
def test_runs_with_an_inactive_attention_are_no_evidence(inactive, word):
    runs = pair((0.80, 0.81, 0.82), (0.90, 0.91, 0.925))
    still = [k for k, run in enumerate(runs) if run.figures][:inactive]
    runs = [replace(run, figures=weights(0.5, 0.5)) if k in still else run for k, run in enumerate(runs)]
    line = compared(runs, "ACE-ODE-Net", "ODE-Net")
    assert line["verdict"] == word and ("inactive" in line["note"]) == (inactive > 0)
    assert math.isnan(line["p_holm"]) == (word == "attention inactive") and line["p"] < 0.05


def test_runs_that_were_not_tested_again_are_no_evidence():
    runs = pair((0.80, 0.81, 0.82), (0.90, 0.91, 0.925))
    runs = [replace(run, unverified="a wrong program") if run.seed == 1 else run for run in runs]
    line = compared(runs, "ACE-ODE-Net", "ODE-Net")
    assert line["verdict"] == "not verified" and math.isnan(line["p_holm"])
    assert "2 of 6 runs were not tested again" in line["note"]


def test_folds_of_the_same_series_count_as_overlapping():
    runs = pair((0.5, 0.52, 0.51), (0.3, 0.31, 0.33), "ushcn", "negll")
    line = compared(runs, "ACE-GRU-ODE-Bayes", "GRU-ODE-Bayes")
    (row,) = (row for row in TABLES["ushcn"] if row.name == "ACE-GRU-ODE-Bayes")
    assert row.overlap == 0.2 / 0.64
    sd = np.std([0.2, 0.21, 0.18], ddof=1)
    assert line["high"] - line["difference"] == pytest.approx(4.302652729696142 * sd * np.sqrt(1 / 3 + row.overlap))


def test_an_attention_that_ends_uniform_is_noted():
    runs = pair((0.80, 0.81, 0.82), (0.90, 0.91, 0.925), figures=weights(0.9, 0.5))
    assert "uniform at the end in 3 of 3" in compared(runs, "ACE-ODE-Net", "ODE-Net")["note"]
    assert "uniform" not in compared(pair((0.8, 0.81), (0.9, 0.91)), "ACE-ODE-Net", "ODE-Net")["note"]


def test_rows_that_differ_in_more_than_the_attention_are_confounded():
    runs = [*accuracies("mnist", "ODE-Net", 0.8, 0.81), *accuracies("mnist", "ACE-ODE-Net", 0.9, 0.92)]
    line = compared(runs, "ACE-ODE-Net", "ODE-Net")
    row = next(row for row in TABLES["mnist"] if row.name == "ACE-ODE-Net")
    assert line["verdict"] == "confounded" and row.differs in line["note"] and math.isnan(line["p_holm"])
    large = [*accuracies("mnist", "ACE-ODE-Net", 0.8, 0.81), *accuracies("mnist", "ACE-ODE-Net (Large)", 0.9, 0.915)]
    assert compared(large, "ACE-ODE-Net (Large)", "ACE-ODE-Net")["verdict"] != "confounded"  # both differ in the same


def climate(base: dict, own: dict):
    """Runs of a base and of an attentive row, each with its settings."""
    return [
        result("ushcn", name, seed, {"mse": 0.4 + 0.01 * seed}, config=config, figures=ACTIVE)
        for name, config in (("GRU-ODE-Bayes", base), ("ACE-GRU-ODE-Bayes", own))
        for seed in range(2)
    ]


@pytest.mark.parametrize(
    "more, settings",
    [
        ({}, ""),
        ({"batch_size": 64}, "batch_size"),
        ({"eval_batch": 9, "penalty": 0.5, "algorithm": "joint"}, ""),
        ({"epochs": 10, "learning_rate": 0.1}, "epochs, learning_rate"),
        ({"precision": "tf32"}, ""),
        ({"precision": "bfloat16"}, "precision"),
    ],
)
def test_settings_that_runs_do_not_share_confound(more, settings):
    same = {"epochs": 160, "learning_rate": 0.01, "batch_size": 128, "eval_batch": 7, "algorithm": "alternating"}
    same |= {"precision": "float32"}
    line = compared(climate(same, same | more), "ACE-GRU-ODE-Bayes", "GRU-ODE-Bayes")
    assert (line["verdict"] == "confounded") == bool(settings)
    assert line["note"] == (f"other settings: {settings}" if settings else "")


def test_learning_rates_that_validation_chose_among_the_same_do_not_confound():
    same, tried = {"epochs": 30, "learning_rate": 0.2}, {"rates": [0.1, 0.2]}
    for base, own, word in (
        (tried, tried, "inconclusive"),
        ({}, {}, "inconclusive"),  # both have the rate of their row, which says how it was chosen
        ({}, {"learning_rate": 0.02}, "confounded"),
        (tried, {}, "confounded"),  # among others
        (tried, {"rates": [0.1]}, "confounded"),
        (tried, tried | {"epochs": 20}, "confounded"),
    ):
        runs = [
            *accuracies("cifar10", "ODE-Net", 0.8, 0.81, config=same | base),
            *accuracies("cifar10", "ACE-ODE-Net", 0.8, 0.82, config=same | {"learning_rate": 0.1} | own),
        ]
        assert compared(runs, "ACE-ODE-Net", "ODE-Net")["verdict"] == word


def known_truth(name, values, metrics=("mse",), **config):
    return [
        result(
            "known-truth", name, seed, dict.fromkeys(metrics, value), dataset="springs", config=config, figures=ACTIVE
        )
        for seed, value in enumerate(values)
    ]


def test_settings_that_a_row_has_of_its_own_on_purpose_do_not_confound():
    ours = known_truth("ACE, least-squares attention", (0.1, 0.11, 0.12), weights="least squares", batch_size=50)
    for batch_size, word in ((50, "significant gain"), (64, "confounded")):
        runs = [*ours, *known_truth("static graph", (0.5, 0.51, 0.52), weights="static graph", batch_size=batch_size)]
        line = compared(runs, "ACE, least-squares attention", "static graph")
        assert line["verdict"] == word and "other by design: weights" in line["note"]


def test_rows_of_which_one_has_more_seeds_are_compared_on_those_of_both():
    ours = known_truth("ACE, least-squares attention", (0.1, 0.21, 0.3, 9.0, 9.0))
    line = compared(
        [*ours, *known_truth("GRU-ODE-Bayes", (0.2, 0.3, 0.4))], "ACE, least-squares attention", "GRU-ODE-Bayes"
    )
    assert (line["seeds"], line["other_seeds"]) == (3, 3) and line["mean"] == pytest.approx(0.61 / 3)
    assert line["difference"] == pytest.approx(-0.29 / 3) and line["verdict"] == "significant gain"


def test_a_metric_that_only_the_attentive_row_has_is_not_compared():
    ours = known_truth("ACE, least-squares attention", (0.1, 0.11), ("mse", "edge_auc"))
    lines = comparisons(frame([*ours, *known_truth("GRU-ODE-Bayes", (0.2, 0.21))]))
    lines = lines[lines.verdict != "not run"]
    assert set(zip(lines.other, lines.metric, strict=True)) == {("GRU-ODE-Bayes", "mse")}


def test_a_setting_that_only_newer_runs_record_confounds():
    config = {"epochs": 160, "learning_rate": 0.01}
    runs = [
        *accuracies("cifar10", "ODE-Net", 0.8, 0.81, config=config),
        *accuracies("cifar10", "ACE-ODE-Net", 0.8, 0.82, config=config | {"tolerance": 1e-3}),
    ]
    assert "tolerance" in compared(runs, "ACE-ODE-Net", "ODE-Net")["note"]


@pytest.mark.parametrize(
    "rates, comparable", [(((0.1, 0.01), (0.1, 0.01)), True), (((0.1, 0.01), (0.01, 0.001)), False)]
)
def test_learning_rates_that_validation_chose_among_the_same_may_differ(rates, comparable):
    grids = [[{"learning_rate": rate} for rate in some] for some in rates]
    configs = [
        {"epochs": 160, "learning_rate": rate, "grid": grid} for rate, grid in zip((0.1, 0.01), grids, strict=True)
    ]
    line = compared(climate(*configs), "ACE-GRU-ODE-Bayes", "GRU-ODE-Bayes")
    assert (line["verdict"] != "confounded") == comparable


def test_every_control_that_a_row_names_is_compared_and_may_not_have_been_run():
    lines = comparisons(frame(pair((0.80, 0.81, 0.82), (0.90, 0.91, 0.925)))).set_index("other")
    row = next(row for row in TABLES["cifar10"] if row.name == "ACE-ODE-Net")
    assert list(lines.index) == [row.base, *row.controls] and len(row.controls) == 4
    assert set(lines.verdict[list(row.controls)]) == {"not run"} and lines.other_seeds.sum() == 3


def test_p_values_are_adjusted_over_the_comparisons_of_a_table():
    runs = pair((0.80, 0.81, 0.82), (0.82, 0.824, 0.848))
    (alone,) = comparisons(frame(runs)).query("verdict != 'not run'").to_dict("records")
    assert alone["p"] == alone["p_holm"] and alone["verdict"] == "significant gain"
    runs += accuracies("cifar10", "Augmented-ODE-Net", 0.83, 0.82, 0.84)
    both = comparisons(frame(runs)).query("verdict != 'not run'").set_index("other")
    assert both.p_holm["ODE-Net"] == pytest.approx(2 * both.p["ODE-Net"])
    assert both.verdict["ODE-Net"] != "significant gain"


def test_the_effect_asked_about_is_a_part_of_the_score_where_the_data_are_not_the_papers():
    runs = [replace(run, protocol="one state") for run in pair((0.7, 0.72), (0.7, 0.73), "ushcn", "mse")]
    line = compared(runs, "ACE-GRU-ODE-Bayes", "GRU-ODE-Bayes", metric="mse")
    assert line["effect"] == pytest.approx(0.1 * 0.71) and line["published"] == pytest.approx(-0.04)


@pytest.mark.parametrize(
    "p, low, high, word",
    [
        (0.05, 0.1, 0.3, "significant gain"),
        (0.051, -0.09, 0.09, "no significant difference"),
        (0.051, -0.3, 0.1, "inconclusive"),
        (0.051, 0.02, 0.12, "inconclusive"),  # narrow, and yet beyond it
        (math.nan, math.nan, math.nan, "inconclusive"),
    ],
)
def test_an_interval_that_reaches_beyond_the_effect_is_inconclusive(p, low, high, word):
    line = {"p_holm": p, "low": low, "high": high, "difference": (low + high) / 2, "metric": "auc", "effect": 0.1}
    assert verdict(line) == word


def test_quick_runs_count_only_where_there_are_no_others():
    quick = accuracies(
        "cifar10", "ODE-Net", 0.1, 0.2, 0.3, config={"epochs": 160, "learning_rate": 0.01, "quick": True}
    )
    runs = pair((0.80, 0.81, 0.82), (0.90, 0.91, 0.925))
    assert compared([*quick, *runs], "ACE-ODE-Net", "ODE-Net")["other_mean"] == pytest.approx(0.81)
    own = [run for run in runs if run.figures]
    assert compared([*quick, *own], "ACE-ODE-Net", "ODE-Net")["other_mean"] == pytest.approx(0.2)


def test_of_candidates_only_the_choice_of_validation_is_compared_on_test_data():
    base, usual, *names = [row.name for row in TABLES["attention-settings"]]
    scores = {base: (0.4, 0.3), usual: (0.5, 0.1), names[0]: (0.2, 0.5), names[1]: (0.3, 0.2)}  # validation, test
    runs = [
        result("attention-settings", row, k, {"mse": test}, validation={"validation_mse": known + 0.01 * k})
        for row, (known, test) in scores.items()
        for k in (0, 1, 2)
    ]
    lines = comparisons(frame(runs))
    assert set(lines.row[lines.split == "test"]) == {usual, names[0]}
    assert set(lines.row[lines.split == "validation"]) == {usual, *names[:2]}
    shorter = [replace(run, config={"epochs": 3}) if run.row == names[0] else run for run in runs]
    lines = comparisons(frame(shorter))
    assert set(lines.row[lines.split == "test"]) == {usual, names[1]}  # with another budget it is no candidate


def test_trained_rows_are_compared_with_those_without_training_for_the_same_query():
    runs = [
        result("physionet-regression", f"mean, {query}", 0, {"mse": value}, parameters=0, config={}, epochs=0)
        for query, value in (("extrapolation", 0.5), ("interpolation", 0.1))
    ]
    runs += [
        result("physionet-regression", "ODE-RNN, extrapolation", k, {"mse": v}) for k, v in enumerate((0.3, 0.31, 0.32))
    ]
    (line,) = comparisons(frame(runs)).to_dict("records")
    assert (line["other"], line["kind"], line["verdict"]) == ("mean, extrapolation", "untrained", "significant gain")
    assert line["difference"] == pytest.approx(-0.19) and line["other_seeds"] == 1


def test_every_row_is_compared_within_its_data_set(monkeypatch):
    rows = [row for row in TABLES["double-ou"] if row.name in ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes")]
    many = tuple(replace(row, table="many", dataset=dataset, controls=()) for dataset in "AB" for row in rows)
    monkeypatch.setitem(TABLES, "many", many)
    draw = np.random.default_rng(0)
    runs = [
        result("many", row.name, seed, {"negll": (row.dataset == "A") + 0.01 * draw.normal()}, dataset=row.dataset)
        for row in many
        for seed in range(3)
    ]
    lines = comparisons(frame(runs))
    assert list(lines.dataset) == ["A", "B"] and abs(lines.difference).max() < 0.1


def test_without_results_there_is_nothing_to_compare():
    lines = comparisons(frame([]))
    assert len(lines) == 0 and {"row", "other", "verdict", "p_holm"} <= set(lines.columns)
