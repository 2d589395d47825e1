"""What a fitted estimator attends to, as a frame and as a picture."""

from io import BytesIO
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import narwhals as nw
import numpy as np

from ..series import Panel
from ..train.checkpoint import write_atomically
from .base import in_parts, with_room
from .table import Columns, Kind, Table, frame_of, read, shown, times_of, write_frame, write_times


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
    columns = Columns(estimator.columns_.id, estimator.columns_.time, estimator.columns_.values)
    table = read(frame, columns, what=what)
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
    asked = np.asarray(panel.series.times)
    roomy = with_room(estimator.model_, panel, asked)
    weights = in_parts(lambda series, times: _attention(roomy.model, series, times), panel, asked)
    weights, count = weights[:, : asked.shape[1]], weights.shape[-1]
    names = list(estimator.columns_.values) if kind.attends == "variables" else [f"h{i + 1}" for i in range(count)]
    return weights, np.asarray(names, object)


@eqx.filter_jit
def _attention(model, series, times):
    trace = model(series, times, jax.random.key(0), attention=True)
    return model.ode.attention.weights(trace.attention).mean(axis=0)


def plot_forecast(estimator: Any, frame: Any, id: Any, at: Any, out: str | Path | None):
    """One panel a variable, with what was seen, the mean and outer quantiles; then the attention at the last row."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ValueError("plot needs matplotlib; install it with: pip install 'acenode[report]'") from error

    columns, what = estimator.columns_, "the table to plot"
    own = frame_of(frame, what)
    if columns.id in own.columns:
        own = own.filter(nw.col(columns.id) == id)
        if len(own) == 0:
            raise ValueError(f"plot: the table has no rows of {columns.id} {shown(id)}; name one that it has.")
    table = read(own.to_native(), Columns(*columns[:3]), what=what)
    answer = nw.from_native(estimator.predict(own.to_native(), at), eager_only=True)
    attends = estimator.entry_.attends
    count = len(columns.values)
    figure, axes = plt.subplots(count + (attends is not None), 1, figsize=(7, 2.0 * count + 3 * bool(attends)))
    axes = np.atleast_1d(axes)
    seen_at = _on_axis(table.times, table.kind)
    for j, (axis, name) in enumerate(zip(axes, columns.values, strict=False)):
        axis.plot(seen_at, table.values[:, j], "o", markersize=3, label="seen")
        part = answer.filter(nw.col("variable") == name).sort(columns.time)
        when = _on_axis(times_of(part.get_column(columns.time), what)[0], table.kind)
        axis.plot(when, part.get_column("mean").to_numpy(), label="forecast")
        if len(estimator.quantiles) > 1:
            low, high = (part.get_column(f"q{q(estimator.quantiles):g}").to_numpy() for q in (min, max))
            axis.fill_between(when, low, high, alpha=0.25)
        axis.set_ylabel(name)
    axes[0].legend(loc="best", frameon=False)
    axes[count - 1].set_xlabel(columns.time if table.zone is None else f"{columns.time} (UTC)")
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
        drawn = BytesIO()
        figure.savefig(drawn, format=Path(out).suffix[1:] or "png")
        write_atomically(Path(out), drawn.getvalue())
    return figure


def _on_axis(times: np.ndarray, kind: Kind) -> np.ndarray:
    return times if kind == "number" else np.round(times * 1e6).astype("datetime64[us]")
