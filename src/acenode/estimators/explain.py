"""What a fitted estimator attends to, as a frame."""

from typing import Any

import jax
import numpy as np

from ..compiled import compiled
from ..series import Panel
from .base import in_parts, with_room
from .table import Table, read, write_frame, write_times


def attention_frame(estimator: Any, frame: Any) -> Any:
    """Attention at the times of the rows: id, time, `attends` (who looks), `to` (at whom), weight.

    Rows of an id and time and `attends` add up to one. Models that attend between hidden dimensions name them h1, h2...
    """
    table, weights, names = _weights(estimator, frame)
    flat = weights[table.codes, table.rows]
    size = len(names)
    backend: Any = table.implementation
    each = size * size
    data = {
        estimator.columns_.id: table.ids[np.repeat(table.codes, each)].tolist(),
        estimator.columns_.time: write_times(np.repeat(table.times, each), table.kind, table.zone, backend),
        "attends": np.tile(np.repeat(names, size), len(flat)).tolist(),
        "to": np.tile(names, size * len(flat)).tolist(),
        "weight": flat.ravel().astype(np.float64),
    }
    return write_frame(data, backend)


def _weights(estimator: Any, frame: Any) -> tuple[Table, np.ndarray, np.ndarray]:
    what = "the table to explain"
    table = read(frame, estimator.columns_.unlabelled, what=what)
    weights, names = attention_of(estimator, estimator._scaled(table, what))
    return table, weights, names


def attention_of(estimator: Any, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Weights (series, rows, who looks, at whom) at the times of the rows, and the names of who looks."""
    kind = estimator.entry_
    if kind.attends is None:
        raise ValueError(
            f"attention: the model {estimator.settings_.model} has none; fit one whose name begins with ace, such as "
            "ace-variables."
        )
    queried = np.asarray(panel.series.times)
    roomy = with_room(estimator.model_, panel, queried)
    weights = in_parts(lambda series, times: _attention(roomy.model, series, times), panel, queried)
    weights, count = weights[:, : queried.shape[1]], weights.shape[-1]
    names = list(estimator.columns_.values) if kind.attends == "variables" else [f"h{i + 1}" for i in range(count)]
    return weights, np.asarray(names, object)


@compiled
def _attention(model, series, times):
    trace = model(series, times, jax.random.key(0), attention=True)
    return model.ode.attention.weights(trace.attention).mean(axis=0)
