"""Physiome-ODE: forecasts of physiological systems, one configuration of each model for all sets.

A seed is a fold of the data. The settings were chosen on validation data of development sets (see `recipe`).
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array

from ..datasets import physiome
from ..datasets.split import Split
from ..models import gru_ode_bayes
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    ConditionedGRUField,
    DeltaRule,
    DeltaRuleUpdate,
    FastWeights,
    GRUField,
    NeuralODE,
    Solver,
    Zeros,
)
from ..tasks import Forecast, Headed
from ..train import Recipe
from .row import Prepared, Refused, Row, checksum

TABLE = "physiome"
SPAN = 10.0  # time units of a series: with 1 a gated unit is too slow to follow, with 99 it is a discrete one
MOMENTS = 100
SOLVER = Solver("euler", step=SPAN / (MOMENTS - 1), max_steps=MOMENTS + 2)
HIDDEN, EXTRA, AS_MANY = 128, 5, 157
HEADS, WIDTH = 4, 16  # of fast weights
CUT = (0.2 * SPAN, 0.8 * SPAN)
HIDE = 0.2
BATCH, TRAINING = 64, 1400


def prepared(name: str, causal: bool, data_dir, seeds: Sequence[int]) -> Prepared:
    """For each seed its fold, one after another."""
    if any(not 0 <= seed < physiome.FOLDS for seed in seeds):
        raise Refused(f"physiome: the folds are 0 to {physiome.FOLDS - 1}; there is no other seed.")
    clean = physiome.load(name, data_dir)
    folds = [physiome.fold(clean, seed, causal=causal) for seed in seeds]
    queries = [_scaled(fold.query) for fold in folds]
    data = jax.tree.map(lambda *parts: np.concatenate(parts), *queries)
    size = len(queries[0])
    splits = [Split(*(part + k * size for part in fold.split)) for k, fold in enumerate(folds)]
    return Prepared(data, splits, checksum(clean.values), {"variables": clean.values.shape[2]})


def _scaled(query):
    times = lambda q: (q.times, q.context.times)  # noqa: E731
    return eqx.tree_at(times, query, tuple(SPAN * t for t in times(query)))


def recipe(epochs: int) -> Recipe:
    """Chosen by validation on PUR01, LI01, LEN01, REV01 and KAR02 (two folds, 60 epochs)."""
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
    )


def _bayes(ode: Callable[[Array], object], size: int = HIDDEN, extra: int = 0) -> Callable[..., Headed]:
    """Builds GRU-ODE-Bayes with the given ODE; without dropout and without the penalty of its jump."""

    def build(key: Array, variables: int) -> Headed:
        one, two = jax.random.split(key)
        model = gru_ode_bayes(variables, ode(one), size, extra=extra, width=size, dropout=0.0, mixing=0.0, key=two)
        return Headed(model, None)

    return build


def plain(size: int = HIDDEN) -> Callable[[Array], NeuralODE]:
    return lambda key: NeuralODE(GRUField(size, key=key), SOLVER)


def augmented(key: Array) -> AugmentedODE:
    return AugmentedODE(GRUField(HIDDEN + EXTRA, key=key), EXTRA, SOLVER)


def fast_weights(key: Array, *, evolution: bool = True, update: bool = True) -> CoEvolvingODE:
    """A GRU conditioned on fast weights, which evolve by the delta rule and into which observations write."""
    one, two, three, four = jax.random.split(key, 4)
    heads = (HEADS, WIDTH)
    return CoEvolvingODE(
        ConditionedGRUField(HIDDEN, attended=HEADS * WIDTH, key=one),
        DeltaRule(HIDDEN, *heads, key=two) if evolution else None,
        FastWeights(HIDDEN, *heads, key=three),
        Zeros((HEADS, WIDTH, WIDTH)),
        SOLVER,
        "evolved" if evolution else "frozen",
        update=DeltaRuleUpdate(HIDDEN, *heads, key=four) if update else None,
    )


class Model(NamedTuple):
    build: Callable[..., Headed]
    causal: bool = True
    config: dict[str, object] = {}  # noqa: RUF012
    base: str = ""
    controls: tuple[str, ...] = ()


PLAIN, LARGER, AUGMENTED = "GRU-ODE-Bayes", "GRU-ODE-Bayes, as many weights", "Augmented-GRU-ODE-Bayes"
MODELS: dict[str, Model] = {
    PLAIN: Model(_bayes(plain())),
    AUGMENTED: Model(_bayes(augmented, extra=EXTRA), config={"extra": EXTRA}),
    LARGER: Model(_bayes(plain(AS_MANY), AS_MANY), config={"hidden": AS_MANY}),
    "ACE-GRU-ODE-Bayes, fast weights": Model(
        _bayes(fast_weights), config={"heads": HEADS, "head_width": WIDTH}, base=PLAIN, controls=(AUGMENTED, LARGER)
    ),
}


def row(name: str, dataset: str) -> Row:
    """A row of the table on any packed set."""
    model = MODELS[name]
    settings = {"hidden": HIDDEN, "span": SPAN, "cut": list(CUT), "hide": HIDE}
    return Row(
        table=TABLE,
        name=name,
        dataset=dataset,
        data=ft.partial(prepared, dataset, model.causal),
        task=Forecast(penalty=0.0, cut=CUT, hide=HIDE, monitor="mse") if model.causal else Forecast(monitor="mse"),
        build=model.build,
        recipe=recipe,
        epochs=100,
        learning_rate=2e-2,
        penalty=0.0,
        protocol="Physiome-ODE, folds of our own draw",
        config={**settings, **model.config},
        base=model.base,
        controls=model.controls,
    )
