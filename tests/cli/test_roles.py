"""Columns with a role, through the command line: known ahead, static, weights, targets, several labels, long tables."""

import csv
import json
from pathlib import Path

import pytest
from own_tables import COLUMNS, rows, run, train, write

ROLES = (*COLUMNS, "dose", "age", "ward", "counts", "days")
INPUTS = ("--drop", "died", "--drop", "counts", "--drop", "days")
KNOWN = ("--future", "dose", "--static", "age", "--static", "ward")
LONG = ("--variable", "kind", "--value", "number")
AT = ("patient", "hour", "dose")


def roles(series: int = 20) -> list[list]:
    """Patients with a dose for every hour, an age, a ward, a weight and a number of days."""
    table = []
    for row in rows(series):
        k = int(row[0][1:])
        table.append([*row, round(row[1] % 3, 3), 40 + k % 5, ("cold", "warm", "dry")[k % 3], 9 - 8 * (k % 2), k + 1])
    return table


def long(table: list[list]) -> list[list]:
    """A row for each value, by patient, then variable, then hour; each variable has hours at which it alone is."""
    split = [(k, name, row) for k, row in enumerate(table) for name in COLUMNS[2:4] if row[COLUMNS.index(name)] != ""]
    split = [(k, name, row) for k, name, row in split if name == "pulse" or row[2] == "" or k % 3]
    found = sorted(split, key=lambda each: (int(each[2][0][1:]), each[1] != "pulse", each[0]))
    return [[*row[:2], name, row[COLUMNS.index(name)], *row[4:]] for _, name, row in found]


def wide(table: list[list]) -> list[list]:
    """What `long` shows of a table."""
    seen = {(row[0], row[1], row[2]): row[3] for row in long(table)}
    return [[*row[:2], *(seen.get((*row[:2], name), "") for name in COLUMNS[2:4]), *row[4:]] for row in table]


def answers(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def done(result):
    assert result.exit_code == 0, result.output
    return result


def fails(result, *sentences: str) -> None:
    assert result.exit_code == 1 and all(each in result.stderr for each in sentences), result.output
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("roles")


@pytest.fixture(scope="module")
def data(place) -> Path:
    return write(place / "data.csv", roles(), ROLES)


# --- inputs alone ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(place, data) -> Path:
    done(train(data, place / "known", *KNOWN, *INPUTS, "--model", "linear"))
    return place / "known"


def test_a_forecast_from_what_is_known_ahead(tmp_path, data, known):
    means = []
    for dose in (0, 5):
        at = write(tmp_path / "at.csv", [["p3", 9.0, dose], ["p4", 8.5, dose], ["p4", 9.5, dose]], AT)
        done(run("predict", known, data, "--at-file", at, "--out", tmp_path / "f.csv"))
        answer = answers(tmp_path / "f.csv")
        assert [(a["patient"], float(a["hour"]), a["variable"]) for a in answer] == [
            (who, hour, name)
            for who, hour in (("p3", 9.0), ("p4", 8.5), ("p4", 9.5))
            for name in ("pulse", "pressure")  # what is known is not predicted
        ]
        means.append([float(a["mean"]) for a in answer])
    assert all(abs(one - two) > 1e-6 for one, two in zip(*means, strict=True))
    assert json.loads(run("evaluate", known, data, "--json").stdout)["mse"] > 0


def test_what_is_known_ahead_has_to_be_given(tmp_path, data, known):
    to = ("--out", tmp_path / "f.csv")
    fails(run("predict", known, data, "--at", 9, *to), "known ahead (dose)", "--at-file")
    at = write(tmp_path / "at.csv", [["p3", 9.0]], AT[:2])
    fails(run("predict", known, data, "--at-file", at, *to), "no column 'dose'")
    early = write(tmp_path / "early.csv", [["p3", 5.0, 1]], AT)
    fails(run("predict", known, data, "--at-file", early, *to), "is not after the last row of patient 'p3'")
    assert not (tmp_path / "f.csv").exists()


# --- long tables ----------------------------------------------------------------------------------------------------


def test_a_long_table_with_static_words_is_as_good_as_a_wide_one(tmp_path, known):
    columns = ("patient", "hour", "kind", "number", *ROLES[4:])
    given = {"long": (write(tmp_path / "long.csv", long(roles()), columns), *LONG)}
    given["wide"] = (write(tmp_path / "wide.csv", wide(roles()), ROLES),)
    at = write(tmp_path / "at.csv", [[f"p{k}", 9.0, 1] for k in range(20)], AT)
    made, scores = [], []
    for name, (path, *more) in given.items():
        done(run("predict", known, path, *more, "--at-file", at, "--out", tmp_path / f"{name}.out.csv"))
        made.append((tmp_path / f"{name}.out.csv").read_text())
        scores.append(done(run("evaluate", known, path, *more)).stdout)
    assert made[0] == made[1] and scores[0] == scores[1]
    other = [[*row[:-3], "cold", *row[-2:]] for row in long(roles())]
    elsewhere = write(tmp_path / "elsewhere.csv", other, columns)
    assert done(run("evaluate", known, elsewhere, *LONG)).stdout != scores[0]  # the ward counts
    less = [[*row[:-3], *row[-2:]] for row in long(roles())]
    without = write(tmp_path / "less.csv", less, (*columns[:-3], *columns[-2:]))
    fails(run("evaluate", known, without, *LONG), "no column 'ward'")


def test_a_model_from_a_long_table_by_variable(tmp_path):
    """The hours of its variables differ: by variable they go back."""
    columns = ("patient", "hour", "kind", "number", *ROLES[4:])
    path = write(tmp_path / "long.csv", long(roles()), columns)
    done(train(path, tmp_path / "m", *LONG, *KNOWN, "--model", "linear"))
    whole = write(tmp_path / "wide.csv", wide(roles()), ROLES)
    done(train(whole, tmp_path / "w", *KNOWN, *INPUTS, "--model", "linear"))
    scores = [done(run("evaluate", tmp_path / name, whole)).stdout for name in ("m", "w")]
    assert scores[0] == scores[1]


# --- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "least"), [("frequencies", 0.2), pytest.param("gru-d", 0.005, marks=pytest.mark.slow)]
)
def test_weights_change_what_is_learned(tmp_path, data, model, least):
    """Half of the patients died; the others weigh nine times as much. Without weights a seed gives the same again."""
    task = ("--task", "classify", "--label", "died", "--value", "pulse", "--model", model, "--epochs", 20)
    died = []
    for more in ((), ("--weight", "counts")):
        done(train(data, tmp_path / "m", *task, *more))
        done(run("predict", tmp_path / "m", data, "--out", tmp_path / "p.csv"))
        died.append(sum(float(row["p_1"]) for row in answers(tmp_path / "p.csv")) / 20)
    assert abs(died[0] - 0.5) < 0.15 and died[0] - died[1] > least


# --- targets and labels ---------------------------------------------------------------------------------------------


def test_a_regression_from_file_to_file(tmp_path, data):
    out = tmp_path / "m"
    task = ("--task", "regress", "--label", "days", "--static", "age", "--static", "ward", "--model", "statistics")
    said = done(train(data, out, *task, "--drop", "died", "--drop", "counts", "--report"))
    assert f"its page is {out / 'report' / 'index.html'}" in said.stdout
    assert "Target minus predicted" in (out / "report" / "index.html").read_text()
    assert (out / "report" / "residuals.svg").is_file()
    done(run("predict", out, data, "--out", tmp_path / "p.csv"))
    answer = answers(tmp_path / "p.csv")
    assert [set(row) for row in answer] == [{"patient", "days"}] * 20
    metrics = json.loads(run("evaluate", out, data, "--json").stdout)
    assert set(metrics) == {"mse", "mae", "r2", "mse_baseline"}
    errors = [float(row["days"]) - k - 1 for k, row in enumerate(answer)]
    assert metrics["mse"] == pytest.approx(sum(e * e for e in errors) / 20, rel=1e-4)
    assert metrics["mse"] < metrics["mse_baseline"]


def test_a_target_may_have_a_decimal_comma(tmp_path):
    lines = [
        "patient;hour;pulse;days",
        *(f"p{k};{i},5;{60 + (3 * k + i) % 7};{k},25" for k in range(9) for i in range(4)),
    ]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(lines) + "\n")
    done(train(data, tmp_path / "m", "--task", "regress", "--label", "days", "--model", "statistics"))
    metrics = json.loads(run("evaluate", tmp_path / "m", data, "--json").stdout)
    assert metrics["mse_baseline"] > 1
    fails(
        run("predict", tmp_path / "m", data, "--at", 3, "--out", tmp_path / "p.csv"),
        "--at and --at-file are for a model",
    )


def test_words_stay_words_in_a_table_with_true_and_false_alone(tmp_path):
    draw = ("True", "False", "unknown")
    table = [[*row[:3], draw[k % 3]] for k, row in enumerate(rows())]
    names = (*COLUMNS[:3], "ok")
    data = write(tmp_path / "data.csv", table, names)
    done(train(data, tmp_path / "m", "--model", "linear"))
    two = write(tmp_path / "two.csv", [row for row in table if row[3] != "unknown"], names)
    said = done(run("predict", tmp_path / "m", two, "--at", 9, "--out", tmp_path / "p.csv"))
    assert "never was in training" not in said.output
    said = done(run("evaluate", tmp_path / "m", two))
    assert "never was in training" not in said.output


def test_words_of_a_long_table_stay_words(tmp_path):
    kinds = [[row[0], row[1], "pulse", row[3]] for row in rows()]
    kinds += [[row[0], row[1], "ok", ("True", "False", "unknown")[k % 3]] for k, row in enumerate(rows())]
    names = ("patient", "hour", "kind", "number")
    data = write(tmp_path / "data.csv", kinds, names)
    done(train(data, tmp_path / "m", *LONG, "--model", "linear"))
    two = write(tmp_path / "two.csv", [row for row in kinds if row[3] != "unknown"], names)
    for command in (
        ("predict", tmp_path / "m", two, "--at", 9, "--out", tmp_path / "p.csv"),
        ("evaluate", tmp_path / "m", two),
    ):
        assert "never was in training" not in done(run(*command, *LONG)).output


def test_several_labels_from_file_to_file(tmp_path, data):
    out = tmp_path / "m"
    task = ("--task", "classify", "--label", "died", "--label", "ward", "--model", "frequencies")
    done(train(data, out, *task, "--drop", "days", "--drop", "counts", "--report"))
    assert (out / "report" / "calibration.svg").is_file()
    done(run("predict", out, data, "--out", tmp_path / "p.csv"))
    for row in answers(tmp_path / "p.csv"):
        assert sum(float(row[f"p_died_{each}"]) for each in (0, 1)) == pytest.approx(1)
        assert sum(float(row[f"p_ward_{each}"]) for each in ("cold", "dry", "warm")) == pytest.approx(1)
    metrics = json.loads(run("evaluate", out, data, "--json").stdout)
    assert {"accuracy_died", "accuracy_ward"} <= set(metrics)


# --- bad input ------------------------------------------------------------------------------------------------------


def changed(column: str, value, row: int = 9) -> list[list]:
    """The table with another value in one row, or in all rows by a function of the row."""
    table = roles()
    k = ROLES.index(column)
    for n, each in enumerate(table):
        each[k] = value(n) if callable(value) else value if n == row else each[k]
    return table


REGRESS = ("--task", "regress", "--label", "days")
WEIGHTED = ("--weight", "counts")
NAMES = [f"{a}{b}" for a in "abcde" for b in "vwxyz"]
FAULTS = {
    "static that varies": (
        changed("age", 99),
        KNOWN,
        "static column 'age' of patient 'p1' is 41 in row 9 and 99 in row 10",
    ),
    "static words that vary": (changed("ward", "dry"), KNOWN, "static column 'ward=dry' of patient 'p1' is 0 in row 9"),
    "negative weight": (
        changed("counts", lambda n: -1),
        WEIGHTED,
        "the weight 'counts' of patient 'p0' is -1; expected",
    ),
    "no weight": (
        changed("counts", lambda n: "" if 8 <= n < 16 else 1),
        WEIGHTED,
        "the weight 'counts' of patient 'p1' is nan; expected numbers that are not negative",
    ),
    "weight that varies": (
        changed("counts", 7),
        WEIGHTED,
        "static column 'counts' of patient 'p1' is 1 in row 9 and 7",
    ),
    "only weights of 0": (changed("counts", lambda n: 0), WEIGHTED, "and not all 0"),
    "too many words": (
        changed("ward", lambda n: NAMES[n % 25]),
        (),
        "column 'ward' holds 25 different words, such as 'av'",
    ),
    "blank target": (changed("days", ""), REGRESS, "'days' is blank in row 10"),
    "target that varies": (changed("days", 50), REGRESS, "'days' of patient 'p1' is 2 in row 9 and 50 in row 10"),
    "target of words": (changed("days", lambda n: "many"), REGRESS, "the target 'days' is 'many' in a row"),
    "two targets": (roles(), (*REGRESS, "--label", "age"), "regress takes one target"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_roles(fault, tmp_path):
    table, options, sentence = FAULTS[fault]
    path = write(tmp_path / "bad.csv", table, ROLES)
    fails(train(path, tmp_path / "model", *options, "--model", "gru-d"), sentence)
    assert [each.name for each in tmp_path.iterdir()] == ["bad.csv"]
