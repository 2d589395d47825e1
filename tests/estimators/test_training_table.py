"""What a training table must have, and what is chosen from it."""

import warnings

import numpy as np
import pytest
from frames import VALUES, dated, machines, refused

from acenode.estimators import Forecaster
from acenode.estimators.training import choose_settings, read_training


def test_what_no_cell_holds_is_told_in_training():
    frame = machines(6)
    frame.loc[0, "flow"] = -9
    with pytest.warns(UserWarning, match="77 is said to stand for a missing value, and no cell holds it"):
        read_training(Forecaster("machine", "hour", missing=[77, -9]), frame)
    wrong = Forecaster("machine", "hour").set_params(missing="NA")
    refused(lambda: read_training(wrong, frame), "missing='NA': expected a number")


# --- what cannot be learned from ------------------------------------------------------------------------------------


def training(frame):
    return read_training(Forecaster("machine", "hour"), frame)


def test_a_single_series_is_refused():
    refused(lambda: training(machines(1)), "one series", "at least 5", "Cut")
    refused(lambda: training(machines(3)), "3 series")


def test_columns_that_never_vary_are_left_out_with_one_warning():
    frame = machines(8).assign(old=np.nan, same=7.0)
    with pytest.warns(UserWarning) as caught:
        table, left_out = training(frame)
    said = "the training table: column 'old' is blank in every row, column 'same' is 7 in every row; they are left out."
    assert [str(each.message) for each in caught] == [said]
    assert left_out == ("old", "same") and table.columns.values == VALUES and table.values.shape[1] == 2
    with pytest.warns(UserWarning, match="column 'flow' is 7 in every row; it is left out"):
        assert training(machines(8).assign(flow=7))[1] == ("flow",)


def test_a_table_in_which_nothing_varies_is_refused():
    refused(lambda: training(machines(8).assign(flow=7.0, heat=np.nan)), "'heat' is blank", "'flow' is 7", "vary")


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.8])
def test_a_value_that_may_stand_for_a_missing_one_is_told(part):
    """However many there are."""
    frame = machines(40)
    many = np.random.default_rng(0).random(len(frame)) < part
    frame["flow"] = np.where(many, -999.0, frame["flow"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training(frame)
    said = [str(each.message) for each in caught if "stands for a missing value" in str(each.message)]
    assert len(said) == (part > 0) and all("column 'flow' is -999 in" in each for each in said)


def test_a_series_of_blanks_only_is_named():
    frame = machines(8)
    frame.loc[frame["machine"] == "m03", ["heat", "flow"]] = np.nan
    refused(lambda: training(frame), "machine 'm03'", "no value", "drop")


def test_series_of_one_row_have_room_for_a_step():
    first = machines(8).groupby("machine").head(1)
    settings = choose_settings(training(first)[0], "gru-d", {"seed": 0}, 0.0)
    assert settings.span > 0 and settings.unit > 0


def test_settings_come_from_the_data_and_from_the_user():
    table, _ = training(machines(40))
    none = {name: None for name in ("hidden", "batch_size", "epochs", "patience", "learning_rate", "penalty")}
    settings = choose_settings(table, "gru-d", {**none, "seed": 3}, 1.0)
    spans = table.last - table.first
    assert settings.unit == pytest.approx(np.quantile(spans, 0.9) / 10)
    assert settings.span == pytest.approx(2 * spans.max() / settings.unit)
    assert (settings.hidden, settings.batch_size, settings.seed) == (16, 5, 3)
    settings = choose_settings(table, "gru-d", {**none, "seed": 0, "hidden": 5, "epochs": 7}, 1.0)
    assert (settings.hidden, settings.epochs) == (5, 7)


@pytest.mark.parametrize("name", ["hidden", "batch_size", "epochs", "learning_rate"])
def test_settings_must_be_positive(name):
    refused(lambda: choose_settings(training(machines(8))[0], "gru-d", {name: 0, "seed": 0}, 1.0), f"{name}=0")


def test_the_unit_of_dates_does_not_depend_on_the_zone():
    tables = [training(frame)[0] for frame in (machines(8), dated(machines(8), None), dated(machines(8), "Asia/Tokyo"))]
    hours, seconds, elsewhere = (choose_settings(table, "gru-d", {"seed": 0}, 1.0).unit for table in tables)
    assert seconds == elsewhere == 3600 * hours
    assert tables[2].clock.zone == "Asia/Tokyo"
