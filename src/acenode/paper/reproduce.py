"""Train and judge one row of a table: seeds as one ensemble, resumable, the test data looked at once."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ..train import Bar, Member, Progress, evaluate, fit, parameter_count
from . import results
from .row import Row


def reproduce(
    row: Row,
    seeds: Sequence[int],
    folder: Path,
    runs: Path,
    *,
    epochs: int | None = None,
    learning_rate: float | None = None,
    data_dir=None,
    progress: Progress | None = None,
) -> list[results.Result]:
    """Fill in what is missing of a row: train the seeds that have no result file yet, and write theirs.

    `runs` holds the checkpoint while the row is being trained; a call after a kill goes on from it. `epochs` and
    `learning_rate` stand in for those of the row.
    """
    recipe = row.recipe(epochs or row.epochs)
    missing = [s for s in seeds if not results.path_of(folder, row.table, row.name, s).exists()]
    if not missing:
        return []
    prepared = row.data(data_dir, missing)
    splits = prepared.splits if isinstance(prepared.splits, list) else [prepared.splits] * len(missing)
    rate = learning_rate or row.learning_rate
    members = [Member(s, k, rate, row.penalty) for k, s in enumerate(missing)]
    tag = "-".join(map(str, missing))
    checkpoint = runs / row.table / f"{results.slug(row.name)}-seeds{tag}.safetensors"
    outcome = fit(
        row.build,
        row.task,
        prepared.data,
        splits,
        recipe,
        members,
        checkpoint=checkpoint,
        progress=progress or Bar(row.name),
    )
    tested = [split.test for split in splits]
    test = evaluate(outcome.models, row.task, prepared.data, tested, eval_batch=recipe.eval_batch)
    written = []
    for k, seed in enumerate(missing):
        best = int(outcome.best_epoch[k])
        history = {name: [round(float(v), 6) for v in values[:, k]] for name, values in outcome.history.items()}
        result = results.Result(
            table=row.table,
            row=row.name,
            seed=seed,
            metrics={name: float(value[k]) for name, value in test.items()},
            validation={n: v[best] for n, v in history.items() if n.startswith("validation_")},
            protocol=row.protocol,
            config={**row.config, **_plain(recipe), "learning_rate": rate, "penalty": row.penalty},
            epochs=len(next(iter(history.values()))),
            best_epoch=best + 1,
            parameters=parameter_count(outcome.model(k)),
            data={"sha256": prepared.checksum},
            versions=results.versions(),
            device=results.device(),
            seconds=round(outcome.seconds, 1),
            history=history,
            notes=tuple(n for n in outcome.notes if f"seed={seed}," in n),
        )
        results.save(folder, result)
        written.append(result)
    return written


def _plain(recipe) -> dict[str, object]:
    return {k: v for k, v in asdict(recipe).items() if isinstance(v, str | int | float | bool | type(None))}


def summary(rows: Sequence[results.Result], metric: str) -> str:
    values = np.array([r.metrics[metric] for r in rows])
    spread = f" +- {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{metric} {values.mean():.4f}{spread} over {len(values)} seeds"
