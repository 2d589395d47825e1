"""The double Ornstein-Uhlenbeck process of the GRU-ODE-Bayes paper, where the best possible forecast is known.

Not a table of the ACE-NODE paper: it tells how far from the optimum a model stays. Asked is the first row after time 4.
"""

import functools as ft
from collections.abc import Callable

import jax
import numpy as np
import optax
from jaxtyping import Array

from ..datasets import ou
from ..datasets.split import Split, random_split
from ..models import gru_ode_bayes
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    Correlation,
    GRUField,
    NeuralODE,
    Pairwise,
    pairwise_field,
)
from ..series import Question, forecast
from ..tasks import Forecast, Headed
from ..train import Recipe
from .baseline import Baseline
from .climate import SHARP
from .row import Prepared, Row, checksum

SIZE, EXTRA, STEP, SPAN = 25, 5, 0.05, 10.0
SAMPLES, BATCH = 10_000, 100
PARTS = (0.7, 0.15, 0.15)


def _plain(key: Array) -> NeuralODE:
    return NeuralODE(GRUField(SIZE, key=key))


def _augmented(key: Array) -> AugmentedODE:
    return AugmentedODE(GRUField(SIZE + EXTRA, key=key), EXTRA)


def _attentive(own_leak: bool, scale: float = 1.0) -> Callable[[Array], CoEvolvingODE]:
    def make(key):
        one, two = jax.random.split(key)
        g = pairwise_field("gru_linear", SIZE, key=two)
        return CoEvolvingODE(GRUField(SIZE, own_leak, key=one), g, Pairwise(scale), Correlation(SIZE))

    return make


def bayes(ode: Callable, extra: int = 0) -> Callable[[Array], Headed]:
    """Builds GRU-ODE-Bayes with the given ODE."""

    def build(key):
        one, two = jax.random.split(key)
        ticks = round(SPAN / STEP) + 2
        return Headed(gru_ode_bayes(2, ode(one), SIZE, extra=extra, step=STEP, count=ticks, key=two), None)

    return build


@ft.cache
def _generated() -> tuple[ou.DoubleOU, Split, Question]:
    made = ou.generate(SAMPLES)
    split = random_split(SAMPLES, PARTS, seed=0)
    entire = np.isin(np.arange(SAMPLES), split.train)
    return made, split, forecast(made.panel.series, ou.AFTER, ou.ROWS, entire)


def _data(data_dir, seeds) -> Prepared:
    _, split, question = _generated()
    return Prepared(question, split, checksum(question))


def _optimum(data_dir, seeds) -> list[dict[str, float]]:
    """The exact filter's scores on the test series."""
    made, split, question = _generated()
    predicted = ou.exact_filter(made.panel.series, made.process)
    asked = np.zeros_like(np.asarray(question.scored))
    asked[split.test] = np.asarray(question.scored)[split.test]
    error = np.square(np.asarray(made.panel.series.values) - predicted.mean)[asked]
    return [{"mse": float(error.mean()), "negll": ou.negll(made.panel.series, predicted, asked)}]


def recipe(epochs: int) -> Recipe:
    """The learning rate falls as half a cosine: by validation that takes a third of the epochs of a constant one."""
    iterations = epochs * (round(PARTS[0] * SAMPLES) // BATCH)
    falls = optax.cosine_decay_schedule(1.0, iterations, 0.01)
    return Recipe(epochs=epochs, batch_size=BATCH, schedule=falls, clip=10.0, eval_batch=500)


def row(name: str, build: Callable) -> Row:
    return Row(
        table="double-ou",
        name=name,
        data=_data,
        task=Forecast(),
        build=build,
        recipe=recipe,
        epochs=30,
        learning_rate=3e-2,
        penalty=1e-2,
        config={"hidden": SIZE, "step": STEP, "learning_rate_falls": "half a cosine"},
    )


MODELS = {
    "GRU-ODE-Bayes": bayes(_plain),
    "Augmented-GRU-ODE-Bayes": bayes(_augmented, EXTRA),
    "ACE-GRU-ODE-Bayes": bayes(_attentive(own_leak=False)),
    "ACE-GRU-ODE-Bayes, own leak": bayes(_attentive(own_leak=True)),
    "ACE-GRU-ODE-Bayes, own leak, sharp": bayes(_attentive(own_leak=True, scale=SHARP)),
}
ROWS: tuple[Row | Baseline, ...] = (
    Baseline("double-ou", "exact filter", _optimum, lambda data_dir: checksum(_generated()[2])),
    *(row(name, build) for name, build in MODELS.items()),
)
