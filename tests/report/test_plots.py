"""Figures of forecasts and attention: what their labels say."""

import io

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
from matplotlib.cbook import is_math_text

from acenode.report import plots
from acenode.series import Series

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def time_grid(names, rows=("attention",)):
    """The labels at the left of the first picture and below each one of the first column."""
    size = len(names)
    figure = plots.attention_over_time(np.arange(3.0), [(r, np.full((3, size, size), 1 / size)) for r in rows], names)
    figure.savefig(io.BytesIO())
    first = [figure.axes[3 * k] for k in range(len(rows))]
    return [
        [t.get_text() for t in first[0].get_yticklabels()],
        *([t.get_text() for t in a.get_xticklabels()] for a in first),
    ]


def test_variables_have_their_whole_names():
    left, below = time_grid(["heart rate", "resp rate", ""])
    assert left == below == ["heart rate", "resp rate", ""]


def test_rows_of_pictures_share_the_names_below():
    left, above, below = time_grid(["region A", "region B"], ("learned", "truth"))
    assert left == below == ["region A", "region B"] and above == ["", ""]


def test_long_names_are_cut_but_stay_different():
    names = ["temperature of sensor 1", "temperature of sensor 2", "a name of 16 let", "oxygen, arterial 1 (%)"]
    assert plots.short(names) == ["temperat…ensor 1", "temperat…ensor 2", "a name of 16 let", "oxygen, …l 1 (%)"]
    similar = ["pressure of arm (mean)", "pressure of leg (mean)", "temperature of sensor 1", "temperat…ensor 1"]
    assert plots.short(similar) == similar


@pytest.mark.parametrize("name", ["$_{ $", "$a$", "one $", r"a \$ b $", "$$"])
def test_dollar_signs_are_no_mathematics(name):
    left, _ = time_grid([name, "b"])
    times, ones = np.arange(3.0, dtype=np.float32), np.ones((3, 1), np.float32)
    series = Series(times, ones, ones > 0, np.asarray(3, np.int32))
    figure = plots.forecasts(times, [plots.Band("model", ones, ones)], series, [name], 1.0)
    figure.savefig(io.BytesIO())
    for text in (left[0], figure.axes[0].get_title(loc="left")):
        assert not is_math_text(text)
        assert text.replace(r"\$", "$") == name  # what matplotlib shows of other texts


@pytest.mark.parametrize(
    ("split", "legend"), [(1.0, ["model", "observed", "held out"]), (np.inf, ["model", "observed"])]
)
def test_only_what_is_there_is_in_the_legend(split, legend):
    times, ones = np.arange(3.0, dtype=np.float32), np.ones((3, 1), np.float32)
    series = Series(times, ones, ones > 0, np.asarray(3, np.int32))
    figure = plots.forecasts(times, [plots.Band("model", ones, ones)], series, ["a"], split)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == legend
    assert len(figure.axes[0].patches) == (split < 2)


def test_curves_are_means_over_seeds_with_their_range():
    places = np.arange(1, 4)
    rows = {"one": (places, np.array([[1.0, 2.0, 3.0], [3.0, 4.0, np.nan]])), "other": (places, np.ones((1, 3)))}
    figure = plots.curves({"first": rows, "second": {"one": rows["one"]}}, "epoch", "score")
    first, second = figure.axes
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["first", "second"]
    assert np.allclose(first.lines[0].get_ydata(), [2, 3, 3]) and len(first.lines) == 2 and len(second.lines) == 1
    assert first.lines[0].get_color() != first.lines[1].get_color()
    assert (
        first.lines[0].get_linestyle() != first.lines[1].get_linestyle()
    )  # both are seen where they lie on each other


def test_places_without_a_value_are_left_out():
    places = np.arange(1, 4)
    rows = {"some": (places, np.array([[1.0, np.nan, 3.0]])), "none": (places, np.full((2, 3), np.nan))}
    some, none = plots.curves({"": rows}, "epoch", "score").axes[0].lines
    assert some.get_xdata().tolist() == [1, 3] and len(none.get_xdata()) == 0
    plots.learning_curves([("none", np.full(3, np.nan))], "score")


def test_one_value_far_off_does_not_press_the_others_flat():
    values = np.concatenate([np.ones((50, 4)), np.full((1, 4), 1e6)])
    values[:50] += np.linspace(0, 1, 50)[:, None]
    figure = plots.curves({"": {"row": (np.arange(4), values)}}, "epoch", "score")
    assert figure.axes[0].get_ylim()[1] < 1e5


def test_errors_in_bins_are_drawn_at_their_middles():
    figure = plots.error_over_time(np.array([0.0, 1.0, 2.0]), [("model", np.array([0.5, np.nan]))], "error")
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [0.5] and figure.axes[0].get_ylim()[0] == 0
