"""`acenode tables`: the paper's numbers as printed, ours from their files."""

import json

import pytest
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.paper import published as paper
from acenode.paper.results import Result, save

NAMES = {
    "mnist",
    "svhn",
    "cifar10",
    "silhouette",
    "ushcn",
    "physionet-classification",
    "physionet-regression",
    "activity",
    "attention-size",
    "attention-type",
}


def result(seed: int, accuracy: float, row: str = "ODE-Net") -> Result:
    empty: dict = {}
    metrics = {"accuracy": accuracy, "cross_entropy": 0.1}
    return Result("mnist", row, seed, metrics, empty, "sound", empty, 7, 6, 208_266, empty, empty, "cpu", 1.0, empty)


def shown(*arguments):
    return CliRunner().invoke(app, ["tables", *map(str, arguments)])


def test_every_table_of_the_paper_is_there():
    numbers = paper.published()
    assert {p.table for p in numbers} == NAMES
    by_name = {(p.table, p.row, p.metric): (p.mean, p.sd) for p in numbers}
    assert by_name["mnist", "ACE-ODE-Net", "accuracy"] == pytest.approx((0.9968, 0.0003))
    assert by_name["ushcn", "GRU-D", "negll"] == (0.99, 0.07)
    extrapolation = ("physionet-regression", "ACE-Latent-ODE (ODE Enc.), extrapolation", "mse")
    assert by_name[extrapolation] == pytest.approx((2.025e-3, 0.028e-3))


def test_ours_beside_the_published(tmp_path):
    for seed, accuracy in enumerate((0.99, 0.98)):
        save(tmp_path, result(seed, accuracy))
    save(tmp_path, result(0, 0.5, "a row of our own"))
    answer = json.loads(shown("mnist", "--results", tmp_path, "--json").stdout)
    ours = {line["row"]: line for line in answer}
    assert ours["ODE-Net"]["mean"] == pytest.approx(0.985) and ours["ODE-Net"]["sd"] == pytest.approx(0.00707, abs=1e-5)
    assert (ours["ODE-Net"]["seeds"], ours["ODE-Net"]["epochs"]) == (2, 7)
    assert ours["ResNet"]["mean"] is None and ours["ResNet"]["published_mean"] == 0.9965
    assert ours["a row of our own"]["published_mean"] is None and ours["a row of our own"]["mean"] == 0.5
    text = shown("mnist", "--results", tmp_path).stdout
    assert "0.9850 ± 0.0071" in text and "not run" in text


def test_an_unknown_table_is_named(tmp_path):
    answer = shown("imagenet", "--results", tmp_path)
    assert answer.exit_code == 1 and "no table 'imagenet'. There are: mnist" in answer.stderr


def test_every_number_of_the_paper_has_a_row_that_can_be_run():
    from acenode.paper.tables import TABLES

    rows = {(row.table, row.name) for rows in TABLES.values() for row in rows}
    assert [p for p in paper.published() if (p.ours_table, p.ours_row) not in rows] == []


def test_a_broken_result_file_is_named(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "torn.json").write_text("{")
    answer = shown("--results", tmp_path)
    assert answer.exit_code == 1 and "torn.json is not a result file" in answer.stderr
