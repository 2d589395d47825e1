"""What a fitted estimator attends to, as a frame and as a picture."""

import itertools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import narwhals as nw
import numpy as np

from .registry import entry
from .table import Columns, Table, read, shown, write_times


def attention_frame(estimator: Any, frame: Any) -> Any:
    """Attention at the times of the rows: id, time, `attends` (who looks), `to` (at whom), weight.

    Rows of an id and time and `attends` add up to one. Models that attend between hidden dimensions name them h1, h2...
    """
    table, weights, names = _weights(estimator, frame)
    bounds = np.searchsorted(table.codes, np.arange(len(table.ids) + 1))
    rows = np.concatenate([np.arange(b - a) for a, b in itertools.pairwise(bounds)])
    flat = weights[table.codes, rows]
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
    return nw.from_dict(data, backend=backend).to_native()


def _weights(estimator: Any, frame: Any) -> tuple[Table, np.ndarray, np.ndarray]:
    kind = entry(estimator.settings_.model)
    if kind.attends is None:
        raise ValueError(
            f"attention: the model {estimator.settings_.model} has none; fit one whose name begins with ace, such as "
            "ace-variables."
        )
    columns = Columns(estimator.columns_.id, estimator.columns_.time, estimator.columns_.values)
    table = read(frame, columns, what="the table to explain")
    series = estimator.scaler_.scale(table.panel(estimator.clock_).series)
    model = estimator.model_.model
    trace = eqx.filter_jit(lambda m, s: m(s, s.times, jax.random.key(0), attention=True))(model, series)
    weights = np.asarray(model.ode.attention.weights(trace.attention)).mean(axis=0)
    count = weights.shape[-1]
    names = list(estimator.columns_.values) if kind.attends == "variables" else [f"h{i + 1}" for i in range(count)]
    return table, weights, np.asarray(names, object)


def plot_forecast(estimator: Any, frame: Any, id: Any, at: Any, out: str | Path | None):
    """One panel a variable, with what was seen, the mean and the outer quantiles; then the attention at the last row."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ValueError("plot needs matplotlib; install it with: pip install 'acenode[report]'") from error

    columns = estimator.columns_
    own = nw.from_native(frame, eager_only=True).filter(nw.col(columns.id) == id)
    if len(own) == 0:
        raise ValueError(f"plot: the table has no rows of {columns.id} {shown(id)}.")
    answer = nw.from_native(estimator.predict(own.to_native(), at), eager_only=True)
    attends = entry(estimator.settings_.model).attends
    count = len(columns.values)
    figure, axes = plt.subplots(count + (attends is not None), 1, figsize=(7, 2.0 * count + 3 * bool(attends)))
    axes = np.atleast_1d(axes)
    seen_at = own.get_column(columns.time).to_numpy()
    low, high = (f"q{q:g}" for q in (min(estimator.quantiles), max(estimator.quantiles)))
    for axis, name in zip(axes, columns.values, strict=False):
        axis.plot(seen_at, own.get_column(name).to_numpy(), "o", markersize=3, label="seen")
        part = answer.filter(nw.col("variable") == name).sort(columns.time)
        when = part.get_column(columns.time).to_numpy()
        axis.plot(when, part.get_column("mean").to_numpy(), label="forecast")
        axis.fill_between(when, part.get_column(low).to_numpy(), part.get_column(high).to_numpy(), alpha=0.25)
        axis.set_ylabel(name)
    axes[0].legend(loc="best", frameon=False)
    axes[count - 1].set_xlabel(columns.time)
    if attends is not None:
        _, weights, names = _weights(estimator, own.to_native())
        picture = axes[-1].imshow(weights[0, len(own) - 1], vmin=0, cmap="viridis")
        if len(names) <= 12:
            axes[-1].set_xticks(range(len(names)), names, rotation=45, ha="right")
            axes[-1].set_yticks(range(len(names)), names)
        axes[-1].set_title("attention at the last row: who (rows) looks at whom (columns)")
        figure.colorbar(picture, ax=axes[-1])
    figure.tight_layout()
    if out is not None:
        figure.savefig(out)
    return figure
