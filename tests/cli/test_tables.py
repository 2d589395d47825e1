"""`acenode tables`: the paper's numbers as printed, ours from their files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.paper import published as paper
from acenode.paper.results import Result, save
from acenode.paper.tables import TABLES, rows_of

ROOT = Path(__file__).parents[2]
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
    "physiome",
}


def result(seed: int, accuracy: float, row: str = "ODE-Net") -> Result:
    empty: dict = {}
    metrics = {"accuracy": accuracy, "cross_entropy": 0.1}
    return Result(
        "mnist", row, seed, metrics, empty, "comparable", empty, 7, 6, 208_266, empty, empty, "cpu", 1.0, empty
    )


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
    assert ours["ResNet"]["mean"] is None and ours["ResNet"]["published"] == 0.9965
    assert ours["a row of our own"]["published"] is None and ours["a row of our own"]["mean"] == 0.5
    text = shown("mnist", "--results", tmp_path).stdout
    assert "0.9850 ± 0.0071" in text and "not run" in text


def test_what_is_to_be_known_of_the_runs(tmp_path):
    config = {"epochs": 10, "learning_rate": 0.05}
    for seed, accuracy in enumerate((0.99, 0.98, 0.97)):
        save(tmp_path, replace(result(seed, accuracy, "ODE-Net"), config=config))
        health = {"change": 0.5 * seed}
        save(tmp_path, replace(result(seed, accuracy, "ACE-ODE-Net"), config={"epochs": 160}, attention_health=health))
    answer = json.loads(shown("mnist", "--results", tmp_path, "--json").stdout)
    ours = {line["row"]: line for line in answer}
    short, other, none = ours["ODE-Net"], ours["ACE-ODE-Net"], ours["ResNet"]
    assert (short["epochs"], short["full_epochs"], other["epochs"]) == (10, 160, 160)
    assert short["difference"] == pytest.approx(0.98 - short["published"])
    assert short["low"] < short["difference"] < short["high"]
    assert short["standing"] and none["standing"] == "not run" and none["difference"] is None
    assert (short["learning_rate"], none["learning_rate"]) == ("0.05", None)
    assert (short["attention"], other["attention"]) == ("", "2 active, 1 inactive")
    text = shown("mnist", "--results", tmp_path).stdout
    assert "3 x 10 of 160" in text and "3 x 160" in text and "1,271,306" not in text


def test_rows_whose_settings_have_changed_are_marked(tmp_path):
    row = next(row for row in TABLES["ushcn"] if row.name == "GRU-ODE-Bayes")
    made = replace(result(0, 0.0, row.name), table="ushcn", metrics={"mse": 0.5, "negll": 1.0}, protocol=row.protocol)
    now = row.config | {"epochs": 300}
    save(tmp_path, replace(made, config=now))
    assert "*" not in shown("ushcn", "--results", tmp_path).stdout
    save(tmp_path, replace(made, config=now | {"dropout": 0.7}))
    text = shown("ushcn", "--results", tmp_path).stdout
    assert "1 x 300 *" in text and "settings of the row have changed" in text
    answer = json.loads(shown("ushcn", "--results", tmp_path, "--json").stdout)
    assert {line["row"]: line["outdated"] for line in answer if line["outdated"]} == {row.name: "dropout"}


def test_a_table_with_several_data_sets_names_them(tmp_path, monkeypatch):
    rows = tuple(replace(TABLES["mnist"][2], table="many", dataset=name) for name in ("LI01", "LEN01"))
    monkeypatch.setitem(TABLES, "many", rows)
    save(tmp_path, replace(result(0, 0.9), table="many", dataset="LI01"))
    save(tmp_path, replace(result(0, 0.8), table="many", dataset="XY01"))
    text = shown("many", "--results", tmp_path).stdout
    assert "data set" in text and "LI01" in text and "Rows of many without results: LEN01, ODE-Net." in text


@pytest.mark.parametrize("table", ["ushcn", "double-ou"])
def test_every_row_that_can_be_run_is_listed(tmp_path, table):
    text = " ".join(shown(table, "--results", tmp_path).stdout.split())
    assert [row for row in rows_of(table) if row not in text] == []


def test_an_unknown_table_is_named(tmp_path):
    answer = shown("imagenet", "--results", tmp_path)
    assert answer.exit_code == 1 and "no table 'imagenet'. There are: mnist" in answer.stderr


def test_every_number_of_the_paper_has_a_row_that_can_be_run():
    rows = {(row.table, row.name) for rows in TABLES.values() for row in rows}
    assert [p for p in paper.published() if not p.dataset and (p.ours_table, p.ours_row) not in rows] == []


def test_a_broken_result_file_is_named(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "torn.json").write_text("{")
    answer = shown("--results", tmp_path)
    assert answer.exit_code == 1 and "torn.json is not a result file" in answer.stderr


@pytest.mark.parametrize(
    "part, value, said",
    [
        ("metrics", {}, "it has no metrics"),
        ("metrics", "good", "metrics are numbers by name"),
        ("metrics", {"mse": None}, "metrics are numbers by name"),
        ("seed", "a", "seed, epochs and parameters are whole numbers"),
        ("config", 3, "config and history are by name"),
        ("row", None, "table, row and protocol are texts"),
    ],
)
def test_a_file_with_wrong_contents_is_named(tmp_path, part, value, said):
    source = next((ROOT / "results/mnist").glob("*.json"))
    spoilt = {**json.loads(source.read_text()), part: value}
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / source.name).write_text(json.dumps(spoilt))
    answer = shown("--results", tmp_path)
    assert answer.exit_code == 1 and answer.stderr.endswith(f"{source.name} is not a result file: {said}\n")


def test_a_copy_of_a_result_does_not_count_twice(tmp_path):
    source = next((ROOT / "results/mnist").glob("*.json"))
    (tmp_path / "mnist").mkdir()
    for name in (source.name, "copy.json"):
        (tmp_path / "mnist" / name).write_bytes(source.read_bytes())
    answer = shown("--results", tmp_path)
    assert answer.exit_code == 1 and f"copy.json belongs at {tmp_path}/mnist/{source.name}" in answer.stderr
    answer = shown("--results", source)
    assert answer.exit_code == 1 and "is not a folder of result files" in answer.stderr
