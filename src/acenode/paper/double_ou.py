"""The double Ornstein-Uhlenbeck process of the GRU-ODE-Bayes paper, where the best possible forecast is known.

Not a table of the ACE-NODE paper: it tells how far from the optimum a model stays. Asked is the first row after time 4.
"""

import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import optax

from ..datasets import ou
from ..datasets.split import Split, random_split
from ..series import Question, forecast
from ..tasks import Forecast
from ..train import Recipe
from .baseline import Baseline
from .bayes import (
    APART,
    CHANNELS,
    EXTRA,
    FED,
    KEPT,
    MIXED,
    OWN_LEAK,
    PLAIN,
    SHARP,
    attentive,
    augmented,
    bayes,
    between_variables,
    plain,
    row_bayes,
    variables_apart,
    variables_mixed,
)
from .figures import attention_over_time
from .row import Prepared, Row, checksum

SIZE, STEP, SPAN = 25, 0.05, 10.0
SAMPLES, BATCH = 10_000, 100
PARTS = (0.7, 0.15, 0.15)
DROPOUT = 0.0  # by validation, GRU-ODE-Bayes, one seed, 12 epochs: NegLL -1.223, with 0.2 -1.193


VARIABLES = 2
_bayes = ft.partial(bayes, variables=VARIABLES, size=SIZE, step=STEP, span=SPAN, dropout=DROPOUT)
_rows = ft.partial(row_bayes, variables=VARIABLES, step=STEP, span=SPAN)


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


class Model(NamedTuple):
    build: Callable
    config: dict[str, object]
    base: str = ""  # the row that it extends by an attention
    control: str = ""  # the same with even weights


def _whole(build: Callable, base: str = "", **config: object) -> Model:
    """One whose state is one vector."""
    return Model(build, {"dropout": DROPOUT, **config}, base)


BY_ROWS: dict[str, object] = {"hidden": VARIABLES * CHANNELS, "channels": CHANNELS}
MODELS: dict[str, Model] = {
    PLAIN: _whole(_bayes(plain(SIZE))),
    "Augmented-GRU-ODE-Bayes": _whole(_bayes(augmented(SIZE), extra=EXTRA)),
    "ACE-GRU-ODE-Bayes": _whole(_bayes(attentive(SIZE)), PLAIN, **KEPT),
    "ACE-GRU-ODE-Bayes, own leak": _whole(_bayes(attentive(SIZE, own_leak=True)), PLAIN, **OWN_LEAK),
    "ACE-GRU-ODE-Bayes, own leak, sharp": _whole(
        _bayes(attentive(SIZE, own_leak=True, scale=SHARP)), PLAIN, **OWN_LEAK, scale=SHARP
    ),
    "ACE-GRU-ODE-Bayes, fed": _whole(_bayes(attentive(SIZE, fed=True)), PLAIN, **FED),
    APART: Model(_rows(variables_apart(VARIABLES)), BY_ROWS),
    MIXED: Model(_rows(variables_mixed(VARIABLES)), BY_ROWS),
    "ACE-GRU-ODE-Bayes, between variables": Model(_rows(between_variables(VARIABLES)), BY_ROWS, APART, MIXED),
}


def row(name: str) -> Row:
    build, config, base, control = MODELS[name]
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
        config={"hidden": SIZE, "step": STEP, "learning_rate_falls": "half a cosine", **config},
        base=base,
        control=control,
        figures={"attention": ft.partial(attention_over_time, until=SPAN)},
    )


ROWS: tuple[Row | Baseline, ...] = (
    Baseline("double-ou", "exact filter", _optimum, lambda data_dir: checksum(_generated()[2])),
    *map(row, MODELS),
)
