"""`Imputer`: the blanks of a table filled in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from ..series import Query, Scaler, Series
from ..tasks import Forecast, Headed
from ..train import Progress
from . import base, explain, pictures
from .registry import Entry, entry
from .saved import save as save_estimator
from .table import read


class Imputer(base.Estimator):
    """Learns to fill in missing values from all the others of a series, earlier and later.

        filled = Imputer(id="machine", time="hour").fit(frame).transform(frame)

    While training, a part `hide` of the observed values is hidden and asked for. The other parameters are those of
    `Forecaster`.
    """

    task = "impute"
    ahead = 0.5

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        missing: int | float | Sequence[int | float] | None = None,
        model: str | Entry = "ace-latent-ode",
        hide: float = 0.2,
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        penalty: float | None = None,
        patience: int | None = None,
        seed: int = 0,
    ):
        self.id, self.time, self.values, self.missing = id, time, values, missing
        self.model, self.hide = model, hide
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def fit(
        self, frame: Any, y: Any = None, *, checkpoint: str | Path | None = None, progress: Progress | bool = False
    ) -> "Imputer":
        """Train on a frame with one row for each id and time; blanks are missing values."""
        base.no_target(y)
        if not 0 < self.hide < 1:
            raise ValueError(f"Imputer(hide={self.hide}): expected a part between 0 and 1.")
        kind = entry(self.model)
        table = base.read_training(self, frame)
        settings, clock = base.choose_settings(table, self.model, self.get_params(), self.ahead)
        split = base.split_of(len(table.ids), self.seed)
        series = table.panel(clock).series
        scaler = Scaler.fit(series[split.train])
        self.settings_, self.clock_, self.scaler_, self.columns_ = settings, clock, scaler, table.columns
        self.entry_ = kind
        data = _hidden(scaler.scale(series), self.hide, self.seed)
        task = Forecast(penalty=0.01)
        base.train(self, self._build, task, data, split, series, checkpoint=checkpoint, progress=progress)
        return self

    def _build(self, key) -> Headed:
        return self._gaussian(key)

    def transform(self, frame: Any) -> Any:
        """The same frame, every blank among the values filled with its expected value.

        What is not blank stays as it is. A column of true and false that had blanks becomes one of numbers.
        """
        self._check_fitted()
        what = "the table to fill"
        table = read(frame, self.columns_, what=what)
        panel = self._scaled(table, what)
        mean, _ = base.gaussians(self.model_, panel, np.asarray(panel.series.times))
        expected = np.empty((len(table.codes), len(self.columns_.values)))
        expected[table.order] = np.asarray(self.scaler_.unscale(mean))[table.codes, table.rows]
        blank = np.empty(expected.shape, bool)
        blank[table.order] = np.isnan(table.values)
        native = nw.from_native(frame, eager_only=True)
        backend: Any = table.implementation
        filled = [
            nw.new_series(name, _filled(native.get_column(name), blank[:, j], expected[:, j]), backend=backend)
            for j, name in enumerate(self.columns_.values)
            if blank[:, j].any()
        ]
        return native.with_columns(*filled).to_native() if filled else frame

    def fit_transform(self, frame: Any, y: Any = None) -> Any:
        """Train on a frame and fill its blanks."""
        return self.fit(frame, y).transform(frame)

    def score(self, frame: Any, y: None = None) -> float:
        """Minus the mean squared error (scaled) of values hidden for the purpose: higher is better."""
        return -self.evaluate(frame)["mse"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """MSE of scaled values, NegLL and coverage of a part of the values, hidden for the purpose.

        `mse_baseline` is the MSE of straight lines between the known values of each variable: what a model has to beat.
        """
        self._check_fitted()
        what = "the table to evaluate on"
        panel = self._scaled(read(frame, self.columns_, what=what), what)
        query = _hidden(panel.series, self.hide, self.seed)
        if not query.scored.any():
            raise ValueError(f"{what}: there are too few values to hide a part of {self.hide:.0%}; give more rows.")
        return base.measured(self.model_, query, panel)

    def attention(self, frame: Any) -> Any:
        """The attention over time as a frame: id, time, which variable attends to which, and how much."""
        self._check_fitted()
        return explain.attention_frame(self, frame)

    def plot(self, frame: Any, id: Any, out: str | Path | None = None):
        """A picture of one series with its blanks filled in, and its attention where the model has one."""
        self._check_fitted()
        return pictures.plot_filled(self, frame, id, out)

    def save(self, folder: str | Path) -> Path:
        """Save into a folder: safetensors and JSON. `acenode.load(folder)` reads it."""
        self._check_fitted()
        return save_estimator(self, folder)


def _filled(given: nw.Series, blank: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """A column with its blanks filled, its other values as exact as they were."""
    known = np.asarray([np.nan if b else float(x) for x, b in zip(given.to_list(), blank, strict=True)])
    return np.where(blank, expected, known)


def _hidden(series: Series, part: float, seed: int) -> Query:
    """A part of the values hidden from what is known, and scored."""
    observed = np.asarray(series.observed)
    hide = observed & (np.random.default_rng(seed).random(observed.shape) < part)
    seen = observed & ~hide
    known = Series(series.times, np.where(seen, series.values, 0).astype(np.float32), seen, series.length)
    return Query(known, series.times, series.values, observed, hide)
