"""What a fitted estimator attends to, as a frame; and pictures of one series."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import narwhals as nw
import numpy as np

from ..compiled import compiled
from ..series import Panel
from ..series.categories import encode
from ..series.columns import shown
from ..series.frames import write_frame
from ..series.table import Table, frame_of
from ..series.times import Clock, read_times
from ..train.checkpoint import write_atomically
from .inference import in_batches, with_enough_steps

Out = str | Path | None
Draw = Callable[[Any, int, str], None]  # into an axis, the number and the name of a variable
_PLOTTED = "the table to plot"


def attention_frame(estimator: Any, frame: Any) -> Any:
    """Attention at the times of the rows: id, time, `attends` (who attends), `to` (to whom), weight.

    Rows of an id and time and `attends` add up to one. Models that attend between hidden dimensions name them h1, h2...
    """
    what = "the table to explain"
    table = estimator._read(frame, what)
    weights, names = attention_of(estimator, estimator._scaled(table, what))
    flat = weights[table.codes, table.rows]
    size = len(names)
    each = size * size
    data = {
        estimator.columns_.id: table.ids[np.repeat(table.codes, each)].tolist(),
        estimator.columns_.time: table.clock.write(np.repeat(table.times, each), table.backend),
        "attends": np.tile(np.repeat(names, size), len(flat)).tolist(),
        "to": np.tile(names, size * len(flat)).tolist(),
        "weight": flat.ravel().astype(np.float64),
    }
    return write_frame(data, table.backend)


def attention_of(estimator: Any, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Weights (series, rows, who attends, to whom) at the times of the rows, and the names of who attends."""
    kind = estimator.entry_
    if kind.attends is None:
        raise ValueError(
            f"attention: the model {estimator.settings_.model} has none; fit one whose name begins with ace, such as "
            "ace-variables."
        )
    times = np.asarray(panel.series.times)
    model = with_enough_steps(estimator.model_, panel, times).model
    weights = in_batches(lambda series, times: _attention(model, series, times), panel, times)
    if weights.ndim != 4 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(
            f"attention: that of {estimator.settings_.model} has the shape {weights.shape[2:]} at a time, and is no "
            "square matrix of who attends to whom. Set attends=None in its Entry."
        )
    weights, count = weights[:, : times.shape[1]], weights.shape[-1]
    names = list(estimator.columns_.values) if kind.attends == "variables" else [f"h{i + 1}" for i in range(count)]
    return weights, np.asarray(names, object)


@compiled
def _attention(model, series, times):
    trace = model(series, times, jax.random.key(0), attention=True)
    return model.ode.attention.weights(trace.attention).mean(axis=0)


# --- pictures -----------------------------------------------------------------------------------------------------


def plot_forecast(estimator: Any, frame: Any, id: Any, at: Any, out: Out):
    """One series with the mean and the outer quantiles at the times `at`."""

    def predicted(own: Any, table: Table) -> Draw:
        forecast = nw.from_native(estimator.predict(own, at), eager_only=True)

        def draw(axis, j, name):
            part = forecast.filter(nw.col("variable") == name).sort(estimator.columns_.time)
            when = _on_axis(read_times(part.get_column(estimator.columns_.time), _PLOTTED)[0], table.clock)
            # A line through one point cannot be seen, nor can a band over it.
            alone = len(when) == 1
            (line,) = axis.plot(when, part.get_column("mean").to_numpy(), marker="o" if alone else "", label="forecast")
            if len(estimator.quantiles) > 1:
                low, high = (part.get_column(f"q{q(estimator.quantiles):g}").to_numpy() for q in (min, max))
                band = axis.vlines if alone else axis.fill_between
                band(when, low, high, color=line.get_color(), alpha=0.25, lw=4 if alone else 0)

        return draw

    return _plot(estimator, frame, id, out, predicted)


def plot_filled(estimator: Any, frame: Any, id: Any, out: Out):
    """One series with its blanks filled in."""

    def predicted(own: Any, table: Table) -> Draw:
        encoded, _ = encode(estimator.transform(own), estimator.categories_, estimator.columns_.missing)
        filled = nw.from_native(encoded, eager_only=True)
        when = _on_axis(table.times, table.clock)

        def draw(axis, j, name):
            blank = np.isnan(table.values[:, j])
            values = filled.get_column(name).to_numpy().astype(float)
            axis.plot(when[blank], values[blank], "o", markersize=3, mfc="none", label="filled in")

        return draw

    return _plot(estimator, frame, id, out, predicted)


def plot_series(estimator: Any, frame: Any, id: Any, out: Out):
    """One series with nothing added."""
    return _plot(estimator, frame, id, out, lambda own, table: lambda axis, j, name: None)


def _plot(estimator: Any, frame: Any, id: Any, out: Out, predicted: Callable[[Any, Table], Draw]):
    """One panel a variable with what was observed and what `predicted` draws; then the attention at the last row."""
    plt = pyplot()
    from ..report.plots import literal, short

    columns = estimator.columns_
    own = frame_of(frame, _PLOTTED)
    if columns.id in own.columns:
        own = own.filter(nw.col(columns.id) == id)
        if len(own) == 0:
            raise ValueError(f"plot: the table has no rows of {columns.id} {shown(id)}; name one that it has.")
    table = estimator._read(own.to_native(), _PLOTTED)
    draw = predicted(own.to_native(), table)
    attends = estimator.entry_.attends
    count = len(columns.values)
    figure, axes = plt.subplots(count + (attends is not None), 1, figsize=(7, 2.0 * count + 3 * bool(attends)))
    axes = np.atleast_1d(axes)
    for j, (axis, name) in enumerate(zip(axes, columns.values, strict=False)):
        axis.plot(_on_axis(table.times, table.clock), table.values[:, j], "o", markersize=3, label="observed")
        draw(axis, j, name)
        axis.set_ylabel(literal(name))
    axes[0].legend(loc="best", frameon=False)
    axes[count - 1].set_xlabel(literal(columns.time) + ("" if table.clock.zone is None else " (UTC)"))
    if attends is not None:
        weights, names = attention_of(estimator, estimator._scaled(table, _PLOTTED))
        picture = axes[-1].imshow(weights[0, len(own) - 1], vmin=0, cmap="viridis")
        if len(names) <= 12:
            labels = [literal(name) for name in short(names.tolist())]
            axes[-1].set_xticks(range(len(names)), labels, rotation=45, ha="right")
            axes[-1].set_yticks(range(len(names)), labels)
        axes[-1].set(ylabel="attends", xlabel="to")
        axes[-1].set_title(f"attention at the last row{_caution(estimator)}", fontsize="small")
        figure.colorbar(picture, ax=axes[-1])
    figure.tight_layout()
    return finished(figure, out)


def _caution(estimator: Any) -> str:
    """How the weights may be read, as the end of a title."""
    if estimator.entry_.attends != "variables":
        return "\n(between hidden dimensions, not variables)"
    reading = estimator.reading_
    if reading is None:
        return ""
    return "" if reading.informative else f"\nnot to be read as influence:\n{reading.reason}"


def pyplot():
    """Matplotlib, which is an extra."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ValueError("plot needs matplotlib; install it with: pip install 'acenode[report]'") from error
    return plt


def finished(figure: Any, out: Out):
    """A figure, also written to `out` if that is a path."""
    if out is not None:
        drawn = BytesIO()
        figure.savefig(drawn, format=Path(out).suffix[1:] or "png")
        write_atomically(Path(out), drawn.getvalue())
    if "inline" in pyplot().get_backend():
        pyplot().close(figure)  # a notebook shows what a cell returns; an open figure it would show twice
    return figure


def _on_axis(times: np.ndarray, clock: Clock) -> np.ndarray:
    return times if clock.kind == "number" else np.round(times * 1e6).astype("datetime64[us]")
