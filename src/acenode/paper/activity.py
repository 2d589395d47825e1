"""Human Activity: a class for every point of a window, read from the state at that point.

The table is made on the copy of the data that there is: the protocol in a result says which.
"""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..datasets import activity
from ..datasets.activity import CLASSES
from ..datasets.split import Split, random_split
from ..layers import Linear
from ..tasks import Headed, LabelPoints, PointLabels
from ..train import Recipe
from .figures import attention_over_time
from .grids import SERIES_GRID
from .latent import POISSON, Kind, Sizes, kinds, odes
from .physionet import decay, mean_of
from .row import Prepared, Row, checksum

# By validation: networks 500 wide whose weights start as published, N(0, 0.1^2), need twice as many evaluations a solve
# and learn nothing but the commonest class for epochs.
SIZES = Sizes(
    variables=12, latent=15, recognition=100, width=500, encoder_layers=5, layers=3, memory=50.0, init="uniform"
)

# By validation: with 1e-2 an ODE of this width takes 186 evaluations a solve after an epoch instead of 15, and stays at
# the commonest class.
CALM, QUICK = 3e-3, 1e-2


def point_model(kind: Kind) -> Callable[..., Headed]:
    """Builds a model with a linear classifier on the state at every point."""

    def build(key, mean=None):
        one, two = jax.random.split(key)
        return Headed(kind.build(one, mean), Linear(kind.state, len(CLASSES), key=two))

    return build


def _by_window(loaded: activity.Activity) -> Split:
    """The published division, in which most test moments are training moments too; a tenth of training validates."""
    train, _, test = activity.split(loaded, protocol="published")
    kept, validation, _ = random_split(len(train), (0.9, 0.1, 0.0), seed=42)
    return Split(train[kept], train[validation], test)


DIVISIONS: dict[str, Callable[[activity.Activity], Split]] = {
    "split by sequence": activity.split,
    "split by window": _by_window,
}


@ft.cache
def _once(division: str, data_dir) -> Prepared:
    """Windows with times in units of the longest training window; unlabelled points are not scored."""
    loaded = activity.load(data_dir)
    split = DIVISIONS[division](loaded)
    longest = np.asarray(loaded.series.times)[split.train].max()
    series = eqx.tree_at(lambda s: s.times, loaded.series, (loaded.series.times / longest).astype(np.float32))
    labels = jnp.asarray(np.maximum(loaded.label, 0), jnp.int32)
    data = PointLabels(series, labels, jnp.asarray(loaded.labelled))
    return Prepared(data, split, checksum(data), {"mean": mean_of(series, split.train)}, loaded.variant)


def _windows(division: str, data_dir, seeds) -> Prepared:
    return _once(division, data_dir)


def recipe(epochs: int) -> Recipe:
    return Recipe(epochs=epochs, batch_size=50, optimiser="adamax", schedule=decay, norm="l2", eval_batch=250)


def row(name: str, kind: Kind, division: str = "split by sequence") -> Row:
    """A row of the Human Activity table."""
    row = Row(
        table="activity",
        name=name,
        data=ft.partial(_windows, division),
        task=LabelPoints(),
        build=point_model(kind),
        recipe=recipe,
        epochs=70,
        learning_rate=CALM if "ODE" in name else QUICK,
        penalty=1e-2,
        protocol=division,
        config=dict(kind.config),
        base=kind.base,
        differs=kind.differs,
        controls=kind.controls,
        grid=SERIES_GRID,
        figures={"attention": ft.partial(attention_over_time, until=1.0)},
    )
    return row if division == "split by sequence" else row.variant(division)


ROWS = (
    *(row(name, kind) for name, kind in kinds(SIZES, including=True).items() if name != POISSON),
    *(row(name, kind, "split by window") for name, kind in odes(SIZES).items()),
)
