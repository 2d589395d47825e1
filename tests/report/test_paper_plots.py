"""Figures of the tables: which rows are in one panel, in which colours, and what is not drawn."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from runs import figures, result, weights

from acenode.datasets import cifar10, ushcn_raw
from acenode.paper.images import Drawn
from acenode.paper.results import frame
from acenode.paper.row import Row
from acenode.paper.tables import TABLES
from acenode.report import paper_plots
from acenode.report.page import Picture
from acenode.report.paper_plots import attention_maps, binned, groups
from acenode.report.verdicts import comparisons


@pytest.fixture
def drawn(monkeypatch):
    """Pictures of a table by name, and the figures they are made of, which are not rendered."""
    made = {}

    def picture(name, figure, alt, caption=""):
        made[name] = figure
        return Picture(name, "", alt, caption)

    monkeypatch.setattr(paper_plots, "picture", picture)

    def draw(table, results):
        captions = {
            p.name: p.caption for p in paper_plots.pictures_of(table, results, comparisons(frame(results)), None)
        }
        return captions, made

    yield draw
    plt.close("all")


def test_the_error_over_the_horizon_is_a_mean_over_the_sets_that_all_rows_have(drawn):
    _, made = drawn("mnist", [])

    def ran(row, dataset, seed, errors):
        error = {"time": [5.0, 6.0], "mse": errors, "values": [3, 3]}
        more = {"dataset": dataset, "figures": {"error_over_time": error}}
        return result("physiome", row, seed, {"mse": 1.0}, **more)

    errors = {"X": [1.0, 4.0], "Y": [4.0, 9.0], "V": [2.0, 6.0]}
    runs = [ran("a", name, 0, error) for name, error in errors.items()]
    runs += [ran("b", name, seed, [1.0, 1.0]) for name in errors for seed in (0, 1)]
    runs += [ran("a", "Z", 0, [7.0, 7.0]), ran("on one set", "X", 0, [1.0, 1.0]), ran("b", "X", 2, [math.inf, 1.0])]
    (shown,) = paper_plots.pictures_over_sets("physiome", runs)
    lines = {line.get_label(): list(line.get_ydata()) for line in made["physiome-error"].axes[0].lines}
    assert lines["a"] == pytest.approx([2.0, 6.0]) and lines["b"] == pytest.approx([1.0, 1.0])
    assert set(lines) == {"a", "b"} and "V, X, Y" in shown.alt
    assert paper_plots.pictures_over_sets("physiome", []) == []
    made.clear()
    runs = [ran(row, "X", 0, [1.0, 1.0]) for row in "abc"] + [ran("c", "Y", 0, [1.0, 1.0])]
    (shown,) = paper_plots.pictures_over_sets("physiome", runs)  # rather three rows on one set than one row on two
    assert {line.get_label() for line in made["physiome-error"].axes[0].lines} == {*"abc"}
    assert shown.alt.endswith("on X")


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_in_a_panel_of_few_and_beside_its_base(table):
    rows = {row.name: row for row in TABLES[table]}
    made = groups(list(rows), rows)
    assert {name for own in made.values() for name in own} == set(rows)
    for own in made.values():
        assert 1 <= len(own) <= paper_plots.LINES and len(set(own)) == len(own)
        attentive = [name for name in own if isinstance(rows[name], Row) and rows[name].base]
        if attentive:  # in the same two colours everywhere
            assert own[0] == attentive[0] and own[1] == rows[own[0]].base


def test_a_row_whose_base_was_not_run_is_among_the_others():
    rows = {row.name: row for row in TABLES["mnist"]}
    assert groups(["ACE-ODE-Net", "ResNet"], rows) == {"": ["ACE-ODE-Net", "ResNet"]}
    assert groups([], rows) == {}
    assert groups(["a", "b"], {}) == {"": ["a", "b"]}


def climate(row, seed, errors, **history):
    """A run with this error over time."""
    kept = {"error_over_time": {"time": [1.0, 2.0], "mse": errors, "values": [5, 5]}, **weights(0.5, 0.9)}
    told = {"validation_negll": [1.2, 1.0, 0.9], **history}
    return result("ushcn", row, seed, {"mse": float(np.max(errors)), "negll": 0.9}, figures=kept, history=told)


def test_differences_are_drawn_with_their_intervals(drawn):
    runs = [climate("GRU-ODE-Bayes", k, [0.5, 0.6 + 0.01 * k]) for k in range(3)]
    runs += [climate("ACE-GRU-ODE-Bayes", k, [0.5, 0.4 + 0.02 * k]) for k in range(3)]
    _, made = drawn("ushcn", runs)
    _, interval, mean = made["ushcn-differences-test-mse"].axes[0].lines
    assert mean.get_xdata() == pytest.approx([-0.11]) and interval.get_xdata()[0] < -0.11 < interval.get_xdata()[1]


@pytest.mark.parametrize("error", [1e4, math.inf, math.nan])
def test_a_run_that_diverged_is_not_drawn_but_named(drawn, error):
    runs = [climate("GRU-ODE-Bayes", seed, [0.5, 0.6]) for seed in range(3)]
    runs += [climate("ACE-GRU-ODE-Bayes", seed, [0.5, error if seed == 0 else 0.6]) for seed in range(3)]
    captions, made = drawn("ushcn", runs)
    assert "diverged" in captions["ushcn-error"]
    for line in made["ushcn-error"].axes[0].lines:
        assert np.allclose(line.get_ydata(), [0.5, 0.6])
    captions, _ = drawn("ushcn", runs[:3])
    assert "diverged" not in captions["ushcn-error"]


def test_validation_scores_that_are_not_finite_are_not_drawn(drawn):
    lost = climate("GRU-D", 0, [0.5, 0.6], validation_negll=[1.0, math.nan, math.inf, 0.8])
    _, made = drawn("ushcn", [climate("GRU-ODE-Bayes", 0, [0.5, 0.6]), lost])
    lines = {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in made["ushcn-training"].axes[0].lines
    }
    assert lines == {"GRU-ODE-Bayes": ([1, 2, 3], [1.2, 1.0, 0.9]), "GRU-D": ([1, 4], [1.0, 0.8])}


def test_a_table_whose_every_run_diverged_has_no_such_figure(drawn):
    runs = [climate("GRU-ODE-Bayes", 0, [math.nan, math.inf], validation_negll=[math.nan, math.inf])]
    assert not drawn("ushcn", runs)[0]


def test_an_attention_between_variables_has_their_names(drawn):
    rows = ("ACE-GRU-ODE-Bayes, conditioned", "ACE-GRU-ODE-Bayes, between variables")
    attention = {"times": [0.0, 1.0], "matrices": [np.eye(5).tolist()] * 2, "entropy": [0.0, 0.0]}
    runs = [result("ushcn", row, 0, {"mse": 1.0}, figures={"attention": attention}) for row in rows]
    captions, made = drawn("ushcn", runs)
    ticks = [text.get_text() for text in made["ushcn-attention-variables"].axes[0].get_yticklabels()]
    assert ticks == list(ushcn_raw.ELEMENTS)
    assert "the variables of the data" in captions["ushcn-attention-variables"]
    assert "hidden dimensions" in captions["ushcn-attention-hidden"]
    assert "conditioned-seed0.json" in captions["ushcn-attention-hidden"]


def test_every_kind_of_figure_is_drawn_once(drawn):
    runs = [result("mnist", "ACE-ODE-Net", k, {"accuracy": 0.9}, figures=figures(k)) for k in range(2)]
    captions, made = drawn("mnist", runs)
    assert set(captions) == {
        "mnist-training",
        "mnist-error",
        "mnist-attention-hidden",
        "mnist-maps-ace-ode-net",
        "mnist-embedding",
    }
    assert sum(bool(axis.collections) for axis in made["mnist-embedding"].axes) == 1


def test_seeds_with_bins_of_their_own_are_put_into_common_ones():
    seeds = [{"time": [0.0, 1.0], "mse": mse, "values": [4, 4]} for mse in ([1.0, 2.0], [3.0, 4.0])]
    times, errors = binned({"row": seeds})["row"]
    assert times.tolist() == [0, 1] and errors.tolist() == [[1, 2], [3, 4]]
    fine = {"time": [k / 16 for k in range(32)], "mse": [float(k) for k in range(32)], "values": [2] * 32}
    late = {"time": [0.03, 9.0], "mse": [5.0, 7.0], "values": [10, 1]}
    times, errors = binned({"row": [fine, late]})["row"]
    known = np.isfinite(errors).any(axis=0)
    times, errors = times[known], errors[:, known]
    assert len(times) <= 12 and (times[1:] > times[:-1]).all()
    assert errors[1, 0] == 5 and errors[1, -1] == 7 and math.isnan(errors[1, 1])
    assert errors[0, 0] < 2 < 25 < errors[0, -1]  # the first of it, and the last with what comes late
    assert binned({}) == {}


MAPS = {"times": [0.0, 0.5, 1.0], "maps": np.linspace(0.2, 0.7, 2 * 3 * 4).reshape(2, 3, 2, 2).tolist()}


@pytest.mark.parametrize("colours", [1, 3])
def test_maps_lie_over_their_images_in_one_scale(colours):
    figure = attention_maps(MAPS, Drawn(np.zeros((2, 8, 8, colours)), np.array([1.0, 4.0, 7.0])))
    panels = figure.axes[:6]
    assert all(len(axis.images) == 2 for axis in panels)
    assert {axis.images[0].get_clim() for axis in panels} == {(0.2, 0.7)}
    assert all(list(axis.images[0].get_extent()) == [1, 7, 7, 1] for axis in panels)
    assert all(axis.images[0].get_zorder() > axis.images[1].get_zorder() for axis in panels)
    assert all((axis.get_xlim(), axis.get_ylim()) == ((0, 8), (8, 0)) for axis in panels)
    np.testing.assert_array_equal(panels[-1].images[0].get_array(), MAPS["maps"][1][2])


def test_without_images_the_maps_stand_alone():
    figure = attention_maps(MAPS)
    assert [len(axis.images) for axis in figure.axes[:6]] == [1] * 6
    assert [axis.get_title(loc="left") for axis in figure.axes[:3]] == ["t = 0", "t = 0.5", "t = 1"]


def test_classes_have_their_names_in_figures(drawn):
    assert cifar10.CLASSES[3] == "cat" and len(cifar10.CLASSES) == 10
    embedding = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.0], "label": [9, 3, 3]}
    maps = {**MAPS, "said": [3, 9], "label": [3, 0]}
    kept = {"embedding": embedding, "attention_maps": maps}
    _, made = drawn("cifar10", [result("cifar10", "ACE-ODE-Net", 0, {"accuracy": 0.9}, figures=kept)])
    (legend,) = made["cifar10-embedding"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["cat", "truck"]
    rows = [axis.get_ylabel() for axis in made["cifar10-maps-ace-ode-net"].axes[:6:3]]
    assert rows == ["cat", "truck,\nnot airplane"]
    assert attention_maps(maps).axes[3].get_ylabel() == "9,\nnot 0"
