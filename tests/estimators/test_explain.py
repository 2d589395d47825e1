"""Attention as a frame, pictures of forecasts."""

import copy
from dataclasses import replace

import jax
import matplotlib
import numpy as np
import pandas as pd
import pytest
from frames import KINDS, VALUES, of_kind, to_pandas
from untrained import untrained

from acenode import Forecaster, load
from acenode.estimators.importance import Reading
from acenode.estimators.registry import Entry
from acenode.models import gru_ode_bayes
from acenode.ode import CoEvolvingODE, Elementwise, GRUField, Solver, Zeros

pytestmark = pytest.mark.slow  # what all tests share is trained first

matplotlib.use("Agg")


@pytest.fixture
def forecaster(forecaster):
    """With an attention that may be read, whatever two epochs of training gave."""
    return with_reading(forecaster, Reading(change=0.3, collapsed=False, agreement=1.0))


@pytest.fixture
def few(frame):
    return frame[frame["machine"].isin(["m00", "m10"])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_attention_sums_to_one_and_has_the_names_of_the_variables(forecaster, few, kind):
    queried = of_kind(few, kind)
    answer = forecaster.attention(queried)
    assert type(answer) is type(queried)
    table = to_pandas(answer)
    assert list(table.columns) == ["machine", "hour", "attends", "to", "weight"]
    assert len(table) == len(few) * 4
    assert set(table["attends"]) == set(table["to"]) == set(VALUES)
    sums = table.groupby(["machine", "hour", "attends"])["weight"].sum()
    assert len(sums) == 2 * len(few)
    np.testing.assert_allclose(sums, 1, rtol=1e-5)
    assert (table["weight"] >= 0).all()


def test_an_attention_that_is_no_matrix_is_refused_with_a_remedy(frame, few):
    def build(sizes, key):
        one, two, three = jax.random.split(key, 3)
        solver = Solver("euler", step=sizes.step, max_steps=sizes.count)
        f, g = (GRUField(sizes.hidden, key=k) for k in (one, two))
        ode = CoEvolvingODE(f, g, Elementwise(), Zeros((sizes.hidden,)), solver)
        return gru_ode_bayes(sizes.variables, ode, sizes.hidden, key=three)

    own = Entry(build, lambda s: s.hidden, None, "elementwise", "hidden dimensions")
    made = untrained(Forecaster("machine", "hour", model=own, hidden=4), frame)
    for ask in (lambda: made.attention(few), lambda: made.plot(few, "m00", [24.0])):
        with pytest.raises(ValueError, match=r"has the shape \(4,\) at a time.*Set attends=None"):
            ask()
    matplotlib.pyplot.close("all")


def test_attention_begins_on_oneself_and_moves(forecaster, few):
    """The first weights are softmax of twice the identity; later ones have evolved."""
    answer = forecaster.attention(few)
    first = answer[answer["hour"] == few["hour"].iloc[0]].query("machine == 'm00'")
    own = first[first["attends"] == first["to"]]["weight"]
    np.testing.assert_allclose(own, np.exp(2) / (np.exp(2) + 1), rtol=1e-4)
    assert answer.query("machine == 'm00'")["weight"].nunique() > 4


def test_attention_does_not_depend_on_batch_mates(forecaster, frame, few):
    whole = forecaster.attention(frame)
    part = whole[whole["machine"].isin(["m00", "m10"])]
    np.testing.assert_allclose(forecaster.attention(few)["weight"], part["weight"], rtol=1e-5)


def test_a_plot_has_a_band_for_each_variable_and_the_attention(forecaster, frame, tmp_path):
    import matplotlib.pyplot as plt

    figure = forecaster.plot(frame, "m03", [24.0, 25.0, 26.0], tmp_path / "plot.png")
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert labels[:2] == list(VALUES)
    assert len(figure.axes) == 4  # two variables, the attention and its colours
    assert [len(axis.collections) for axis in figure.axes[:2]] == [1, 1]
    seen = figure.axes[0].lines[0].get_xdata()
    assert list(seen) == frame[frame["machine"] == "m03"]["hour"].tolist()
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["plot.png"]
    plt.close(figure)


MISLEADING = Reading(change=0.3, collapsed=True, agreement=0.9)


def with_reading(forecaster, reading):
    other = copy.copy(forecaster)
    other.reading_ = reading
    return other


def test_an_attention_that_is_no_influence_comes_with_a_warning_and_a_title_that_says_so(forecaster, frame, few):
    import matplotlib.pyplot as plt

    misleading = with_reading(forecaster, MISLEADING)
    with pytest.warns(UserWarning, match="Do not read this attention as influence: all variables attend to one"):
        misleading.attention(few)
    figure = misleading.plot(frame, "m03", [24.0])
    assert "not to be read as influence:\nall variables attend to one" in figure.axes[2].get_title()
    plt.close(figure)


def test_the_reading_of_an_attention_is_saved(forecaster, classifier, tmp_path):
    assert classifier.reading_ is None
    assert load(forecaster.save(tmp_path / "model")).reading_ == forecaster.reading_


def test_importance_is_drawn_with_the_names_of_the_variables(forecaster, frame, tmp_path):
    import matplotlib.pyplot as plt

    figure = forecaster.plot_importance(frame, tmp_path / "importance.png")
    axis, colours = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == list(VALUES)
    assert (axis.get_ylabel(), axis.get_xlabel(), colours.get_ylabel()) == ("forecast", "hidden", "increase of MSE")
    shown, table = axis.images[0].get_array(), forecaster.importance(frame)
    np.testing.assert_allclose(shown.ravel(), np.maximum(table["increase"], 0), rtol=1e-6)
    assert (tmp_path / "importance.png").read_bytes().startswith(b"\x89PNG")
    plt.close(figure)


def test_a_plot_without_attention_or_band(forecaster, frame):
    import matplotlib.pyplot as plt

    other = copy.copy(forecaster)
    other.entry_ = replace(forecaster.entry_, attends=None)
    figure = other.set_params(quantiles=()).plot(frame, "m03", 24.0)
    assert len(figure.axes) == 2 and not figure.axes[0].collections
    plt.close(figure)


def test_a_plot_of_nobody_is_refused(forecaster, frame):
    with pytest.raises(ValueError, match="the table has no rows of machine 'm99'"):
        forecaster.plot(frame, "m99", [24.0])
    with pytest.raises(ValueError, match="there is no column 'machine'"):
        forecaster.plot(pd.DataFrame({"id": [1]}), "m99", [24.0])


@pytest.mark.slow
def test_an_imputer_draws_what_it_fills_in(imputer, frame):
    import matplotlib.pyplot as plt

    figure = imputer.plot(frame, "m03")
    own = frame[frame["machine"] == "m03"]
    for axis, name in zip(figure.axes, VALUES, strict=False):
        seen, filled = axis.get_lines()
        assert np.isfinite(seen.get_ydata()).sum() == own[name].notna().sum()
        assert len(filled.get_ydata()) == own[name].isna().sum()
    assert len(figure.axes) == len(VALUES) + 2  # the attention and its scale
    plt.close(figure)


def test_a_classifier_draws_what_it_was_shown(classifier, frame):
    import matplotlib.pyplot as plt

    figure = classifier.plot(frame, "m03")
    assert len(figure.axes) == len(VALUES) and [len(axis.get_lines()) for axis in figure.axes] == [1] * len(VALUES)
    plt.close(figure)
