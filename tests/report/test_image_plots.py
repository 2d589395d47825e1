"""Pictures of image classifiers: they are written, they show something, and their figures stand beside them."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest

from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, NeuralODE, Solver
from acenode.paper.images import SETTINGS, classifier
from acenode.paper.results import Result
from acenode.report import image_plots
from acenode.tasks import Pictures

STEPS = Solver("euler", step=0.5)


def attentive(key):
    one, two, three = jax.random.split(key, 3)
    fields = ConvField(2, 1, key=one), ConvField(2, 1, key=two)
    return CoEvolvingODE(*fields, Elementwise(), ConvInitial(2, 1, key=three), STEPS)


def ensemble(ode):
    build = classifier(SETTINGS["cifar10"], ode, 2)
    return eqx.nn.inference_mode(eqx.filter_vmap(lambda seed: build(jax.random.key(seed)))(jnp.arange(2)))


def result(row: str, seed: int, **history) -> Result:
    words = {"table": "made-up", "protocol": "sound", "device": "none"}
    numbers = {"epochs": 3, "best_epoch": 1, "parameters": 1, "seconds": 1.0}
    empty = {name: {} for name in ("metrics", "validation", "config", "data", "versions")}
    return Result(row=row, seed=seed, history=history, **words, **numbers, **empty)  # pyright: ignore


RESULTS = [
    result("ACE-ODE-Net", 0, nfe=[20.0, 21.0, 22.0], nfe_backward=[18.0, 19.0, 20.0]),
    result("ACE-ODE-Net", 1, nfe=[20.0, 21.5], nfe_backward=[18.0, 19.5]),
    result("an old one", 0, nfe=[14.0, 14.0, 15.0]),
    result("ResNet", 0, nfe=[0.0, 0.0, 0.0], nfe_backward=[0.0, 0.0, 0.0]),
]


def shades(path):
    """How many different colours a picture has,."""
    return len(np.unique(matplotlib.image.imread(path)[..., :3] @ np.array([1.0, 10.0, 100.0])))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("pictures") / "new"
    random = np.random.default_rng(0)
    images = Pictures(random.integers(0, 255, (40, 16, 16, 3)).astype(np.uint8), np.arange(40, dtype=np.int32) % 3)
    one, other = ensemble(attentive), ensemble(lambda key: NeuralODE(ConvField(2, 1, key=key), STEPS))
    models, controls = {"Attentive, small": one, "plain": other}, {"control": one}
    return out, image_plots.image_pictures(models, images, RESULTS, out, controls=controls, classes=["a", "b", "c"])


def test_every_picture_is_written_and_shows_something(written):
    out, _ = written
    kinds = ("attention", "attention-change", "attention-channels")
    grids = [f"{kind}-{name}" for kind in kinds for name in ("attentive-small", "control")]
    names = ["tsne", "evaluations", "attention-over-time", *grids]
    assert sorted(p.name for p in out.iterdir()) == sorted([*(f"{n}.png" for n in names), "figures.json"])
    for name in names:
        assert shades(out / f"{name}.png") > 50


def test_figures_have_an_entry_a_member(written):
    _, path = written
    figures = json.loads(path.read_text())
    assert figures["images"] == 40 and list(figures["features"]) == ["Attentive, small", "plain"]
    for entries in figures["features"].values():
        assert len(entries) == 2
        for entry in entries:
            assert 0 <= entry["accuracy"] <= 1
            scores = [*entry["silhouette"].values(), *entry["silhouette_of_maps"].values()]
            assert len(scores) == 4 and all(-1 <= x <= 1 for x in scores)
    attention = figures["attention"]
    assert {n: len(each) for n, each in attention["models"].items()} == {"Attentive, small": 2, "control": 2}
    summary = attention["models"]["Attentive, small"][0]
    assert len(summary["mean"]) == len(attention["times"]) == len(summary["contrast"]["own_correlation"])
    assert figures["evaluations"][2] == {"row": "an old one", "seed": 0, "nfe": [14.0, 14.0, 15.0]}


def drawn(axis):
    return {line.get_label(): list(line.get_ydata()) for line in axis.lines}


def test_evaluations_are_drawn_forward_and_backward_where_there_are_any():
    figure = image_plots.evaluations(RESULTS)
    forward, backward = figure.axes
    assert len(forward.lines) == 3 and "ResNet" not in drawn(forward)
    assert drawn(forward)["ACE-ODE-Net"] == [20, 21, 22] and drawn(forward)["an old one"] == [14, 14, 15]
    assert len(backward.lines) == 2 and drawn(backward)["ACE-ODE-Net"] == [18, 19, 20]


def test_a_grid_has_one_scale_for_all_and_a_change_is_white_at_zero():
    images, maps = np.zeros((2, 8, 8, 1)), np.linspace(0.2, 0.7, 2 * 3 * 4).reshape(2, 3, 2, 2)
    words = ["one", "two"], ["t = 0", "t = 0.5", "t = 1"]
    figure = image_plots.attention_grid(images, maps, *words, np.array([0.0, 4.0, 8.0]), "attention")
    scales = {axis.images[1].get_clim() for axis in figure.axes if len(axis.images) == 2}
    assert scales == {(0.2, 0.7)}
    figure = image_plots.attention_grid(images, maps - 0.3, *words, np.array([1.0, 4.0, 7.0]), "change", change=True)
    last = figure.axes[-2].images[1]
    assert last.get_clim() == pytest.approx((-0.4, 0.4)) and list(last.get_extent()) == [1, 7, 7, 1]
