"""What a training table must have, and what is chosen from it."""

def test_what_no_cell_holds_is_told_in_training():
    frame = machines(6).assign(flow=7)
    frame.loc[0, "flow"] = -9
    with pytest.warns(UserWarning, match="77 is said to stand for a missing value, and no cell holds it"):
        refused(
            lambda: read_training(Forecaster("machine", "hour", missing=[77, -9]), frame), "'flow' is 7 in every row"
        )
    wrong = Forecaster("machine", "hour").set_params(missing="NA")
    refused(lambda: read_training(wrong, frame), "missing='NA': expected a number")


# --- what cannot be learned from ------------------------------------------------------------------------------------


def training(frame):
    return read_training(Forecaster("machine", "hour"), frame)


def test_a_single_series_is_refused():
    refused(lambda: training(machines(1)), "one series", "at least 5", "Cut")
    refused(lambda: training(machines(3)), "3 series")


def test_constant_and_blank_columns_are_refused():
    refused(lambda: training(machines(8).assign(flow=7.0)), "'flow'", "7 in every row", "leave it out")
    refused(lambda: training(machines(8).assign(flow=np.nan)), "'flow'", "blank in every row")


def test_series_of_one_row_have_room_for_a_step():
    first = machines(8).groupby("machine").head(1)
    settings, _ = choose_settings(training(first), "gru-d", {"seed": 0}, 0.0)
    assert settings.span > 0 and settings.unit > 0


def test_settings_come_from_the_data_and_from_the_user():
    table = training(machines(40))
    none = {name: None for name in ("hidden", "batch_size", "epochs", "patience", "learning_rate", "penalty")}
    settings, clock = choose_settings(table, "gru-d", {**none, "seed": 3}, 1.0)
    spans = table.last - table.first
    assert clock.unit == pytest.approx(np.quantile(spans, 0.9) / 10)
    assert settings.span == pytest.approx(2 * spans.max() / clock.unit)
    assert (settings.hidden, settings.batch_size, settings.seed) == (16, 5, 3)
    settings, _ = choose_settings(table, "gru-d", {**none, "seed": 0, "hidden": 5, "epochs": 7}, 1.0)
    assert (settings.hidden, settings.epochs) == (5, 7)


@pytest.mark.parametrize("name", ["hidden", "batch_size", "epochs", "learning_rate"])
def test_settings_must_be_positive(name):
    refused(lambda: choose_settings(training(machines(8)), "gru-d", {name: 0, "seed": 0}, 1.0), f"{name}=0")


def test_the_clock_of_dates_does_not_depend_on_the_zone():
    none = {"seed": 0}
    clocks = [choose_settings(training(dated(machines(8), z)), "gru-d", none, 1.0)[1] for z in (None, "Asia/Tokyo")]
    assert clocks[0].unit == clocks[1].unit == 3600 * choose_settings(training(machines(8)), "gru-d", none, 1.0)[1].unit
    assert clocks[1].zone == "Asia/Tokyo"
    assert re.fullmatch(r"[\d.e+]+ seconds", clocks[0].describe())


def test_all_columns_of_which_nothing_can_be_learned_are_named():
    frame = machines().assign(old=np.nan, same=7.0)
    refused(
        lambda: read_training(Forecaster("machine", "hour"), frame),
        "column 'old' is blank in every row, column 'same' is 7 in every row; leave them out.",
    )
