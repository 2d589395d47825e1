"""MNIST, SVHN and CIFAR10: the image classifiers of the paper, the same but for their ODE.

The paper's text and its parameter counts disagree here and there; the counts decide (`SETTINGS`), and its text is a row
of its own where it gives another model.
"""

import functools as ft
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..datasets import cifar10, mnist, svhn
from ..datasets.catalogue import CATALOGUE
from ..datasets.files import Folder
from ..datasets.images import ImageSet, validation_split
from ..models import ImageClassifier, Stem
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    ConvField,
    ConvInitial,
    Elementwise,
    NeuralODE,
    ResidualBlock,
    ResidualStack,
    Solver,
)
from ..tasks import LabelImages, Pictures
from ..train import Recipe
from .grids import IMAGE_GRID
from .image_analysis import cell_edges
from .image_figures import attention_maps, silhouettes, tsne
from .row import Prepared, Row

Name = Literal["mnist", "svhn", "cifar10"]

WIDTH, WIDE, EXTRA, BLOCKS = 64, 128, 5, 6
AS_MANY = "ODE-Net (as many weights)"  # as ACE-ODE-Net has
DEEP = 4  # convolutions of a g deeper than the paper's
TOLERANCE = 1e-3  # for every model alike; the published runs had 1e-3 to 1e-5, not the same for all models of a table
BATCH, VALIDATION, EPOCHS = 128, 5000, 160


@dataclass(frozen=True)
class Setting:
    """What differs between the data sets (the paper's best settings)."""

    load: Callable[..., ImageSet]
    channels: int
    training: int  # images
    padding: int  # of the stem's first convolution
    learning_rate: float
    penalty: float
    norm: Literal["l1", "l2"]
    small: tuple[int, int]  # convolutions of f and of q, in ACE-ODE-Net
    large: tuple[int, int]  # the same at twice the width
    as_many: int  # the width at which ODE-Net has as many weights as ACE-ODE-Net


SETTINGS: dict[Name, Setting] = {
    "mnist": Setting(mnist.load, 1, 60_000, 0, 1e-2, 1e-4, "l2", small=(1, 1), large=(1, 2), as_many=75),
    "svhn": Setting(svhn.load, 3, 73_257, 1, 5e-2, 1e-3, "l1", small=(1, 2), large=(2, 2), as_many=80),
    "cifar10": Setting(cifar10.load, 3, 50_000, 1, 1e-2, 1e-3, "l2", small=(2, 2), large=(1, 2), as_many=84),
}


def adaptive(tolerance: float) -> Solver:
    return Solver("dopri5", rtol=tolerance, atol=tolerance, max_steps=64, checkpoints=64)


def _plain(width: int, solver: Solver):
    return lambda key: NeuralODE(ConvField(width, key=key), solver)


def _augmented(width: int, solver: Solver):
    return lambda key: AugmentedODE(ConvField(width + EXTRA, key=key), EXTRA, solver)


def _residual(width: int):
    return lambda key: ResidualStack([ResidualBlock(width, key=k) for k in jax.random.split(key, BLOCKS)])


def _attentive(width: int, solver: Solver, f: int, q: int, g: int = 2):
    def make(key):
        one, two, three = jax.random.split(key, 3)
        fields = ConvField(width, f, key=one), ConvField(width, g, key=two)
        return CoEvolvingODE(*fields, Elementwise(), ConvInitial(width, q, key=three), solver)

    return make


def classifier(setting: Setting, ode: Callable, width: int = WIDTH, read: int | None = None) -> Callable:
    """Builds a classifier with the given ODE; `read` is the width of the ODE's answer where it is another."""

    def build(key: Array) -> ImageClassifier:
        one, two, three = jax.random.split(key, 3)
        stem = Stem(setting.channels, width, setting.padding, key=one)
        return ImageClassifier(stem, ode(two), read or width, key=three)

    return build


def models(name: Name, tolerance: float = TOLERANCE, rk_steps: int = 1) -> dict[str, Callable]:
    """Every image classifier of the comparison for one data set, by its name in the tables."""
    s = SETTINGS[name]
    solver = adaptive(tolerance)
    rk4 = Solver("rk4_38", step=1 / rk_steps, max_steps=max(rk_steps, 1), checkpoints=max(2, rk_steps + rk_steps % 2))
    return {
        "ResNet": classifier(s, _residual(WIDTH)),
        "RKNet": classifier(s, _plain(WIDTH, rk4)),
        "ODE-Net": classifier(s, _plain(WIDTH, solver)),
        "Augmented-ODE-Net": classifier(s, _augmented(WIDTH, solver), read=WIDTH + EXTRA),
        "ACE-ODE-Net": classifier(s, _attentive(WIDTH, solver, *s.small)),
        "ACE-ODE-Net (Large)": classifier(s, _attentive(WIDE, solver, *s.large), WIDE),
        "ACE-ODE-Net (as in the text)": classifier(s, _attentive(WIDTH, solver, 1, 2)),
        "ACE-ODE-Net (deep g)": classifier(s, _attentive(WIDTH, solver, *s.small, g=DEEP)),
        "ODE-Net (width 128)": classifier(s, _plain(WIDE, solver), WIDE),
        AS_MANY: classifier(s, _plain(s.as_many, solver), s.as_many),
    }


EXTENDS = {
    "ACE-ODE-Net": "ODE-Net",
    "ACE-ODE-Net (as in the text)": "ODE-Net",
    "ACE-ODE-Net (deep g)": "ODE-Net",
    "ACE-ODE-Net (Large)": "ODE-Net (width 128)",
}
"""Attentive models, each with the one that it extends."""
CONTROLS = {"ACE-ODE-Net": (AS_MANY, "Augmented-ODE-Net"), "ACE-ODE-Net (Large)": ("ACE-ODE-Net",)}


@ft.cache
def _images(name: Name, data_dir) -> ImageSet:
    return SETTINGS[name].load(data_dir)


class Drawn(NamedTuple):
    """Images to draw over, numbers from 0 to 1, and where the cells of the feature map lie along either axis."""

    images: Float[np.ndarray, "images size size colours"]
    edges: Float[np.ndarray, " edges"]


def drawn(table: str, count: int, data_dir: Folder | None = None) -> Drawn | None:
    """The first test images, which `attention_maps` is of; None where they are not on this machine."""
    named: dict[str, Name] = {name: name for name in SETTINGS}
    if table not in named or CATALOGUE[table].found(data_dir) is None:
        return None
    name = named[table]
    images = _images(name, data_dir)
    model = eqx.filter_eval_shape(models(name)["ACE-ODE-Net"], jax.random.key(0))
    return Drawn(images.pixels[images.training :][:count] / 255.0, cell_edges(model, images.pixels.shape[1]))


def prepared(name: Name, data_dir, seeds: Sequence[int]) -> Prepared:
    """All images, and for each seed its own 5,000 training images set aside for validation."""
    images = _images(name, data_dir)
    splits = [validation_split(images, seed, VALIDATION) for seed in seeds]
    pictures = Pictures(jnp.asarray(images.pixels), jnp.asarray(images.labels))
    variant = "regenerated SVHN" if images.sha256 == svhn.REGENERATED else ""
    return Prepared(pictures, splits, images.sha256, variant=variant)


def schedule(training: int, epochs: int) -> optax.Schedule:
    """A tenth of the learning rate after 60, 100 and 140 epochs, as published; over fewer than 160, half a cosine."""
    batches = training // BATCH
    if epochs < EPOCHS:
        return optax.cosine_decay_schedule(1.0, epochs * batches)
    return optax.piecewise_constant_schedule(1.0, {epoch * batches: 0.1 for epoch in (60, 100, 140)})


def recipe(name: Name, epochs: int) -> Recipe:
    """SGD with momentum 0.9, batches of 128, and `schedule`."""
    return Recipe(
        epochs=epochs,
        batch_size=BATCH,
        optimiser="momentum",
        schedule=schedule(SETTINGS[name].training - VALIDATION, epochs),
        norm=SETTINGS[name].norm,
        eval_batch=500,
    )


def row(name: Name, model: str, build: Callable, crop: int | None = None) -> Row:
    """A row of an image table; `crop` is the size of the images that it is trained on, if not their own."""
    s, base = SETTINGS[name], EXTENDS.get(model, "")
    convs = {"ACE-ODE-Net (Large)": s.large[0], "ACE-ODE-Net (as in the text)": 1}.get(model, s.small[0])
    row = Row(
        table=name,
        name=model,
        data=ft.partial(prepared, name),
        task=LabelImages(crop=crop),
        build=build,
        recipe=ft.partial(recipe, name),
        epochs=EPOCHS,
        learning_rate=s.learning_rate,
        penalty=s.penalty,
        config={"tolerance": TOLERANCE, "crop": crop or "as the images"},
        base=base,
        differs="f has one convolution, not two" if base and convs == 1 else "",
        controls=CONTROLS.get(model, ()) if crop is None else (),
        grid=IMAGE_GRID,
        measures=silhouettes,
        figures={"embedding": tsne, **({"attention_maps": attention_maps} if base else {})},
    )
    return row if crop is None else row.variant(f"crops of {crop}")


CROP = 28  # of the published CIFAR10 runs, which are tested on whole images of 32
CROPPED = ("ResNet", "RKNet", "ODE-Net", "Augmented-ODE-Net", "ACE-ODE-Net")
TABLES = {name: tuple(row(name, model, build) for model, build in models(name).items()) for name in SETTINGS}
TABLES["cifar10"] += tuple(row("cifar10", model, models("cifar10")[model], CROP) for model in CROPPED)
