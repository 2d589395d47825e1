"""`Classifier`: a label for each series."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np

from ..compiled import compiled
from ..layers import mlp
from ..series import Scaler
from ..tasks import Headed, LabelledSeries, SeriesClassification
from ..tasks.metrics import roc_auc
from ..train import Progress
from . import base, explain, pictures
from .registry import Entry, entry
from .saved import save as save_estimator
from .table import read, shown


class Classifier(base.Estimator):
    """Learns from a table of measurements which label a series has.

        classifier = Classifier(id="patient", time="hour", label="died").fit(frame)
        classifier.predict_proba(new_frame)

    `label` is the column of the label, the same in all rows of a series. The other parameters are those of
    `Forecaster`.
    """

    task = "classify"
    ahead = 0.5

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        label: str = "label",
        missing: int | float | Sequence[int | float] | None = None,
        model: str | Entry = "ace-variables",
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        penalty: float | None = None,
        patience: int | None = None,
        seed: int = 0,
    ):
        self.id, self.time, self.values, self.label = id, time, values, label
        self.missing, self.model = missing, model
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def fit(
        self, frame: Any, y: Any = None, *, checkpoint: str | Path | None = None, progress: Progress | bool = False
    ) -> "Classifier":
        """Train on a frame with one row for each id and time, and the label in every row."""
        base.no_target(y)
        kind = entry(self.model)
        table = base.read_training(self, frame)
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
        settings, clock = base.choose_settings(table, self.model, self.get_params(), self.ahead)
        codes = np.asarray([classes.index(item) for item in table.labels], np.int32)
        split = base.split_of(len(table.ids), self.seed, codes)
        if len(split.validation) == 0:
            raise ValueError("the training table: there are too few series of each label to set some aside; add more.")
        series = table.panel(clock).series
        scaler = Scaler.fit(series[split.train])
        self.settings_, self.clock_, self.scaler_, self.entry_ = settings, clock, scaler, kind
        self.columns_, self.classes_ = table.columns, classes
        data = LabelledSeries(scaler.scale(series), codes)
        base.train(self, self._build, SeriesClassification(), data, split, series, checkpoint=checkpoint, progress=progress)
        return self

    def _build(self, key) -> Headed:
        kind, sizes = self.entry_, base.sizes(self.settings_, len(self.columns_.values))
        one, two = jax.random.split(key)
        head = mlp(kind.summary(sizes), len(self.classes_), 32, 1, jax.nn.relu, key=two)
        return Headed(kind.build(sizes, one), head)

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

    def score(self, frame: Any, y: None = None) -> float:
        """The part of series whose label is right."""
        return self.evaluate(frame)["accuracy"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """On series whose labels are known: accuracy, and that of always saying the commonest label; cross entropy;
        of two labels the area under the ROC curve.
        """
        self._check_fitted()
        table = read(frame, self.columns_, what="the table to evaluate on")
        assert table.labels is not None
        unknown = [k for k, c in enumerate(table.labels.tolist()) if c not in self.classes_]
        if unknown:
            k = unknown[0]
            raise ValueError(
                f"the table to evaluate on: the label {table.labels[k]!r} of {self.columns_.id} {shown(table.ids[k])} "
                f"was not in the training table, which had {', '.join(map(repr, self.classes_))}; leave such series "
                "out."
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

    def attention(self, frame: Any) -> Any:
        """The attention over time as a frame: id, time, which variable attends to which, and how much."""
        self._check_fitted()
        return explain.attention_frame(self, frame)

    def plot(self, frame: Any, id: Any, out: str | Path | None = None):
        """A picture of one series, and its attention where the model has one."""
        self._check_fitted()
        return pictures.plot_seen(self, frame, id, out)

    def save(self, folder: str | Path) -> Path:
        """Save into a folder: safetensors and JSON. `acenode.load(folder)` reads it."""
        self._check_fitted()
        return save_estimator(self, folder)

    def _probabilities(self, frame: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        self._check_fitted()
        what = "the table to predict from"
        table = read(frame, self.columns_.unlabelled, what=what)
        panel = self._scaled(table, what)
        roomy = base.with_room(self.model_, panel, np.zeros((len(panel), 1)))
        probability = base.in_parts(lambda series: _outputs(roomy, series), panel)
        base.warn_of_none(probability, panel.ids)
        return table.ids, probability, table.implementation


@compiled
def _outputs(model: Headed, series):
    return SeriesClassification().outputs(model, LabelledSeries(series, np.zeros(len(series), np.int32)), jax.random.key(0))
