"""`Imputer`: the blanks of a table filled in."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import narwhals as nw
import numpy as np

from ..series import Panel, Question, Scaler, Series
from ..tasks import Forecast, GaussianHead, Headed
from ..train import Progress
from . import base
from .forecaster import _predictions
from .registry import entry
from .saved import save as save_estimator
from .table import read


class Imputer(base.Estimator):
    """Learns to fill in missing values from all the others of a series, earlier and later.

        filled = Imputer(id="machine", time="hour").fit(frame).transform(frame)

    While training, a part `hide` of the observed values is hidden and asked for. The other parameters are those of
    `Forecaster`.
    """

    task = "impute"

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        model: str = "ace-latent-ode",
        hide: float = 0.2,
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        penalty: float | None = None,
        patience: int | None = None,
        seed: int = 0,
    ):
        self.id, self.time, self.values, self.model, self.hide = id, time, values, model, hide
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def fit(
        self, frame: Any, y: None = None, *, checkpoint: str | Path | None = None, progress: Progress | bool = False
    ) -> "Imputer":
        """Train on a frame with one row for each id and time; blanks are missing values."""
        if not 0 < self.hide < 1:
            raise ValueError(f"Imputer(hide={self.hide}): expected a part between 0 and 1.")
        entry(self.model)
        table = base.read_training(frame, self.id, self.time, self.values, None)
        settings, clock = base.choose_settings(table, self.model, self.get_params(), horizon=0.5)
        split = base.split_of(len(table.ids), self.seed)
        series = table.panel(clock).series
        scaler = Scaler.fit(series[split.train])
        self.settings_, self.clock_, self.scaler_, self.columns_ = settings, clock, scaler, table.columns
        data = _hidden(scaler.scale(series), self.hide, self.seed)
        count = int(series.observed.sum())
        task = Forecast(penalty=0.01)
        base.train(self, self._build, task, data, split, count, checkpoint=checkpoint, progress=progress)
        return self

    def _build(self, key) -> Headed:
        kind, sizes = entry(self.settings_.model), base.sizes(self.settings_, len(self.columns_.values))
        one, two = jax.random.split(key)
        head = None if kind.state is None else GaussianHead(kind.state(sizes), sizes.variables, key=two)
        return Headed(kind.build(sizes, one), head)

    def transform(self, frame: Any) -> Any:
        """The same frame, every blank among the values filled with its expected value."""
        self._check_fitted()
        table = read(frame, self.columns_, what="the table to fill")
        panel = table.panel(self.clock_)
        scaled = Panel(self.scaler_.scale(panel.series), panel.ids, panel.variables)
        mean, _ = base.in_parts(lambda s, q: _predictions(self.model_, s, q), scaled, np.asarray(panel.series.times))
        bounds = np.searchsorted(table.codes, np.arange(len(table.ids) + 1))
        rows = np.concatenate([np.arange(b - a) for a, b in itertools.pairwise(bounds)])
        filled = np.where(np.isnan(table.values), self.scaler_.unscale(mean)[table.codes, rows], table.values)
        native = nw.from_native(frame, eager_only=True)
        ids = native.get_column(self.columns_.id).to_list()
        code = {item: k for k, item in enumerate(table.ids.tolist())}
        order = np.argsort(np.asarray([code[i] for i in ids]), kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        backend: Any = table.implementation
        new = [
            nw.new_series(name, filled[back, j].astype(np.float64), backend=backend)
            for j, name in enumerate(self.columns_.values)
        ]
        return native.with_columns(*new).to_native()

    def fit_transform(self, frame: Any, y: None = None) -> Any:
        """Train on a frame and fill its blanks."""
        return self.fit(frame).transform(frame)

    def score(self, frame: Any, y: None = None) -> float:
        """Minus the mean squared error (scaled) of values hidden for the purpose: higher is better."""
        return -self.evaluate(frame)["mse"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """MSE of scaled values, NegLL and coverage of a part of the values, hidden for the purpose."""
        self._check_fitted()
        table = read(frame, self.columns_, what="the table to evaluate on")
        series = self.scaler_.scale(table.panel(self.clock_).series)
        question = _hidden(series, self.hide, self.seed)
        task = Forecast()
        outputs = task.outputs(self.model_, question, jax.random.key(0))
        metrics = task.metrics(outputs, jax.tree.map(jax.numpy.asarray, question), jax.numpy.ones(len(series)))
        return {name: float(value) for name, value in metrics.items()}

    def save(self, folder: str | Path) -> Path:
        """Save into a folder: safetensors and JSON. `acenode.load(folder)` reads it."""
        self._check_fitted()
        return save_estimator(self, folder)


def _hidden(series: Series, part: float, seed: int) -> Question:
    """A part of the values hidden from what is known, and scored."""
    observed = np.asarray(series.observed)
    hide = observed & (np.random.default_rng(seed).random(observed.shape) < part)
    seen = observed & ~hide
    known = Series(series.times, np.where(seen, series.values, 0).astype(np.float32), seen, series.length)
    return Question(known, series.times, series.values, observed, hide)
