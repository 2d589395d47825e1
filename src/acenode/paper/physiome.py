"""Physiome-ODE: forecasts of physiological systems, one configuration of each model for all sets.

A seed is a fold of the data, a draw of split, noise and masks; the benchmark has five. Settings of GRU-ODE-Bayes
were chosen on validation data of five sets (see `recipe`), the covariance on that of LI01, KAR02, WOL03, REV01 and
HOD01. `rows` gives the table on any packed set, also one that is not among the published.
"""

import functools as ft
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ..datasets import physiome, physiome_raw
from ..datasets.split import Split
from ..models import CRU, GRUD, MTAN, Filter, GraFITi, LinODENet, NeuralFlow, Trace, gru_ode_bayes
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    GRUField,
    NeuralODE,
    Solver,
    covariance_attention,
)
from ..series import Query, Series
from ..tasks import Forecast, GaussianHead, Headed
from ..train import Recipe
from .baselines import Baseline, Predicted, gaussian_scores, last_value, mean_value
from .figures import error_over_time
from .row import Prepared, Refused, Row, checksum

TABLE = "physiome"
PROTOCOL = "Physiome-ODE, folds of our own draw"
SPAN = 10.0  # time units of a series: with 1 a gated unit is too slow to follow, with 99 it is a discrete one
STEPS = 99  # at least, in a series; as many as the published sets have gaps
HIDDEN, EXTRA, AS_MANY = 128, 5, 157
RANK = 16  # of a covariance
CUT = (0.2 * SPAN, 0.8 * SPAN)
HIDE = 0.2
HORIZON = (physiome.CUT * SPAN, SPAN)
BATCH, TRAINING = 64, 1400


def prepared(name: str, causal: bool, data_dir, seeds: Sequence[int]) -> Prepared:
    """For each seed its fold, one after another."""
    clean = physiome.load(name, data_dir)
    folds = [physiome.fold(clean, seed, causal=causal) for seed in seeds]
    given = {"variables": clean.values.shape[2], "moments": clean.values.shape[1]}
    queries = [_scaled(fold.query) for fold in folds]
    data = jax.tree.map(lambda *parts: np.concatenate(parts), *queries)
    size = len(queries[0])
    splits = [Split(*(part + k * size for part in fold.split)) for k, fold in enumerate(folds)]
    return Prepared(data, splits, checksum(clean.values), given)


def _scaled(query: Query) -> Query:
    times = lambda q: (q.times, q.context.times)  # noqa: E731
    return eqx.tree_at(times, query, tuple(SPAN * t for t in times(query)))


def recipe(epochs: int) -> Recipe:
    """Chosen by validation on PUR01, LI01, LEN01, REV01 and KAR02 (two folds, 60 epochs).

    The precision is for speed: GRU-ODE-Bayes on LI01 has a validation MSE of 0.0211 with it, 0.0210 with float32 (five
    folds each).
    """
    steps = epochs * (TRAINING // BATCH)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, min(100, steps // 4), steps)
    return Recipe(
        epochs=epochs,
        batch_size=BATCH,
        optimiser="adamw",
        schedule=schedule,
        weight_decay=0.1,
        clip=1.0,
        average=0.99,
        validate_every=10,
        eval_batch=400,
        precision="tf32",
    )


def joint(epochs: int) -> Recipe:
    """All parameters by one gradient and with one decay."""
    whole = recipe(epochs)
    decay = whole.weight_decay
    return replace(whole, algorithm="joint", attention_decay=decay, initial_decay=decay)


# --- models -----------------------------------------------------------------------------------------------------


def solver(moments: int) -> Solver:
    """Euler with steps that end at every moment, `STEPS` in a series or more."""
    gaps = moments - 1
    steps = gaps * math.ceil(STEPS / gaps)
    return Solver("euler", step=SPAN / steps, max_steps=steps + 3)


def _bayes(ode: Callable[[Array, Solver, int], object], size: int = HIDDEN, extra: int = 0) -> Callable[..., Headed]:
    """Builds GRU-ODE-Bayes with the given ODE; without dropout and without the penalty of its jump."""

    def build(key: Array, variables: int, moments: int) -> Headed:
        one, two = jax.random.split(key)
        made = ode(one, solver(moments), variables)
        model = gru_ode_bayes(variables, made, size, extra=extra, width=size, dropout=0.0, mixing=0.0, key=two)
        return Headed(model, None)

    return build


def plain(size: int = HIDDEN) -> Callable[[Array, Solver, int], NeuralODE]:
    return lambda key, solver, variables: NeuralODE(GRUField(size, key=key), solver)


def augmented(key: Array, solver: Solver, variables: int) -> AugmentedODE:
    return AugmentedODE(GRUField(HIDDEN + EXTRA, key=key), EXTRA, solver)


def covariance(evolves: bool = True) -> Callable[[Array, Solver, int], CoEvolvingODE]:
    def build(key: Array, solver: Solver, variables: int) -> CoEvolvingODE:
        one, two = jax.random.split(key)
        f = GRUField(HIDDEN, key=one)
        return covariance_attention(f, HIDDEN, variables, RANK, solver=solver, evolves=evolves, key=two)

    return build


def _gru_d(key: Array, variables: int, moments: int) -> Headed:
    one, two = jax.random.split(key)
    cell = GRUD(variables, HIDDEN, key=one)
    return Headed(Filter(cell), GaussianHead(cell.size, variables, HIDDEN, key=two))


class ConstantForecast(eqx.Module):
    """A model that is queried at the cut, whatever the query time: its forecast does not depend on time."""

    causal: ClassVar[bool] = False

    model: Any

    def __call__(self, series: Series, times: Array, key: Array, *, attention: bool = False) -> Trace:
        at_cut = jnp.full((times.shape[0], 1), physiome.CUT * SPAN)
        trace = self.model(series, at_cut, key, attention=attention)
        shape = (*trace.states.shape[:2], times.shape[1], *trace.states.shape[3:])
        return eqx.tree_at(lambda t: t.states, trace, jnp.broadcast_to(trace.states, shape))

    @property
    def emission(self) -> Callable:
        return self.model.emission


def constant_grafiti(variables: int, **options: Any) -> ConstantForecast:
    """GraFITi-C of the benchmark's paper."""
    return ConstantForecast(GraFITi(variables, **options))


class Model(NamedTuple):
    build: Callable[..., Headed]
    causal: bool = True
    config: dict[str, object] = {}  # noqa: RUF012
    base: str = ""
    controls: tuple[str, ...] = ()
    own_settings: tuple[str, ...] = ()
    learning_rate: float = 2e-2
    recipe: Callable[[int], Recipe] = recipe


def _modern(model: Any, causal: bool, learning_rate: float, **sizes: int | float) -> Model:
    """A model that has an emission of its own.

    Its learning rate was chosen among 0.001, 0.002, 0.005, 0.01 and 0.02 by validation on LI01 and KAR02 (two folds,
    40 epochs), as was that of GRU-D; GraFITi-C has that of GraFITi.
    """

    def build(key: Array, variables: int, moments: int) -> Headed:
        return Headed(model(variables, **sizes, time_scale=SPAN, key=key), None)

    return Model(build, causal, dict(sizes), learning_rate=learning_rate)


PLAIN, LARGER, AUGMENTED = "GRU-ODE-Bayes", "GRU-ODE-Bayes, as many weights", "Augmented-GRU-ODE-Bayes"
COVARIANCE, FROZEN = "ACE-GRU-ODE-Bayes, covariance", "GRU-ODE-Bayes, frozen covariance"
OF_SIZE: dict[str, object] = {"hidden": HIDDEN}
MODELS: dict[str, Model] = {
    "GRU-D": Model(_gru_d, config=OF_SIZE),
    "LinODENet": _modern(LinODENet, True, 5e-3, hidden=HIDDEN, latent=HIDDEN),
    "CRU": _modern(CRU, True, 2e-2, latent=32, width=64),
    "Neural Flows": _modern(NeuralFlow, True, 2e-2, hidden=HIDDEN, width=HIDDEN, mixing=0.0),
    "GraFITi": _modern(GraFITi, False, 1e-2, dim=64, heads=2, layers=4),
    "GraFITi-C": _modern(constant_grafiti, False, 1e-2, dim=64, heads=2, layers=4),
    "mTAN": _modern(MTAN, False, 5e-3, dim=HIDDEN, references=64, width=HIDDEN),
    PLAIN: Model(_bayes(plain()), config=OF_SIZE),
    AUGMENTED: Model(_bayes(augmented, extra=EXTRA), config={**OF_SIZE, "extra": EXTRA}),
    LARGER: Model(_bayes(plain(AS_MANY), AS_MANY), config={"hidden": AS_MANY}, own_settings=("hidden",)),
    FROZEN: Model(
        _bayes(covariance(evolves=False)),
        config={**OF_SIZE, "rank": RANK, "covariance": "learned numbers"},
        own_settings=("covariance",),
        recipe=joint,
    ),
    COVARIANCE: Model(
        _bayes(covariance()),
        config={**OF_SIZE, "rank": RANK, "covariance": "evolves"},
        base=PLAIN,
        own_settings=("covariance",),
        controls=(AUGMENTED, LARGER, FROZEN),
        recipe=joint,
    ),
}


def row(name: str, dataset: str) -> Row:
    """A row of the table on any packed set."""
    model = MODELS[name]
    # A model that is not causal learns to forecast what comes after the cut, and nothing else.
    task = Forecast(penalty=0.0, cut=CUT if model.causal else None, hide=HIDE, monitor="mse")
    settings = {"span": SPAN, "cut": list(CUT) if model.causal else None, "hide": HIDE}
    return Row(
        table=TABLE,
        name=name,
        dataset=dataset,
        data=ft.partial(prepared, dataset, model.causal),
        task=task,
        build=model.build,
        recipe=model.recipe,
        epochs=100,
        learning_rate=model.learning_rate,
        penalty=0.0,
        protocol=PROTOCOL,
        config={**settings, **model.config},
        base=model.base,
        own_settings=(*model.own_settings, "precision"),
        controls=model.controls,
        overlap=(1 - sum(physiome.PARTS)) / physiome.PARTS[0],
        figures={"error_over_time": ft.partial(error_over_time, bins=10, between=HORIZON)},
    )


# --- baselines --------------------------------------------------------------------------------------------------

BASELINES: dict[str, Callable[[Query, np.ndarray], Predicted]] = {
    "training mean": mean_value,
    "LOCF": last_value,
}


def baseline(name: str, dataset: str) -> Baseline:
    """The training mean of each channel, or the last value carried forward, on any packed set."""

    def score(data_dir, seeds: Sequence[int]) -> list[dict[str, float]]:
        clean = physiome.load(dataset, data_dir)
        folds = (physiome.fold(clean, seed) for seed in seeds)
        return [
            gaussian_scores(query, BASELINES[name](query, split.train), split.train, split.test)
            for query, split in folds
        ]

    def of_data(data_dir) -> str:
        return checksum(physiome.load(dataset, data_dir).values)

    return Baseline(TABLE, name, score, of_data, PROTOCOL, by_seed=True, dataset=dataset)


def rows(dataset: str) -> tuple[Row | Baseline, ...]:
    """The table on any packed set."""
    return (*(baseline(name, dataset) for name in BASELINES), *(row(name, dataset) for name in MODELS))


def chosen_sets(names: Sequence[str], data_dir) -> list[str]:
    """Those named, or all that are there; refused in a sentence where one is not."""
    chosen = list(dict.fromkeys(names)) or physiome.names(data_dir)
    if not chosen:
        raise Refused(
            f"no packed set in {', '.join(map(str, physiome.places(data_dir)))}. Make some from a checkout of the "
            "benchmark: acenode data get physiome --from CHECKOUT"
        )
    for name in chosen:
        physiome.find(name, data_dir)
    return chosen


ROWS: tuple[Row | Baseline, ...] = tuple(row for name in physiome_raw.known() for row in rows(name))
