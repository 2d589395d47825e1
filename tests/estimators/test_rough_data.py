"""Words, absurd values, columns that are inputs alone, weights: before and after a model sees them."""

import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from frames import machines, refused

from acenode.estimators import Forecaster, Imputer, load
from acenode.estimators.inputs import extended, keep_known, lead, mask_of, only_targets, resampled, winsorised
from acenode.estimators.training import read_rough
from acenode.series import Scaler, forecast, series, stack
from acenode.series.categories import LIMIT, collapsed, encode, expanded, find_categories
from acenode.series.table import Columns, read

matplotlib.use("Agg")

GIVEN = {"id": "machine", "time": "hour"}


def rough() -> pd.DataFrame:
    """Machines with a colour, a size that is the same for each, a plan for every hour, and a weight."""
    frame = machines()
    number = frame["machine"].str[1:].astype(int)
    colours = np.asarray(["red", "blue", "green"])
    return frame.assign(
        colour=colours[number % 3], size=number % 5, plan=np.sin(frame["hour"]), counts=1.0 + (number % 2)
    )


# --- absurd values ------------------------------------------------------------------------------------------------


def test_one_absurd_value_does_not_shape_the_scale():
    rng = np.random.default_rng(0)
    values = rng.normal(5, 2, (400, 1))
    plain = series(np.arange(400.0), values)
    values[7] = 1e6
    absurd = series(np.arange(400.0), values)
    one, two = Scaler.fit(plain, "robust"), Scaler.fit(absurd, "robust")
    np.testing.assert_allclose(Scaler.fit(plain).spread, one.spread)  # nothing to winsorise: the usual scale
    assert abs(two.spread[0] / one.spread[0] - 1) < 0.3 and Scaler.fit(absurd).spread[0] > 1e4


def sparse(kind: str) -> np.ndarray:
    """Values that are mostly 0, and rare ones."""
    rng = np.random.default_rng(2)
    rare = {
        "one true": np.arange(1000) == 3,
        "few true": rng.random(1000) < 0.02,
        "counts": rng.poisson(3, 1000) * (rng.random(1000) < 0.1),
        "long tail": rng.geometric(0.3, 1000) * (rng.random(1000) < 0.2),
        "both signs": rng.normal(0, 5, 1000) * (rng.random(1000) < 0.3),
        "a quarter": np.where(np.arange(1000) < 250, rng.exponential(size=1000), 0),  # a quartile is barely above 0
    }
    return rare[kind][:, None].astype(float)


SPARSE = ("one true", "few true", "counts", "long tail", "both signs", "a quarter")


@pytest.mark.parametrize("kind", SPARSE)
def test_rare_values_are_not_winsorised(kind):
    given = series(np.arange(1000.0), sparse(kind))
    np.testing.assert_allclose(Scaler.fit(given, "robust").spread, Scaler.fit(given).spread)


@pytest.mark.parametrize("kind", SPARSE[1:])
@pytest.mark.parametrize("absurd", [1e9, -1e9])
def test_one_absurd_value_among_rare_ones_does_not_shape_the_scale(kind, absurd):
    """Where most values are the same, and the quartiles with them."""
    values = sparse(kind)
    honest = Scaler.fit(series(np.arange(1000.0), values), "robust")
    values[500] = absurd
    batch = stack([series(np.arange(1000.0), values)])
    assert Scaler.fit(batch, "robust").spread[0] < 8 * honest.spread[0]
    with pytest.warns(UserWarning, match="the table: 1 of 'a' lie far outside the others"):
        moved = winsorised(batch, np.asarray([0]), Columns("id", "time", ("a",)), "the table")
    assert (moved.values != batch.values).sum() == 1  # the rare ones are as they were


def test_two_values_that_differ_say_nothing_of_what_is_absurd():
    values = np.zeros((100, 1))
    values[3], values[4] = 0.001, 1.0
    given = series(np.arange(100.0), values)
    np.testing.assert_allclose(Scaler.fit(given, "robust").spread, Scaler.fit(given).spread)


def test_winsorised_values_are_reported():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(50, 2))
    values[4, 1] = -500
    batch = stack([series(np.arange(50.0), values)])
    columns = Columns("id", "time", ("a", "b"))
    with pytest.warns(UserWarning, match="1 of 'b' lie far outside the others"):
        moved = winsorised(batch, np.asarray([0]), columns, "the table")
    assert -50 < moved.values[0, 4, 1] < -5
    np.testing.assert_array_equal(moved.values[0, :, 0], batch.values[0, :, 0])


# --- words --------------------------------------------------------------------------------------------------------


def test_words_become_columns():
    frame = pd.DataFrame({"colour": ["red", None, "blue", "red"], "heat": [1, 2, 3, 4], "mixed": ["1", "2", "x", "3"]})
    found = find_categories(frame, ("colour", "heat", "mixed"), "the table")
    assert found == {"colour": ("blue", "red")}  # in a column of numbers a word is a mistake
    made, strange = encode(frame, found)
    assert made["colour=red"].tolist()[::2] == [1.0, 0.0] and np.isnan(made["colour=red"][1]) and not strange
    assert expanded(("colour", "heat"), found) == ("colour=blue", "colour=red", "heat")
    assert collapsed(("colour=blue", "colour=red", "heat"), found) == ("colour", "heat")
    other, strange = encode(frame.assign(colour="pink"), found)
    assert strange == {"colour": "pink"} and (other["colour=red"] == 0).all()


def test_too_many_words_are_refused():
    frame = pd.DataFrame({"name": [f"n{'abcdefghijklmnopqrstuvwxyz'[k]}" for k in range(LIMIT + 1)]})
    refused(lambda: find_categories(frame, ("name",), "the table"), "'name'", f"{LIMIT + 1} different words", "--drop")


@pytest.mark.parametrize("cells", [("36,1", "37,0"), ("1,234.5", "2,000"), ("5%", "7.5 %"), ("1'000", "2'000")])
def test_numbers_that_are_written_in_another_way_are_no_words(cells):
    frame = pd.DataFrame({"x": [*cells, None]})
    refused(lambda: find_categories(frame, ("x",), "it"), "column 'x' holds", cells[0], "decimal point")
    one_word = pd.DataFrame({"x": [*cells, "none"]})
    assert find_categories(one_word, ("x",), "it") == {"x": tuple(sorted([*cells, "none"]))}


@pytest.mark.parametrize("mark", ["-999", -999])
def test_a_number_that_stands_for_a_missing_word_is_a_blank(mark):
    frame = pd.DataFrame({"ward": ["ICU", mark, "ER"]})
    found = find_categories(frame, ("ward",), "it", (-999.0,))
    assert found == {"ward": ("ER", "ICU")}
    encoded, strange = encode(frame, found, (-999.0,))
    assert not strange and encoded["ward=ICU"].isna().tolist() == [False, True, False]
    table = machines(6)
    table["ward"] = [("ICU", mark, "ER")[k % 3] for k in range(len(table))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a cell does hold it
        read_rough(Forecaster(**GIVEN, missing=-999), table)


def test_filled_in_words_are_drawn_as_true_and_false():
    import matplotlib.pyplot as plt

    frame = rough().drop(columns=["plan", "counts"])
    frame.loc[frame.index % 3 == 1, "colour"] = None
    imputer = Imputer(**GIVEN, model="mean").fit(frame)
    own = frame[frame["machine"] == "m03"]
    words = imputer.transform(own)["colour"][own["colour"].isna()]
    figure = imputer.plot(frame, "m03")
    axes = {axis.get_ylabel(): axis for axis in figure.axes}
    for word in ("blue", "green", "red"):
        seen, filled = axes[f"colour={word}"].get_lines()
        assert np.isfinite(seen.get_ydata()).sum() == own["colour"].notna().sum()
        assert len(words) > 0 and filled.get_ydata().tolist() == (words == word).tolist()
    plt.close(figure)


# --- inputs -------------------------------------------------------------------------------------------------------


def test_the_roles_of_columns():
    estimator = Forecaster(**GIVEN, future="plan", static=["size", "colour"], weight="counts")
    table, left_out, categories, weights = read_rough(estimator, rough())
    assert not left_out and categories == {"colour": ("blue", "green", "red")}
    names = dict(zip(table.columns.values, table.columns.targets, strict=True))
    assert [n for n, is_target in names.items() if is_target] == ["heat", "flow"]
    assert {n for n, is_target in names.items() if not is_target} == {
        *("size", "plan", "colour=blue", "colour=green", "colour=red")
    }
    assert weights.tolist()[:4] == [1, 2, 1, 2] and len(weights) == 24


FAULTS = {
    "static that varies": ({"static": ["heat"]}, ("static column 'heat' of machine 'm00'", "one value")),
    "both": ({"static": ["plan"], "future": ["plan"]}, ("'plan' is named as future and as static",)),
    "named twice": ({"values": ["heat", "plan"], "future": ["plan"]}, ("'plan' is named among the values",)),
    "nothing left": ({"values": [], "static": ["size"]}, ("every column of values is named as future or static",)),
    "absent": ({"future": ["day"]}, ("no column 'day'",)),
    "no weights": ({"weight": "heft"}, ("no column 'heft'",)),
    "bad weights": ({"weight": "below"}, ("the weight 'below' of machine 'm00' is -1", "not negative")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_roles(fault):
    given, words = FAULTS[fault]
    refused(lambda: read_rough(Forecaster(**GIVEN, **given), rough().assign(below=-1.0)), *words)


def test_a_static_value_is_that_of_all_rows():
    frame = rough()
    frame.loc[frame["machine"].duplicated(), "size"] = np.nan
    table, *_ = read_rough(Forecaster(**GIVEN, static=["size"]), frame.drop(columns=["colour", "counts"]))
    sizes = table.values[:, table.columns.values.index("size")]
    assert sizes.tolist() == [k % 5 for k in table.codes]


def test_blanks_of_a_static_column_get_the_value_of_their_series():
    frame = machines()
    number = frame["machine"].str[1:].astype(int)
    first = ~frame["machine"].duplicated()
    frame = frame.assign(
        size=np.where(first, number % 5, np.nan), make=np.where(first, np.where(number % 2, "old", "new"), None)
    )
    with pytest.warns(UserWarning, match="column 'plant=one' is 1 in every row; it is left out"):
        imputer = Imputer(**GIVEN, static=("size", "make"), model="interpolation").fit(frame.assign(plant="one"))
    filled = imputer.transform(frame)
    assert (filled["size"] == number % 5).all() and (filled["make"] == np.where(number % 2, "old", "new")).all()
    none = frame.assign(make=frame["make"].where(number > 0), size=frame["size"].where(number > 0))
    again = imputer.transform(none)
    assert not again[["size", "make"]].isna().any(axis=None)
    assert again["make"][number > 0].equals(filled["make"][number > 0])
    with pytest.warns(UserWarning, match="'make' is 'odd' in a row, a word that it never was"):
        odd = imputer.transform(frame.assign(make=frame["make"].where(~first | (number > 0), "odd")))
    assert (odd["make"][number == 0] == "odd").all() and (odd["make"][number > 0] == filled["make"][number > 0]).all()


def test_what_is_known_ahead_is_told_one_row_before():
    batch = stack([series([0.0, 1, 2, 3], np.asarray([[1.0, 10], [2, 20], [3, 30], [4, 40]]))])
    future = np.asarray([False, True])
    led = lead(batch, future)
    assert led.values[0, :, 1].tolist() == [20, 30, 40, 0] and led.observed[0, :, 1].tolist() == [True] * 3 + [False]
    query = keep_known(forecast(led, 1.5), led, future)
    assert query.context.observed[0, :, 0].tolist() == [True, True, False, False]
    assert query.context.observed[0, :, 1].tolist() == [True, True, True, False]
    assert not only_targets(query, ~future).scored[..., 1].any()


def test_query_rows_hold_what_is_known_ahead():
    frame = pd.DataFrame(
        {"id": ["a", "a", "b"], "time": [0.0, 1, 0], "x": [1.0, 2, 3], "plan": [5.0, 6, 7], "s": [1, 1, 2]}
    )
    columns = Columns("id", "time", ("x", "plan", "s"), future=("plan",), static=("s",))
    table = extended(read(frame, columns), np.asarray([1, 0]), np.asarray([4.0, 3.0]), np.asarray([[9.0], [8.0]]))
    assert table.codes.tolist() == [0, 0, 0, 1, 1] and table.times.tolist() == [0, 1, 3, 0, 4]
    assert table.values[:, 1].tolist() == [5, 6, 8, 7, 9] and table.values[:, 2].tolist() == [1, 1, 1, 2, 2]
    assert np.isnan(table.values[[2, 4], 0]).all()
    assert mask_of(columns, columns.future).tolist() == [False, True, False]


def test_a_query_with_what_is_known_ahead_is_made_once():
    frame = rough()[["machine", "hour", "heat", "flow", "plan"]]
    fitted = Forecaster(**GIVEN, future="plan", model="linear").fit(frame)
    at = pd.DataFrame({"machine": "m00", "hour": [24.0, 24.0], "plan": [0.1, 0.2]})
    refused(lambda: fitted.predict(frame, at=at), "24 is queried twice of machine 'm00'", "leave out one")


def test_importance_is_that_of_the_columns_of_the_table_for_what_is_forecast():
    frame = rough().drop(columns="counts")
    fitted = Forecaster(**GIVEN, static=("colour", "size"), model="linear").fit(frame)
    found = fitted.importance(frame)
    assert found["forecast"].unique().tolist() == ["heat", "flow", "plan"]
    assert set(found["hidden"]) == {"heat", "flow", "plan", "colour", "size"} and len(found) == 15
    figure = fitted.plot_importance(frame)
    shown = [
        [label.get_text() for label in axis]
        for axis in (figure.axes[0].get_xticklabels(), figure.axes[0].get_yticklabels())
    ]
    assert sorted(shown[0]) == sorted(set(found["hidden"])) and shown[1] == ["heat", "flow", "plan"]
    matplotlib.pyplot.close(figure)


def test_columns_of_the_same_name_as_text_and_number_are_hidden_one_by_one():
    frame = rough()[["machine", "hour", "heat", "flow"]].rename(columns={"heat": 1, "flow": "1"})
    assert len(Forecaster(**GIVEN, model="linear").fit(frame).importance(frame)) == 4


def test_a_column_of_words_may_have_a_number_for_its_name(tmp_path):
    frame = rough()[["machine", "hour", "heat", "colour"]].rename(columns={"heat": 1, "colour": 2})
    fitted = Forecaster(**GIVEN, model="linear").fit(frame)
    again = load(fitted.save(tmp_path / "model"))
    assert again.categories_ == fitted.categories_ == {2: ("blue", "green", "red")}
    pd.testing.assert_frame_equal(again.predict(frame, at=[24.0]), fitted.predict(frame, at=[24.0]))
    refused(lambda: again.predict(frame.drop(columns=2), at=[24.0]), "there is no column 2")
    assert (
        "machine" in (tmp_path / "model" / "README.md").read_text()
        and "| variables | 1, 2 |" in (tmp_path / "model" / "README.md").read_text()
    )


def test_a_series_is_drawn_as_often_as_its_weight_says():
    train = np.arange(10, 20)
    weights = np.zeros(30)
    weights[10], weights[15] = 3.0, 1.0
    drawn = resampled(train, weights)
    assert len(drawn) == 10 and set(drawn) == {10, 15} and 7 <= (drawn == 10).sum() <= 8
    assert resampled(train, None) is train
    refused(lambda: resampled(train[1:4], weights), "every training series has the weight 0", "give some of them")


def test_what_is_known_ahead_is_read_as_the_training_table_was():
    frame = rough().drop(columns="counts")
    frame.loc[3, "plan"] = -999.0
    fitted = Forecaster(**GIVEN, future=["plan", "colour"], model="linear", missing=-999).fit(frame)
    refused(lambda: fitted.predict(frame, at=[25.0]), "known ahead (plan, colour)", "give a frame")
    at = pd.DataFrame({"machine": frame["machine"].unique(), "hour": 25.0, "plan": np.nan, "colour": "red"})
    turned = Forecaster(**GIVEN, future=["colour", "plan"], model="linear", missing=-999).fit(frame)
    given = at.assign(plan=0.3)
    pd.testing.assert_frame_equal(turned.predict(frame, at=given), fitted.predict(frame, at=given))
    moved = [made.predict(frame, at=at.assign(plan=5.0))["mean"] for made in (fitted, turned)]
    np.testing.assert_allclose(*moved)
    blank = fitted.predict(frame, at=at)
    pd.testing.assert_frame_equal(fitted.predict(frame, at=at.assign(plan=-999.0)), blank)
    assert not np.allclose(fitted.predict(frame, at=at.assign(plan=1.0))["mean"], blank["mean"])
    with pytest.warns(UserWarning, match="'colour' is 'pink' in a row, a word that it never was in training"):
        fitted.predict(frame, at=at.assign(colour="pink"))


@pytest.mark.slow
def test_a_forecast_with_all_of_it(tmp_path):
    frame = rough()
    given = {"future": ["plan"], "static": ["size"], "weight": "counts", "model": "gru-d", "epochs": 2, "hidden": 4}
    fitted = Forecaster(**GIVEN, **given).fit(frame)
    refused(lambda: fitted.predict(frame, at=[25.0]), "known ahead (plan)", "give a frame")
    ids = frame["machine"].unique()
    at = pd.DataFrame({"machine": ids, "hour": 25.0, "plan": np.sin(25.0)})
    answer = fitted.predict(frame, at=at)
    assert set(answer["variable"]) == {"heat", "flow", "colour=blue", "colour=green", "colour=red"}
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(frame, at=at)
    np.testing.assert_allclose(answer["mean"], again["mean"], rtol=1e-5)
    other = fitted.predict(frame, at=at.assign(plan=5.0))
    assert not np.allclose(answer["mean"], other["mean"])
    assert np.isfinite(fitted.evaluate(frame)["mse"])
    with pytest.warns(UserWarning, match="a word that it never was in training"):
        fitted.predict(frame.assign(colour="pink"), at=at)
