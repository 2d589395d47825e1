"""One series as a picture: what was seen, what the estimator makes of it, and its attention."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from ..report.plots import literal, short
from ..train.checkpoint import write_atomically
from .explain import attention_of
from .table import Kind, Table, frame_of, read, shown, times_of

Out = str | Path | None
Draw = Callable[[Any, int, str], None]  # into an axis, the number and the name of a variable
_WHAT = "the table to plot"


def plot_forecast(estimator: Any, frame: Any, id: Any, at: Any, out: Out):
    """With the mean and the outer quantiles at the times `at`."""

    def answer(own: Any, table: Table) -> Draw:
        said = nw.from_native(estimator.predict(own, at), eager_only=True)

        def draw(axis, j, name):
            part = said.filter(nw.col("variable") == name).sort(estimator.columns_.time)
            when = _on_axis(times_of(part.get_column(estimator.columns_.time), _WHAT)[0], table.kind)
            # A line through one point cannot be seen, nor can a band over it.
            alone = len(when) == 1
            (line,) = axis.plot(when, part.get_column("mean").to_numpy(), marker="o" if alone else "", label="forecast")
            if len(estimator.quantiles) > 1:
                low, high = (part.get_column(f"q{q(estimator.quantiles):g}").to_numpy() for q in (min, max))
                band = axis.vlines if alone else axis.fill_between
                band(when, low, high, color=line.get_color(), alpha=0.25, lw=4 if alone else 0)

        return draw

    return _plot(estimator, frame, id, out, answer)


def plot_filled(estimator: Any, frame: Any, id: Any, out: Out):
    """With the blanks filled in."""

    def answer(own: Any, table: Table) -> Draw:
        filled = nw.from_native(estimator.transform(own), eager_only=True)
        when = _on_axis(table.times, table.kind)

        def draw(axis, j, name):
            blank = np.isnan(table.values[:, j])
            values = filled.get_column(name).to_numpy().astype(float)
            axis.plot(when[blank], values[blank], "o", markersize=3, mfc="none", label="filled in")

        return draw

    return _plot(estimator, frame, id, out, answer)


def plot_seen(estimator: Any, frame: Any, id: Any, out: Out):
    """With nothing added."""
    return _plot(estimator, frame, id, out, lambda own, table: lambda axis, j, name: None)


def _plot(estimator: Any, frame: Any, id: Any, out: Out, answer: Callable[[Any, Table], Draw]):
    """One panel a variable with what was seen and what `answer` draws; then the attention at the last row."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ValueError("plot needs matplotlib; install it with: pip install 'acenode[report]'") from error

    columns = estimator.columns_
    own = frame_of(frame, _WHAT)
    if columns.id in own.columns:
        own = own.filter(nw.col(columns.id) == id)
        if len(own) == 0:
            raise ValueError(f"plot: the table has no rows of {columns.id} {shown(id)}; name one that it has.")
    table = read(own.to_native(), columns.unlabelled, what=_WHAT)
    draw = answer(own.to_native(), table)
    attends = estimator.entry_.attends
    count = len(columns.values)
    figure, axes = plt.subplots(count + (attends is not None), 1, figsize=(7, 2.0 * count + 3 * bool(attends)))
    axes = np.atleast_1d(axes)
    for j, (axis, name) in enumerate(zip(axes, columns.values, strict=False)):
        axis.plot(_on_axis(table.times, table.kind), table.values[:, j], "o", markersize=3, label="seen")
        draw(axis, j, name)
        axis.set_ylabel(literal(name))
    axes[0].legend(loc="best", frameon=False)
    axes[count - 1].set_xlabel(literal(columns.time) + ("" if table.zone is None else " (UTC)"))
    if attends is not None:
        weights, names = attention_of(estimator, estimator._scaled(table, _WHAT))
        picture = axes[-1].imshow(weights[0, len(own) - 1], vmin=0, cmap="viridis")
        if len(names) <= 12:
            labels = [literal(name) for name in short(names.tolist())]
            axes[-1].set_xticks(range(len(names)), labels, rotation=45, ha="right")
            axes[-1].set_yticks(range(len(names)), labels)
        axes[-1].set(title="attention at the last row", ylabel="who looks", xlabel="at whom")
        figure.colorbar(picture, ax=axes[-1])
    figure.tight_layout()
    if out is not None:
        drawn = BytesIO()
        figure.savefig(drawn, format=Path(out).suffix[1:] or "png")
        write_atomically(Path(out), drawn.getvalue())
    return figure


def _on_axis(times: np.ndarray, kind: Kind) -> np.ndarray:
    return times if kind == "number" else np.round(times * 1e6).astype("datetime64[us]")
