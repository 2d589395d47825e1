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

    `label` is the column of the label, the same in all rows of a series; several are learned together. The other
    parameters are those of `Forecaster`.
    """

    task = "classify"
    ahead = 0.5

    classes_: list[Any]

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        label: str | Sequence[str] = "label",
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
        classes = sorted(set(table.labels.tolist()), key=_order)
        for k, name in enumerate(table.columns.labels):
            own = sorted({_of(c, k) for c in classes}, key=_order)
            if len(own) < 2:
                raise ValueError(
                    f"the training table: the label {name!r} is {own[0]!r} in every row; a classifier needs two or "
                    "more."
                )
            if len({str(c) for c in own}) < len(own):
                raise ValueError(
                    f"the training table: the label {name!r} has the same name as text and as a number; write all "
                    "labels in the same way."
                )
            if table.columns.id in (_probability(table.columns.label, name, c) for c in own):
                raise ValueError(
                    f"the training table: {table.columns.id!r} is a column of the probabilities too; rename it."
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
        """A frame of ids with the probability of each label: `p_class`, of several labels `p_label_class`."""
        ids, probability, backend = self._probabilities(frame)
        data: dict[str, Any] = {self.columns_.id: ids.tolist()}
        for name, classes, own in self._marginals(probability):
            names = [_probability(self.columns_.label, name, c) for c in classes]
            data |= {column: own[:, k].astype(np.float64) for k, column in enumerate(names)}
        return nw.from_dict(data, backend=backend).to_native()

    def predict(self, frame: Any) -> Any:
        """A frame of ids with the likeliest label, or one of each of several."""
        ids, probability, backend = self._probabilities(frame)
        data: dict[str, Any] = {self.columns_.id: ids.tolist()}
        for name, classes, own in self._marginals(probability):
            data[name] = [None if np.isnan(p).any() else classes[int(p.argmax())] for p in own]
        return nw.from_dict(data, backend=backend).to_native()

    def score(self, frame: Any, y: None = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The part of series whose label is right, the mean over several labels."""
        metrics = self.evaluate(frame)
        found = [value for name, value in metrics.items() if name.startswith("accuracy")]
        return float(np.mean(found))

    def evaluate(self, frame: Any) -> dict[str, float]:
        """On labelled series: accuracy, and that of always saying the commonest label; cross entropy; of two labels
        the area under the ROC curve. Of several labels the names of the metrics end with theirs.
        """
        self._check_fitted()
        table = self._read(frame, "the table to evaluate on", labelled=True)
        assert table.labels is not None
        _, probability, _ = self._probabilities(frame)
        several = not isinstance(self.columns_.label, str)
        metrics: dict[str, float] = {}
        for place, (name, classes, own) in enumerate(self._marginals(probability)):
            labels = [_of(label, place) if several else label for label in table.labels.tolist()]
            unknown = [k for k, c in enumerate(labels) if c not in classes]
            if unknown:
                k = unknown[0]
                raise ValueError(
                    f"the table to evaluate on: the label {labels[k]!r} of {table.named(k)} was not in the training "
                    f"table, which had {', '.join(map(repr, classes))}; leave such series out."
                )
            found = _metrics(own, np.asarray([classes.index(c) for c in labels]), len(classes))
            metrics |= {f"{metric}_{name}" if several else metric: value for metric, value in found.items()}
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

    def _marginals(self, probability: np.ndarray) -> list[tuple[str, list[Any], np.ndarray]]:
        """For each label its name, its classes, and the probability of each; several labels are learned jointly."""
        if isinstance(self.columns_.label, str):
            return [(self.columns_.label, self.classes_, probability)]
        found = []
        for k, name in enumerate(self.columns_.labels):
            classes = sorted({_of(c, k) for c in self.classes_}, key=_order)
            member = np.asarray([[_of(c, k) == own for own in classes] for c in self.classes_], float)
            found.append((name, classes, probability @ member))
        return found


def _probability(label: Any, name: Any, value: Any) -> str:
    """The column with the probability that the label `name`, perhaps one of several, has this value."""
    return f"p_{value}" if isinstance(label, str) else f"p_{name}_{value}"


def _of(label: Any, place: int) -> Any:
    """One of several labels; a single one is itself."""
    return label[place] if isinstance(label, tuple) else label


def _order(label: Any) -> Any:
    parts = label if isinstance(label, tuple) else (label,)
    return [(str(type(part)), part) for part in parts]


def _metrics(probability: np.ndarray, truth: np.ndarray, classes: int) -> dict[str, float]:
    entropy = -np.log(np.maximum(probability[np.arange(len(truth)), truth], 1e-7)).mean()
    metrics = {
        "accuracy": float((probability.argmax(1) == truth).mean()),
        "commonest": float(np.bincount(truth).max() / len(truth)),
        "cross_entropy": float(entropy),
    }
    if classes == 2 and len(np.unique(truth)) == 2:
        metrics["auc"] = float(roc_auc(*map(jnp.asarray, (probability[:, 1], truth * 1.0, np.ones(len(truth))))))
    return metrics
