"""The rows of the tables with their scores, beside the published numbers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runs import accuracies, result

from acenode.paper import results
from acenode.paper.published import published
from acenode.paper.results import frame
from acenode.paper.tables import TABLES
from acenode.report.paper import budget, interval, number, ours, p_value, theirs
from acenode.report.scores import lines, places, scores, usual_runs

ROOT = Path(__file__).parents[2]


def line(runs, table="mnist", row="ODE-Net", metric="accuracy"):
    found = lines(frame(runs))
    (own,) = found[(found.table == table) & (found.row == row) & (found.metric == metric)].to_dict("records")
    return own


@pytest.mark.slow
def test_means_and_deviations_are_those_of_the_files():
    values: dict[tuple, list[float]] = {}
    for run in results.load(ROOT / "results"):
        for metric, value in run.metrics.items():
            values.setdefault((run.table, run.dataset, run.row, metric), []).append(value)
    found = scores(frame(results.load(ROOT / "results")))
    assert len(found) == len(values)
    for own in found.itertuples():
        some = values[own.table, own.dataset, own.row, own.metric]
        assert own.seeds == len(some)
        np.testing.assert_allclose(own.mean, np.mean(some), rtol=1e-12)
        if len(some) > 1 and np.isfinite(some).all():
            np.testing.assert_allclose(own.sd, np.std(some, ddof=1), rtol=1e-9, atol=1e-12)


def test_every_published_number_is_there_run_or_not():
    found = lines(frame([]))
    assert [(p.table, p.row, p.metric, p.mean) for p in published()] == list(
        found[["table", "row", "metric", "published"]].itertuples(index=False, name=None)
    )
    assert set(found.standing) == {"not run"} and ours(line([])) == "not run" and budget(line([])) == ""


@pytest.mark.parametrize(
    "values, more, standing",
    [
        ((0.9, 0.91, 0.92), {}, "worse than published"),
        ((0.999, 0.9991, 0.9992), {}, "better than published"),
        ((0.996, 0.9955, 0.9965), {}, "no significant difference"),
        ((0.9,), {}, "inconclusive"),
        ((0.9, math.nan), {}, "diverged"),
        ((0.9, 0.91), {"protocol": "other data"}, "not comparable"),
    ],
)
def test_ours_against_a_published_number(values, more, standing):
    own = line(accuracies("mnist", "ODE-Net", *values, **more))
    assert own["standing"] == standing and own["published"] == 0.9961
    assert math.isnan(own["difference"]) == (standing in ("diverged", "not comparable"))


def test_a_copy_of_the_data_that_is_as_good_is_comparable():
    (run,) = accuracies("svhn", "ODE-Net", 0.9, protocol="regenerated SVHN, comparable")
    assert line([run], "svhn")["comparable"]


def test_an_ablation_takes_numbers_and_deviations_from_other_tables():
    runs = [result("activity", "ACE-Latent-ODE (ODE Enc.)", k, {"accuracy": v}) for k, v in enumerate((0.8, 0.85, 0.9))]
    own, again = line(runs, "activity", runs[0].row), line(runs, "attention-type", "evolved, activity")
    assert again["mean"] == own["mean"] and (again["low"], again["high"]) == (own["low"], own["high"])


def test_rows_and_metrics_that_the_paper_does_not_have_come_after_its_own():
    runs = [
        *accuracies("mnist", "a row of our own", 0.5),
        *accuracies("mnist", "ODE-Net (width 128)", 0.9),
        result("double-ou", "GRU-ODE-Bayes", 0, {"negll": 1.0, "mse": 0.1, "coverage": 0.9}),
        result("new", "a row", 0, {"something": 1.0}),
    ]
    found = lines(frame(runs))
    assert list(found.row[found.table == "mnist"])[-2:] == ["ODE-Net (width 128)", "a row of our own"]
    assert list(found.metric[found.table == "double-ou"]) == ["negll", "mse"]
    assert list(found.metric[found.table == "new"]) == ["something"]


@pytest.mark.parametrize(
    "table, row, epochs, said",
    [
        ("physionet-classification", "Latent-ODE (ODE Enc.)", 12, "1 x 12 of 30"),
        ("physionet-classification", "Latent-ODE (ODE Enc.)", 30, "1 x 30"),
        ("physionet-classification", "Latent-ODE (ODE Enc.), with statistics", 12, "1 x 12"),
        ("cifar10", "ACE-ODE-Net, longer training", 60, "1 x 60 of 160"),
        ("cifar10", "ACE-ODE-Net, longer training", 160, "1 x 160"),
    ],
)
def test_epochs_beside_those_of_a_full_run(table, row, epochs, said):
    metric = "accuracy" if table == "cifar10" else "auc"
    run = result(table, row, 0, {metric: 0.8}, epochs=epochs)
    assert budget(line([run], run.table, row, metric)) == said
    quick = replace(run, config={**run.config, "quick": True})
    assert budget(line([quick], run.table, row, metric)) == f"{said}, quick"


def test_a_row_without_training_has_no_epochs():
    run = result("ushcn", "LOCF", 0, {"mse": 1.0, "negll": 1.0}, epochs=0, config={}, parameters=0)
    assert budget(line([run], "ushcn", "LOCF", "mse")) == "1, not trained"


def test_of_runs_that_diverged_the_median_is_shown():
    runs = [result("ushcn", "GRU-D", k, {"mse": v, "negll": 1.0}) for k, v in enumerate((0.5, 0.7, 1e9))]
    assert ours(line(runs, "ushcn", "GRU-D", "mse")) == "1 of 3 diverged, median 0.7000"
    assert ours(line(accuracies("mnist", "ODE-Net", math.nan, math.nan))) == "2 of 2 diverged"


def test_numbers_that_were_not_verified_are_marked():
    right, doubtful = (accuracies("mnist", "ODE-Net", 0.99, 0.98, unverified=why) for why in ("", "a wrong program"))
    assert ours(line(doubtful)) == f"{ours(line(right))} (not verified)"
    assert line([right[0], doubtful[1]])["unverified"] == "a wrong program"


def test_numbers_have_a_true_minus_and_no_signed_zero():
    assert (p_value(1e-7), p_value(0.0007), p_value(0.04), p_value(math.nan)) == ("< 0.001", "0.001", "0.040", "")
    assert number(-0.00001, 4, sign=True) == "0.0000" and number(-0.5, 1) == "\N{MINUS SIGN}0.5"
    assert number(436772.2938, 4) == "4.4e+05" and number(math.nan, 4) == "" and number(0.25, 2, sign=True) == "+0.25"
    assert theirs(line([], "ushcn", "Neural-ODE-VAE", "mse")) == "0.96 ± 0.11"
    gap = {"difference": 0.1, "low": -0.1, "high": 0.3}
    assert interval(gap, 1) == "+0.1 [\N{MINUS SIGN}0.1, +0.3]" and interval(gap | {"low": math.nan}, 1) == "+0.1"


def test_numbers_that_the_paper_does_not_have_get_two_digits_of_their_deviation():
    def digits(*values):
        runs = [result("double-ou", "GRU-ODE-Bayes", k, {"mse": v, "negll": 1.0}) for k, v in enumerate(values)]
        return places(line(runs, "double-ou", "GRU-ODE-Bayes", "mse"))

    assert [digits(0.00543, 0.00546), digits(0.5, 0.7), digits(0.5, 0.5), digits(0.5), digits(0.005)] == [6, 4, 4, 4, 6]


def test_rows_whose_settings_have_changed_are_known():
    row = next(row for row in TABLES["ushcn"] if row.name == "GRU-ODE-Bayes")
    run = result("ushcn", row.name, 0, {"mse": 1.0, "negll": 1.0}, config=row.config | {"dropout": 0.7})
    assert line([run], "ushcn", row.name, "mse")["outdated"] == "dropout"


def test_usual_runs_are_those_of_seeds_that_most_rows_have():
    runs = [*accuracies("cifar10", "ODE-Net", 0.8, 0.81, 0.9), *accuracies("cifar10", "ACE-ODE-Net", 0.7, 0.8)]
    runs += [*accuracies("cifar10", "ResNet", 0.6), *accuracies("mnist", "ODE-Net", 0.9, 0.9, 0.9)]
    found = usual_runs(frame(runs))
    test = found[found.split == "test"]
    kept = {key: sorted(own.seed) for key, own in test.groupby(["table", "row"])}
    assert kept[("cifar10", "ODE-Net")] == [0, 1] and kept[("cifar10", "ResNet")] == [0]
    assert kept[("mnist", "ODE-Net")] == [0, 1, 2]
    other = [replace(each, seed=7) for each in accuracies("mnist", "ACE-ODE-Net", 0.9)]
    assert len(usual_runs(frame([*accuracies("mnist", "ODE-Net", 0.9), *other]))) == 2
