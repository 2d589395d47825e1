"""All results as one tidy frame, and whether the attention of a run was active."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from runs import accuracies, result, weights

from acenode.paper import results
from acenode.paper.results import attention_status, frame
from acenode.paper.row import Row
from acenode.paper.tables import TABLES
from acenode.report.statistics import gain

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def everything():
    return frame(results.load(ROOT / "results"))


@pytest.mark.slow
def test_every_number_of_every_file_is_a_line(everything):
    files = {p.relative_to(ROOT).as_posix(): results.read(p) for p in (ROOT / "results").glob("*/*.json")}
    lines = {(line.file, line.split, line.metric): line for line in everything.itertuples()}
    expected = {(file, "test", m): v for file, r in files.items() for m, v in r.metrics.items()}
    expected |= {
        (file, "validation", m.removeprefix("validation_")): v
        for file, r in files.items()
        for m, v in r.validation.items()
    }
    assert len(everything) == len(lines) and lines.keys() == expected.keys()
    assert all(lines[key].value == value or math.isnan(value) for key, value in expected.items())
    for line in lines.values():
        run = files[line.file]
        assert (line.table, line.row, line.seed) == (run.table, run.row, run.seed)
        assert (line.epochs, line.parameters, line.protocol) == (
            run.config.get("epochs", 0),
            run.parameters,
            run.protocol,
        )
        assert line.skipped == sum(run.history.get("skipped", ()))


def test_what_the_row_says_is_beside_the_run():
    runs = [*accuracies("cifar10", "ACE-ODE-Net", 0.9), *accuracies("cifar10", "not a row", 0.8)]
    own, other = frame(runs).to_dict("records")
    assert own["base"] == "ODE-Net" and "ODE-Net (as many weights)" in own["controls"]
    assert own["outdated"] == ("tolerance", "crop", "convolutions", "flip")
    assert own["attention"] == "unknown" and not own["quick"]
    assert (other["base"], other["controls"], other["outdated"], other["attention"]) == ("", (), (), "")
    assert list(frame([]).columns) == list(frame(runs).columns) and len(frame([])) == 0


@pytest.mark.parametrize(
    "more, status",
    [
        ({"attention_health": {"change": 0.009}}, "inactive"),
        ({"attention_health": {"change": 0.011}, "figures": weights(0.5, 0.5)}, "active"),
        ({"attention_health": {"change": math.nan}}, "unknown"),
        ({"attention_health": {"entropy": 0.5}}, "unknown"),
        ({"history": {"attention_change": [0.5, 0.001]}, "best_epoch": 2}, "inactive"),
        ({"history": {"attention_change": [0.5, 0.001]}, "best_epoch": 1}, "active"),
        ({"figures": weights(0.5, 0.505)}, "inactive"),
        ({"figures": weights(0.5, 0.52)}, "active"),
        ({"figures": weights(0.5, math.nan)}, "unknown"),
        ({"figures": {"attention_maps": {"maps": [[[[0.5, 0.5]], [[0.5, 0.52]]]]}}}, "active"),
        ({"figures": {"attention_maps": {"maps": [[[[0.5, 0.9]], [[0.5, 0.9]]]] * 2}}}, "inactive"),
        ({}, "unknown"),
    ],
)
def test_an_attention_is_active_if_a_weight_changes_along_the_solve(more, status):
    (run,) = accuracies("mnist", "ACE-ODE-Net", 0.9, **more)
    assert attention_status(run) == status


def test_a_row_without_attention_has_no_status():
    (run,) = accuracies("mnist", "ODE-Net", 0.9)
    assert attention_status(run) == "" and attention_status(replace(run, row="not a row")) == ""


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
def test_which_runs_diverged(values, metric, lost):
    runs = [result("ushcn", "GRU-D", k, {metric: value}) for k, value in enumerate(values)]
    assert frame(runs).diverged.sum() == lost


def test_a_data_set_is_part_of_the_name_of_a_file(tmp_path):
    run = result("many", "ACE, sharp", 3, {"mse": 0.5}, dataset="LI01", attention_health={"change": 0.25})
    path = results.save(tmp_path, run)
    assert path == tmp_path / "many" / "li01-ace-sharp-seed3.json" and results.load(tmp_path) == [run]
    assert results.place(tmp_path, replace(run, dataset="")).name == "ace-sharp-seed3.json"


def test_the_tasks_know_the_same_directions():
    tasks = [row.task for rows in TABLES.values() for row in rows if isinstance(row, Row)]
    assert {(gain(1.0, t.monitor) > 0, t.better) for t in tasks} <= {(True, "higher"), (False, "lower")}


def test_rows_are_compared_with_rows_that_there_are():
    for table, rows in TABLES.items():
        names = {(row.dataset, row.name) for row in rows}
        assert len(names) == len(rows), table
        named = {
            (row.dataset, name) for row in rows if isinstance(row, Row) for name in (row.base, *row.controls) if name
        }
        assert named <= names, table
