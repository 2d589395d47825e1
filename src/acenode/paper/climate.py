"""USHCN: forecasts of the climate, GRU-ODE-Bayes with and without attention, and its baselines.

The processed national file is not always to be had; the raw records of one state are. The table is made on every
four-year window of the stations of Maine ("USHCN Maine"), five folds by station; seed k tests on fold k.

The paper gives no architecture for six of its baselines, which it quotes from the literature: those are our definition.
"""

import functools as ft
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..datasets import ushcn, ushcn_raw
from ..datasets.climate_reference import references
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
from ..tasks import Forecast, GaussianHead, Headed
from ..train import Recipe
from .baseline import Baseline
from .bayes import (
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
from .grids import CLIMATE_GRID
from .row import Prepared, Refused, Row

VARIABLES, SIZE, LATENT = 5, 50, 20
SPAN, STEP = 200.0, 0.1
SOON = (150.0, 156.0)  # nearly all of the first three rows after 150
FOLDS = 5
DROPOUT = 0.2
WEIGHT_DECAY = 1e-4  # of a loss summed over the values of a series; ours is their mean
VALUES_A_SERIES = 318
PROTOCOL = "USHCN Maine, five folds by station"


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
    """Builds Neural-ODE-VAE: a GRU over the known rows, a latent ODE of two layers; with or without the mask."""

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
    entire: bool = True  # series to train on are known beyond 150
    penalty: float = 1.0
    base: str = ""  # the row that it extends by an attention
    controls: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # that attend to each other


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
    )._replace(variables=ushcn_raw.ELEMENTS),
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
        penalty=1e-2,
        protocol=PROTOCOL,
        config={"model_penalty": model.penalty, **model.config},
        base=model.base,
        controls=model.controls,
        variables=model.variables,
        grid=CLIMATE_GRID,
        figures={"error_over_time": error, "attention": ft.partial(attention_over_time, until=SPAN)},
    )


def _baseline(name: str) -> Baseline:
    """A forecast without a model, scored on the same folds."""

    def score(data_dir, seeds) -> list[dict[str, float]]:
        climate = ushcn.load_maine(data_dir)
        splits = ushcn.folds(climate)
        return [references(climate, splits[seed])[name]._asdict() for seed in seeds]

    return Baseline("ushcn", name, score, lambda data_dir: _folds(data_dir, False)[2], PROTOCOL, by_seed=True)


ROWS: tuple[Row | Baseline, ...] = (_baseline("LOCF"), _baseline("climatology"), *map(row, MODELS))
