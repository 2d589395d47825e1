"""MNIST, SVHN and CIFAR10: the image classifiers of the paper, the same but for their ODE.

The paper's text and its parameter counts disagree here and there; the counts decide (`SETTINGS`), and its text is a row
of its own where it gives another model.
"""

import functools as ft
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

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
    Attention,
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
from ..ode.coevolve import Evolution
from ..ode.conv.layers import ConvPrecision
from ..tasks import ImageClassification, LabelledImages
from ..train import Recipe
from .image_analysis import attention_maps, cell_edges, silhouettes, tsne
from .row import Prepared, Row

Name = Literal["mnist", "svhn", "cifar10"]

WIDTH, WIDE, EXTRA, BLOCKS = 64, 128, 5, 6
PLAIN, PLAIN_WIDE, AUGMENTED = "ODE-Net", "ODE-Net (width 128)", "Augmented-ODE-Net"
ACE, LARGE = "ACE-ODE-Net", "ACE-ODE-Net (Large)"
AS_MANY = "ODE-Net (as many weights)"  # as ACE-ODE-Net has, all in f
TWIN, FROZEN = "ODE-Net (additive twin)", "ODE-Net (frozen attention)"  # ACE-ODE-Net but for this
DEEP = 4  # convolutions of a g deeper than the paper's
TOLERANCE = 1e-3  # for every model; the published runs had 1e-3 to 1e-5, not the same for all models of a table
BATCH, VALIDATION = 128, 5000
DECAY, AVERAGE = 5e-4, 0.998  # weight decay, not on theta_g; how much of itself the average of parameters keeps
PRECISION: ConvPrecision = "float16"  # of all convolutions: what was quickest on a GPU; the rest is in float32
RATES = (0.02, 0.05, 0.1, 0.2)  # among which `benchmarks/image_recipe.py` chooses
DIGITS = tuple(map(str, range(10)))
GRID = tuple(product((1e-3, 5e-2, 1e-2), (1e-3, 1e-4)))  # the paper's, of learning rate and lambda (Equation 6)


@dataclass(frozen=True)
class Setting:
    """What differs between the data sets."""

    load: Callable[..., ImageSet]
    channels: int
    training: int  # images
    padding: int  # of the stem's first convolution
    penalty: float  # the paper's best lambda
    small: tuple[int, int]  # convolutions of f and of q, in ACE-ODE-Net
    large: tuple[int, int]  # the same at twice the width
    epochs: int
    rates: Mapping[str, float] = field(default_factory=dict)  # those that validation chose among `RATES`
    learning_rate: float = 0.1  # of the other rows
    classes: tuple[str, ...] = DIGITS

    @property
    def as_many(self) -> int:
        """Convolutions of f with which ODE-Net has as many weights as ACE-ODE-Net, whose g has two."""
        return sum(self.small) + 2


SETTINGS: dict[Name, Setting] = {
    "mnist": Setting(mnist.load, 1, 60_000, 0, 1e-4, small=(1, 1), large=(1, 2), epochs=15),
    "svhn": Setting(
        svhn.load,
        channels=3,
        training=73_257,
        padding=1,
        penalty=1e-3,
        small=(1, 2),
        large=(2, 2),
        epochs=15,
        rates={
            "ResNet": 0.2,
            **dict.fromkeys(("RKNet", AS_MANY), 0.1),
            **dict.fromkeys((PLAIN, ACE, TWIN, FROZEN), 0.05),
        },
    ),
    "cifar10": Setting(
        cifar10.load,
        channels=3,
        training=50_000,
        padding=1,
        penalty=1e-3,
        small=(2, 2),
        large=(1, 2),
        epochs=30,
        rates={PLAIN: 0.2, "RKNet": 0.2, **dict.fromkeys(("ResNet", AUGMENTED, ACE, AS_MANY, TWIN, FROZEN), 0.1)},
        classes=cifar10.CLASSES,
    ),
}


def adaptive(tolerance: float) -> Solver:
    return Solver("dopri5", rtol=tolerance, atol=tolerance, max_steps=64, checkpoints=64)


USUAL = adaptive(TOLERANCE)
TWO_STEPS = Solver(
    "rk4_38", step=0.5, max_steps=2, checkpoints=2
)  # 9 evaluations; by `USUAL` a trained ACE-ODE-Net takes 26 or more


def _plain(width: int, solver: Solver, precision: ConvPrecision | None = None, f: int = 2):
    return lambda key: NeuralODE(ConvField(width, f, precision=precision, key=key), solver)


def _augmented(width: int, solver: Solver, precision: ConvPrecision | None = None):
    return lambda key: AugmentedODE(ConvField(width + EXTRA, precision=precision, key=key), EXTRA, solver)


def _residual(width: int, precision: ConvPrecision | None = None):
    def make(key):
        keys = jax.random.split(key, BLOCKS)
        return ResidualStack([ResidualBlock(width, precision=precision, key=k) for k in keys])

    return make


def _attentive(
    width: int,
    solver: Solver,
    f: int,
    q: int,
    g: int = 2,
    precision: ConvPrecision | None = None,
    attention: Attention = Elementwise(),  # noqa: B008
    evolution: Evolution = "evolved",
):
    def make(key):
        one, two, three = jax.random.split(key, 3)
        to_h = ConvField(width, f, precision=precision, key=one)
        to_a = ConvField(width, g, precision=precision, key=two) if evolution == "evolved" else None
        initial = ConvInitial(width, q, precision=precision, key=three)
        return CoEvolvingODE(to_h, to_a, attention, initial, solver, evolution)

    return make


class Added(Elementwise):
    """Not an attention: a is added to h. What ACE-ODE-Net can do with a second state that multiplies nothing."""

    elementwise: ClassVar[bool] = True

    def __call__(self, h, a):
        return h + a


def classifier(
    setting: Setting,
    ode: Callable,
    width: int = WIDTH,
    read: int | None = None,
    precision: ConvPrecision | None = None,
) -> Callable:
    """Builds a classifier with the given ODE; `read` is the width of the ODE's answer where it is another, `precision`
    that of the stem's convolutions."""

    def build(key: Array) -> ImageClassifier:
        one, two, three = jax.random.split(key, 3)
        stem = Stem(setting.channels, width, setting.padding, precision=precision, key=one)
        return ImageClassifier(stem, ode(two), read or width, key=three)

    return build


class Model(NamedTuple):
    """An image classifier: how it is built, and the row that it extends by an attention."""

    build: Callable[[Array], ImageClassifier]
    base: str = ""
    differs: str = ""  # what else is not as in that row
    controls: tuple[str, ...] = ()  # rows that it is compared with besides


def models(
    name: Name, solver: Solver = USUAL, rk_steps: int = 1, precision: ConvPrecision = PRECISION
) -> dict[str, Model]:
    """Every image classifier of the comparison for one data set, by its name in the tables."""
    s = SETTINGS[name]
    build = ft.partial(classifier, s, precision=precision)
    rk4 = Solver("rk4_38", step=1 / rk_steps, max_steps=max(rk_steps, 1), checkpoints=max(2, rk_steps + rk_steps % 2))

    def light(f: int) -> str:
        return "f has one convolution, not two" if f == 1 else ""

    def ace(f: int, q: int, g: int = 2, width: int = WIDTH, base: str = PLAIN, controls: tuple[str, ...] = ()) -> Model:
        return Model(build(_attentive(width, solver, f, q, g, precision), width), base, light(f), controls)

    def control(ode: Callable) -> Model:
        """Made for ACE-ODE-Net: what that has other than ODE-Net, beside the attention, this has too."""
        return Model(build(ode), differs=light(s.small[0]))

    return {
        "ResNet": Model(build(_residual(WIDTH, precision))),
        "RKNet": Model(build(_plain(WIDTH, rk4, precision))),
        PLAIN: Model(build(_plain(WIDTH, solver, precision))),
        AUGMENTED: Model(build(_augmented(WIDTH, solver, precision), read=WIDTH + EXTRA)),
        ACE: ace(*s.small, controls=(AS_MANY, TWIN, FROZEN, AUGMENTED)),
        LARGE: ace(*s.large, width=WIDE, base=PLAIN_WIDE, controls=(ACE,)),
        "ACE-ODE-Net (as in the text)": ace(1, 2),
        "ACE-ODE-Net (deep g)": ace(*s.small, g=DEEP),
        PLAIN_WIDE: Model(build(_plain(WIDE, solver, precision), WIDE)),
        AS_MANY: control(_plain(WIDTH, solver, precision, s.as_many)),
        TWIN: control(_attentive(WIDTH, solver, *s.small, precision=precision, attention=Added())),
        FROZEN: control(_attentive(WIDTH, solver, *s.small, precision=precision, evolution="frozen")),
    }


@ft.cache
def _images(name: Name, data_dir) -> ImageSet:
    return SETTINGS[name].load(data_dir)


class Drawn(NamedTuple):
    """Images to draw over, numbers from 0 to 1, and where the cells of the feature map lie along either axis."""

    images: Float[np.ndarray, "images size size colours"]
    edges: Float[np.ndarray, " edges"]


def class_names(table: str) -> tuple[str, ...]:
    """What the labels of a table are called; the digits where it is none of these."""
    return {str(name): setting.classes for name, setting in SETTINGS.items()}.get(table, DIGITS)


def drawn(table: str, which: Sequence[int], data_dir: Folder | None = None) -> Drawn | None:
    """Test images by their places, those that `attention_maps` is of; None where their files are absent."""
    named: dict[str, Name] = {name: name for name in SETTINGS}
    if table not in named or CATALOGUE[table].found(data_dir) is None:
        return None
    name = named[table]
    images = _images(name, data_dir)
    model = eqx.filter_eval_shape(models(name)[ACE].build, jax.random.key(0))
    return Drawn(images.pixels[images.training :][np.asarray(which)] / 255.0, cell_edges(model, images.pixels.shape[1]))


def prepared(name: Name, data_dir, seeds: Sequence[int]) -> Prepared:
    """All images, and for each seed its own 5,000 training images set aside for validation."""
    images = _images(name, data_dir)
    splits = [validation_split(images, seed, VALIDATION) for seed in seeds]
    pictures = LabelledImages(jnp.asarray(images.pixels), jnp.asarray(images.labels))
    variant = "regenerated SVHN" if images.sha256 == svhn.REGENERATED else ""
    return Prepared(pictures, splits, images.sha256, variant=variant)


def schedule(training: int, epochs: int) -> optax.Schedule:
    """Up to the learning rate over a sixth of the steps, and down along half a cosine."""
    steps = epochs * (training // BATCH)
    return optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 6, steps)


def recipe(name: Name, epochs: int) -> Recipe:
    """SGD with momentum 0.9, batches of 128, `schedule`, weight decay but for theta_g, averaged parameters."""
    return Recipe(
        epochs=epochs,
        batch_size=BATCH,
        optimiser="momentum",
        schedule=schedule(SETTINGS[name].training - VALIDATION, epochs),
        norm="l2",  # for SVHN the paper's best has L1: it drives all of theta_g to 0 within the first epoch
        weight_decay=DECAY,
        initial_decay=DECAY,
        average=AVERAGE,
        eval_batch=500,
        precision="tf32",  # as many digits as the convolutions have
    )


def task(name: Name, **changes: Any) -> ImageClassification:
    """The classification of a data set's images, with changes."""
    return ImageClassification(flip=name == "cifar10", **changes)


def row(name: Name, title: str, model: Model, crop: int | None = None) -> Row:
    """A row of an image table; `crop` is the size of the images that it is trained on, if not their own."""
    s = SETTINGS[name]
    row = Row(
        table=name,
        name=title,
        data=ft.partial(prepared, name),
        task=task(name, crop=crop),
        build=model.build,
        recipe=ft.partial(recipe, name),
        epochs=s.epochs,
        learning_rate=s.rates.get(title, s.learning_rate),
        penalty=s.penalty,
        config={
            "tolerance": TOLERANCE,
            "crop": crop or "as the images",
            "convolutions": PRECISION,
            **({"flip": True} if name == "cifar10" else {}),
            **({"rates": list(RATES)} if title in s.rates and crop is None else {}),
        },
        base=model.base,
        differs=model.differs,
        controls=model.controls if crop is None else (),
        grid=GRID,
        measures=silhouettes,
        figures={
            "embedding": tsne,
            **({"attention_maps": ft.partial(attention_maps, build=model.build)} if model.base else {}),
        },
    )
    return row if crop is None else row.variant(f"crops of {crop}")


CROP = 28  # of the published CIFAR10 runs, which are tested on whole images of 32
CROPPED = ("ResNet", "RKNet", PLAIN, AUGMENTED, ACE)


@dataclass(frozen=True)
class Longer:
    """How rows called "longer training" differ: more epochs, solved in `TWO_STEPS`, other images and labels."""

    epochs: int
    padding: int = 4  # around crops
    smoothing: float = 0.1  # of labels
    cutout: int = 0


LONGER: dict[Name, Longer] = {
    "mnist": Longer(epochs=20),
    "svhn": Longer(epochs=20),
    "cifar10": Longer(epochs=60, cutout=10),
}
LONGER_ROWS = (PLAIN, AS_MANY, PLAIN_WIDE, ACE, LARGE)


def longer(name: Name, title: str) -> Row:
    """The row trained as `LONGER` says."""
    how, usual = LONGER[name], row(name, title, models(name, TWO_STEPS)[title])
    pictures = {"padding": how.padding, "smoothing": how.smoothing, "cutout": how.cutout}
    config = {key: value for key, value in usual.config.items() if key not in ("tolerance", "rates")}
    solved = {"solver": f"{TWO_STEPS.method}, step {TWO_STEPS.step:g}"}
    controls = tuple(each for each in usual.controls if each in LONGER_ROWS)
    changes = {"task": task(name, **pictures), "epochs": how.epochs, "config": config | solved | pictures}
    return replace(usual, controls=controls).variant("longer training", **changes)


TABLES = {name: tuple(row(name, title, model) for title, model in models(name).items()) for name in SETTINGS}
TABLES["cifar10"] += tuple(row("cifar10", title, models("cifar10")[title], CROP) for title in CROPPED)
for name in SETTINGS:
    TABLES[name] += tuple(longer(name, title) for title in LONGER_ROWS)
