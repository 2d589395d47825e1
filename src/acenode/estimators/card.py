"""What a fitted estimator is, for people: the model card of a saved folder, and a table for notebooks."""

import json
import math
from collections.abc import Mapping
from html import escape
from typing import Any

import narwhals as nw

from .. import __version__
from ..series.categories import collapsed

CARD = "README.md"
_TASKS = {  # by the words of the hub
    "forecast": "time-series-forecasting",
    "classify": "tabular-classification",
    "regress": "tabular-regression",
    "impute": "tabular-regression",
}


def facts(estimator: Any) -> dict[str, str]:
    """Model, data, validation score and size, in words."""
    settings, summary, columns = estimator.settings_, estimator.summary_, estimator.columns_
    classes = getattr(estimator, "classes_", None)
    return {
        "model": f"{estimator.members_} (hidden size {settings.hidden})",
        "parameters": f"{summary.parameters:,}",
        "trained on": f"{summary.series:,} series with {summary.observations:,} values, of which "
        f"{summary.validation_series:,} series for validation",
        "variables": ", ".join(map(str, collapsed(columns.values, estimator.categories_))),
        "columns": f"id {columns.id!r}, time {columns.time!r} ({estimator.clock_.kind}s)",
        **({} if classes is None else {"labels": ", ".join(map(str, classes))}),
        f"validation {summary.metric}": f"{summary.validation:.4g} (epoch {summary.best_epoch} of {summary.epochs})",
        "training time": f"{summary.seconds:,.1f} s",
    }


def html(estimator: Any) -> str:
    """A small table, as notebooks show it."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts(estimator).items()
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in estimator.summary_.notes)
    said = f"<ul>{notes}</ul>" if notes else ""
    name = escape(type(estimator).__name__)
    return f"<div><strong>{name}</strong> (fitted){said}<table>{rows}</table>{_candidates(estimator)}</div>"


def _candidates(estimator: Any) -> str:
    """The table of candidates, folded, where there was more than one."""
    names, rows = leaderboard_rows(estimator)
    if len(rows) < 2:
        return ""
    line = lambda cells, tag: f"<tr>{''.join(f'<{tag}>{escape(c)}</{tag}>' for c in cells)}</tr>"  # noqa: E731
    table = line(names, "th") + "".join(line(row, "td") for row in rows)
    return f"<details><summary>candidates, on the validation series</summary><table>{table}</table></details>"


def leaderboard_rows(estimator: Any) -> tuple[list[str], list[list[str]]]:
    """The names of the columns of the table of candidates, and its rows as text."""
    table = nw.from_native(estimator.leaderboard_, eager_only=True)

    def shown(name: str, value: Any) -> str:
        if value is None or value != value:
            return ""
        if isinstance(value, str) or name == "epochs":
            return str(value)
        return f"{value:.0f}" if name == "seconds" else f"{value:.2f}" if name == "weight" else f"{value:.4f}"

    names = list(table.columns)
    return names, [[shown(name, row[name]) for name in names] for row in table.rows(named=True)]


def card(estimator: Any, metrics: Mapping[str, float] | None = None) -> str:
    """A model card in Markdown, its head as the Hugging Face Hub reads it; `metrics` are those on test data."""
    settings, summary = estimator.settings_, estimator.summary_
    kind, notes = type(estimator).__name__, "".join(f"**Note:** {_cell(note)}\n\n" for note in summary.notes)
    task = {"type": _TASKS[estimator.task], "name": estimator.task}
    scores = [("validation", {summary.metric: summary.validation}), ("test", dict(metrics or {}))]
    results = [
        {
            "task": task,
            "dataset": {"type": "tabular", "name": f"{split} series of the user's table", "split": split},
            "metrics": [{"type": name, "name": name, "value": float(v)} for name, v in of.items() if math.isfinite(v)],
        }
        for split, of in scores
    ]
    results = [each for each in results if each["metrics"]]
    head: dict[str, Any] = {
        "library_name": "acenode",
        "pipeline_tag": _TASKS[estimator.task],
        "tags": ["acenode", "jax", "time-series", "irregular-time-series", "neural-ode", settings.model],
        "metrics": sorted({m["type"] for each in results for m in each["metrics"]}),
    }
    if results:
        head["model-index"] = [{"name": settings.model, "results": results}]
    # JSON is YAML too, and quotes whatever a column may be called.
    yaml = "\n".join(f"{name}: {json.dumps(value)}" for name, value in head.items())
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in facts(estimator).items())
    tested = "".join(f"| test {_cell(name)} | {value:.4g} |\n" for name, value in dict(metrics or {}).items())
    return f"""---
{yaml}
---

# {kind} with {estimator.members_}

{notes}| | |
|---|---|
{table}
{tested}
## Use

```python
import acenode

model = acenode.load("this folder")
{_USES[estimator.task]}
```

`frame` has one row for each id and time, with the columns above; blanks are missing values. The weights are in
`model.safetensors`, all else is in `model.json`; nothing in this folder is code. Saved by acenode {__version__}.

## Limits

The model knows what its training table showed. Its score above is of series set aside from that table: on data of
another origin, evaluate it first (`model.evaluate(frame)`).
"""


_USES = {
    "forecast": "model.predict(frame, at=[...])  # a frame of means and quantiles",
    "classify": "model.predict_proba(frame)  # a frame of probabilities",
    "regress": "model.predict(frame)  # a frame of expected targets",
    "impute": "model.transform(frame)  # the frame with its blanks filled",
}


def _cell(text: str) -> str:
    """As a cell of a table in Markdown; a column may be called anything."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
