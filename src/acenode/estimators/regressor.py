"""`Regressor`: a number for each series."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.base import RegressorMixin

from ..datasets.split import Split
from ..series import Series
from ..series.columns import reads_as_number
from ..series.frames import Missing
from ..series.table import Columns, Table
from ..tasks import Headed, Regression, SeriesTarget, Task
from . import explain
from .base import Estimator
from .inputs import within_limits
from .registry import AUTO, Entry, with_label_head
from .training import WHAT, sizes


class Regressor(RegressorMixin, Estimator):
    """Learns from a table of measurements a number that each series has, such as a length of stay.

        regressor = Regressor(id="patient", time="hour", label="days").fit(frame)
        regressor.predict(new_frame)

    `label` is the column of the target, the same in all rows of a series. The other parameters are those of
    `Forecaster`.
    """

    task = "regress"
    ahead = 0.5

    target_: tuple[float, float]  # its mean and standard deviation in training, of winsorised targets

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        label: str = "label",
        static: Sequence[str] | None = None,
        weight: str | None = None,
        missing: Missing = None,
        model: str | Entry | Sequence[str] = AUTO,
        minutes: float | int | None = None,
        ensemble: int | None = None,
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        penalty: float | None = None,
        patience: int | None = None,
        seed: int = 0,
    ):
        self.id, self.time, self.values, self.label = id, time, values, label
        self.static, self.weight = static, weight
        self.missing, self.model, self.minutes, self.ensemble = missing, model, minutes, ensemble
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.target_tags.required = False  # the frame has the targets
        return tags

    def _targets(self, table: Table, what: str) -> np.ndarray:
        assert table.labels is not None
        try:
            numbers = np.asarray([float(each) for each in table.labels], np.float64)
        except (TypeError, ValueError) as error:
            odd = next(each for each in table.labels if not reads_as_number(each))
            raise ValueError(
                f"{what}: the target {self.label!r} is {odd!r} in a row; expected numbers. For classes choose a "
                "Classifier (--task classify)."
            ) from error
        if not np.isfinite(numbers).all():
            raise ValueError(f"{what}: the target {self.label!r} is not finite in a row; correct or drop it.")
        return numbers

    def _labels(self, table: Table) -> tuple[dict[str, Any], np.ndarray]:
        numbers = self._targets(table, WHAT)
        if (numbers == numbers[0]).all():
            raise ValueError(
                f"{WHAT}: the target {self.label!r} is {numbers[0]:g} in every row; nothing can be learned from it."
            )
        return {}, numbers

    def _training(
        self, series: Series, split: Split, codes: np.ndarray | None, columns: Columns
    ) -> tuple[Task, SeriesTarget, Split]:
        assert codes is not None
        moved = within_limits(codes[:, None], np.ones((len(codes), 1), bool), split.train, columns.labels, WHAT)[:, 0]
        trained = moved[split.train]
        if (trained == trained[0]).all():
            raise ValueError(
                f"{WHAT}: the target {self.label!r} is {trained[0]:g} in every training series, and differs only in "
                "those set aside for validation. Add more series, or take another seed."
            )
        centre, spread = float(trained.mean()), float(trained.std())
        self.target_ = centre, spread
        return Regression(), SeriesTarget(series, ((moved - centre) / spread).astype(np.float32)), split

    def _build(self, key, kind: Entry | None = None) -> Headed:
        return with_label_head(kind or self.entry_, sizes(self.settings_, len(self.columns_.values)), 1, key)

    def predict(self, frame: Any) -> Any:
        """A frame of ids with the expected target."""
        ids, target, backend = self._predicted(frame)
        data = {self.columns_.id: ids.tolist(), str(self.columns_.label): target.astype(np.float64)}
        return nw.from_dict(data, backend=backend).to_native()

    def score(self, frame: Any, y: None = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The coefficient of determination, R2."""
        return self.evaluate(frame)["r2"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """On series with targets, in their units: mean squared and absolute error, R2; `mse_baseline` is the MSE of
        the mean of training, absurd targets moved to the limits."""
        self._check_fitted()
        what = "the table to evaluate on"
        truth = self._targets(self._read(frame, what, labelled=True), what)
        _, target, _ = self._predicted(frame)
        error, variance = target - truth, float(truth.var())
        mse = float(np.square(error).mean())
        return {
            "mse": mse,
            "mae": float(np.abs(error).mean()),
            "r2": 1 - mse / variance if variance > 0 else math.nan,
            "mse_baseline": float(np.square(truth - self.target_[0]).mean()),
        }

    def plot(self, frame: Any, id: Any, out: str | Path | None = None):
        """A picture of one series, and its attention where the model has one."""
        self._check_fitted()
        return explain.plot_series(self, frame, id, out)

    def _predicted(self, frame: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        self._check_fitted()
        what = "the table to predict from"
        table = self._read(frame, what)
        centre, spread = self.target_
        return table.ids, centre + spread * self.members_.targets(self._scaled(table, what)), table.backend
