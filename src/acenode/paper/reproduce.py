"""Train and evaluate one row of a table: seeds as one ensemble, resumable; test data choose nothing."""

import functools as ft
import math
import threading
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..train import Bar, Fit, Member, Progress, Recipe, device_kind, evaluate, fit, parameter_count
from . import results
from .baselines import Baseline
from .existing import Existing
from .figures import has_g
from .row import Refused, Row, Setting

_loading = threading.Lock()  # rows that are trained at a time share what is loaded
QUICK = 10  # a quick run has this part of the published epochs


def reproduce(
    row: Row | Baseline,
    seeds: Sequence[int],
    folder: Path,
    runs: Path,
    *,
    epochs: int | None = None,
    learning_rates: Sequence[float] = (),
    penalties: Sequence[float] = (),
    grid: bool = False,
    quick: bool = False,
    data_dir=None,
    progress: Progress | None = None,
) -> list[results.Result]:
    """Fill in what is missing of a row: train the seeds that have no such result file yet, and write theirs.

    `runs` holds the checkpoint while the row is being trained; a call after a kill resumes from it. `epochs`,
    `learning_rates` and `penalties` stand in for those of the row; `grid` takes the paper's of both, or of the first
    alone for a model without g; without any of them, what an older result was chosen among is tried again. Of several
    settings, all trained at once, the one with the best mean validation score is kept. `quick` takes a tenth of the
    epochs and marks its results.

    A result is done if it was made with the settings the row has now, at least as many epochs, and the given rates, if
    any are. One of more epochs is never replaced: that is an error.
    """
    if isinstance(row, Baseline):
        return _score_baseline(row, seeds, folder, data_dir)
    recipe = row.recipe(epochs or (math.ceil(row.epochs / QUICK) if quick else row.epochs))
    given = tuple(dict.fromkeys(product(learning_rates or (row.learning_rate,), penalties or (row.penalty,))))
    if grid and not row.grid:
        raise Refused(f"{row.name} of {row.table} has no grid.")
    settings = row.grid if grid else given
    queried = settings if grid or learning_rates or penalties else None
    existing = Existing.read(folder, row, seeds, quick)
    missing = existing.missing(row, recipe.epochs, queried)
    if not missing:
        return []
    if queried is None:
        settings = existing.tried(missing) or settings

    def checkpoint(seeds: Sequence[int], settings: Sequence[Setting]) -> Path:
        return runs / row.table / f"{_name_of_run(row, recipe, seeds, settings, quick)}.safetensors"

    # A kill between two result files leaves the checkpoint of all seeds that were asked for.
    asked, tried = list(existing.files), [settings, row.rates_only(settings)] if grid else [settings]
    trained = asked if any(checkpoint(asked, some).exists() for some in tried) else missing
    with _loading:
        prepared = row.data(data_dir, trained)
    build = ft.partial(row.build, **prepared.given)
    if grid and not has_g(eqx.filter_eval_shape(build, jax.random.key(0))):
        settings = row.rates_only(settings)
    splits = prepared.splits if isinstance(prepared.splits, list) else [prepared.splits] * len(trained)
    members = [Member(s, k, *setting) for setting in settings for k, s in enumerate(trained)]
    outcome = fit(
        build,
        row.task,
        prepared.data,
        splits,
        recipe,
        members,
        checkpoint=checkpoint(trained, settings),
        progress=progress or Bar(row.name),
    )
    chosen, validated = _choose(row, outcome, len(settings))
    models = jax.tree.map(lambda x: x[np.asarray(chosen)] if eqx.is_array(x) else x, outcome.models)
    tested = [split.test for split in splits]
    how = {"eval_batch": recipe.eval_batch, "precision": recipe.precision, "self_check": recipe.self_check}
    test = evaluate(models, row.task, prepared.data, tested, **how)
    config = {**row.config, **_plain(recipe, len(splits[0].train))}
    if len(settings) > 1:
        config["grid"] = [{"learning_rate": r, "penalty": p, "validation": v} for (r, p), v in validated.items()]
    if quick:
        config["quick"] = True
    made = []
    for k, seed in enumerate(trained):
        if seed not in missing:
            continue
        member, model = members[chosen[k]], outcome.model(chosen[k])
        told = (model, row.task, prepared.data, tested[k])
        more, figures, faults = _look(row, told)
        best = int(outcome.best_epoch[chosen[k]])
        history = {name: [round(float(v), 6) for v in values[:, chosen[k]]] for name, values in outcome.history.items()}
        result = results.Result(
            table=row.table,
            row=row.name,
            seed=seed,
            metrics={**{name: float(value[k]) for name, value in test.items()}, **more},
            validation={n: v[best] for n, v in history.items() if n.startswith("validation_")},
            protocol=f"{prepared.variant}, {row.protocol}" if prepared.variant else row.protocol,
            config={**config, "learning_rate": member.learning_rate, "penalty": member.penalty},
            epochs=len(next(iter(history.values()))),
            best_epoch=best + 1,
            parameters=parameter_count(model),
            data={"sha256": prepared.checksum},
            versions=results.versions(),
            device=", ".join(outcome.devices),
            seconds=round(outcome.seconds, 1),
            history=history,
            notes=(*outcome.member_notes[chosen[k]], *faults),
            figures=figures,
            dataset=row.dataset,
            attention_health=_health(history, best),
        )
        made.append(result)
    # All at the end: seeds that are done change which checkpoint is looked for, so a kill in between would lose others.
    for result in made:
        results.save(folder, result)
    return made


def _health(history: Mapping[str, Sequence[float]], best: int) -> dict[str, float]:
    """The health of an attention at the best epoch, by the names of `Result.attention_health`."""
    if "attention_change" not in history:
        return {}
    names = {"change": "attention_change", "entropy": "attention_entropy", "variance_share": "attended_variance"}
    health = {short: history[name][best] for short, name in {**names, "norm": "attention_norm"}.items()}
    pulled = history["penalty_gradient"][best]
    ratio = history["attention_gradient"][best] / pulled if pulled else math.inf
    return {**health, "gradient_ratio": ratio}


def _choose(row: Row, outcome: Fit, settings: int) -> tuple[list[int], dict[tuple[float, float], float]]:
    """The members with the setting that has the best mean validation score, and that score of every setting."""
    scores = outcome.best_score.reshape(settings, -1).mean(axis=1)
    order = scores if row.task.better == "lower" else -scores
    best = int(np.argmin(np.where(np.isfinite(order), order, np.inf)))
    members = np.arange(len(outcome.members)).reshape(settings, -1)
    named = [(outcome.members[m].learning_rate, outcome.members[m].penalty) for m in members[:, 0]]
    return members[best].tolist(), {name: float(score) for name, score in zip(named, scores, strict=True)}


def _look(row: Row, told: tuple) -> tuple[Mapping[str, float], dict[str, Mapping[str, Any]], list[str]]:
    """More metrics, figures, and what could not be made of them: that must not cost a finished training."""
    made, faults = {}, []
    for name, make in {**({"measures": row.measures} if row.measures else {}), **row.figures}.items():
        try:
            made[name] = make(*told)
        except Exception as error:  # whatever it is, it is written down
            faults.append(f"{name}: {type(error).__name__}: {error}")
    return made.pop("measures", {}), {name: figure for name, figure in made.items() if figure}, faults


def _score_baseline(row: Baseline, seeds: Sequence[int], folder: Path, data_dir) -> list[results.Result]:
    """Write the scores of a row that is not trained."""
    existing = Existing.read(folder, row, seeds if row.by_seed else [0])
    seeds = [seed for seed in existing.files if seed not in existing.made]
    written = []
    for seed, metrics in zip(seeds, row.score(data_dir, seeds) if seeds else (), strict=True):
        result = results.Result(
            table=row.table,
            row=row.name,
            seed=seed,
            metrics=metrics,
            validation={},
            protocol=row.protocol,
            config=row.config,
            epochs=0,
            best_epoch=0,
            parameters=0,
            data={"sha256": row.checksum(data_dir)},
            versions=results.versions(),
            device=device_kind(),
            seconds=0.0,
            history={},
            dataset=row.dataset,
        )
        results.save(folder, result)
        written.append(result)
    return written


def _name_of_run(row: Row, recipe: Recipe, seeds: Sequence[int], settings: Sequence[Setting], quick: bool) -> str:
    """One for each way of training the row: with other settings it is another run, and begins anew."""
    how = repr((sorted(row.settings(recipe.epochs).items()), tuple(settings)))
    mark = f"{zlib.crc32(how.encode()):08x}{'-quick' if quick else ''}"
    return f"{results.slug(f'{row.dataset} {row.name}')}-seeds{'-'.join(map(str, seeds))}-{mark}"


def _plain(recipe: Recipe, samples: int) -> dict[str, object]:
    """The recipe in a file; of its schedule, the factor on the learning rate at the start of each tenth of the run."""
    plain: dict[str, object] = {**recipe.plain()}
    if recipe.schedule is None:
        return plain
    iterations = recipe.epochs * (samples // recipe.batch_size)
    factors = [float(recipe.schedule(iterations * tenth // 10)) for tenth in range(10)]
    return {**plain, "schedule": [round(factor, 4) for factor in factors]}


def summary(rows: Sequence[results.Result], metric: str) -> str:
    values = np.array([r.metrics[metric] for r in rows])
    spread = f" +- {values.std(ddof=1):.2g}" if len(values) > 1 and np.isfinite(values).all() else ""
    return f"{metric} {values.mean():.4g}{spread} over {len(values)} seed{'s' if len(values) > 1 else ''}"
