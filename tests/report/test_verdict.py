"""Differences, their intervals and what is said of them, against numbers worked out by hand."""

import math

import pytest
from runs import accuracies

from acenode.paper.row import Row
from acenode.paper.tables import TABLES
from acenode.report import compared, verdict, words
from acenode.report.pairs import pairs
from acenode.report.paper_plots import _in_common_bins
from acenode.report.verdict import Gap

T2 = 4.302652729696142  # Student's t, 97.5 %, two degrees of freedom


def test_against_a_number():
    gap = verdict.from_number([0.80, 0.82, 0.84], 0.85)
    reach = T2 * 0.02 / math.sqrt(3)
    assert (gap.difference, gap.low, gap.high) == pytest.approx((-0.03, -0.03 - reach, -0.03 + reach))
    assert gap.seeds == 3 and gap.sign == 0


def test_against_a_number_with_a_spread():
    gap = verdict.from_number([0.80, 0.82, 0.84], 0.85, 0.02 * math.sqrt(5 / 3))  # equal variances of the two means
    reach = verdict._quantile(4 * 2 * 4 / (2 + 4)) * 0.02 * math.sqrt(2 / 3)
    assert (gap.difference, gap.low, gap.high) == pytest.approx((-0.03, -0.03 - reach, -0.03 + reach))


def test_shared_seeds_are_paired():
    ours, theirs = {0: 0.1, 1: 0.5, 2: 0.9}, {0: 0.2, 1: 0.61, 2: 0.99, 7: 0.0}
    gap = verdict.from_values(ours, theirs)  # differences -0.1, -0.11, -0.09
    reach = T2 * 0.01 / math.sqrt(3)
    assert gap.paired and gap.seeds == 3 and gap.sign == -1
    assert (gap.difference, gap.low, gap.high) == pytest.approx((-0.1, -0.1 - reach, -0.1 + reach))


def test_other_seeds_have_welchs_interval():
    gap = verdict.from_values({0: 1.0, 1: 2.0, 2: 3.0}, {3: 1.0, 4: 2.0, 5: 3.0})
    reach = 2.7764451051977987 * math.sqrt(2 / 3)  # variances 1 and 1 of three each: four degrees of freedom
    assert not gap.paired
    assert (gap.difference, gap.low, gap.high) == pytest.approx((0.0, -reach, reach))


def test_no_interval_without_spread_to_see():
    assert verdict.from_number([0.8], 0.9).low is None
    assert verdict.from_values({0: 1.0}, {1: 2.0}).low is None
    assert verdict.from_number([0.8, math.nan], 0.9).low is None
    same = verdict.from_values({0: 1.0, 1: 1.0}, {2: 0.5, 3: 0.5})
    assert (same.low, same.high) == (0.5, 0.5)


@pytest.mark.parametrize(
    "low, high, metric, standing",
    [
        (-0.2, -0.1, "accuracy", "worse"),
        (-0.2, -0.1, "mse", "better"),
        (0.1, 0.2, "auc", "better"),
        (0.1, 0.2, "negll", "worse"),
        (-0.1, 0.2, "negll", "level"),
        (None, None, "negll", "unknown"),
    ],
)
def test_better_depends_on_the_metric(low, high, metric, standing):
    assert verdict.standing(Gap(0.0, low, high, 3), metric) == standing


@pytest.mark.parametrize(
    "low, high, metric, claimed, effect",
    [
        (0.1, 0.2, "accuracy", 0.5, "helps"),
        (0.1, 0.2, "mse", 0.5, "hurts"),
        (-0.1, 0.2, "accuracy", 0.3, "does not help"),
        (-0.1, 0.2, "accuracy", 0.15, "cannot tell"),
        (-0.1, 0.2, "mse", 0.15, "does not help"),
        (-0.1, 0.2, "accuracy", None, "no difference seen"),
        (-0.1, 0.2, "accuracy", -0.05, "cannot tell"),
        (-0.1, 0.2, "accuracy", -0.3, "no difference seen"),
        (None, None, "accuracy", 0.1, "cannot tell"),
    ],
)
def test_whether_it_helps(low, high, metric, claimed, effect):
    assert verdict.effect(Gap(0.0, low, high, 3), metric, claimed) == effect


@pytest.mark.parametrize(
    "values, metric, lost",
    [
        ((0.5, 2e6), "mse", 1),
        ((0.5, 2e6, 3e6), "mse", 2),
        ((0.0, 0.0, 0.3), "mse", 0),
        ((0.0003, -0.0002, 0.9, 0.5), "negll", 0),
        ((0.002, 0.003, 50.0), "mse", 1),
        ((0.5, math.inf, math.nan), "negll", 2),
        ((0.0001, 0.9), "accuracy", 0),
    ],
)
def test_which_runs_ran_away(values, metric, lost):
    assert verdict.ran_away(values, metric).sum() == lost


def test_the_tasks_know_the_same_directions():
    tasks = [row.task for rows in TABLES.values() for row in rows if isinstance(row, Row)]
    assert {(t.monitor in verdict.HIGHER_IS_BETTER, t.better) for t in tasks} <= {(True, "higher"), (False, "lower")}


@pytest.mark.parametrize(
    "ours, said",
    [
        ((0.80, 0.84, 0.86), "none larger than 0.0658, not the paper's loss"),  # of 0.277 (FC-ACE-Latent-ODE)
        ((0.20, 0.90, 0.95), "the interval holds zero and the paper's loss"),
    ],
)
def test_a_published_loss_is_called_one(ours, said):
    lines = compared.tables(
        accuracies("activity", "FC-ACE-Latent-ODE", *ours)
        + accuracies("activity", "Latent-ODE (ODE Enc.)", 0.83, 0.84, 0.84)
    )["activity"]
    (pair,) = (p for p in pairs("activity", lines) if p.one.row == "FC-ACE-Latent-ODE")
    assert words.reason(pair) == said


def test_seeds_with_bins_of_their_own_are_put_into_common_ones():
    seeds = [
        {"time": [0.0, 1.0], "mse": [1.0, 2.0], "values": [4, 4]},
        {"time": [0.0, 1.0], "mse": [3.0, 4.0], "values": [4, 4]},
    ]
    times, errors = _in_common_bins(seeds)
    assert times.tolist() == [0, 1] and errors.tolist() == [[1, 2], [3, 4]]
    fine = {"time": [k / 16 for k in range(32)], "mse": [float(k) for k in range(32)], "values": [2] * 32}
    late = {"time": [0.03, 9.0], "mse": [5.0, 7.0], "values": [10, 1]}
    times, errors = _in_common_bins([fine, late])
    assert len(times) <= 12 and (times[1:] > times[:-1]).all()
    assert errors[1, 0] == 5 and errors[1, -1] == 7 and math.isnan(errors[1, 1])
    assert errors[0, 0] < 2 < 25 < errors[0, -1]  # the first of it, and the last with what comes late
