"""What all estimators share: their parameters, their settings, and training."""

import copy
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..compiled import compiled
from ..datasets.split import Split, random_split
from ..models import GRUODEBayes
from ..series import Panel, Query, Scaler, Series
from ..tasks import Forecast, GaussianHead, Headed
from ..tasks.forecast import mixture, predictions
from ..train import Bar, Member, Progress, Quiet, Recipe, fit, parameter_count
from .registry import Entry, Sizes, name_of
from .table import Clock, Columns, Table, read, shown, unheld, value_columns

_UNITS = 10.0  # the typical series is so long in the model's time
_STEP = 0.1  # of Euler's method, there
_FAR = 1.25  # times the longest training series: beyond, answers are guesses
_TOO_FAR = 50  # times it
_STRANGE = 20  # standard deviations from the mean of training
_OUTLYING = 100  # distances of the quartiles from the median


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

    task: str
    ahead: float  # how far a model is made to reach beyond the longest training series, as a part of it

    entry_: Entry
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
        params = {n: name_of(v) if isinstance(v, Entry) else v for n, v in self.get_params().items()}
        params = {n: list(v) if hasattr(v, "tolist") and np.ndim(v) else v for n, v in params.items()}
        given = ", ".join(f"{n}={v!r}" for n, v in params.items() if v is not None and v != defaults[n])
        if not self.fitted:
            return f"{type(self).__name__}({given})"
        chosen = ", ".join(f"{n}={v!r}" for n, v in asdict(self.settings_).items())
        return f"{type(self).__name__}({given})  # fitted: {chosen}"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        labels = self.task == "classify"
        return Tags(
            estimator_type="classifier" if labels else None,
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags() if labels else None,
            input_tags=InputTags(allow_nan=True, categorical=True, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return self.fitted

    @property
    def fitted(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.fitted:
            name = type(self).__name__
            raise NotFittedError(f"this {name} is not fitted yet: call fit(frame) first, or load a saved one.")

    def _clock(self, table: Table, what: str) -> Clock:
        """The clock of the model, where it fits the table."""
        if table.kind != self.clock_.kind:
            raise ValueError(
                f"{what}: the time column {self.columns_.time!r} holds {table.kind}s; the model was trained on "
                f"{self.clock_.kind}s. Convert it."
            )
        return self.clock_

    def _check_reach(self, since: np.ndarray, told: Callable[[int], str], what: str, depth: int = 3) -> None:
        """Warn of times (since the start of their series) far beyond those of training; refuse what is senseless."""
        reach = self.settings_.span * self.settings_.unit / (1 + self.ahead)
        k = int(np.argmax(since))
        if since[k] > _TOO_FAR * reach:
            raise ValueError(
                f"{what}: {told(k)} is more than {_TOO_FAR} times as far from the start of its series as any training "
                "series was long; ask for nearer times."
            )
        if since[k] > _FAR * reach:
            warnings.warn(
                f"{what}: {told(k)} is farther from the start of its series than any training series reached; such "
                "answers are guesses.",
                stacklevel=depth,
            )

    def _scaled(self, table: Table, what: str) -> Panel:
        """The series of a table as the model takes them."""
        clock = self._clock(table, what)
        self._check_reach(
            table.last - table.first,
            lambda k: f"{table.shown_time(table.last[k])}, the last time of {self.columns_.id} {shown(table.ids[k])},",
            what,
            depth=4,
        )
        panel = table.panel(clock)
        series = self.scaler_.scale(panel.series)
        self._warn_of_far_values(table, np.abs(np.asarray(series.values)).max(axis=(0, 1)), what)
        return Panel(series, panel.ids, panel.variables)

    def _warn_of_far_values(self, table: Table, reach: np.ndarray, what: str) -> None:
        j = int(np.argmax(reach))
        if reach[j] > _STRANGE:
            values = table.values[:, j]
            k = int(np.nanargmax(np.abs(values - self.scaler_.shift[j])))
            warnings.warn(
                f"{what}: {self.columns_.values[j]!r} is {values[k]:g} in a row, {reach[j]:.0f} standard deviations "
                "from its mean in training. Is it in another unit, or does it stand for a missing value?",
                stacklevel=4,
            )

    def _gaussian(self, key) -> Headed:
        """A model whose answers are means and variances of the variables."""
        kind, given = self.entry_, sizes(self.settings_, len(self.columns_.values))
        one, two = jax.random.split(key)
        head = None if kind.state is None else GaussianHead(kind.state(given), given.variables, key=two)
        return Headed(kind.build(given, one), head)


def no_target(y: Any) -> None:
    """All that is learned is in the frame."""
    if y is not None:
        raise ValueError("fit: y is given; what is learned is in the frame itself, labels in a column named by label.")


def _parameters(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind.__init__).parameters if name != "self"]


def read_training(estimator: Any, frame: Any) -> Table:
    """The training table, refused where nothing can be learned from it."""
    what = "the training table"
    id, time, label = estimator.id, estimator.time, getattr(estimator, "label", None)
    chosen = value_columns(frame, id, time, label, estimator.values, what=what)
    columns = Columns(id, time, chosen, label, _missing(estimator.missing))
    table = read(frame, columns, what=what)
    for number in unheld(frame, columns, what):
        warnings.warn(f"{what}: {number:g} is said to stand for a missing value, and no cell holds it.", stacklevel=3)
    useless = []
    for name, column in zip(columns.values, table.values.T, strict=True):
        present = column[~np.isnan(column)]
        if present.size == 0:
            useless.append(f"column {name!r} is blank in every row")
        elif (present == present[0]).all():
            useless.append(f"column {name!r} is {present[0]:g} in every row")
        else:
            _warn_of_outliers(present, name, what)
    if useless:
        raise ValueError(f"{what}: {', '.join(useless)}; leave {'it' if len(useless) == 1 else 'them'} out.")
    if len(table.ids) < 5:
        raise ValueError(
            f"{what}: there {'is one series' if len(table.ids) == 1 else f'are {len(table.ids)} series'}; training "
            f"needs at least 5, as some are set aside for validation. Cut a long series into parts with an {id!r} each."
        )
    return table


def _missing(given: Any) -> tuple[float, ...]:
    """One number or several that stand for a missing value, or none."""
    try:
        return tuple(float(each) for each in np.atleast_1d(() if given is None else given))
    except (TypeError, ValueError) as error:
        raise ValueError(f"missing={given!r}: expected a number such as -999, or several.") from error


def _warn_of_outliers(present: np.ndarray, name: str, what: str) -> None:
    """A value like -999 that stands for a missing one would stretch the scale of all others."""
    low, middle, high = np.quantile(present, (0.25, 0.5, 0.75))
    far = np.abs(present - middle)
    if far.max() <= _OUTLYING * (high - low) or high == low:
        return
    value = present[int(np.argmax(far))]
    count = int((present == value).sum())
    where = f"{count} rows" if count > 1 else "one row"
    warnings.warn(
        f"{what}: column {name!r} is {value:g} in {where}, where half of its values lie between {low:g} and {high:g}. "
        "If it stands for a missing value, say so (missing=..., in a command --missing), or leave the cell blank.",
        stacklevel=4,
    )


def choose_settings(
    table: Table, model: str | Entry, given: dict[str, Any], ahead: float | int, default_epochs: int = 100
) -> tuple[Settings, Clock]:
    """Settings from the data, where they are not given."""
    spans = table.last - table.first
    typical = float(np.quantile(spans[spans > 0], 0.9)) if (spans > 0).any() else 1.0
    unit = typical / _UNITS
    rows = int(np.bincount(table.codes).max())
    span = (float(spans.max()) or typical) / unit * (1 + ahead)
    count = math.ceil(span / _STEP) + 2 * rows + 16

    def pick(name: str, default):
        value = given.get(name)
        if value is not None and (value < 0 or (value == 0 and name != "penalty")):
            raise ValueError(f"{name}={value!r}: expected a positive number, or None to choose it from the data.")
        return default if value is None else value

    settings = Settings(
        model=name_of(model),
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
        seed=int(given["seed"]),
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
    series: Series,
    *,
    checkpoint: str | Path | None,
    progress: Progress | bool,
) -> None:
    """Fit and keep the best parameters, the history and a summary (of all `series`) on the estimator."""
    s = estimator.settings_
    estimator.__dict__.pop("model_", None)  # where training is cut short, no old model may go with the new settings
    recipe = Recipe(
        epochs=s.epochs,
        algorithm="joint",  # one gradient instead of two: half the time
        batch_size=min(s.batch_size, len(split.train)),
        patience=s.patience,
        clip=10.0,
        eval_batch=64,
        reference=256,
    )
    bar = progress if not isinstance(progress, bool) else (Bar(s.model) if progress else Quiet())
    member = Member(s.seed, 0, s.learning_rate, s.penalty)
    done = fit(build, task, data, split, recipe, [member], checkpoint=checkpoint, progress=bar)
    estimator.model_ = at_rest(done.model(0))
    estimator.history_ = {name: values[:, 0] for name, values in done.history.items()}
    estimator.summary_ = Summary(
        series=len(series),
        validation_series=len(split.validation),
        observations=int(series.observed.sum()),
        epochs=len(done.history["loss"]),
        best_epoch=int(done.best_epoch[0]) + 1,
        metric=task.monitor,
        validation=float(done.best_score[0]),
        seconds=round(done.seconds, 1),
        parameters=parameter_count(done.model(0)),
        notes=done.notes,
    )


# --- asking a fitted model --------------------------------------------------------------------------------------


def at_rest(headed: Headed) -> Headed:
    """A model that draws its first state takes the mean of it: an answer depends on its series alone, and not on
    chance or on its place in a batch."""
    model = headed.model
    return Headed(_changed(model, samples=0), headed.head) if getattr(model, "samples", 0) else headed


def with_room(headed: Headed, panel: Panel, queries: np.ndarray) -> Headed:
    """The same model with room for the steps that these series and questions take, if they are more than in training.

    Room comes in powers of two, so that a model is not compiled for every question anew.
    """
    model = headed.model
    times = np.asarray(panel.series.times)
    span = float(max(times.max(initial=0.0), np.max(queries, initial=0.0)))
    solver = getattr(getattr(model, "ode", None), "solver", None)
    if solver is None or solver.adaptive:
        return headed
    cuts = times.shape[1] + queries.shape[1] if isinstance(model, GRUODEBayes) else 0
    need = math.ceil(span / solver.step) + cuts + 2
    if need <= solver.max_steps:
        return headed
    roomy = replace(solver, max_steps=_power_of_two(need))
    return Headed(_changed(model, ode=_changed(model.ode, solver=roomy)), headed.head)


def _changed(module: Any, **fields: Any) -> Any:
    """A copy with other fields, static ones too."""
    new = copy.copy(module)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def in_parts(call: Callable, panel: Panel, *more: np.ndarray, size: int = 64) -> Any:
    """`call(series, *more)` on so many series at a time; `more` has an axis of queries after that of the series.

    Series, rows and queries are filled up to powers of two, so that tables of about a size share a compiled program;
    the caller drops the queries that were filled in.
    """
    outs = []
    count = len(panel)
    size = min(size, max(8, _power_of_two(count)))
    series, more = _filled(panel.series), tuple(map(_filled_queries, more))
    for begin in range(0, count, size):
        rows = np.minimum(np.arange(begin, begin + size), count - 1)
        outs.append(jax.tree.map(np.asarray, call(series[rows], *(m[rows] for m in more))))
    return jax.tree.map(lambda *xs: np.concatenate(xs)[:count], *outs)


def _filled(series: Series) -> Series:
    """Padded to a power of two of rows."""
    times, values, observed = (np.asarray(x) for x in (series.times, series.values, series.observed))
    fill = max(8, _power_of_two(times.shape[1])) - times.shape[1]
    values, observed = (np.pad(x, ((0, 0), (0, fill), (0, 0))) for x in (values, observed))
    return Series(np.pad(times, ((0, 0), (0, fill)), "edge"), values, observed, np.asarray(series.length))


def _filled_queries(queries: np.ndarray) -> np.ndarray:
    fill = max(4, _power_of_two(queries.shape[1])) - queries.shape[1]
    return np.pad(queries, ((0, 0), (0, fill)), "edge")


def gaussians(headed: Headed, panel: Panel, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log variance of every (scaled) variable at the queried times of each series, which are sorted."""
    roomy = with_room(headed, panel, queries)
    mean, log_variance = in_parts(lambda series, queried: _gaussians(roomy, series, queried), panel, queries)
    warn_of_none(mean, panel.ids)
    return mean[:, : queries.shape[1]], log_variance[:, : queries.shape[1]]


def warn_of_none(answers: np.ndarray, ids: np.ndarray) -> None:
    """Say which series have no answer, NaN, as the solver gave up on them."""
    lost = np.isnan(answers.reshape(len(answers), -1)).any(axis=1)
    if lost.any():
        first, count = shown(ids[int(np.argmax(lost))]), int(np.sum(lost))
        warnings.warn(
            f"for {count} of {len(answers)} series, {first} first, the solver gave up: they have no answer. A "
            "value far from all others may be the reason.",
            stacklevel=4,
        )


@compiled
def _gaussians(model: Headed, series, queries):
    return mixture(*predictions(model, model.model(series, queries, jax.random.key(0)).mask_failed()))


def measured(headed: Headed, query: Query, panel: Panel) -> dict[str, float]:
    """The metrics of `Forecast` on a question about a panel, and what the MSE would be without a model."""
    known = Panel(query.context, panel.ids, panel.variables)
    outputs = gaussians(headed, known, np.asarray(query.times))
    metrics = Forecast().metrics(outputs, query, jnp.ones(len(panel)))
    error = np.square(np.asarray(query.values, float) - straight_lines(query))
    simple = {"mse_baseline": error[np.asarray(query.scored)].mean()}
    return {name: float(value) for name, value in {**metrics, **simple}.items()}


def straight_lines(query: Query) -> np.ndarray:
    """At the asked times, straight lines between the known values of a variable; beyond them the nearest.

    Where none is known it is 0, the training mean of scaled values.
    """
    known = query.context
    made = np.zeros(np.shape(query.values))
    for k, queried in enumerate(np.asarray(query.times)):
        for variable, seen in enumerate(np.asarray(known.observed)[k].T):
            if seen.any():
                points = np.asarray(known.times)[k, seen], np.asarray(known.values)[k, seen, variable]
                made[k, :, variable] = np.interp(queried, *points)
    return made
