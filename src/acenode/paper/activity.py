"""Human Activity: a class for every point of a window, read from the state at that point.

The table is made on whichever copy of the data is there: the protocol in a result says which.
"""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..datasets import activity
from ..datasets.activity import CLASSES
from ..layers import Linear
from ..tasks import Headed, LabelledPoints, PointClassification
from ..train import Recipe
from .figures import attention_over_time
from .latent import GRID, Kind, Sizes, kinds, odes
from .physionet import decay, mean_of
from .row import Prepared, Row, checksum

# By validation: networks 500 wide whose weights start as published, N(0, 0.1^2), need twice as many evaluations a solve
# and learn nothing but the commonest class for epochs.
SIZES = Sizes(
    variables=12, latent=15, recognition=100, width=500, encoder_layers=5, layers=3, memory=50.0, init="uniform"
)

# By validation: with 1e-2 an ODE of this width takes 186 evaluations a solve after an epoch instead of 15, and stays at
# the commonest class.
ODE_LEARNING_RATE, LEARNING_RATE = 3e-3, 1e-2


def point_model(kind: Kind) -> Callable[..., Headed]:
    """Builds a model with a linear classifier on the state at every point."""

    def build(key, mean=None):
        one, two = jax.random.split(key)
        return Headed(kind.build(one, mean), Linear(kind.state, len(CLASSES), key=two))

    return build


@ft.cache
def _once(by: str, data_dir) -> Prepared:
    """Windows with times in units of the longest training window; unlabelled points are not scored."""
    loaded = activity.load(data_dir)
    split = activity.split(loaded, by)
    longest = np.asarray(loaded.series.times)[split.train].max()
    series = eqx.tree_at(lambda s: s.times, loaded.series, (loaded.series.times / longest).astype(np.float32))
    labels = jnp.asarray(np.maximum(loaded.label, 0), jnp.int32)
    data = LabelledPoints(series, labels, jnp.asarray(loaded.labelled))
    return Prepared(data, split, checksum(data), {"mean": mean_of(series, split.train)}, loaded.variant)


def _windows(by: str, data_dir, seeds) -> Prepared:
    return _once(by, data_dir)


def recipe(epochs: int) -> Recipe:
    return Recipe(epochs=epochs, batch_size=50, optimiser="adamax", schedule=decay, norm="l2", eval_batch=250)


def row(name: str, kind: Kind, by: str = "sequence") -> Row:
    """A row of the Human Activity table, with windows split `by` sequence or, as published, by window."""
    row = Row(
        table="activity",
        name=name,
        data=ft.partial(_windows, by),
        task=PointClassification(),
        build=point_model(kind),
        recipe=recipe,
        epochs=70,
        learning_rate=ODE_LEARNING_RATE if kind.ode else LEARNING_RATE,
        penalty=1e-2,
        protocol=f"split by {by}",
        config=dict(kind.config),
        base=kind.base,
        differs=kind.differs,
        controls=kind.controls,
        grid=GRID,
        figures={"attention": ft.partial(attention_over_time, until=1.0)},
    )
    return row if by == "sequence" else row.variant(row.protocol)


ROWS = (
    *(row(name, kind) for name, kind in kinds(SIZES, including=True).items() if not kind.events),
    *(row(name, kind, "window") for name, kind in odes(SIZES).items()),
)
