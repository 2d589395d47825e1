"""What all estimators share: their parameters, their settings, and training."""

import inspect
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..datasets.split import Split, random_split
from ..series import Panel, Scaler
from ..train import Bar, Member, Progress, Quiet, Recipe, fit, parameter_count
from .registry import Sizes
from .table import Clock, Columns, Table, read, value_columns

_UNITS = 10.0  # the typical series is so long in the model's time
_STEP = 0.1  # of Euler's method, there


class NotFittedError(ValueError, AttributeError):
    """The estimator has not been fitted yet."""


@dataclass(frozen=True)
class Settings:
    """What was chosen for a fit, from the data where the user did not say."""

    model: str
    hidden: int
    batch_size: int
    epochs: int
    patience: int
    learning_rate: float
    penalty: float
    unit: float  # of the model's time, in that of the data
    step: float
    count: int
    span: float
    seed: int


@dataclass(frozen=True)
class Summary:
    """How training went."""

    series: int
    validation_series: int
    observations: int
    epochs: int
    best_epoch: int
    metric: str
    validation: float
    seconds: float
    parameters: int
    notes: tuple[str, ...]


class Estimator:
    """Parameters by name, as scikit-learn has them; a fitted estimator has attributes that end with an underscore."""

    settings_: Settings
    summary_: Summary
    columns_: Columns
    clock_: Clock
    scaler_: Scaler
    model_: Any
    history_: dict[str, np.ndarray]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters with which the estimator was made."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def set_params(self, **given: Any) -> "Estimator":
        """Change parameters; takes effect at the next `fit`."""
        names = _parameters(type(self))
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(names)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {n: p.default for n, p in inspect.signature(type(self).__init__).parameters.items()}
        given = ", ".join(f"{n}={v!r}" for n, v in self.get_params().items() if v is not None and v != defaults[n])
        if not self.fitted:
            return f"{type(self).__name__}({given})"
        chosen = ", ".join(f"{n}={v!r}" for n, v in asdict(self.settings_).items())
        return f"{type(self).__name__}({given})  # fitted: {chosen}"

    @property
    def fitted(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.fitted:
            name = type(self).__name__
            raise NotFittedError(f"this {name} is not fitted yet: call fit(frame) first, or load a saved one.")


def _parameters(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind.__init__).parameters if name != "self"]


def read_training(frame, id: str, time: str, values, label: str | None) -> Table:
    """The training table, refused where nothing can be learned from it."""
    what = "the training table"
    columns = Columns(id, time, value_columns(frame, id, time, label, values, what=what), label)
    table = read(frame, columns, what=what)
    seen = ~np.isnan(table.values)
    empty = ~seen.any(axis=0)
    if empty.any():
        raise ValueError(
            f"{what}: column {columns.values[int(np.argmax(empty))]!r} is blank in every row; leave it out."
        )
    for j, name in enumerate(columns.values):
        present = table.values[seen[:, j], j]
        if (present == present[0]).all():
            raise ValueError(f"{what}: column {name!r} is {present[0]:g} in every row; leave it out.")
    counts = np.bincount(table.codes[seen.any(axis=1)], minlength=len(table.ids))
    if (counts == 0).any():
        who = table.ids[int(np.argmin(counts))]
        raise ValueError(f"{what}: {id} {who!r} has no value in any row; drop its rows.")
    if len(table.ids) < 5:
        raise ValueError(
            f"{what}: there {'is one series' if len(table.ids) == 1 else f'are {len(table.ids)} series'}; training "
            f"needs at least 5, as some are set aside for validation. Cut a long series into parts with an {id!r} each."
        )
    return table


def choose_settings(
    table: Table, model: str, given: dict[str, Any], horizon: float | int, default_epochs: int = 100
) -> tuple[Settings, Clock]:
    """Settings from the data, where they are not given."""
    spans = table.last - table.first
    typical = float(np.quantile(spans[spans > 0], 0.9)) if (spans > 0).any() else 1.0
    unit = typical / _UNITS
    rows = int(np.bincount(table.codes).max())
    span = float(spans.max()) / unit * (1 + horizon)
    count = math.ceil(span / _STEP) + 2 * rows + 16

    def pick(name: str, default):
        value = given.get(name)
        return default if value is None else value

    settings = Settings(
        model=model,
        hidden=int(pick("hidden", 16 if len(table.ids) < 500 else 32)),
        batch_size=int(pick("batch_size", min(64, max(4, len(table.ids) // 8)))),
        epochs=int(pick("epochs", default_epochs)),
        patience=int(pick("patience", 15)),
        learning_rate=float(pick("learning_rate", 5e-3)),
        penalty=float(pick("penalty", 0.0)),
        unit=unit,
        step=_STEP,
        count=count,
        span=span,
        seed=int(pick("seed", 0)),
    )
    return settings, Clock(table.kind, unit, table.zone)


def sizes(settings: Settings, variables: int) -> Sizes:
    return Sizes(variables, settings.hidden, settings.step, settings.count, settings.span)


def split_of(count: int, seed: int, labels=None) -> Split:
    """A fifth of the series for validation."""
    return random_split(count, (0.8, 0.2, 0.0), seed, stratify=labels)


def train(
    estimator: Estimator,
    build: Callable,
    task,
    data,
    split: Split,
    observations: int,
    *,
    checkpoint: str | Path | None,
    progress: Progress | bool,
) -> None:
    """Fit and keep the best parameters, the history and a summary on the estimator."""
    s = estimator.settings_
    recipe = Recipe(
        epochs=s.epochs,
        batch_size=min(s.batch_size, len(split.train)),
        patience=s.patience,
        clip=10.0,
        eval_batch=64,
        reference=256,
    )
    bar = progress if not isinstance(progress, bool) else (Bar(s.model) if progress else Quiet())
    member = Member(s.seed, 0, s.learning_rate, s.penalty)
    done = fit(build, task, data, split, recipe, [member], checkpoint=checkpoint, progress=bar)
    estimator.model_ = done.model(0)
    estimator.history_ = {name: values[:, 0] for name, values in done.history.items()}
    estimator.summary_ = Summary(
        series=len(split.train) + len(split.validation),
        validation_series=len(split.validation),
        observations=observations,
        epochs=len(done.history["loss"]),
        best_epoch=int(done.best_epoch[0]) + 1,
        metric=task.monitor,
        validation=float(done.best_score[0]),
        seconds=round(done.seconds, 1),
        parameters=parameter_count(done.model(0)),
        notes=done.notes,
    )


def in_parts(call: Callable, panel: Panel, *more: np.ndarray, size: int = 64) -> Any:
    """`call(series, *more)` on so many series at a time, the last part filled up, so that it is compiled once."""
    outs = []
    count = len(panel)
    for begin in range(0, count, size):
        rows = np.minimum(np.arange(begin, begin + size), count - 1) if count > size else np.arange(count)
        part = call(panel.series[rows], *(m[rows] for m in more))
        outs.append(jax.tree.map(lambda x: np.asarray(x)[: min(size, count - begin)], part))
    return jax.tree.map(lambda *xs: np.concatenate(xs), *outs)
