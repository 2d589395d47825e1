"""`Imputer`: the blanks of a table filled in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.base import TransformerMixin

from ..datasets.split import Split
from ..series import Panel, Query, Series, hold_out
from ..series.categories import collapsed, encoded, words_of
from ..series.columns import read_numbers
from ..series.frames import Missing
from ..series.table import Columns
from ..tasks import Forecast, Task
from . import explain
from .base import Estimator, values_calibration
from .calibration import Calibration
from .inference import scores
from .inputs import only_targets
from .registry import AUTO, Entry


class Imputer(TransformerMixin, Estimator):
    """Learns to fill in missing values from all the others of a series, earlier and later.

        filled = Imputer(id="machine", time="hour").fit(frame).transform(frame)

    While training, a part `hide` of the observed values is hidden and predicted. The other parameters are those of
    `Forecaster`.
    """

    task = "impute"
    ahead = 0.5

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        static: Sequence[str] | None = None,
        weight: str | None = None,
        missing: Missing = None,
        model: str | Entry | Sequence[str] = AUTO,
        minutes: float | int | None = None,
        ensemble: int | None = None,
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
        self.static, self.weight = static, weight
        self.model, self.minutes, self.ensemble, self.hide = model, minutes, ensemble, hide
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def _check_parameters(self) -> None:
        if not 0 < self.hide < 1:
            raise ValueError(f"Imputer(hide={self.hide}): expected a part between 0 and 1.")

    def _training(
        self, series: Series, split: Split, codes: np.ndarray | None, columns: Columns
    ) -> tuple[Task, Query, Split]:
        return Forecast(penalty=0.01), hold_out(series, self.hide, self.seed), split

    def _calibrated(self, outputs: Any, validation: Query) -> Calibration:
        return values_calibration(outputs, validation, self.columns_, by_horizon=False)

    def transform(self, frame: Any) -> Any:
        """The same frame, every blank among the values filled with its expected value.

        What is not blank stays as it is, and so do columns that training left out. Blanks of a static column get the
        one value of their series, where it has one. A column of true and false that had blanks becomes one of numbers.
        """
        self._check_fitted()
        what = "the table to fill"
        table = self._read(frame, what)
        panel = self._scaled(table, what)
        mean, _ = self._gaussians(panel, np.asarray(panel.series.times))
        found = np.asarray(self.scaler_.unscale(mean))[table.codes, table.rows]
        expected = np.empty(found.shape)
        expected[table.order] = np.where(np.isnan(table.values), found, table.values)
        native = nw.from_native(frame, eager_only=True)
        backend: Any = table.backend
        filled = []
        for j, name in enumerate(self.columns_.values):
            if name in native.columns:
                given = read_numbers(native.get_column(name), what, self.columns_.missing)
                if (blank := np.isnan(given)).any():
                    filled.append(nw.new_series(name, np.where(blank, expected[:, j], given), backend=backend))
        codes = np.empty_like(table.codes)
        codes[table.order] = table.codes
        static = collapsed(self.columns_.static, self.categories_)
        for name, words in self.categories_.items():
            places = [self.columns_.values.index(e) for w in words if (e := encoded(name, w)) in self.columns_.values]
            if not places:  # left out
                continue
            given = words_of(native.get_column(name), self.columns_.missing)
            if None in given:
                of_series = {code: word for code, word in zip(codes, given, strict=True) if word and name in static}
                likeliest = [words[k] for k in expected[:, places].argmax(axis=1)]
                chosen = [
                    own or of_series.get(code, likely)
                    for own, code, likely in zip(given, codes, likeliest, strict=True)
                ]
                filled.append(nw.new_series(name, chosen, nw.String, backend=backend))
        return native.with_columns(*filled).to_native() if filled else frame

    def score(self, frame: Any, y: None = None) -> float:
        """Minus the mean squared error (scaled) of values hidden for the purpose: higher is better."""
        return -self.evaluate(frame)["mse"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """MSE of scaled values, NegLL and coverage of a part of the values, hidden for the purpose.

        `mse_baseline` is the MSE of straight lines between the other values of each variable: what a model has to
        beat.
        """
        self._check_fitted()
        what = "the table to evaluate on"
        panel = self._scaled(self._read(frame, what), what)
        query = only_targets(hold_out(panel.series, self.hide, self.seed), self.columns_.targets)
        if not query.scored.any():
            raise ValueError(f"{what}: there are too few values to hide a part of {self.hide:.0%}; give more rows.")
        context = Panel(query.context, panel.ids, panel.variables)
        return scores(self._gaussians(context, np.asarray(query.times)), query)

    def plot(self, frame: Any, id: Any, out: str | Path | None = None):
        """A picture of one series with its blanks filled in, and its attention where the model has one."""
        self._check_fitted()
        return explain.plot_filled(self, frame, id, out)
