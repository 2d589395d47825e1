"""Figures of the paper's tables: how many lines an axes has, in which colours, and what is not drawn."""

import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from runs import figures, result

from acenode.datasets import ushcn_raw
from acenode.paper.row import Row
from acenode.paper.tables import TABLES
from acenode.report import compared, paper_figures, paper_plots, verdict
from acenode.report.page import Picture
from acenode.report.panels import panels
from acenode.report.style import COLOURS

RED, BLUE = COLOURS[:2]


@pytest.fixture(autouse=True)
def not_rendered(monkeypatch):
    """Figures are made but not turned into files, which takes most of the time."""
    monkeypatch.setattr(paper_figures, "picture", lambda name, figure, alt, says="": Picture(name, b"", alt, says))
    yield
    plt.close("all")


def names(table):
    return [row.name for row in TABLES[table]]


def drawn(table, results):
    """Pictures of a table, by name."""
    made = paper_figures.galleries(table, compared.tables(results)[table], lambda run: f"{run.row}-{run.seed}")
    return {each.name: each for gallery in made for each in gallery.pictures}


@pytest.mark.parametrize("table", TABLES)
def test_few_lines_an_axes_and_each_in_a_colour_of_its_own(table):
    rows = names(table)
    made = panels(rows)
    figure = paper_plots.by_epoch(made, {row: [[float(k), k + 1.0]] for k, row in enumerate(rows)}, "score")
    assert len(figure.axes) == len(made) and {row for panel in made for row in panel.colours} == set(rows)
    for axis in figure.axes:
        colours = [to_hex(line.get_color()) for line in axis.lines]
        legend = axis.get_legend()
        assert legend is not None
        labels = [text.get_text() for text in legend.get_texts()]
        assert 1 <= len(colours) <= 8 and len(set(colours)) == len(colours)
        assert labels == [line.get_label() for line in axis.lines] and len(set(labels)) == len(labels)


@pytest.mark.parametrize("table", TABLES)
def test_the_attentive_row_and_the_row_it_extends_have_the_same_two_colours_everywhere(table):
    bases = {row.name: row.base for row in TABLES[table] if isinstance(row, Row) and row.base}
    for panel in panels(names(table)):
        by_colour = {colour: row for row, colour in panel.colours.items()}
        if any(row in bases for row in panel.colours):
            assert by_colour[RED].startswith("ACE-") and by_colour[BLUE] == bases[by_colour[RED]]
        else:
            assert RED not in by_colour and by_colour.get(BLUE, "GRU-ODE-Bayes") in bases.values()


def test_rows_are_together_by_what_follows_the_comma():
    plain = [name for name in names("physionet-classification") if "," not in name]
    ends = [name for name in names("physionet-classification") if name.endswith(", final-state readout")]
    titles = [panel.title for panel in panels([*ends, *plain])]
    assert titles == ["with and without attention", "baselines", "baselines", "final-state readout"]
    assert paper_plots._legend(ends)[0] == [name.removesuffix(", final-state readout") for name in ends]
    (alone,) = panels(["ODE-Net", "ACE-ODE-Net"])
    assert alone.title == "" and list(alone.colours) == ["ACE-ODE-Net", "ODE-Net"]


def test_a_row_that_is_extended_under_another_name_is_beside_what_extends_it():
    own, apart = "ACE-GRU-ODE-Bayes, between variables", "GRU-ODE-Bayes, channel-independent"
    (panel,) = panels([own, apart])
    assert panel.colours == {own: RED, apart: BLUE} and panel.title == "between variables"
    assert paper_plots._legend([own, apart])[0] == [own, apart]
    assert list(panel.drawn({apart: [[1.0]]})) == [apart]  # it has no other panel


def test_variants_of_one_model_are_together():
    rows = names("attention-settings")
    first, second = panels(rows)
    assert {*first.colours, *second.colours} == {*rows}
    assert {*first.colours} & {*second.colours} == {*rows[:2]}  # the attention of the tables, and the row it extends


def test_what_every_setting_of_the_attention_adds_is_drawn_by_validation():
    base, usual, other, *_ = names("attention-settings")
    scores = {base: (0.3, 0.5), usual: (0.4, 0.7), other: (0.2, 0.3)}
    runs = [
        replace(result("attention-settings", row, k, {"mse": 0.5}), validation={"validation_mse": score})
        for row, some in scores.items()
        for k, score in enumerate(some)
    ]
    picture = drawn("attention-settings", runs)["attention-settings-validation"]
    assert f"less that of {base}, best first (lower is better)" in picture.caption
    assert "attention-settings-validation" not in drawn("attention-settings", runs[2:])
    lines = {line.row: line for line in compared.tables(runs)["attention-settings"]}
    zero, own = (lines[row].validation_by_seed for row in (base, usual))
    figure = paper_plots.differences({"own": ([0.1, 0.2], verdict.from_values(own, zero))}, "difference")
    seeds, mean = (figure.axes[0].lines[k].get_xdata() for k in (1, 2))
    assert np.allclose(seeds, [0.1, 0.2]) and np.allclose(mean, [0.15])


def test_a_panel_with_nothing_of_its_own_is_left_out():
    made = panels(names("physionet-classification"))
    calls = {row: [[14.0, 15.0]] for row in names("physionet-classification") if "RNN-" not in row and row != "GRU-D"}
    figure = paper_plots.by_epoch(made, calls, "calls")
    assert sum(axis.get_title(loc="left") == "baselines" for axis in figure.axes) == 1  # with Latent-ODE + Poisson


def test_lines_on_each_other_show_by_turns():
    runs = {"ACE-ODE-Net": [[1.0, 2.0]], "ODE-Net": [[1.0, 2.001]], "ResNet": [[1.0, 3.0]]}
    (axis,) = paper_plots.by_epoch(panels(list(runs)), runs, "score").axes
    assert [line.is_dashed() for line in axis.lines] == [True, True, False]


def test_rows_in_one_axes_have_the_same_bins_of_time():
    fine = {"time": [k + 0.5 for k in range(12)], "mse": [float(k) for k in range(12)], "values": [1] * 12}
    coarse = {"time": [1.0, 4.0, 10.0], "mse": [1.0, 2.0, 3.0], "values": [4, 4, 4]}
    runs = {"ACE-ODE-Net": [fine], "ODE-Net": [coarse]}
    (axis,) = paper_plots.error_over_time(panels(list(runs)), runs, "time").axes
    places, others = (set(np.asarray(line.get_xdata()).tolist()) for line in axis.lines)
    assert len(places | others) <= 12 and places & others


# --- what is not drawn ------------------------------------------------------------------------------------------


def climate(row, seed, errors, **history):
    """A run with this error over time, and a flat history."""
    errors_in_bins = {"time": [1.0, 2.0], "mse": errors, "values": [5, 5]}
    own = {"error_over_time": errors_in_bins, "attention": figures(seed)["attention"]}
    told = {"validation_negll": [1.2, 1.0, 0.9], "nfe": [10.0, 11.0, 14.0], "nfe_backward": [10.0, 11.0, 14.0]}
    metrics = {"mse": float(np.max(errors)), "negll": 0.9}
    return result("ushcn", row, seed, metrics, figures=own, history={**told, **history})


@pytest.mark.parametrize("error", [1e4, math.inf, math.nan])
def test_a_run_that_ran_away_is_not_drawn_but_named(error, monkeypatch):
    given = {}
    draw = paper_plots.error_over_time
    monkeypatch.setattr(
        paper_plots, "error_over_time", lambda panels, runs, x: given.update(runs) or draw(panels, runs, x)
    )
    runs = [climate("GRU-ODE-Bayes", seed, [0.5, 0.6]) for seed in range(3)]
    runs += [climate("ACE-GRU-ODE-Bayes", seed, [0.5, error if seed == 0 else 0.6]) for seed in range(3)]
    made = drawn("ushcn", runs)
    assert "Not drawn: ACE-GRU-ODE-Bayes (seed 0) diverged." in made["ushcn-error"].caption
    assert [each["mse"] for each in given["ACE-GRU-ODE-Bayes"]] == [[0.5, 0.6]] * 2
    assert "From ACE-GRU-ODE-Bayes-1" in made["ushcn-attention-ace-gru-ode-bayes"].caption  # one that did not
    assert "Not drawn" not in drawn("ushcn", runs[:3])["ushcn-error"].caption


def test_epochs_without_an_update_and_values_that_ran_away_are_not_drawn_but_counted(monkeypatch):
    given = []
    draw = paper_plots.by_epoch
    monkeypatch.setattr(paper_plots, "by_epoch", lambda panels, runs, y: given.append(runs) or draw(panels, runs, y))
    lost = {"nfe": [10.0, 0.0, 0.0], "validation_negll": [1.0, 1e7, math.inf]}
    runs = [climate("GRU-ODE-Bayes", 0, [0.5, 0.6]), climate("ACE-GRU-ODE-Bayes", 0, [0.5, 0.6], **lost)]
    made = drawn("ushcn", runs)
    named = "Not drawn: 2 of 3 epochs of ACE-GRU-ODE-Bayes, where "
    assert f"{named}it diverged." in made["ushcn-learning"].caption
    assert f"{named}no update was finite: all were skipped" in made["ushcn-calls-forward"].caption
    assert "Not drawn" not in made["ushcn-calls-backward"].caption
    for each, first in zip(given, (1.0, 10.0), strict=False):
        np.testing.assert_array_equal(each["ACE-GRU-ODE-Bayes"], [[first, np.nan, np.nan]])


def test_a_table_whose_every_run_ran_away_has_no_such_figure():
    runs = [climate("GRU-ODE-Bayes", 0, [math.nan, math.inf], validation_negll=[math.nan, math.inf])]
    assert not {"ushcn-learning", "ushcn-error"} & drawn("ushcn", runs).keys()


def test_calls_that_are_the_same_for_all_are_told_and_not_drawn():
    runs = [climate(row, 0, [0.5, 0.6], nfe=[192.0, 192.01, 192.0]) for row in ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes")]
    made = drawn("ushcn", runs)
    assert "ushcn-calls-forward" not in made and "ushcn-calls-backward" in made
    assert "Calls of f, forward: 192, the same in every epoch" in made["ushcn-learning"].caption


# --- what captions say ------------------------------------------------------------------------------------------


def test_captions_say_what_attends_to_what():
    rows = ("ACE-GRU-ODE-Bayes, conditioned", "ACE-GRU-ODE-Bayes, between variables")
    kept = {"attention": figures(0)["attention"]}
    runs = [result("double-ou", row, 0, {"negll": 1.0, "mse": 1.0}, figures=kept) for row in rows]
    made = drawn("double-ou", runs)
    said = {name: each.caption for name, each in made.items()}
    hidden = "Rows and columns are hidden (latent) dimensions of the model, not variables of the data."
    assert hidden in said["double-ou-attention-ace-gru-ode-bayes-conditioned"]
    between = said["double-ou-attention-ace-gru-ode-bayes-between-variables"]
    assert "the variables of the data" in between and hidden not in between
    assert "among 4 hidden dimensions" in said["double-ou-entropy-4-hidden-dimensions"]
    assert "among 4 variables" in said["double-ou-entropy-4-variables"]


def test_the_caption_of_maps_says_that_the_entropy_is_of_gates_and_the_map_of_means():
    maps = {**figures(0)["attention_maps"], "entropy": [0.87, 0.77], "moved": [0.0, 0.14]}
    run = result("mnist", "ACE-ODE-Net", 0, {"accuracy": 0.9}, figures={"attention_maps": maps})
    caption = drawn("mnist", [run])["mnist-attention-maps-ace-ode-net"].caption
    assert "mean over channels" in caption and "0.870 bits at first, 0.770 at last" in caption
    assert "of each gate before the mean over channels" in caption


def test_an_attention_between_variables_has_their_names_and_the_end_of_every_run(monkeypatch):
    draw, queried = paper_plots.attention_matrices, []

    def drawing(matrices, names=()):
        queried.append((list(matrices), names))
        return draw(matrices, names)

    monkeypatch.setattr(paper_plots, "attention_matrices", drawing)
    row = "ACE-GRU-ODE-Bayes, between variables"
    attention = {"times": [0.0, 1.0], "matrices": [np.eye(5).tolist()] * 2, "entropy": [0.0, 0.0]}
    runs = [result("ushcn", row, k, {"mse": 1.0}, figures={"attention": attention}) for k in (0, 1, 2)]
    made = drawn("ushcn", runs)
    over_time, ends = (made[f"ushcn-{kind}-ace-gru-ode-bayes-between-variables"] for kind in ("attention", "ends"))
    assert "variables of the data" in over_time.caption and "a run each" in ends.caption
    assert [names for _, names in queried] == [ushcn_raw.ELEMENTS] * 2
    assert queried[1][0] == ["seed 0", "seed 1", "seed 2"]
    figure = draw({f"seed {k}": np.eye(5) for k in range(3)}, ushcn_raw.ELEMENTS)
    labels = [[text.get_text() for text in axis.get_yticklabels()] for axis in figure.axes[:3]]
    assert labels == [list(ushcn_raw.ELEMENTS), [""] * 5, [""] * 5]
    hidden = [result("ushcn", "ACE-GRU-ODE-Bayes, conditioned", 0, {"mse": 1.0}, figures={"attention": attention})]
    assert not any("ends" in name for name in drawn("ushcn", hidden))


def test_an_ablation_with_a_run_that_ran_away_has_no_mean():
    runs = [result("ushcn", "FC-ACE-GRU-ODE-Bayes", k, {"mse": score}) for k, score in enumerate((0.5, 0.6, 1e9))]
    made = drawn("attention-type", runs)["attention-type-ushcn"]
    assert "and without a mean: FC (1 of 3 runs diverged)." in made.caption
    figure = paper_plots.ablation([("FC", 0.55, [0.5, 0.6, np.inf])], "MSE")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours", "published"]
