"""`Forecaster`: answers at query times, one observation at a time, and every query it refuses."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from frames import KINDS, VALUES, dated, machines, of_kind, to_pandas
from sklearn.base import clone

from acenode.estimators import Forecaster, NotFittedError, load
from acenode.estimators.forecaster import listed
from acenode.estimators.training import read_training
from acenode.series import Scaler
from acenode.series.table import read
from acenode.series.times import Clock

AT = [24.0, 26.5, 28.0]


def close(a, b, tol=1e-5):
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=tol, atol=tol)


def sorted_answer(frame, *more):
    return to_pandas(frame).sort_values(["machine", "hour", "variable", *more]).reset_index(drop=True)


def on_dates(forecaster, zone):
    """The same model with a clock of seconds, as if it had been fitted on dates."""
    other = copy.copy(forecaster)
    other.clock_ = Clock("datetime", zone)
    other.settings_ = replace(forecaster.settings_, unit=3600 * forecaster.settings_.unit)
    other._clear_updates()
    return other


# --- as scikit-learn has it -------------------------------------------------------------------------------------------


def test_clone_is_equal_and_not_fitted(forecaster):
    other = clone(forecaster)
    assert other.get_params() == forecaster.get_params()
    assert not [name for name in vars(other) if name.endswith("_")]


@pytest.mark.slow
def test_scikit_learn_scores_it_by_groups(frame):
    from sklearn.model_selection import GroupKFold, cross_val_score
    from sklearn.utils.validation import check_is_fitted

    few = frame[frame["machine"] < "m12"]
    model = Forecaster(id="machine", time="hour", hidden=4, epochs=1, model="gru-simple")
    scores = cross_val_score(model, few, groups=few["machine"], cv=GroupKFold(2))
    assert np.isfinite(scores).all() and len(scores) == 2
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(model)


def test_a_target_beside_the_frame_is_refused(frame):
    with pytest.raises(ValueError, match="y is given; what is learned is in the frame"):
        Forecaster(id="machine", time="hour").fit(frame, frame["heat"])


def test_set_params_gives_itself_and_refuses_unknown_names():
    forecaster = Forecaster()
    assert forecaster.set_params(hidden=4, horizon=0.5) is forecaster
    assert forecaster.get_params()["hidden"] == 4
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        forecaster.set_params(depth=2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda f: f.predict(machines(2), at=AT),
        lambda f: f.score(machines(2)),
        lambda f: f.attention(machines(2)),
        lambda f: f.update("a", 1.0, {"heat": 1.0}),
        lambda f: f.save("nowhere"),
        lambda f: f.plot(machines(2), "m00", AT),
    ],
)
def test_what_is_not_fitted_says_so(ask):
    with pytest.raises(NotFittedError, match="not fitted yet: call fit"):
        ask(Forecaster())


def test_repr_shows_what_was_given_and_what_was_chosen(forecaster):
    assert repr(Forecaster(id="machine", epochs=3)) == "Forecaster(epochs=3, id='machine')"
    shown = repr(forecaster)
    assert shown.startswith("Forecaster(epochs=2, hidden=8, id='machine', model='ace-variables', time='hour')")
    assert "# fitted: " in shown
    for name in ("model='ace-variables'", "hidden=8", "batch_size=4", "epochs=2", "patience=15", "unit="):
        assert name in shown


def test_fit_keeps_columns_and_a_summary(forecaster, frame):
    assert forecaster.columns_.values == VALUES
    assert forecaster.summary_.series == 24 and forecaster.summary_.validation_series == 5
    assert forecaster.summary_.observations == frame[list(VALUES)].notna().sum().sum()
    assert len(forecaster.validation_ids_) == 5 and set(forecaster.validation_ids_) <= set(frame["machine"])
    assert (forecaster.summary_.skipped_updates, forecaster.summary_.failed_solves) == (0, 0)
    assert len(forecaster.history_["loss"]) == 2 and np.isfinite(forecaster.history_["loss"]).all()


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_frames_of_the_kind_asked_with(forecaster, frame, kind):
    queried = of_kind(frame, kind)
    answer = forecaster.predict(queried, at=AT)
    assert type(answer) is type(queried)
    table = to_pandas(answer)
    assert list(table.columns) == ["machine", "hour", "variable", "mean", "q0.05", "q0.95"]
    assert len(table) == 24 * 3 * 2
    assert table["machine"].iloc[0] == "m00" and set(table["variable"]) == set(VALUES)
    close(table["mean"], forecaster.predict(frame, at=AT)["mean"])


def test_quantiles_are_in_order_and_normal(forecaster, frame):
    other = copy.copy(forecaster).set_params(quantiles=(0.1, 0.5, 0.8, 0.9))
    answer = other.predict(frame, at=AT)
    assert (answer["q0.1"] < answer["q0.5"]).all() and (answer["q0.5"] < answer["q0.8"]).all()
    close(answer["q0.5"], answer["mean"])
    close(answer["q0.9"] - answer["mean"], answer["mean"] - answer["q0.1"], 1e-4)


def test_answers_are_in_the_units_of_the_data(forecaster, frame):
    flow = forecaster.predict(frame, at=AT).query("variable == 'flow'")
    assert flow["mean"].between(10, 30).all()


def test_a_list_and_a_frame_of_times_agree(forecaster, frame):
    whole = forecaster.predict(frame, at=AT)
    grid = whole[["machine", "hour"]].drop_duplicates().sample(frac=1, random_state=0)
    by_frame = forecaster.predict(frame, at=grid)
    assert by_frame["hour"].tolist() == np.repeat(grid["hour"], 2).tolist()
    pd.testing.assert_frame_equal(sorted_answer(by_frame), sorted_answer(whole), rtol=1e-5)


def test_each_id_may_be_asked_other_times(forecaster, frame):
    at = pd.DataFrame({"machine": ["m03", "m01", "m03"], "hour": [27.0, 25.0, 26.0]})
    answer = forecaster.predict(frame, at=at)
    assert answer["machine"].tolist() == ["m03"] * 2 + ["m01"] * 2 + ["m03"] * 2
    own = frame[frame["machine"] == "m03"]
    alone = forecaster.predict(own, at=[26.0, 27.0])
    close(answer["mean"].iloc[[4, 5, 0, 1]], alone["mean"])


def test_answers_do_not_depend_on_batch_mates_or_on_their_order(forecaster, frame):
    whole = forecaster.predict(frame, at=AT)
    few = frame[frame["machine"].isin(["m02", "m11", "m20"])]
    close(forecaster.predict(few, at=AT)["mean"], whole[whole["machine"].isin(["m02", "m11", "m20"])]["mean"])
    turned = frame.sort_values("machine", ascending=False, kind="stable")
    pd.testing.assert_frame_equal(sorted_answer(forecaster.predict(turned, at=AT)), sorted_answer(whole), rtol=1e-5)


def test_answers_do_not_depend_on_how_many_times_are_asked(forecaster, frame):
    """As many times as no training series had rows: the steps must suffice."""
    own = frame[frame["machine"] == "m05"]
    many = forecaster.predict(own, at=np.linspace(25, 27, 401))
    few = forecaster.predict(own, at=[25.0, 27.0])
    close(many[many["hour"] == 27.0]["mean"], few[few["hour"] == 27.0]["mean"], 0.02)


def test_longer_series_than_those_of_training_are_answered(forecaster):
    """Rows every few minutes: many more steps than any training series took."""
    hour = np.linspace(0, 20, 500)
    frame = pd.DataFrame({"machine": "new", "hour": hour, "heat": np.sin(hour / 3), "flow": 20.0})
    answer = forecaster.predict(frame, at=[20.0, 21.0])
    # A model out of steps answers with the emission of an empty state, the same at all times.
    assert np.ptp(answer.query("variable == 'heat'")["mean"]) > 1e-4


def test_a_shift_of_all_times_does_not_matter(forecaster, frame):
    later = frame.assign(hour=frame["hour"] + 1000)
    close(forecaster.predict(later, at=[1024.0])["mean"], forecaster.predict(frame, at=[24.0])["mean"])


def test_score_is_minus_the_negative_log_likelihood(forecaster, frame):
    metrics = forecaster.evaluate(frame)
    assert set(metrics) == {"mse", "negll", "coverage", "mse_baseline"}
    assert forecaster.score(frame) == -metrics["negll"]
    assert 0 <= metrics["coverage"] <= 1 and metrics["mse"] > 0


def test_evaluate_is_what_predict_gives_for_the_last_part(forecaster, frame):
    """By hand for one series: known up to three quarters of its span, queried at its later rows."""
    own = frame[frame["machine"] == "m07"].reset_index(drop=True)
    start, end = own["hour"].iloc[[0, -1]]
    known = own[own["hour"] <= start + 0.75 * (end - start)]
    # Queried at all its times, as `evaluate` does: where steps are cut matters a little.
    answer = forecaster.predict(known, at=own["hour"].tolist())
    truth = own.melt(["machine", "hour"], var_name="variable").dropna()
    both = answer.merge(truth[truth["hour"] > known["hour"].max()], on=["hour", "variable"])
    spread = dict(zip(VALUES, np.asarray(forecaster.scaler_.spread), strict=True))
    error = (both["mean"] - both["value"]) / both["variable"].map(spread)
    assert len(error) > 0
    metrics = forecaster.evaluate(own)
    assert metrics["mse"] == pytest.approx((error**2).mean(), rel=1e-3)
    last = known[list(VALUES)].ffill().iloc[-1]
    missed = (both["variable"].map(last) - both["value"]) / both["variable"].map(spread)
    assert metrics["mse_baseline"] == pytest.approx((missed**2).mean(), rel=1e-5)


@pytest.mark.parametrize(
    "at", [[1, 2], (1, 2), range(1, 3), np.asarray([1, 2]), pd.Series([1, 2]), pl.Series([1, 2]), pd.Index([1, 2])]
)
def test_times_come_in_any_list(at):
    assert list(listed(at)) == [1, 2]


def test_one_time_needs_no_list():
    assert listed(24) == [24]
    assert listed("2020-01-01") == ["2020-01-01"]
    assert listed(np.float64(3)) == [3]


# --- dates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("kind", KINDS)
def test_dates_come_back_in_their_zone_with_the_same_answers(forecaster, frame, zone, kind):
    when = [pd.Timestamp("2021-03-27 06:00", tz=zone) + pd.Timedelta(hours=h) for h in AT]
    few = frame[frame["machine"] < "m04"]
    answer = on_dates(forecaster, zone).predict(of_kind(dated(few, zone), kind), at=when)
    table = to_pandas(answer)
    assert list(table["hour"].drop_duplicates()) == when
    assert str(table["hour"].dt.tz) == str(zone)
    close(table["mean"], forecaster.predict(few, at=AT)["mean"])


def test_texts_of_dates_are_read_in_the_zone_of_the_frame(forecaster, frame):
    table = dated(frame[frame["machine"] < "m03"], "America/New_York")
    model = on_dates(forecaster, "Europe/Berlin")
    answer = model.predict(table, at=["2021-03-28T09:00"])
    assert answer["hour"].iloc[0] == pd.Timestamp("2021-03-28 09:00", tz="America/New_York")


def test_numbers_asked_of_dates_are_refused_and_dates_of_numbers(forecaster, frame):
    model, table = on_dates(forecaster, None), dated(frame, None)
    with pytest.raises(ValueError, match="24.0 is not a date"):
        model.predict(table, at=[24.0])
    with pytest.raises(ValueError, match="'hour' holds datetimes; the model was trained on numbers"):
        forecaster.predict(table, at=[24.0])
    with pytest.raises(ValueError, match="is not a number"):
        forecaster.predict(frame, at=["2021-03-28"])
    with pytest.raises(ValueError, match="the times are datetimes, those of the model numbers"):
        forecaster.predict(frame, at=table[["machine", "hour"]])


def test_zones_in_one_of_two_frames_are_refused(forecaster, frame):
    model = on_dates(forecaster, None)
    at = pd.DataFrame({"machine": ["m00"], "hour": pd.to_datetime(["2021-03-28 09:00"]).tz_localize("UTC")})
    with pytest.raises(ValueError, match="the query times have a time zone, and those of the table have none"):
        model.predict(dated(frame, None), at=at)
    with pytest.raises(ValueError, match="the query times have no time zone, and those of the table have one"):
        model.predict(dated(frame, "UTC"), at=at.assign(hour=at["hour"].dt.tz_localize(None)))


def test_a_date_before_the_history_is_told_as_a_date(forecaster, frame):
    with pytest.raises(ValueError, match="2021-03-01 00:00:00 lies before the first row of machine 'm00', 2021-03-27"):
        on_dates(forecaster, None).predict(dated(frame, None), at=["2021-03-01"])


# --- questions that are refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (None, "say at which times"),
        ([], "at least one time"),
        ([np.nan], "not a finite time"),
        ([-5.0], "lies before the first row of machine 'm00'"),
        ([1e6], "1000000 of machine 'm00' is more than 50 times as far"),
        (pd.DataFrame({"machine": ["m99"], "hour": [24.0]}), "machine 'm99' is queried, but the table has no rows"),
        (pd.DataFrame({"id": ["m00"], "hour": [24.0]}), "no column 'machine'"),
    ],
)
def test_questions_without_an_answer(forecaster, frame, at, says):
    with pytest.raises(ValueError, match=says):
        forecaster.predict(frame, at=at)


def test_times_far_outside_the_training_range_are_warned_of_and_answered(forecaster, frame):
    with pytest.warns(
        UserWarning, match="100 of machine 'm00' is farther from the start of its series than any training series"
    ):
        answer = forecaster.predict(frame[frame["machine"] == "m00"], at=[100.0])
    assert np.isfinite(answer["mean"]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.predict(frame[frame["machine"] == "m00"], at=[27.0])


def test_a_column_that_is_gone_is_named(forecaster, frame):
    with pytest.raises(ValueError, match="the table to predict from: there is no column 'flow'"):
        forecaster.predict(frame.drop(columns="flow"), at=AT)


def test_columns_that_are_new_are_left_alone(forecaster, frame):
    few = frame[frame["machine"] < "m03"]
    close(forecaster.predict(few.assign(note="x"), at=AT)["mean"], forecaster.predict(few, at=AT)["mean"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"horizon": 1.0}, "horizon=1.0.*between 0 and 1"),
        ({"quantiles": (0.5, 1.0)}, "1.0 is not between 0 and 1"),
        ({"model": "transformer"}, "no model of this name; choose from auto, ace-variables"),
        ({"epochs": 0}, "epochs=0: expected a positive number"),
        ({"values": ["heat", "heat"]}, "'heat' is named twice"),
    ],
)
def test_parameters_are_checked_before_training(frame, given, says):
    with pytest.raises(ValueError, match=says):
        Forecaster(id="machine", time="hour").set_params(**given).fit(frame)


def test_columns_named_as_the_answers_are_refused(frame):
    with pytest.raises(ValueError, match="'mean' is a column of the forecasts too"):
        Forecaster(id="mean", time="hour").fit(frame.rename(columns={"machine": "mean"}))


def test_series_of_one_row_cannot_be_trained_on(frame):
    with pytest.raises(ValueError, match="no validation series has values in its last 25%"):
        Forecaster(id="machine", time="hour").fit(frame.drop_duplicates("machine"))


def test_a_fit_that_is_refused_leaves_the_old_one(forecaster, frame):
    before = copy.copy(forecaster)
    with pytest.raises(ValueError, match="empty"):
        before.fit(frame.iloc[:0])
    close(before.predict(frame, at=AT)["mean"], forecaster.predict(frame, at=AT)["mean"])


# --- one observation at a time ----------------------------------------------------------------------------------------


def follow(forecaster, frame):
    """A model that is told every row of a frame, one at a time."""
    model = copy.copy(forecaster)
    model._clear_updates()
    for row in frame.to_dict("records"):
        told = {name: None if np.isnan(row[name]) else row[name] for name in VALUES}
        assert model.update(row["machine"], row["hour"], told) is model
    return model


def test_updates_equal_the_whole_history(forecaster, frame):
    # Machines begin at other hours than 0, and their rows arrive interleaved.
    few = frame[frame["machine"].isin(["m01", "m04", "m09"])].sort_values("hour", kind="stable")
    assert (few.groupby("machine")["hour"].min() > 0).any()
    at = [24.0, 25.3, 28.0]
    answer = follow(forecaster, few).predict(at=at)
    assert isinstance(answer, pd.DataFrame)
    pd.testing.assert_frame_equal(sorted_answer(answer), sorted_answer(forecaster.predict(few, at=at)), rtol=1e-4)


def test_updates_go_on_after_an_answer(forecaster, frame):
    few = frame[frame["machine"] == "m06"]
    model = follow(forecaster, few.iloc[:3])
    model.predict(at=[float(few["hour"].iloc[2]) + 0.3])  # asking changes nothing
    for row in few.iloc[3:].to_dict("records"):
        model.update("m06", row["hour"], {n: row[n] for n in VALUES})  # NaN is a blank too
    close(model.predict(at=AT)["mean"], forecaster.predict(few, at=AT)["mean"], 1e-4)


def test_rows_of_blanks_change_nothing(forecaster):
    hour = [3.0, 4.5, 7.0, 9.0]
    heat, flow = [np.nan, 0.3, np.nan, 0.5], [np.nan, np.nan, np.nan, 19.0]
    frame = pd.DataFrame({"machine": "z", "hour": hour, "heat": heat, "flow": flow})
    close(follow(forecaster, frame).predict(at=[11.0])["mean"], forecaster.predict(frame, at=[11.0])["mean"], 1e-4)


def test_updates_with_dates_in_any_form(forecaster, frame):
    few = frame[frame["machine"] == "m02"]
    model = on_dates(forecaster, "Europe/Berlin")
    for k, row in enumerate(dated(few, "Europe/Berlin").to_dict("records")):
        when = row["hour"]
        forms = (when, when.isoformat(), when.tz_convert("UTC").to_pydatetime(), when.tz_localize(None).to_datetime64())
        model.update(2, forms[k % 4], {"heat": row["heat"], "flow": row["flow"]})
    at = pd.Timestamp("2021-03-27 06:00", tz="Europe/Berlin") + pd.Timedelta(hours=25)
    answer = model.predict(at=at)
    assert (answer["hour"] == at).all() and str(answer["hour"].dt.tz) == "Europe/Berlin"
    close(answer["mean"], forecaster.predict(few, at=[25.0])["mean"], 1e-4)


def test_a_frame_of_times_gives_its_own_kind(forecaster, frame):
    model = follow(forecaster, frame[frame["machine"] == "m02"])
    answer = model.predict(at=pl.DataFrame({"machine": ["m02"], "hour": [26.0]}))
    assert isinstance(answer, pl.DataFrame) and len(answer) == 2


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda m: m.update("a", 5.0, {"heat": 1.0}), "'a' was already observed at 5; give a later time than that"),
        (lambda m: m.update("a", 4.0, {"heat": 1.0}), "not 4"),
        (lambda m: m.update("a", 6.0, {"cold": 1.0}), "no variable 'cold'; the model has heat, flow"),
        (lambda m: m.update("a", 6.0, {"heat": np.inf}), "'heat' is inf; give a finite number"),
        (lambda m: m.update("a", 6.0, {"heat": "warm"}), "'heat' is 'warm'; give a number"),
        (lambda m: m.update("a", "noon", {"heat": 1.0}), "'noon' is not a number"),
        (lambda m: m.predict(at=[5.0]), "'a' was observed at 5, not before 5; ask for later times"),
        (lambda m: m.predict(at=pd.DataFrame({"machine": ["b"], "hour": [6.0]})), "machine 'b' is queried"),
    ],
)
def test_updates_that_are_refused_change_nothing(forecaster, ask, says):
    model = copy.copy(forecaster)
    model._clear_updates()
    model.update("a", 3.0, {"heat": 0.1}).update("a", 5.0, {"heat": 0.2, "flow": 20})
    before = model.memory_["a"]
    with pytest.raises(ValueError, match=says):
        ask(model)
    assert model.memory_["a"] is before


def test_without_a_frame_or_updates_there_is_no_answer(forecaster):
    model = copy.copy(forecaster)
    model._clear_updates()
    with pytest.raises(ValueError, match="no frame was given and no observation by update"):
        model.predict(at=AT)


def test_models_that_need_the_whole_history_cannot_follow(forecaster, classifier):
    other = copy.copy(forecaster)
    other.members_, other.settings_ = classifier.members_, classifier.settings_
    with pytest.raises(ValueError, match="own cannot take observations one at a time; train with model=.gru-ode-bayes"):
        other.update("a", 1.0, {"heat": 1.0})


# --- readings of a meter ----------------------------------------------------------------------------------------------


def test_a_large_offset_costs_no_digits(forecaster, frame, tmp_path):
    offset = 2.0**28  # single precision has steps of 32 there
    far = frame.assign(heat=frame["heat"] + offset)
    panels = [read(each, forecaster.columns_).panel(forecaster.settings_.unit).series for each in (frame, far)]
    near_scaled, far_scaled = (Scaler.fit(series).scale(series) for series in panels)
    assert far_scaled.values.dtype == np.float32
    close(far_scaled.values, near_scaled.values)

    moved = copy.copy(forecaster)
    moved.scaler_ = Scaler(forecaster.scaler_.shift + np.asarray([offset, 0]), forecaster.scaler_.spread, "standard")
    moved._clear_updates()
    moved.save(tmp_path / "model")
    expected = sorted_answer(forecaster.predict(frame, at=AT))
    heat = expected["variable"] == "heat"
    for model in (moved, load(tmp_path / "model")):
        answer = sorted_answer(model.predict(far, at=AT))
        close(answer["mean"] - offset * heat, expected["mean"])
    (_, series) = next(iter(far.groupby("machine")))
    for row in series.itertuples():
        moved.update(row.machine, row.hour, {"heat": row.heat, "flow": row.flow})
    answer = sorted_answer(moved.predict(at=AT))
    told = answer["variable"] == "heat"
    close(answer["mean"] - offset * told, expected[expected["machine"] == row.machine]["mean"])


# --- values that are none ---------------------------------------------------------------------------------------------


def test_a_value_that_may_stand_for_a_missing_one_is_told(frame):
    frame = frame.assign(heat=frame["heat"].mask(frame.index % 20 == 3, -999.0))
    with pytest.warns(UserWarning, match=r"column 'heat' is -999 in \d rows, where half of its other values lie"):
        read_training(Forecaster("machine", "hour"), frame)


def test_values_in_another_unit_are_told(forecaster, frame):
    with pytest.warns(UserWarning, match=r"'flow' is \d+\.?\d* in a row, \d+ standard deviations from its mean"):
        forecaster.predict(frame.assign(flow=32 + 9 * frame["flow"]), at=AT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.predict(frame, at=AT)
