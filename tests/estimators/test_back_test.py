"""A time inside a series is predicted as it would have been then: nothing comes from later rows."""

import numpy as np
import pandas as pd
import pytest
from untrained import untrained

from acenode.estimators import Forecaster
from acenode.estimators.inference import warn_of_failures


@pytest.mark.parametrize("model", ["mtan", "linear", pytest.param("gru-d", marks=pytest.mark.slow)])
def test_a_time_inside_a_series_is_predicted_from_what_came_before(frame, model, monkeypatch):
    monkeypatch.setattr("acenode.estimators.forecaster._AT_ONCE", 2)
    made = untrained(Forecaster("machine", "hour", model=model, hidden=4), frame)
    own = frame[frame["machine"].isin(["m00", "m01"])]
    ends = own.groupby("machine")["hour"].agg(["min", "max"])
    at = [float(ends["min"].max()) + 0.25, float(ends["max"].min()) - 0.25, 24.0]
    assert at[0] < at[1] < 24 and (ends["max"] < 24).all()
    found = made.predict(own, at=at)
    for time in at:
        alone = made.predict(own[own["hour"] <= time], at=[time])
        together = found[found["hour"] == time]
        pd.testing.assert_frame_equal(together.reset_index(drop=True), alone, rtol=1e-5, atol=1e-5)


def test_a_series_whose_solves_failed_is_counted_once():
    ids = np.array(["m00", "m00", "m01", "m00"], object)
    predicted = np.array([[np.nan, 1.0], [np.nan, 2.0], [1.0, 2.0], [1.0, 2.0]])
    with pytest.warns(UserWarning, match="for 1 of 2 series, 'm00' first, the solver failed"):
        warn_of_failures(predicted, ids)
