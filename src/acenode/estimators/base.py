"""What all estimators share: fitting, and reading frames for a fitted model."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..datasets.split import Split, random_split
from ..series import Panel, Query, Scaler, Series
from ..series.categories import Categories, collapsed, encode
from ..series.table import Columns, Table, column_of, frame_of, read
from ..series.times import Clock
from ..tasks import GaussianHead, Headed, Task
from ..train import Bar, BudgetBar, Progress, Quiet, parameter_count
from . import card, explain, saved
from .auto import Chosen, Search, Work, leaderboard_frame
from .budget import MINUTES, Budget
from .calibration import Calibration
from .importance import Reading
from .inputs import lead, mask_of, only_targets, resampled, winsorised
from .members import Members
from .named import train_named
from .registry import AUTO, Entry, check_model, entry, is_search, name_of
from .training import (
    WHAT,
    Settings,
    Summary,
    check_observed,
    choose_settings,
    read_rough,
    recipe_of,
    sizes,
)

_FAR = 1.25  # times the longest training series: beyond, predictions are guesses
_TOO_FAR = 50  # times it
_STRANGE = 20  # standard deviations from the mean of training


ENSEMBLE = 5  # members of a search, where there is time for them

Kind = TypeVar("Kind", bound="Estimator")


def horizons(context: Series, times: np.ndarray, columns: Columns) -> np.ndarray:
    """How long after the last row of its context each query is; rows that hold what is known ahead do not count."""
    rows_at, length = np.asarray(context.times), np.asarray(context.length)
    if columns.future:
        held: np.ndarray = np.any(np.asarray(context.observed) & columns.targets, axis=2)
        length = np.where(held.any(axis=1), held.shape[1] - np.argmax(held[:, ::-1], axis=1), 1)
    last = np.take_along_axis(rows_at, np.maximum(length - 1, 0)[:, None], axis=1)
    return np.maximum(np.asarray(times) - last, 0.0)


def values_calibration(outputs: Any, query: Query, columns: Columns, by_horizon: bool) -> Calibration:
    """The correction of the band of predicted values, from those that are scored."""
    mean, log_variance = outputs
    scored = np.asarray(query.scored)
    times = np.asarray(query.times)
    away = horizons(query.context, times, columns) if by_horizon else np.zeros(times.shape)
    error = (np.asarray(query.values) - mean)[scored]
    return Calibration.fit(
        error, np.exp(0.5 * log_variance)[scored], np.broadcast_to(away[..., None], scored.shape)[scored]
    )


class Estimator(BaseEstimator):
    """A scikit-learn estimator of data frames; what a fit leaves are attributes that end with an underscore."""

    task: str
    ahead: float  # how far a model is made to reach beyond the longest training series, as a part of it

    id: str
    time: str
    model: str | Entry | Sequence[str]
    minutes: float | int | None
    ensemble: int | None
    seed: int

    entry_: Entry
    settings_: Settings
    summary_: Summary
    columns_: Columns
    left_out_: tuple[Any, ...]  # columns of the training table that never vary
    categories_: Categories  # the words of columns that hold some
    validation_ids_: list[Any]  # of the series set aside for validation
    clock_: Clock
    scaler_: Scaler
    model_: Headed  # the best of the members
    members_: Members  # all that answer together
    calibration_: Calibration
    validation_outputs_: Any  # of these series, before any member saw their labels; not saved
    leaderboard_: Any  # a frame of all candidates, the best first
    history_: dict[str, np.ndarray]

    def fit(
        self: Kind,
        frame: Any,
        y: Any = None,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | bool = False,
    ) -> Kind:
        """Train on a frame with one row for each id and time; blanks are missing values.

        Columns that never vary are left out, with a warning.

        **Arguments:**

        - `frame`: a pandas or polars data frame or a pyarrow table; what is learned is in it, and so `y` stays `None`.
        - `checkpoint`: a file that is written after every epoch; the same call resumes from it. Of a search, a folder
          with such a file for each candidate.
        - `progress`: whether to show a bar, or a `Progress` of your own.
        """
        if y is not None:
            raise ValueError(
                "fit: y is given; what is learned is in the frame itself, labels in a column named by label."
            )
        budget = Budget(60 * (MINUTES if self.minutes is None else self.minutes))
        self._train(*self._prepare(frame), budget, checkpoint, progress)
        return self

    def _prepare(self, frame: Any) -> tuple[Task, Any, Split, Series]:
        """The task, its data, their split and the scaled series; what is learned of the table is kept."""
        self._check_parameters()
        check_model(self.model)
        if self.ensemble is not None and self.ensemble < 1:
            raise ValueError(f"ensemble={self.ensemble!r}: expected at least 1, or None to choose it.")
        table, left_out, categories, weights = read_rough(self, frame)
        learned, codes = self._labels(table)
        settings = choose_settings(table, self.model, self.get_params(), self.ahead)
        strata = codes if self.task == "classify" else None
        split = random_split(len(table.ids), (0.8, 0.2, 0.0), self.seed, stratify=strata)
        if len(split.validation) == 0:
            raise ValueError("the training table: there are too few series of each label to set some aside; add more.")
        split = split._replace(train=resampled(split.train, weights))
        series = table.panel(settings.unit).series
        series = winsorised(series, split.train, table.columns, WHAT)
        scaler = Scaler.fit(series[split.train], "robust")
        series = lead(scaler.scale(series), mask_of(table.columns, table.columns.future))
        task, data, folds = self._training(series, split, codes, table.columns)
        data = only_targets(data, table.columns.targets)
        # Nothing is refused from here on. Where training is cut short, no old model may go with the new settings.
        self.__dict__.pop("model_", None)
        self.settings_, self.columns_, self.left_out_ = settings, table.columns, left_out
        self.categories_ = categories
        self.clock_, self.scaler_ = table.clock, scaler
        self.validation_ids_ = table.ids[split.validation].tolist()
        for name, value in learned.items():
            setattr(self, name, value)
        return task, data, folds, series

    def _train(
        self, task: Task, data: Any, split: Split, series: Series, budget: Budget, checkpoint: Any, progress: Any
    ) -> None:
        """Train one model or search among several; keep the best, the history and a summary."""
        s, work = self.settings_, self._work(task, data, split)
        if is_search(self.model):
            shown = progress if not isinstance(progress, bool) else (BudgetBar(budget) if progress else Quiet())
            names = () if self.model == AUTO else tuple(self.model)  # pyright: ignore[reportArgumentType]
            search = Search(work, budget, shown, names, self.ensemble or ENSEMBLE, checkpoint=checkpoint)
            done = search.choose()
            for note in done.notes:
                warnings.warn(note, stacklevel=3)
        else:
            shown = progress if not isinstance(progress, bool) else (Bar(s.model) if progress else Quiet())
            done = train_named(work, name_of(self.model), self.ensemble or 1, budget, checkpoint, shown)
        self._keep(done, work, series, budget.spent)

    def _work(self, task: Task, data: Any, split: Split) -> Work:
        """What candidates are trained on."""
        s = self.settings_
        return Work(
            task,
            jax.tree.map(jnp.asarray, data),
            np.asarray(split.train),
            np.asarray(split.validation),
            self.task,
            lambda name: lambda key: self._build(key, self._entry(name)),
            recipe_of(s, len(split.train)),
            s.learning_rate,
            s.penalty,
            s.seed,
            lambda name: self._entry(name).causal,
        )

    def _keep(self, done: Chosen, work: Work, series: Series, seconds: float) -> None:
        best, task = done.best, work.task
        self.members_, self.model_ = done.members, done.members.models[0]
        self.entry_ = self._entry(done.members.names[0])
        self.settings_ = replace(self.settings_, model=done.members.names[0])
        self.leaderboard_ = leaderboard_frame(done.leaderboard)
        self.history_ = {} if best is None else {name: v[:, done.member] for name, v in best.history.items()}
        self.calibration_ = self._calibrated(done.outputs, work.validation_rows)
        self.validation_outputs_ = done.outputs
        self.summary_ = Summary(
            series=len(series),
            validation_series=len(self.validation_ids_),
            observations=int(series.observed.sum()),
            epochs=0 if best is None else len(self.history_["loss"]),
            best_epoch=0 if best is None else int(best.best_epoch[done.member]) + 1,
            metric=task.monitor,
            validation=done.metrics.get(task.monitor, np.nan),
            seconds=round(seconds, 1),
            parameters=sum(map(parameter_count, done.members.models)),
            skipped_updates=0 if best is None else int(self.history_["skipped"].sum()),
            failed_solves=0 if best is None else int(self.history_["failed"].sum()),
            notes=done.notes,
        )
        names = tuple(map(str, self.columns_.values))
        ids = np.asarray(self.validation_ids_, object)
        self.reading_ = self._read_attention(Panel(series[work.validation], ids, names))

    def _entry(self, name: str) -> Entry:
        """Of a member: that of its name, or the user's own."""
        return self.model if isinstance(self.model, Entry) else entry(name)

    def _read_attention(self, validation: Panel) -> Reading | None:
        """Whether an attention between variables may be read as influence, on the validation series."""
        return None

    def _calibrated(self, outputs: Any, validation: Any) -> Calibration:
        """From predictions of the validation series and what they were; none where there is no band."""
        return Calibration()

    def attention(self, frame: Any) -> Any:
        """The attention over time as a frame: id, time, which variable attends to which, and how much.

        A warning says where it may not be read as influence; `reading_` has the numbers.
        """
        self._check_fitted()
        if self.reading_ is not None and not self.reading_.informative:
            warnings.warn(str(self.reading_), stacklevel=2)
        return explain.attention_frame(self, frame)

    def save(self, folder: str | Path, metrics: Mapping[str, float] | None = None) -> Path:
        """Save into a folder: safetensors, JSON and a model card. `acenode.load(folder)` reads it.

        `metrics` are those on test data, as `evaluate` gives them, for the card.
        """
        self._check_fitted()
        return saved.save(self, folder, metrics)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        given = super().__repr__(N_CHAR_MAX)
        if not self.__sklearn_is_fitted__():
            return given
        return f"{given}  # fitted: {', '.join(f'{n}={v!r}' for n, v in asdict(self.settings_).items())}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: of a fitted estimator a table."""
        shown = super()._repr_mimebundle_(**kwargs)
        return {**shown, "text/html": card.html(self)} if self.__sklearn_is_fitted__() else shown

    def _repr_html_(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._repr_mimebundle_().get("text/html")

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # --- what an estimator adds ---------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense, before anything is read."""

    def _labels(self, table: Table) -> tuple[dict[str, Any], np.ndarray | None]:
        """What is learned of the labels themselves, such as `classes_`, and the label of each series as a number."""
        return {}, None

    def _training(
        self, series: Series, split: Split, codes: np.ndarray | None, columns: Columns
    ) -> tuple[Task, Any, Split]:
        """The task, its data and their split, of scaled series."""
        raise NotImplementedError

    def _build(self, key, kind: Entry | None = None) -> Headed:
        """A model, the best one's kind by default, whose outputs are means and variances of the variables."""
        kind = kind or self.entry_
        given = sizes(self.settings_, len(self.columns_.values))
        one, two = jax.random.split(key)
        head = None if kind.state is None else GaussianHead(kind.state(given), given.variables, key=two)
        return Headed(kind.build(given, one), head)

    # --- predictions ----------------------------------------------------------------------------------------------

    def _gaussians(self, panel: Panel, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and log variance of the members together, the band corrected; of scaled values at sorted times."""
        mean, log_variance = self.members_.gaussians(panel, times)
        factor = self.calibration_.factor(horizons(panel.series, times, self.columns_))
        return mean, log_variance + 2 * np.log(factor)[..., None].astype(np.float32)

    # --- frames for a fitted model ------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        check_is_fitted(self, msg="this %(name)s is not fitted yet: call fit(frame) first, or load a saved one.")

    def _read(self, frame: Any, what: str, labelled: bool = False) -> Table:
        """A frame for the model; columns beside those that it was trained on are ignored."""
        given = frame_of(frame, what)
        for name in (self.columns_.id, self.columns_.time, *collapsed(self.columns_.values, self.categories_)):
            column_of(given, name, what)  # before columns are made that the user does not know
        frame = self._encoded(frame, what)
        table = read(frame, self.columns_ if labelled else self.columns_.unlabelled, what=what)
        check_observed(table, what)
        if table.clock.kind != self.clock_.kind:
            raise ValueError(
                f"{what}: the time column {self.columns_.time!r} holds {table.clock.kind}s; the model was trained on "
                f"{self.clock_.kind}s. Convert it."
            )
        return table

    def _encoded(self, frame: Any, what: str) -> Any:
        """A frame with columns of 0 and 1 in place of those of words."""
        frame, strange = encode(frame, self.categories_, self.columns_.missing)
        for name, word in strange.items():
            warnings.warn(
                f"{what}: {name!r} is {word!r} in a row, a word that it never was in training; it counts as none of "
                "those.",
                stacklevel=4,
            )
        return frame

    def _scaled(self, table: Table, what: str) -> Panel:
        """The series of a table as the model takes them."""
        self._check_reach(
            table.last - table.first,
            lambda k: f"{table.clock.show(table.last[k])}, the last time of {table.named(k)},",
            what,
            depth=4,
        )
        panel = table.panel(self.settings_.unit)
        series = lead(self.scaler_.scale(panel.series), mask_of(self.columns_, self.columns_.future))
        self._warn_of_far_values(table, np.abs(np.asarray(series.values)).max(axis=(0, 1)), what)
        return Panel(series, panel.ids, panel.variables)

    def _check_reach(self, since: np.ndarray, named: Callable[[int], str], what: str, depth: int = 3) -> None:
        """Warn of times (since the start of their series) far beyond those of training; refuse what is senseless."""
        reach = self.settings_.span * self.settings_.unit / (1 + self.ahead)
        k = int(np.argmax(since))
        if since[k] > _TOO_FAR * reach:
            raise ValueError(
                f"{what}: {named(k)} is more than {_TOO_FAR} times as far from the start of its series as any training "
                "series was long; ask for nearer times."
            )
        if since[k] > _FAR * reach:
            warnings.warn(
                f"{what}: {named(k)} is farther from the start of its series than any training series reached; such "
                "predictions are guesses.",
                stacklevel=depth,
            )

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
