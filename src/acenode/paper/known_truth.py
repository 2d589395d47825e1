"""Systems whose influence is known: where an attention that evolves must pay, and whether it finds the truth.

Ours, not a table of the paper. The query are the rows after 70 % of the span, from noisy rows before. Beside the MSE
stand the recovery of the true influence at 31 moments: area under the ROC curve of the edges, also of the moments after
the context alone (before the first rows nobody can know it), and correlation.

All rows between units are one filter (`models.unit_filter`) and differ in nothing but how their weights get values. All
of them start from equations that match the slopes of the training series (`models.slope_matching`), and train for a
quarter of the epochs; the static graph, whose encoder has not been matched, trains as long and as fast as the others.
These have one state for all units, and more parameters than any filter. The attentive row is there twice, so that every
other row has one that was trained as it was.
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ..compiled import compiled
from ..datasets import gene_regulation, kuramoto, multi_region_sir, springs
from ..datasets.known_truth import KnownTruth
from ..datasets.split import Split
from ..models import gru_ode_bayes
from ..models.slope_matching import match_slopes
from ..models.unit_filter import influence, unit_filter
from ..ode import AugmentedODE, GRUField, NeuralODE, Solver
from ..series import Query, Series, forecast
from ..tasks import Forecast, Headed
from ..tasks.metrics import edge_auc, influence_correlation
from ..train import Recipe
from .row import Prepared, Row, checksum

TABLE = "known-truth"
TRAINING, VALIDATION, TEST = 400, 100, 200
CUT = (0.4, 0.8)  # parts of the span between which the context of a training series ends
BATCH, EPOCHS, MATCHED_EPOCHS = 50, 40, 10
GAP = 1 / 40  # of the span; rows that are further apart say nothing of a slope
HIDDEN, LARGER, EXTRA = 64, 128, 5
SYSTEMS: dict[str, tuple[Callable[..., KnownTruth], float]] = {  # and the span of a series
    "switching Kuramoto": (kuramoto.generate, 10.0),
    "springs": (springs.generate, 10.0),
    "switching springs": (ft.partial(springs.generate, switches=True), 10.0),
    "charged particles": (springs.charged, 6.0),
    "gene regulation": (gene_regulation.generate, 12.0),
    "multi-region SIR": (multi_region_sir.generate, 15.0),
}


@ft.cache
def generated(dataset: str) -> tuple[KnownTruth, Split, np.ndarray, np.ndarray]:
    """The data, its split, and shift and spread of the training values."""
    generate, span = SYSTEMS[dataset]
    data = generate(samples=TRAINING + VALIDATION + TEST, span=span, seed=0)
    split = Split(*np.split(np.arange(len(data)), [TRAINING, TRAINING + VALIDATION]))
    values = np.asarray(data.panel.series.values)[split.train]
    # One shift and one spread a channel: units are of the same kind.
    values = values.reshape(-1, len(data.units), data.channels)
    repeated = lambda x: np.tile(x, len(data.units)).astype(np.float32)  # noqa: E731
    return data, split, repeated(values.mean(axis=(0, 1))), repeated(values.std(axis=(0, 1)))


def prepared(dataset: str, oracle: bool, data_dir, seeds: Sequence[int]) -> Prepared:
    """The same split for all seeds; with `oracle` every row of the context has the true influence at its end."""
    data, split, shift, spread = generated(dataset)
    whole = data.panel.series
    scaled = Series(whole.times, (np.asarray(whole.values) - shift) / spread, whole.observed, whole.length)
    entire = np.isin(np.arange(len(data)), split.train)
    query = forecast(scaled, data.after, entire=entire)
    training = query.context[split.train]
    if oracle:
        query = Query(with_truth(query.context, data), query.times, query.values, query.observed, query.scored)
    given = {"units": len(data.units), "channels": data.channels, "span": float(data.moments[-1]), "series": training}
    return Prepared(query, split, checksum(query), given)


def with_truth(context: Series, data: KnownTruth) -> Series:
    """The context with the true influence as further variables of every row."""
    times = np.asarray(context.times)
    changed = times >= data.switch[:, None]
    before, after = (data.influence[:, k].reshape(len(data), 1, -1) for k in (0, -1))
    truth = np.where(changed[..., None], after, before)
    real = np.asarray(context.real)[..., None]
    values = np.concatenate([context.values, np.where(real, truth, 0)], axis=-1).astype(np.float32)
    observed = np.concatenate([context.observed, np.broadcast_to(real, truth.shape)], axis=-1)
    return Series(times, values, observed, context.length)


def recovery(dataset: str, model: Headed, task: Any, query: Query, test: np.ndarray) -> dict[str, float]:
    """How well the weights of the filter tell the true influence: at all moments, and ahead, in the query window."""
    data, _, _, _ = generated(dataset)
    context = jax.tree.map(lambda x: jnp.asarray(x)[np.asarray(test)], query.context)
    times = jnp.broadcast_to(jnp.asarray(data.moments, jnp.float32), (len(test), len(data.moments)))
    weights = np.asarray(_influence(model.model, context, times))
    truth = data.influence[np.asarray(test)]
    ahead = data.moments > data.after
    found = {
        "edge_auc": edge_auc(weights, truth),
        "edge_auc_ahead": edge_auc(weights[:, ahead], truth[:, ahead]),
        "influence_correlation": influence_correlation(weights, truth),
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}  # equal weights correlate with nothing


_influence = compiled(influence)


def recipe(epochs: int) -> Recipe:
    """The same for all rows."""
    steps = epochs * (TRAINING // BATCH)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, min(40, steps // 4), steps, 0.02)
    return Recipe(
        epochs=epochs,
        batch_size=BATCH,
        schedule=schedule,
        clip=1.0,
        average=0.98,
        validate_every=5,
        eval_batch=100,
    )


# --- models -----------------------------------------------------------------------------------------------------


def _units(weights: str) -> Callable[..., Headed]:
    def build(key: Array, units: int, channels: int, span: float, series: Series) -> Headed:
        solver = Solver("midpoint", step=span / 40, max_steps=144)
        model = unit_filter(units, channels, weights, solver=solver, key=key)
        return Headed(match_slopes(model, series, longest=GAP * span, key=jax.random.fold_in(key, 1)), None)

    return build


def _bayes(ode: Callable[[Array, Solver], Any], size: int, extra: int = 0) -> Callable[..., Headed]:
    def build(key: Array, units: int, channels: int, span: float, series: Series) -> Headed:
        one, two = jax.random.split(key)
        made = ode(one, Solver("euler", step=span / 100, max_steps=208))
        model = gru_ode_bayes(units * channels, made, size, extra=extra, width=size, dropout=0.0, mixing=0.0, key=two)
        return Headed(model, None)

    return build


class Model(NamedTuple):
    build: Callable[..., Headed]
    learning_rate: float
    config: dict[str, object] = {}  # noqa: RUF012
    weights: str | None = None
    epochs: int = EPOCHS


ATTENTIVE, NO_INFLUENCE, STATIC = "ACE, least-squares attention", "units alone", "static graph"
LONGER = f"{ATTENTIVE}, {EPOCHS} epochs"
PLAIN, LARGE, AUGMENTED = "GRU-ODE-Bayes", "GRU-ODE-Bayes, larger", "Augmented-GRU-ODE-Bayes"


def _filter(weights: str, longer: bool = False) -> Model:
    rate, epochs = (1e-2, EPOCHS) if longer else (3e-3, MATCHED_EPOCHS)
    return Model(_units(weights), rate, {"weights": weights}, weights, epochs)


MODELS: dict[str, Model] = {
    PLAIN: Model(_bayes(lambda key, s: NeuralODE(GRUField(HIDDEN, key=key), s), HIDDEN), 1e-2, {"hidden": HIDDEN}),
    LARGE: Model(_bayes(lambda key, s: NeuralODE(GRUField(LARGER, key=key), s), LARGER), 1e-2, {"hidden": LARGER}),
    AUGMENTED: Model(
        _bayes(lambda key, s: AugmentedODE(GRUField(HIDDEN + EXTRA, key=key), EXTRA, s), HIDDEN, EXTRA),
        1e-2,
        {"hidden": HIDDEN, "extra": EXTRA},
    ),
    NO_INFLUENCE: _filter("none"),
    "uniform weights": _filter("uniform"),
    "frozen weights": _filter("frozen"),
    STATIC: _filter("static graph", longer=True),
    "additive twin": _filter("additive"),
    ATTENTIVE: _filter("least squares"),
    LONGER: _filter("least squares", longer=True),
    "oracle": _filter("oracle"),
}
# Of each attentive row its base and its controls.
COMPARED = {
    ATTENTIVE: (
        NO_INFLUENCE,
        tuple(name for name in MODELS if name not in (ATTENTIVE, LONGER, NO_INFLUENCE, "oracle")),
    ),
    LONGER: (PLAIN, (LARGE, AUGMENTED, STATIC)),
}


def row(name: str, dataset: str) -> Row:
    build, learning_rate, config, weights, epochs = MODELS[name]
    base, controls = COMPARED.get(name, ("", ()))
    _, span = SYSTEMS[dataset]
    return Row(
        table=TABLE,
        name=name,
        dataset=dataset,
        data=ft.partial(prepared, dataset, weights == "oracle"),
        task=Forecast(penalty=0.0, cut=(CUT[0] * span, CUT[1] * span), monitor="mse"),
        build=build,
        recipe=recipe,
        epochs=epochs,
        learning_rate=learning_rate,
        config=config,
        base=base,
        own_settings=("weights",),
        controls=controls,
        reported=("edge_auc", "edge_auc_ahead", "influence_correlation"),
        measures=None if weights is None else ft.partial(recovery, dataset),
    )


ROWS: tuple[Row, ...] = tuple(row(name, dataset) for dataset in SYSTEMS for name in MODELS)
