"""Commands for one's own data, through the command line: what they write, and every kind of bad input."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from own_tables import COLUMNS, FORECAST, QUICK, rows, run, train, write

from acenode.estimators import auto
from acenode.estimators.named import train_named
from acenode.train import CheckpointMismatch


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def data(place) -> Path:
    return write(place / "data.csv", rows())


@pytest.fixture(scope="module")
def model(place, data) -> Path:
    result = train(data, place / "model", *FORECAST)
    assert result.exit_code == 0, result.output
    assert f"its page is {place / 'model' / 'report' / 'index.html'}" in result.output
    return place / "model"


@pytest.mark.slow
def test_a_forecast_from_file_to_file(place, data, model):
    result = run("predict", model, data, "--at", 8.2, "--at", 8.6, "--out", place / "forecast.csv")
    assert result.exit_code == 0, result.output
    with (place / "forecast.csv").open() as file:
        answer = list(csv.DictReader(file))
    assert len(answer) == 12 * 2 * 2
    assert {row["variable"] for row in answer} == {"pulse", "pressure"}
    assert all(float(row["q0.05"]) < float(row["mean"]) < float(row["q0.95"]) for row in answer)
    assert not list(place.glob(".*"))


def test_a_run_has_its_page(model):
    names = {path.name for path in (model / "report").iterdir()}
    pictures = {"series-typical", "series-hard", "series-longest", "error", "calibration", "residuals", "learning"}
    pictures |= {"importance"}
    assert names == {"index.html", *(f"{each}.svg" for each in pictures)}  # this model has no attention
    text = (model / "report" / "index.html").read_text()
    assert "Trained on 10 series of pulse, pressure; 2 more were set aside for validation" in text


def test_times_for_each_id_from_a_file(place, data, model):
    queried = write(place / "queries.csv", [["p0", 8.0], ["p3", 8.5], ["p3", 9.0]], ("patient", "hour"))
    result = run("predict", model, data, "--at-file", queried, "--out", place / "some.parquet")
    assert result.exit_code == 0, result.output
    import pyarrow.parquet

    ids = pyarrow.parquet.read_table(place / "some.parquet")["patient"].to_pylist()
    assert ids == ["p0", "p0", "p3", "p3", "p3", "p3"]


def test_evaluate_inspect_and_models_as_json(data, model):
    metrics = json.loads(run("evaluate", model, data, "--json").stdout)
    assert set(metrics) == {"mse", "negll", "coverage", "mse_baseline"} and metrics["mse"] > 0
    head = json.loads(run("inspect", model, "--json").stdout)
    assert head["estimator"] == "Forecaster" and head["columns"]["values"] == ["pulse", "pressure"]
    assert "gru-d" in run("inspect", model).stdout
    known = json.loads(run("models", "--json").stdout)
    assert known["ace-variables"]["attends"] == "variables" and "gru-d" in run("models").stdout


@pytest.mark.slow
def test_a_classifier_gives_probabilities(place, data):
    out = place / "labels"
    result = train(data, out, "--task", "classify", "--label", "died", "--model", "gru-d", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["summary"]["series"] == 12
    assert run("predict", out, data, "--out", place / "p.csv").exit_code == 0
    with (place / "p.csv").open() as file:
        answer = list(csv.DictReader(file))
    assert len(answer) == 12
    assert all(float(row["p_0"]) + float(row["p_1"]) == pytest.approx(1) for row in answer)


@pytest.mark.slow
def test_an_exported_program_predicts_without_the_library(place, data, model):
    result = run("export", model, "--out", place / "model.stablehlo", "--rows", 8, "--queries", 1)
    assert result.exit_code == 0, result.output
    about = json.loads((place / "model.stablehlo.json").read_text())
    assert about["inputs"] == ["times", "values", "length", "queries"]
    run("predict", model, data, "--at", 8.2, "--out", place / "again.csv")
    with (place / "again.csv").open() as file:
        expected = [float(row["mean"]) for row in csv.DictReader(file) if row["patient"] == "p0"]
    script = f"""
import sys
sys.modules["acenode"] = None  # cannot be imported
import csv, jax, numpy as np
with open({str(data)!r}) as file:
    own = [r for r in csv.DictReader(file) if r["patient"] == "p0"]
hours = np.array([float(r["hour"]) for r in own])
number = lambda x: float(x) if x else np.nan
values = np.array([[number(r["pulse"]), number(r["pressure"])] for r in own], np.float32)
program = jax.export.deserialize(bytearray(open({str(place / "model.stablehlo")!r}, "rb").read()))
times = ((hours - hours[0]) / {about["unit"]!r}).astype(np.float32)
queries = np.array([[(8.2 - hours[0]) / {about["unit"]!r}]], np.float32)
mean, sd = program.call(times[None], values[None], np.array([8], np.int32), queries)
print(*np.asarray(mean)[0, 0])
"""
    done = subprocess.run([sys.executable, "-c", "import jax.export\n" + script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [float(x) for x in done.stdout.split()] == pytest.approx(expected, rel=1e-4)


# --- the choice among candidates, long tables -------------------------------------------------------------------


@pytest.mark.slow
def test_where_only_baselines_are_left_that_is_said_first(place, data, monkeypatch):
    monkeypatch.setitem(auto.CANDIDATES, "forecast", ())
    out = place / "chosen"
    given = ("--value", "pulse", "--value", "pressure", "--report", "--minutes", 1)
    result = train(data, out, *given)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("note: no model was trained within the budget: ")
    table = result.stdout[result.stdout.index("candidates") :]
    assert all(name in table for name in ("last-value", "mean", "linear"))
    head = json.loads((out / "model.json").read_text())
    assert head["leaderboard"][0]["model"] == head["settings"]["model"]
    page = (out / "report" / "index.html").read_text()
    assert "No model was trained within the budget" in page and "Candidates" in page
    shown = json.loads(train(data, out, *given, "--json").stdout)
    assert len(shown["leaderboard"]) == 3
    assert run("predict", out, data, "--at", 9, "--out", place / "plain.csv").exit_code == 0


@pytest.mark.slow
def test_a_long_table_is_as_good_as_a_wide_one(tmp_path, data):
    names = COLUMNS[2:4]
    long = [
        [*row[:2], name, value] for row in rows() for name, value in zip(names, row[2:4], strict=True) if value != ""
    ]
    path = write(tmp_path / "long.csv", long, ("patient", "hour", "kind", "number"))
    options = ("--variable", "kind", "--value", "number")
    done = train(path, tmp_path / "m", *options, "--model", "linear")
    assert done.exit_code == 0, done.output
    wide = train(data, tmp_path / "w", "--model", "linear", "--drop", "died")
    assert wide.exit_code == 0, wide.output
    for model, given, more in (("m", path, options), ("w", data, ())):
        answer = run("predict", tmp_path / model, given, "--at", 9, "--out", tmp_path / f"{model}.csv", *more)
        assert answer.exit_code == 0, answer.output
    assert (tmp_path / "m.csv").read_text() == (tmp_path / "w.csv").read_text()
    scores = [run("evaluate", tmp_path / m, g, *o).stdout for m, g, o in (("m", path, options), ("w", data, ()))]
    assert scores[0] == scores[1]
    nothing = train(path, tmp_path / "n", "--variable", "kind")
    assert nothing.exit_code == 1 and "name its column of values with --value" in nothing.stderr
    twice = write(tmp_path / "twice.csv", [*long, long[0]], ("patient", "hour", "kind", "number"))
    refused = train(twice, tmp_path / "n", *options)
    assert refused.exit_code == 1 and "appears twice at patient 'p0'" in refused.stderr


@pytest.mark.slow
def test_roles_of_columns_by_options(tmp_path, data):
    table = [[*row, k // 8 % 3, "warm" if k // 8 % 2 else "cold"] for k, row in enumerate(rows())]
    path = write(tmp_path / "roles.csv", table, (*COLUMNS, "age", "ward"))
    options = ("--static", "age", "--static", "ward", "--future", "hours", "--model", "linear")
    absent = train(path, tmp_path / "m", *options, "--drop", "died")
    assert absent.exit_code == 1 and "no column 'hours'" in absent.stderr
    labels = ("--task", "classify", "--label", "died", "--label", "ward", "--model", "statistics", "--static", "age")
    both = train(path, tmp_path / "both", *labels)
    assert both.exit_code == 0, both.output
    assert run("predict", tmp_path / "both", path, "--out", tmp_path / "p.csv").exit_code == 0
    with (tmp_path / "p.csv").open() as file:
        answer = next(csv.DictReader(file))
    assert set(answer) == {"patient", "p_died_0", "p_died_1", "p_ward_cold", "p_ward_warm"}
    assert float(answer["p_ward_cold"]) + float(answer["p_ward_warm"]) == pytest.approx(1)
    metrics = json.loads(run("evaluate", tmp_path / "both", path, "--json").stdout)
    assert {"accuracy_died", "accuracy_ward"} <= set(metrics)
    late = train(path, tmp_path / "n", "--task", "impute", "--future", "age")
    assert late.exit_code == 1 and "--future is for --task forecast" in late.stderr


# --- bad input ------------------------------------------------------------------------------------------------


def edited(change) -> list[list]:
    table = rows()
    change(table)
    return table


def swap(table):
    table[2], table[3] = table[3], table[2]


def repeat(table):
    table[3][1] = table[2][1]


def word(table):
    table[5][2] = "high"


def empty_series(table):
    for row in table[8:16]:
        row[2] = row[3] = ""


def no_time(table):
    table[4][1] = ""


def no_id(table):
    table[4][0] = ""


FAULTS = {
    "unsorted": (swap, "p0' goes back in time from row 3 to row 4; sort"),
    "twice": (repeat, "same 'hour' in rows 3 and 4; merge"),
    "a word among numbers": (word, "column 'pulse' holds 'high' in row 6"),
    "a series without values": (empty_series, "patient 'p1' has no value in any row; drop"),
    "a blank time": (no_time, "'hour' is blank in row 5"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_training_table(fault, tmp_path):
    change, sentence = FAULTS[fault]
    result = train(write(tmp_path / "bad.csv", edited(change)), tmp_path / "model", *FORECAST)
    assert result.exit_code == 1 and sentence in result.stderr, result.output
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.slow
def test_a_constant_column_is_left_out_and_said_once(tmp_path, data):
    table = [[*row, 7] for row in rows()]
    wide = write(tmp_path / "wide.csv", table, (*COLUMNS, "site"))
    result = train(wide, tmp_path / "m", "--drop", "died", "--model", "gru-d", "--report")
    assert result.exit_code == 0, result.output
    said = "acenode: the training table: column 'site' is 7 in every row; it is left out."
    assert [line for line in result.stderr.splitlines() if "site" in line] == [said]
    head = json.loads(run("inspect", tmp_path / "m", "--json").stdout)
    assert head["columns"]["values"] == ["pulse", "pressure"] and head["left_out"] == ["site"]
    for name, given in (("with.csv", wide), ("without.csv", data)):
        assert run("predict", tmp_path / "m", given, "--at", 9, "--out", tmp_path / name).exit_code == 0
    assert (tmp_path / "with.csv").read_text() == (tmp_path / "without.csv").read_text()


def test_a_table_of_constant_columns_is_refused(tmp_path):
    table = write(tmp_path / "same.csv", [[*row[:2], 1, 7] for row in rows()], COLUMNS[:4])
    result = train(table, tmp_path / "m")
    assert result.exit_code == 1
    assert "column 'pulse' is 1 in every row, column 'pressure' is 7 in every row; nothing can be" in result.stderr


def test_one_series_is_too_few(tmp_path):
    result = train(write(tmp_path / "one.csv", rows(1)), tmp_path / "model", *FORECAST)
    assert result.exit_code == 1 and "there is one series; training needs at least 5" in result.stderr


def test_missing_columns_files_and_tasks(tmp_path, data):
    def fails(sentence, *arguments):
        result = run(*arguments)
        assert result.exit_code == 1 and sentence in result.stderr, result.output
        assert len(result.stderr.strip().splitlines()) == 1

    out = ("--out", tmp_path / "m", *QUICK)
    fails("no column 'who'; the columns are", "train", data, "--id", "who", "--time", "hour", *out)
    fails("no column 'sex'", "train", data, "--id", "patient", "--time", "hour", "--value", "sex", *out)
    fails("no such file", "train", tmp_path / "not.csv", "--id", "patient", "--time", "hour", *out)
    fails("regress needs a label", "train", data, "--id", "patient", "--time", "hour", "--task", "regress", *out)
    fails("classify needs a label", "train", data, "--id", "patient", "--time", "hour", "--task", "classify", *out)
    fails("no model of this name", "train", data, "--id", "patient", "--time", "hour", "--model", "gpt", *out)
    (tmp_path / "empty.csv").write_text("")
    fails("the file is empty", "train", tmp_path / "empty.csv", "--id", "patient", "--time", "hour", *out)
    write(tmp_path / "head.csv", [])
    fails("is empty", "train", tmp_path / "head.csv", "--id", "patient", "--time", "hour", *out)
    (tmp_path / "text.txt").write_text("a,b\n1,2\n")
    fails("expected a file that ends with .csv", "train", tmp_path / "text.txt", "--id", "a", "--time", "b", *out)
    (tmp_path / "torn.csv").write_text("patient,hour,x\na,1,2\na,2\n")
    fails("line 3 has 2 cells, the first 3", "train", tmp_path / "torn.csv", "--id", "patient", "--time", "hour", *out)


@pytest.mark.slow
def test_columns_are_left_out_and_numbers_stand_for_blanks(tmp_path, data, model):
    table = [[*row[:2], -999 if k % 3 else row[2], *row[3:]] for k, row in enumerate(rows())]
    marked = write(tmp_path / "marked.csv", table)
    blank = write(tmp_path / "blank.csv", [["" if cell == -999 else cell for cell in row] for row in table])
    known = train(
        marked, tmp_path / "m", "--drop", "died", "--drop", "died", "--missing", -999, "--model", "gru-d", "--no-report"
    )
    assert known.exit_code == 0, known.output
    assert json.loads(run("inspect", tmp_path / "m", "--json").stdout)["columns"]["values"] == ["pulse", "pressure"]
    scores = [run("evaluate", tmp_path / "m", table, "--json") for table in (marked, blank)]  # the model keeps it
    assert scores[0].exit_code == 0 and scores[0].stdout == scores[1].stdout
    assert run("evaluate", model, marked, "--json").stdout != run("evaluate", model, blank, "--json").stdout
    answers = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for table, answer in zip((marked, blank), answers, strict=True):
        run("predict", tmp_path / "m", table, "--at", 9, "--out", answer)
    assert answers[0].read_text() == answers[1].read_text()
    for name, said in (("who", "there is no such column"), ("hour", "another option names the column too")):
        refused = train(data, tmp_path / "n", "--drop", name)
        assert refused.exit_code == 1 and said in refused.stderr


def test_a_label_that_varies_inside_a_series(tmp_path):
    def change(table):
        table[10][4] = 1 - table[10][4]

    bad = write(tmp_path / "bad.csv", edited(change))
    result = train(bad, tmp_path / "m", "--task", "classify", "--label", "died", "--model", "gru-d")
    assert result.exit_code == 1 and "the label 'died' of patient 'p1' is 1 in row 9 and 0 in row 11" in result.stderr


def test_bad_questions_to_a_model(tmp_path, data, model):
    def fails(sentence, *arguments):
        result = run("predict", model, *arguments, "--out", tmp_path / "f.csv")
        assert result.exit_code == 1 and sentence in result.stderr, result.output
        assert not (tmp_path / "f.csv").exists()

    fails("say at which times", data)
    fails("expected numbers", data, "--at", "noon")
    fails("lies before the first row of patient", data, "--at", -3)
    fails("ask for nearer times", data, "--at", 1e6)
    without = write(tmp_path / "less.csv", [row[:3] for row in rows()], COLUMNS[:3])
    fails("no column 'pressure'", without, "--at", 9)
    queried = write(tmp_path / "queries.csv", [["nobody", 8.0]], ("patient", "hour"))
    fails("patient 'nobody' is queried", data, "--at-file", queried)


def test_times_farther_than_training_reached_are_warned_of(tmp_path, data, model):
    result = run("predict", model, data, "--at", 11, "--out", tmp_path / "f.csv")
    assert result.exit_code == 0 and "such predictions are guesses" in result.stderr


def test_a_damaged_model_folder(tmp_path, data, model):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    arrays = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(arrays[:-1] + bytes([arrays[-1] ^ 1]))
    result = run("evaluate", copy, data)
    assert result.exit_code == 1 and "was changed since it was saved" in result.stderr
    (copy / "model.json").write_text("{")
    assert "is damaged" in run("inspect", copy).stderr
    assert "is not a saved model" in run("inspect", tmp_path).stderr


def test_places_that_cannot_be_written(tmp_path, data, model, monkeypatch):
    (tmp_path / "file").write_text("")
    result = train(data, tmp_path / "file" / "model", *FORECAST)
    assert result.exit_code == 1 and "cannot write to" in result.stderr

    def full(*_, **__):
        raise OSError(28, "No space left on device", "answer")

    refused = run("predict", model, data, "--at", 8.2, "--out", tmp_path / "f.xlsx")
    assert refused.exit_code == 1 and "are written as .csv or .parquet" in refused.stderr
    monkeypatch.setattr("acenode.cli.read.write_table", full)
    result = run("predict", model, data, "--at", 8.2, "--out", tmp_path / "f.csv")
    assert result.exit_code == 1 and "No space left on device" in result.stderr
    assert not (tmp_path / "f.csv").exists()


def test_a_program_is_not_exported_over_a_model(model, monkeypatch):
    monkeypatch.chdir(model)
    for out in (model / "model.stablehlo", "model.json"):
        refused = run("export", model, "--out", out)
        assert refused.exit_code == 1 and "holds a saved model; choose another place" in refused.stderr
    assert run("inspect", model).exit_code == 0


def test_a_place_that_no_model_can_have_is_refused_before_the_training(tmp_path, data, monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained")

    monkeypatch.setattr("acenode.estimators.base.train_named", never)
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    for out, words in ((".", "holds other files, such as mine.txt"), ("mine.txt", "mine.txt is a file")):
        result = train(data, out, *FORECAST)
        assert result.exit_code == 1 and words in result.stderr


@pytest.mark.slow
def test_the_folder_one_is_in_may_become_a_model(tmp_path, data, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = train(data, ".", "--model", "gru-d")
    assert result.exit_code == 0, result.output
    assert run("inspect", tmp_path / "here").exit_code == 0


def test_an_interrupted_training_with_other_settings_is_not_thrown_away(tmp_path, data, monkeypatch):
    def interrupted(*_, **__):
        raise CheckpointMismatch

    left = tmp_path / ".model-training.safetensors"
    left.write_text("an earlier run")
    monkeypatch.setattr("acenode.estimators.base.train_named", interrupted)
    result = train(data, tmp_path / "model", *FORECAST)
    assert result.exit_code == 1 and "an interrupted training with other data or settings" in result.stderr
    assert left.read_text() == "an earlier run"


def test_a_training_that_diverged_is_not_saved(tmp_path, data, monkeypatch):
    def diverged(*arguments, **options):
        done = train_named(*arguments, **options)
        return replace(done, metrics={name: math.nan for name in done.metrics})

    monkeypatch.setattr("acenode.estimators.base.train_named", diverged)
    result = train(data, tmp_path / "model", *FORECAST)
    assert result.exit_code == 1 and "nothing is saved. Try a lower --learning-rate." in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_report_that_fails_does_not_cost_the_model(tmp_path, data, monkeypatch):
    def broken(*_, **__):
        raise IndexError("no such picture")

    monkeypatch.setattr("acenode.cli.own_report.write_report", broken)
    result = train(data, tmp_path / "model", *FORECAST)
    assert result.exit_code == 0 and "the model is saved, but there is no report: no such picture" in result.stderr
