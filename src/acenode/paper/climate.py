"""USHCN: forecasts of the climate, GRU-ODE-Bayes with and without attention, and its baselines.

The processed national file is not always to be had; the raw records of one state are. The table is made on every
four-year window of the stations of Maine ("USHCN Maine"), five folds by station; seed k tests on fold k.

The paper gives no architecture for six of its baselines, which it quotes from the literature: those are our definition.
"""

import functools as ft
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..datasets import ushcn, ushcn_raw
from ..datasets.split import Split
from ..layers import mlp
from ..models import (
    GRUD,
    TLSTM,
    Filter,
    GRUEncoder,
    GRUSimple,
    LatentODE,
    SequentialVAE,
)
from ..ode import MLPField, NeuralODE, Solver
from ..series import Query
from ..tasks import Forecast, GaussianHead, Headed
from ..train import Recipe
from .baselines import Baseline, Predicted, gaussian_scores, last_value
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
from .figures import attention_over_time, error_over_time
from .row import Prepared, Refused, Row

VARIABLES, SIZE, LATENT = 5, 50, 20
SPAN, STEP = 200.0, 0.1
SOON = (150.0, 156.0)  # nearly all of the first three rows after 150
FOLDS = 5
DROPOUT = 0.2
WEIGHT_DECAY = 1e-4  # of a loss summed over the values of a series; ours is their mean
VALUES_A_SERIES = 318
PROTOCOL = "USHCN Maine, five folds by station"
OVERLAP = 0.2 / 0.64  # of the stations a fifth is tested, of the others a fifth validates
# The paper's, of learning rate and lambda (Equation 6). Dropout, which it also varies, is a part of the model here.
GRID = tuple(product((1e-5, 1e-4, 1e-3), (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0.0)))


_bayes = ft.partial(bayes, variables=VARIABLES, size=SIZE, step=STEP, span=SPAN, dropout=DROPOUT)
_rows = ft.partial(row_bayes, variables=VARIABLES, step=STEP, span=SPAN)


def filtered(cell: Callable) -> Callable[[Array], Headed]:
    """Builds a recurrent filter with the same emission as GRU-ODE-Bayes."""

    def build(key):
        one, two = jax.random.split(key)
        made = cell(VARIABLES, SIZE, key=one)
        return Headed(Filter(made), GaussianHead(made.size, VARIABLES, key=two))

    return build


def _sequential(key: Array) -> Headed:
    one, two = jax.random.split(key)
    cell = SequentialVAE(VARIABLES, LATENT, SIZE, key=one)
    return Headed(Filter(cell), GaussianHead(cell.size, VARIABLES, key=two))


def latent(masked: bool) -> Callable[[Array], Headed]:
    """Builds Neural-ODE-VAE: a GRU over the context, a latent ODE of two layers; with or without the mask."""

    def build(key):
        one, two, three, four = jax.random.split(key, 4)
        model = LatentODE(
            encoder=GRUEncoder(VARIABLES, SIZE, masked=masked, key=one),
            to_latent=mlp(SIZE, 2 * LATENT, SIZE, 1, key=two),
            ode=NeuralODE(
                MLPField(LATENT, SIZE, 1, last=0.1, key=three), Solver("rk4", step=SPAN / 100, max_steps=128)
            ),
            shape=(LATENT,),
            samples=1,
        )
        return Headed(model, GaussianHead(LATENT, VARIABLES, key=four))

    return build


@ft.cache
def _folds(data_dir, entire: bool) -> tuple[list, list[Split], str]:
    climate = ushcn.load_maine(data_dir)
    splits = ushcn.folds(climate)
    queries = [ushcn.query(climate, split.train, entire) for split in splits]
    digest = hashlib.sha256(repr(sorted(climate.sha256.items())).encode()).hexdigest()
    return queries, splits, digest


def prepared(entire: bool, data_dir, seeds: Sequence[int]) -> Prepared:
    """For each seed its fold, scaled by its own training stations; the folds one after another."""
    bad = [seed for seed in seeds if not 0 <= seed < FOLDS]
    if bad:
        raise Refused(f"ushcn: seed {bad[0]} asks for a fold that is not there; the folds are 0 to {FOLDS - 1}.")
    queries, splits, digest = _folds(data_dir, entire)
    size = len(queries[0])
    data = jax.tree.map(lambda *parts: jnp.concatenate([jnp.asarray(p) for p in parts]), *(queries[s] for s in seeds))
    moved = [Split(*(np.asarray(part) + k * size for part in splits[s])) for k, s in enumerate(seeds)]
    return Prepared(data, moved, digest)


def _slower(iteration):
    """A third of the learning rate after 60 iterations: 20 epochs of the published batches."""
    return jnp.where(iteration < 60, 1.0, 1 / 3)


def recipe(epochs: int) -> Recipe:
    return Recipe(epochs=epochs, batch_size=50, schedule=_slower, clip=10.0, eval_batch=64, reference=128)


def bayes_recipe(epochs: int) -> Recipe:
    """The published one of GRU-ODE-Bayes: no clipping, and some weight decay."""
    return replace(recipe(epochs), clip=None, weight_decay=WEIGHT_DECAY / VALUES_A_SERIES)


class Model(NamedTuple):
    build: Callable
    config: dict[str, object]
    recipe: Callable[[int], Recipe] = recipe
    entire: bool = True  # the context of training series goes beyond 150
    penalty: float = 1.0
    base: str = ""  # the row that it extends by an attention
    controls: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # that attend to each other
    lambda_: float = 1e-2


def _published(build: Callable, base: str = "", /, *controls: str, **config: object) -> Model:
    """Of GRU-ODE-Bayes; its dropout stands in `config` since results from before it was in the likelihood lack it."""
    return Model(build, {"dropout": DROPOUT, **config}, bayes_recipe, base=base, controls=controls)


AUGMENTED, DENSE = "Augmented-GRU-ODE-Bayes", "FC-ACE-GRU-ODE-Bayes"
OURS: dict[str, object] = {"definition": "ours"}
BY_ROWS: dict[str, object] = {"hidden": VARIABLES * CHANNELS, "channels": CHANNELS, "dropout": 0.0}
MODELS: dict[str, Model] = {
    "Neural-ODE-VAE": Model(latent(False), OURS, entire=False, penalty=0.01),
    "Neural-ODE-VAE-Mask": Model(latent(True), OURS, entire=False, penalty=0.01),
    "Sequential VAE": Model(_sequential, {**OURS, "prior": "fading"}, penalty=0.1),
    "GRU-Simple": Model(filtered(GRUSimple), OURS),
    "GRU-D": Model(filtered(GRUD), OURS),
    "T-LSTM": Model(filtered(TLSTM), OURS),
    PLAIN: _published(_bayes(plain(SIZE))),
    AUGMENTED: _published(_bayes(augmented(SIZE), extra=EXTRA)),
    "ACE-GRU-ODE-Bayes": _published(_bayes(attentive(SIZE)), PLAIN, AUGMENTED, DENSE, **KEPT),
    "ACE-GRU-ODE-Bayes, renewed": _published(_bayes(attentive(SIZE, renew=True)), PLAIN, jump="attention renewed"),
    "ACE-GRU-ODE-Bayes, self-decay": _published(_bayes(attentive(SIZE, self_decay=True)), PLAIN, **SELF_DECAY),
    "ACE-GRU-ODE-Bayes, self-decay, temperature 0.1": _published(
        _bayes(attentive(SIZE, self_decay=True, temperature=TEMPERATURE)), PLAIN, **SELF_DECAY, temperature=TEMPERATURE
    ),
    "ACE-GRU-ODE-Bayes, conditioned": _published(_bayes(attentive(SIZE, conditioned=True)), PLAIN, **CONDITIONED),
    CHANNEL_INDEPENDENT: _published(_rows(channel_independent(VARIABLES)), **BY_ROWS),
    UNIFORM: _published(_rows(uniform_attention(VARIABLES)), **BY_ROWS),
    "ACE-GRU-ODE-Bayes, between variables": _published(
        _rows(between_variables(VARIABLES)), CHANNEL_INDEPENDENT, UNIFORM, **BY_ROWS
    )._replace(variables=ushcn_raw.ELEMENTS, lambda_=ALIVE),
    DENSE: _published(_bayes(attentive(SIZE, initial="dense")), PLAIN, **KEPT),
}


def row(name: str) -> Row:
    """A row of the USHCN table."""
    model = MODELS[name]
    error = ft.partial(error_over_time, between=SOON)
    return Row(
        table="ushcn",
        name=name,
        data=ft.partial(prepared, model.entire),
        task=Forecast(penalty=model.penalty),
        build=model.build,
        recipe=model.recipe,
        epochs=100,
        learning_rate=1e-3,
        penalty=model.lambda_,
        protocol=PROTOCOL,
        config={"model_penalty": model.penalty, **model.config},
        base=model.base,
        controls=model.controls,
        overlap=OVERLAP,
        variables=model.variables,
        grid=GRID,
        figures={"error_over_time": error, "attention": ft.partial(attention_over_time, until=SPAN)},
    )


# --- baselines ------------------------------------------------------------------------------------------------

_DAYS = 366  # of a leap year; 29 February has its own in every year
_MARCH = 60


def climatology(start: np.ndarray, query: Query, train: np.ndarray, window: int = 31) -> Predicted:
    """The mean of each variable at this time of the year over all years of the training series, which begin on `start`.

    For each day of the year, all observations count that lie in a window of so many days (an odd number) around it,
    each as much as any other, whatever its year and station. Where there is none, the mean of all days.
    """
    from scipy.ndimage import convolve1d  # slow to import

    if window % 2 == 0 or not 1 <= window < _DAYS:
        raise ValueError(f"climatology: window is {window}; expected an odd number of days below {_DAYS}.")
    if len(train) == 0:
        raise ValueError("climatology: there are no training series to take the mean of.")
    day = day_of_year(start, np.asarray(query.times))
    observed, values = (np.asarray(array)[train] for array in (query.observed, query.values))
    total = np.zeros((_DAYS, values.shape[-1]))
    count = np.zeros_like(total)
    np.add.at(total, day[train], np.where(observed, values, 0.0))
    np.add.at(count, day[train], observed)
    near, seen = (convolve1d(each, np.ones(window), axis=0, mode="wrap") for each in (total, count))
    overall = total.sum(0) / np.maximum(count.sum(0), 1)
    return np.where(seen > 0, near / np.maximum(seen, 1), overall)[day]


def day_of_year(start: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The day of the year, 0 to 365, of each time (series, queries) of series that begin on `start`."""
    date = start[:, None] + ushcn.day_of(times).astype("timedelta64[D]")
    year = date.astype("datetime64[Y]")
    day = (date - year.astype("datetime64[D]")).astype(int)
    leap = ((year + np.timedelta64(1, "Y")).astype("datetime64[D]") - year.astype("datetime64[D]")).astype(int) == _DAYS
    return np.where(leap | (day < _MARCH - 1), day, day + 1)


def baseline_scores(climate: ushcn.Climate, split: Split) -> dict[str, dict[str, float]]:
    """The scores on the test series of the forecasts that need no training."""
    query = ushcn.query(climate, split.train)
    predicted = {"LOCF": last_value(query, split.train), "climatology": climatology(climate.start, query, split.train)}
    return {name: gaussian_scores(query, each, split.train, split.test) for name, each in predicted.items()}


def _baseline(name: str) -> Baseline:
    def score(data_dir, seeds) -> list[dict[str, float]]:
        climate = ushcn.load_maine(data_dir)
        splits = ushcn.folds(climate)
        return [baseline_scores(climate, splits[seed])[name] for seed in seeds]

    return Baseline("ushcn", name, score, lambda data_dir: _folds(data_dir, False)[2], PROTOCOL, by_seed=True)


ROWS: tuple[Row | Baseline, ...] = (_baseline("LOCF"), _baseline("climatology"), *map(row, MODELS))
