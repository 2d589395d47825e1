"""The double Ornstein-Uhlenbeck process of the GRU-ODE-Bayes paper, where the best possible forecast is known.

Not a table of the ACE-NODE paper: it tells how far from the optimum a model stays. The query is the first row after
time 4.
"""

import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import optax

from ..datasets import ou
from ..datasets.split import Split, random_split
from ..series import Query, forecast
from ..tasks import Forecast
from ..train import Recipe
from .baselines import Baseline
from .bayes import (
    ALIVE,
    CHANNEL_INDEPENDENT,
    CHANNELS,
    CONDITIONED,
    EXTRA,
    KEPT,
    PLAIN,
    SELF_DECAY,
    TEMPERATURE,
    UNIFORM,
    attentive,
    augmented,
    bayes,
    between_variables,
    channel_independent,
    plain,
    row_bayes,
    uniform_attention,
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
def _generated() -> tuple[ou.DoubleOU, Split, Query]:
    made = ou.generate(SAMPLES)
    split = random_split(SAMPLES, PARTS, seed=0)
    entire = np.isin(np.arange(SAMPLES), split.train)
    return made, split, forecast(made.panel.series, ou.AFTER, ou.ROWS, entire)


def _data(data_dir, seeds) -> Prepared:
    _, split, query = _generated()
    return Prepared(query, split, checksum(query))


def _optimum(data_dir, seeds) -> list[dict[str, float]]:
    """The exact filter's scores on the test series."""
    made, split, query = _generated()
    predicted = ou.exact_filter(made.panel.series, made.process)
    queried = np.zeros_like(np.asarray(query.scored))
    queried[split.test] = np.asarray(query.scored)[split.test]
    error = np.square(np.asarray(made.panel.series.values) - predicted.mean)[queried]
    return [{"mse": float(error.mean()), "negll": ou.negll(made.panel.series, predicted, queried)}]


def recipe(epochs: int) -> Recipe:
    """The learning rate falls as half a cosine: by validation that takes a third of the epochs of a constant one."""
    iterations = epochs * (round(PARTS[0] * SAMPLES) // BATCH)
    falls = optax.cosine_decay_schedule(1.0, iterations, 0.01)
    return Recipe(epochs=epochs, batch_size=BATCH, schedule=falls, clip=10.0, eval_batch=500)


class Model(NamedTuple):
    build: Callable
    config: dict[str, object]
    base: str = ""  # the row that it extends by an attention
    controls: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # that attend to each other
    lambda_: float = 1e-2


def _whole(build: Callable, base: str = "", **config: object) -> Model:
    """One whose state is one vector."""
    return Model(build, {"dropout": DROPOUT, **config}, base, (AUGMENTED,) if base else ())


AUGMENTED = "Augmented-GRU-ODE-Bayes"
BY_ROWS: dict[str, object] = {"hidden": VARIABLES * CHANNELS, "channels": CHANNELS}
MODELS: dict[str, Model] = {
    PLAIN: _whole(_bayes(plain(SIZE))),
    AUGMENTED: _whole(_bayes(augmented(SIZE), extra=EXTRA)),
    "ACE-GRU-ODE-Bayes": _whole(_bayes(attentive(SIZE)), PLAIN, **KEPT),
    "ACE-GRU-ODE-Bayes, renewed": _whole(_bayes(attentive(SIZE, renew=True)), PLAIN, jump="attention renewed"),
    "ACE-GRU-ODE-Bayes, self-decay": _whole(_bayes(attentive(SIZE, self_decay=True)), PLAIN, **SELF_DECAY),
    "ACE-GRU-ODE-Bayes, self-decay, temperature 0.1": _whole(
        _bayes(attentive(SIZE, self_decay=True, temperature=TEMPERATURE)), PLAIN, **SELF_DECAY, temperature=TEMPERATURE
    ),
    "ACE-GRU-ODE-Bayes, conditioned": _whole(_bayes(attentive(SIZE, conditioned=True)), PLAIN, **CONDITIONED),
    CHANNEL_INDEPENDENT: Model(_rows(channel_independent(VARIABLES)), BY_ROWS),
    UNIFORM: Model(_rows(uniform_attention(VARIABLES)), BY_ROWS),
    "ACE-GRU-ODE-Bayes, between variables": Model(
        _rows(between_variables(VARIABLES)), BY_ROWS, CHANNEL_INDEPENDENT, (UNIFORM,), ou.VARIABLES, ALIVE
    ),
}


def row(name: str) -> Row:
    build, config, base, controls, variables, penalty = MODELS[name]
    return Row(
        table="double-ou",
        name=name,
        data=_data,
        task=Forecast(),
        build=build,
        recipe=recipe,
        epochs=30,
        learning_rate=3e-2,
        penalty=penalty,
        config={"hidden": SIZE, "step": STEP, "learning_rate_falls": "half a cosine", **config},
        base=base,
        controls=controls,
        variables=variables,
        reported=("mse",),
        figures={"attention": ft.partial(attention_over_time, until=SPAN)},
    )


ROWS: tuple[Row | Baseline, ...] = (
    Baseline("double-ou", "exact filter", _optimum, lambda data_dir: checksum(_generated()[2])),
    *map(row, MODELS),
)
