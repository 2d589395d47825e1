"""The image tables: their rows, schedules and splits, and that a row trains, is killed, resumes and is written down."""

import functools as ft
import os
import struct
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets import mnist, svhn
from acenode.datasets.images import ImageSet
from acenode.ode import Solver
from acenode.paper import images, results
from acenode.paper.image_analysis import attention_maps, predictions
from acenode.paper.images import SETTINGS, classifier, row, schedule
from acenode.paper.reproduce import reproduce
from acenode.paper.row import Row
from acenode.paper.tables import TABLES
from acenode.tasks import ImageClassification
from acenode.train import Progress, Quiet, Recipe
from acenode.train.checkpoint import load_head

NAMES = tuple(SETTINGS)

# --- rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_its_row(name):
    rows = {row.name: row for row in TABLES[name] if row.name in images.models(name)}
    assert {"ResNet", "RKNet", "ODE-Net", "Augmented-ODE-Net", "ACE-ODE-Net", "ACE-ODE-Net (Large)"} <= set(rows)
    assert set(rows) == set(images.models(name))
    others = {each.name for each in TABLES[name]} - set(rows)
    assert all(each.endswith((", crops of 28", ", longer training")) for each in others)
    assert len({results.slug(each) for each in rows}) == len(rows)  # no two share a file
    for each in rows.values():
        assert (each.table, each.epochs, each.protocol) == (name, SETTINGS[name].epochs, "comparable")
        assert each.task.crop is None and each.task.monitor == "accuracy"


@pytest.mark.parametrize(
    "name, epochs, penalty, flip", [("mnist", 15, 1e-4, False), ("svhn", 15, 1e-3, False), ("cifar10", 30, 1e-3, True)]
)
def test_the_recipe_but_for_the_learning_rate_is_the_same_for_all_models_of_a_table(name, epochs, penalty, flip):
    for each in (each for each in TABLES[name] if "longer" not in each.name):
        assert (each.epochs, each.penalty) == (epochs, penalty)  # the paper's best lambda
        assert each.learning_rate in images.RATES and ("rates" in each.config) == (each.name in SETTINGS[name].rates)
        assert each.task.flip is each.config.get("flip", False) is flip
        recipe = each.recipe(each.epochs)
        assert (recipe.norm, recipe.optimiser, recipe.batch_size, recipe.epochs) == ("l2", "momentum", 128, epochs)
        assert recipe.algorithm == "alternating" and recipe.average == 0.998 and recipe.clip is None


def test_a_row_may_have_a_learning_rate_of_its_own(monkeypatch):
    setting = replace(SETTINGS["svhn"], learning_rate=0.3, rates={"RKNet": 0.05})
    monkeypatch.setitem(SETTINGS, "svhn", setting)
    rates = {name: row("svhn", name, model).learning_rate for name, model in images.models("svhn").items()}
    assert rates == {**dict.fromkeys(rates, 0.3), "RKNet": 0.05}


def test_how_the_learning_rate_was_chosen_makes_no_other_run():
    own = next(each for each in TABLES["cifar10"] if each.name == "ResNet")
    made = {**own.settings(30), **own.config, "epochs": 30}
    del made["rates"]
    assert own.changed(made) == () and own.changed(made | {"flip": False}) == ("flip",)


def test_what_controls_have_in_common_with_the_attentive_row_does_not_confound():
    for name in SETTINGS:
        by_name = {each.name: each for each in TABLES[name]}
        own = by_name["ACE-ODE-Net"]
        assert own.differs == ("" if name == "cifar10" else "f has one convolution, not two")
        assert {by_name[each].differs == own.differs for each in own.controls if each != images.AUGMENTED} == {True}
        assert by_name[images.AUGMENTED].differs == ""


def test_weight_decay_does_not_touch_theta_g():
    recipe, weights = images.recipe("cifar10", 30), {"weight": jnp.array([2.0, -4.0])}
    for group, decay in (("main", 5e-4), ("initial", 5e-4), ("attention", 0.0)):
        optimiser = recipe.transformation(group, 0.1)
        step, _ = optimiser.update({"weight": jnp.zeros(2)}, optimiser.init(weights), weights)
        np.testing.assert_allclose(step["weight"], -0.1 * decay * weights["weight"], rtol=1e-6)


def test_the_norm_of_the_penalty_makes_another_run_of_attentive_rows_alone():
    rows = {row.name: row for row in TABLES["svhn"]}
    for name, changed in (("ACE-ODE-Net", ("norm",)), ("ODE-Net", ())):
        made = {**rows[name].settings(15), "epochs": 15, "norm": "l1"}
        assert rows[name].changed(made) == changed


def test_rows_may_crop_as_the_published_cifar10_runs_did():
    for name in NAMES:
        cut = {row.name: row for row in TABLES[name] if row.task.crop is not None}
        expected = {f"{model}, crops of 28" for model in images.CROPPED} if name == "cifar10" else set()
        assert set(cut) == expected and len({r.name for r in TABLES[name]}) == len(TABLES[name])
        assert all(each.task.crop == 28 and each.config["crop"] == 28 for each in cut.values())
    assert TABLES["cifar10"][0].config["crop"] == "as the images"


@pytest.mark.parametrize("name", NAMES)
def test_rows_trained_for_longer_are_those_of_the_table_but_for_how_they_are_trained(name):
    rows, how = {each.name: each for each in TABLES[name]}, images.LONGER[name]
    longer = {title: rows[f"{title}, longer training"] for title in images.LONGER_ROWS}
    assert {each.name for each in longer.values()} == {each for each in rows if "longer" in each}
    pictures = {"padding": how.padding, "smoothing": how.smoothing, "cutout": how.cutout}
    for title, each in longer.items():
        usual = rows[title]
        assert each.epochs == how.epochs > usual.epochs and each.learning_rate == usual.learning_rate
        assert each.task == replace(usual.task, **pictures)
        # No validation chose the rates of this recipe.
        config = {key: value for key, value in usual.config.items() if key not in ("tolerance", "rates")}
        assert each.config == {**config, "solver": "rk4_38, step 0.5", **pictures}
        assert each.base == (usual.base and f"{usual.base}, longer training")
        assert set(each.controls) == {f"{other}, longer training" for other in usual.controls} & set(rows)
        ours, theirs = (eqx.filter_eval_shape(made.build, jax.random.key(0)) for made in (each, usual))
        assert (ours.ode.solver, theirs.ode.solver) == (images.TWO_STEPS, images.USUAL)
        assert jax.tree.leaves(ours) == jax.tree.leaves(theirs)  # the shapes of all weights
    assert longer[images.ACE].controls == (f"{images.AS_MANY}, longer training",)
    assert longer[images.ACE].base == f"{images.PLAIN}, longer training"
    assert longer[images.LARGE].controls == (f"{images.ACE}, longer training",)


def test_kept_results_of_longer_training_have_the_settings_of_their_rows():
    rows = {(each.table, each.name): each for name in NAMES for each in TABLES[name] if "longer" in each.name}
    kept = [r for r in results.load(Path(__file__).parents[2] / "results") if (r.table, r.row) in rows]
    assert {r.table for r in kept} == set(NAMES)
    for made in kept:
        row = rows[made.table, made.row]
        assert row.changed(made.config) == () and made.epochs == row.epochs
        assert made.config["learning_rate"] == row.learning_rate


# --- the schedule ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, steps", [("mnist", 55_000 // 128), ("svhn", 68_257 // 128), ("cifar10", 45_000 // 128)])
@pytest.mark.parametrize("epochs", [3, 30])
def test_the_learning_rate_rises_over_a_sixth_of_the_steps_and_falls_as_half_a_cosine(name, steps, epochs):
    total, top = epochs * steps, epochs * steps // 6
    rates = np.asarray(jax.vmap(images.recipe(name, epochs).schedule)(np.arange(total)))
    assert rates[0] == 0 and rates[top] == 1 and 0 < rates[-1] < 1e-4
    np.testing.assert_allclose(rates[:top], np.arange(top) / top, atol=1e-6)
    fall = np.arange(total - top) / (total - top)
    np.testing.assert_allclose(rates[top:], 0.5 * (1 + np.cos(np.pi * fall)), atol=1e-6)


# --- the splits -----------------------------------------------------------------------------------------------


def test_each_seed_has_its_own_stratified_validation_images(monkeypatch):
    random = np.random.default_rng(0)
    shares = np.linspace(0.04, 0.16, 10)
    labels = random.choice(10, 6500, p=shares / shares.sum()).astype(np.int32)
    pixels = random.integers(0, 256, (6500, 1, 1, 3), np.uint8)
    made = ImageSet("made up", pixels, labels, 6000, "its checksum")
    monkeypatch.setattr(images, "_images", lambda name, data_dir: made)
    prepared = images.prepared("svhn", None, [3, 8, 3])
    assert prepared.checksum == "its checksum" and not prepared.variant
    np.testing.assert_array_equal(prepared.data.pixels, pixels)
    np.testing.assert_array_equal(prepared.data.label, labels)
    for split in prepared.splits:
        np.testing.assert_array_equal(np.sort(np.concatenate([split.train, split.validation])), np.arange(6000))
        np.testing.assert_array_equal(split.test, np.arange(6000, 6500))
        assert len(split.validation) == 5000
        held = np.bincount(labels[split.validation], minlength=10)
        assert np.abs(held - np.bincount(labels[:6000], minlength=10) * 5 / 6).max() < 1
    first, other, again = prepared.splits
    np.testing.assert_array_equal(first.validation, again.validation)
    assert not np.array_equal(first.validation, other.validation)
    made = ImageSet("svhn", pixels, labels, 6000, svhn.REGENERATED)
    assert images.prepared("svhn", None, [0]).variant == "regenerated SVHN"


# --- a row from files to a result -----------------------------------------------------------------------------

TRAIN, TEST, VALIDATION, EPOCHS = 240, 100, 40, 5
SOLVER = Solver("euler", step=0.5, max_steps=2, checkpoints=2)  # compiles far quicker than an adaptive one


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_mnist(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> Path:
    """Images (TRAIN + TEST, 28, 28) as the files of MNIST."""
    parts = {"train": slice(TRAIN), "t10k": slice(TRAIN, TRAIN + TEST)}
    for name, part in parts.items():
        write_idx(folder / f"{name}-images-idx3-ubyte", pixels[part])
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels[part])
    return folder


def stripes() -> tuple[np.ndarray, np.ndarray]:
    """Four classes of stripes, each of its own direction, anywhere in the image and in noise."""
    random = np.random.default_rng(0)
    labels = np.arange(TRAIN + TEST) % 4
    y, x = np.mgrid[:28, :28]
    direction = np.array([[1, 0], [0, 1], [1, 1], [1, -1]])[labels, :, None, None]
    phase = 2 * np.pi * ((direction[:, 0] * x + direction[:, 1] * y) / 7 + random.random((len(labels), 1, 1)))
    return (100 + 100 * np.sin(phase) + 55 * random.random(phase.shape)).astype(np.uint8), labels


def real() -> tuple[np.ndarray, np.ndarray]:
    """As many real zeros and ones; the files are found as the tests of their loader find them."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folders = [Path(os.environ["ACENODE_DATA"])] if os.environ.get("ACENODE_DATA") else []
    for place in [*folders, beside]:
        if all((place / "mnist" / name).is_file() for name in mnist.MD5):
            whole = mnist.load(place)
            easy = np.flatnonzero(whole.labels <= 1)
            kept = np.concatenate([easy[easy < whole.training][:TRAIN], easy[easy >= whole.training][:TEST]])
            return whole.pixels[kept, ..., 0], whole.labels[kept]
    pytest.skip("the MNIST files are neither in $ACENODE_DATA nor in ../shared/data")


@ft.cache  # the same object for the same epochs, so that an epoch is compiled once for all tests
def quick(epochs: int) -> Recipe:
    recipe = images.recipe("mnist", epochs)
    return replace(recipe, batch_size=8, schedule=schedule(16 * (TRAIN - VALIDATION), epochs), eval_batch=50)


def narrow_row() -> Row:
    """ACE-ODE-Net of a width that a test can train."""
    ode = images._attentive(8, SOLVER, *SETTINGS["mnist"].small)
    made = row("mnist", "narrow", images.Model(classifier(SETTINGS["mnist"], ode, 8)))
    return replace(made, recipe=quick, epochs=EPOCHS, learning_rate=0.1)


class Killed(Exception):
    """The end of a process, as far as a test goes."""


class KilledAfter(Quiet):
    def __init__(self, epochs: int):
        self.left = epochs

    def epoch(self, epoch, record, samples) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


class Told(Quiet):
    """Which epochs were trained."""

    def __init__(self):
        self.epochs = []

    def epoch(self, epoch, record, samples) -> None:
        self.epochs.append(epoch)


def trained(folder: Path, progress: Progress | None = None) -> list[results.Result]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "VALIDATION", VALIDATION)
        return reproduce(
            narrow_row(), [0], folder / "results", folder / "runs", data_dir=folder, progress=progress or Quiet()
        )


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, results.Result]:
    """A row trained on stripes without a break, and the folder of its data."""
    folder = write_mnist(tmp_path_factory.mktemp("stripes"), *stripes())
    (done,) = trained(folder)
    return folder, done


@pytest.mark.slow
def test_a_row_learns_and_is_written_down(whole):
    folder, done = whole
    assert done.metrics["accuracy"] > 0.7  # of four classes
    loss, scores = done.history["loss"], done.history["validation_accuracy"]
    assert (
        loss[-1] < 0.8 * loss[0]
        and scores[done.best_epoch - 1] == max(scores) == done.validation["validation_accuracy"]
    )
    assert (done.table, done.row, done.seed, done.epochs, done.notes) == ("mnist", "narrow", 0, EPOCHS, ())
    assert done.config["learning_rate"] == 0.1 and done.config["penalty"] == 1e-4 and done.config["norm"] == "l2"
    assert done.data == {"sha256": mnist.load(folder).sha256}
    # Two steps of Euler: three slopes forward, the last one of no use, and two back.
    assert done.history["nfe"] == [3.0] * EPOCHS and done.history["nfe_backward"] == [2.0] * EPOCHS
    assert all(np.isfinite(values).all() for values in done.history.values())
    assert [path.name for path in (folder / "results" / "mnist").iterdir()] == ["narrow-seed0.json"]
    assert results.load(folder / "results") == [done]
    assert trained(folder) == []  # nothing is left to do


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_numbers(whole, tmp_path):
    _, done = whole
    write_mnist(tmp_path, *stripes())
    with pytest.raises(Killed):
        trained(tmp_path, KilledAfter(2))
    (checkpoint,) = (tmp_path / "runs" / "mnist").iterdir()
    assert checkpoint.name.startswith("narrow-seeds0-") and load_head(checkpoint)["epochs"] == 2
    assert not (tmp_path / "results").exists()
    told = Told()
    (resumed,) = trained(tmp_path, told)
    assert told.epochs == list(range(2, EPOCHS))
    assert replace(resumed, seconds=done.seconds) == done


@pytest.mark.slow
def test_a_row_learns_real_digits(tmp_path):
    (done,) = trained(write_mnist(tmp_path, *real()))
    assert done.metrics["accuracy"] > 0.85  # six of ten are ones


def test_missing_seeds_alone_are_trained_each_on_its_own_split(tmp_path, monkeypatch):
    folder, queried = write_mnist(tmp_path, *stripes()), {}
    config = {**narrow_row().config, "epochs": 3, "learning_rate": 0.3, "penalty": 1e-4}
    done = results.Result(
        "mnist", "narrow", 4, {"accuracy": 0.5}, {}, "comparable", config, 1, 1, 1, {}, {}, "cpu", 1.0, {}
    )
    results.save(tmp_path, done)

    def look(build, task, data, splits, recipe, members, **more):
        queried.update(splits=splits, members=members, recipe=recipe)
        raise Killed

    monkeypatch.setattr("acenode.paper.reproduce.fit", look)
    monkeypatch.setattr(images, "VALIDATION", VALIDATION)
    with pytest.raises(Killed):
        reproduce(narrow_row(), [7, 4, 2], tmp_path, tmp_path / "runs", epochs=3, learning_rates=[0.3], data_dir=folder)
    assert [(m.seed, m.fold, m.learning_rate, m.penalty) for m in queried["members"]] == [
        (7, 0, 0.3, 1e-4),
        (2, 1, 0.3, 1e-4),
    ]
    assert queried["recipe"] is quick(3)
    expected = images.prepared("mnist", folder, [7, 2]).splits
    for found, known in zip(queried["splits"], expected, strict=True):
        np.testing.assert_array_equal(found.validation, known.validation)


@pytest.mark.slow
def test_what_a_result_keeps_of_the_attention_and_the_images_to_draw_it_over(tmp_path, monkeypatch):
    folder = write_mnist(tmp_path, *stripes())
    monkeypatch.setattr(images, "VALIDATION", VALIDATION)
    data, (split,), *_ = images.prepared("mnist", folder, [0])
    model = narrow_row().build(jax.random.key(0))
    said = predictions(model, data.images[split.test])
    label = ((said + np.arange(TEST) % 2) % 10).astype(np.int32)  # so that it is right about every other image
    data = replace(data, label=jnp.asarray(data.label).at[split.test].set(label))
    kept = attention_maps(model, ImageClassification(), data, split.test, narrow_row().build)
    assert kept["drawn"] == [0, 2, 4, 1, 3, 5]  # three that it is right about, and three that it is not
    assert (kept["said"], kept["label"]) == (said[kept["drawn"]].tolist(), label[kept["drawn"]].tolist())
    shown = images.drawn("mnist", kept["drawn"], folder)
    assert shown is not None and len(shown.images) == len(kept["maps"]) == 6
    np.testing.assert_array_equal(shown.images, np.asarray(data.pixels)[split.test[kept["drawn"]]] / 255.0)
    cells = np.shape(kept["maps"])[-1]
    assert len(shown.edges) == cells + 1 and 0 <= shown.edges[0] < shown.edges[-1] <= 28
    assert all(len(kept[name]) == 5 for name in ("entropy", "moved", "on_detail")) and kept["moved"][0] == 0
    np.testing.assert_array_equal(kept["untrained"], np.asarray(kept["maps"])[:, -1])  # as this model is not either
    assert images.drawn("ushcn", range(6), folder) is None
