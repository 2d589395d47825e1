"""The page about a user's own run: which pictures each kind of estimator has, and of which series."""

import copy
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from frames import VALUES, labelled

from acenode.cli import own_report
from acenode.cli.own_report import write_report
from acenode.estimators.importance import Reading
from acenode.report import plots

pytestmark = pytest.mark.slow  # what all tests share is made first

THREE = {"series-typical", "series-hard", "series-longest", "calibration", "residuals"}
PICTURES = {
    "forecaster": THREE | {"error", "attention", "importance"},
    "imputer": THREE | {"attention"},
    "classifier": {"calibration"},
}


@pytest.fixture
def drawn(monkeypatch):
    """What is given to the functions that draw, by their names."""
    seen = {}

    def watch(module, name):
        real = getattr(module, name)

        def call(*args, **options):
            seen[name] = args, options, real(*args, **options)
            return seen[name][2]

        monkeypatch.setattr(module, name, call)

    watch(own_report, "_error")
    watch(plots, "forecasts")
    watch(plots, "attention_over_time")
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("kind", PICTURES)
def test_the_pictures_of_a_run(kind, frame, tmp_path, request):
    fitted = request.getfixturevalue(kind)
    page = write_report(fitted, labelled(frame) if kind == "classifier" else frame, tmp_path)
    drawn = {path.stem for path in page.parent.glob("*.svg")}
    assert drawn == {*PICTURES[kind], "learning"}
    text = page.read_text()
    aside = fitted.summary_.validation_series
    assert f"Trained on {fitted.summary_.series - aside:,} series of heat, flow; {aside} more were set aside" in text
    assert "http" not in text.replace("http://www.w3.org", "")


@pytest.mark.slow
@pytest.mark.parametrize("agreement, says", [(0.1, "Do not read this attention as influence"), (0.9, "is active")])
def test_perturbation_leads_the_page_where_the_attention_is_no_influence(agreement, says, forecaster, frame, tmp_path):
    other = copy.copy(forecaster)
    other.reading_ = Reading(change=0.2, collapsed=False, agreement=agreement)
    text = write_report(other, frame, tmp_path).read_text()
    places = [text.index(f"{title}</h2>") for title in ("What the forecasts depend on", "The run", "Attention")]
    perturbation, run, attention = places
    assert says in text
    if agreement < 0.5:
        assert perturbation < attention < run and text.index(says) < perturbation
    else:
        assert run < attention < perturbation


@pytest.mark.slow
def test_only_series_that_were_not_trained_on_are_shown_and_measured(forecaster, frame, tmp_path, drawn):
    """The score of training on its validation series is that of the series of which the error is drawn."""
    text = write_report(forecaster, frame, tmp_path).read_text()
    measured = drawn["_error"][0][1].ids
    assert len(measured) == forecaster.summary_.validation_series
    score = forecaster.evaluate(frame[frame["machine"].isin(measured)])["mse"]
    np.testing.assert_allclose(score, forecaster.leaderboard_["mse"][0], rtol=1e-4)
    named = set(re.findall(r"machine (m\d\d)", text))
    assert 1 < len(named) <= 3 and named <= set(measured)
    assert f"the last part of {len(measured)} series" in text
    assert measured.tolist() == forecaster.validation_ids_
    assert drawn["forecasts"][1]["later"] == "held out"


def test_the_validation_score_is_that_of_the_stored_ids(classifier, imputer, frame):
    for fitted in (classifier, imputer):
        assert len(fitted.validation_ids_) == fitted.summary_.validation_series
    aside = labelled(frame)[frame["machine"].isin(classifier.validation_ids_)]
    score = classifier.evaluate(aside)[classifier.summary_.metric]
    np.testing.assert_allclose(score, classifier.summary_.validation, rtol=1e-4)


@pytest.mark.slow
def test_the_order_of_the_table_does_not_matter(forecaster, frame, tmp_path, drawn):
    write_report(forecaster, frame.sort_values(["machine", "hour"], ascending=[False, True]), tmp_path)
    assert set(drawn["_error"][0][1].ids) == set(forecaster.validation_ids_)


@pytest.mark.slow
def test_nothing_is_held_out_from_an_imputer(imputer, frame, tmp_path, drawn):
    write_report(imputer, frame, tmp_path)
    figure = drawn["forecasts"][2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ace-latent-ode", "observed"]
    assert not figure.axes[0].patches


@pytest.mark.slow
def test_names_with_dollar_signs_or_none_are_drawn(forecaster, frame, tmp_path, drawn, monkeypatch):
    odd = {"heat": "price $_{ in $", "flow": ""}
    monkeypatch.setattr(forecaster, "columns_", forecaster.columns_._replace(values=tuple(odd[v] for v in VALUES)))
    page = write_report(forecaster, frame.rename(columns=odd), tmp_path)
    assert (page.parent / "series-longest.svg").exists()
    time_grid = drawn["attention_over_time"][2].axes[0].get_yticklabels()
    assert [tick.get_text() for tick in time_grid] == [r"price \$_{ in \$", ""]


# --- the picture of one series, `plot` --------------------------------------------------------------------------


def test_a_forecast_at_one_time_can_be_seen(forecaster, frame):
    figure = forecaster.plot(frame, "m03", at=[24.0])
    for axis in figure.axes[: len(VALUES)]:
        forecast = axis.get_lines()[1]
        assert list(forecast.get_xdata()) == [24.0] and forecast.get_marker() == "o"
        (band,) = axis.collections
        (low, high) = band.get_segments()[0][:, 1]
        assert low < forecast.get_ydata()[0] < high
    plt.close(figure)


@pytest.mark.parametrize("change, collapsed", [(0.0, False), (0.2, True), (0.2, False)])
def test_all_words_of_a_plot_lie_on_it(change, collapsed, forecaster, frame, monkeypatch):
    monkeypatch.setattr(forecaster, "reading_", Reading(change, collapsed, agreement=-1.0))
    odd = {"heat": "heat of the burner in $ per kW$", "flow": "flow"}
    monkeypatch.setattr(forecaster, "columns_", forecaster.columns_._replace(values=tuple(odd[v] for v in VALUES)))
    figure = forecaster.plot(frame.rename(columns=odd), "m03", at=[24.0, 25.0])
    figure.canvas.draw()
    attention = figure.axes[len(VALUES)]
    assert [tick.get_text() for tick in attention.get_xticklabels()] == ["heat of …per kW" + r"\$", "flow"]
    for text in (attention.title, attention.xaxis.label, attention.yaxis.label, *attention.get_xticklabels()):
        place = text.get_window_extent()
        assert text.get_text() and figure.bbox.x0 <= place.x0 and place.x1 <= figure.bbox.x1
    plt.close(figure)


def test_the_typical_and_the_hard_series():
    error = np.asarray([3.0, 0.1, 1.0, 9.0, 2.0])[:, None, None] * np.asarray([1.0, -1.0])[None, :, None]
    scored = np.ones((5, 2, 1), bool)
    assert own_report.typical_and_hard(error, scored) == {"typical": 4, "hard": 3}
    scored[3] = False  # a large error that nobody asked for
    assert own_report.typical_and_hard(error, scored) == {"typical": 4, "hard": 0}
    assert own_report.typical_and_hard(error, np.zeros_like(scored)) == {}
