"""`Classifier`: a label for each series."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import narwhals as nw
import numpy as np
from sklearn.base import ClassifierMixin

from ..datasets.split import Split
from ..series import Series
from ..series.frames import Missing
from ..series.table import Columns, Table
from ..tasks import Headed, LabelledSeries, SeriesClassification, Task
from ..tasks.metrics import roc_auc
from . import explain
from .base import Estimator
from .registry import AUTO, Entry, with_label_head
from .training import sizes


class Classifier(ClassifierMixin, Estimator):
    """Learns from a table of measurements which label a series has.

        classifier = Classifier(id="patient", time="hour", label="died").fit(frame)
        classifier.predict_proba(new_frame)

    `label` is the column of the label, the same in all rows of a series. The other parameters are those of
    `Forecaster`.
    """

    task = "classify"
    ahead = 0.5

    classes_: list[Any]

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
        tags.target_tags.required = False  # the frame has the labels
        return tags

    def _labels(self, table: Table) -> tuple[dict[str, Any], np.ndarray]:
        assert table.labels is not None
        classes = sorted(set(table.labels.tolist()), key=lambda c: (str(type(c)), c))
        if len(classes) < 2:
            raise ValueError(
                f"the training table: the label {self.label!r} is {classes[0]!r} in every row; a classifier needs two "
                "or more."
            )
        if len({str(c) for c in classes}) < len(classes):
            raise ValueError(
                f"the training table: the label {self.label!r} has the same name as text and as a number; write all "
                "labels alike."
            )
        return {"classes_": classes}, np.asarray([classes.index(item) for item in table.labels], np.int32)

    def _training(
        self, series: Series, split: Split, codes: np.ndarray | None, columns: Columns
    ) -> tuple[Task, LabelledSeries, Split]:
        assert codes is not None
        return SeriesClassification(), LabelledSeries(series, codes), split

    def _build(self, key, kind: Entry | None = None) -> Headed:
        return with_label_head(
            kind or self.entry_, sizes(self.settings_, len(self.columns_.values)), len(self.classes_), key
        )

    def predict_proba(self, frame: Any) -> Any:
        """A frame of ids with the probability of each label."""
        ids, probability, backend = self._probabilities(frame)
        data: dict[str, Any] = {self.columns_.id: ids.tolist()}
        data |= {f"p_{c}": probability[:, k].astype(np.float64) for k, c in enumerate(self.classes_)}
        return nw.from_dict(data, backend=backend).to_native()

    def predict(self, frame: Any) -> Any:
        """A frame of ids with the likeliest label."""
        ids, probability, backend = self._probabilities(frame)
        chosen = [None if np.isnan(p).any() else self.classes_[int(p.argmax())] for p in probability]
        return nw.from_dict(
            {self.columns_.id: ids.tolist(), str(self.columns_.label): chosen}, backend=backend
        ).to_native()

    def score(self, frame: Any, y: None = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The part of series whose label is right."""
        return self.evaluate(frame)["accuracy"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """On labelled series: accuracy, and that of always saying the commonest label; cross entropy; of two labels
        the area under the ROC curve.
        """
        self._check_fitted()
        table = self._read(frame, "the table to evaluate on", labelled=True)
        assert table.labels is not None
        unknown = [k for k, c in enumerate(table.labels.tolist()) if c not in self.classes_]
        if unknown:
            k = unknown[0]
            raise ValueError(
                f"the table to evaluate on: the label {table.labels[k]!r} of {table.named(k)} was not in the training "
                f"table, which had {', '.join(map(repr, self.classes_))}; leave such series out."
            )
        _, probability, _ = self._probabilities(frame)
        truth = np.asarray([self.classes_.index(c) for c in table.labels.tolist()])
        entropy = -np.log(np.maximum(probability[np.arange(len(truth)), truth], 1e-7)).mean()
        metrics = {
            "accuracy": float((probability.argmax(1) == truth).mean()),
            "commonest": float(np.bincount(truth).max() / len(truth)),
            "cross_entropy": float(entropy),
        }
        if len(self.classes_) == 2 and len(np.unique(truth)) == 2:
            metrics["auc"] = float(roc_auc(*map(jnp.asarray, (probability[:, 1], truth * 1.0, np.ones(len(truth))))))
        return dict.fromkeys(metrics, math.nan) if np.isnan(probability).any() else metrics

    def plot(self, frame: Any, id: Any, out: str | Path | None = None):
        """A picture of one series, and its attention where the model has one."""
        self._check_fitted()
        return explain.plot_series(self, frame, id, out)

    def _probabilities(self, frame: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        self._check_fitted()
        what = "the table to predict from"
        table = self._read(frame, what)
        panel = self._scaled(table, what)
        return table.ids, self.members_.probabilities(panel), table.backend
