"""What all estimators share: fitting, and reading frames for a fitted model."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..datasets.split import Split, random_split
from ..series import Panel, Scaler, Series
from ..series.table import Columns, Table, read
from ..series.times import Clock
from ..tasks import GaussianHead, Headed, Task
from ..train import Bar, Member, Progress, Quiet, Recipe, fit, parameter_count
from . import card, explain, saved
from .inference import without_sampling
from .registry import Entry, entry
from .training import Settings, Summary, check_observed, choose_settings, read_training, sizes

_FAR = 1.25  # times the longest training series: beyond, predictions are guesses
_TOO_FAR = 50  # times it
_STRANGE = 20  # standard deviations from the mean of training


Kind = TypeVar("Kind", bound="Estimator")


class Estimator(BaseEstimator):
    """A scikit-learn estimator of data frames; what a fit leaves are attributes that end with an underscore."""

    task: str
    ahead: float  # how far a model is made to reach beyond the longest training series, as a part of it

    id: str
    time: str
    model: str | Entry
    seed: int

    entry_: Entry
    settings_: Settings
    summary_: Summary
    columns_: Columns
    left_out_: tuple[Any, ...]  # columns of the training table that never vary
    validation_ids_: list[Any]  # of the series set aside for validation
    clock_: Clock
    scaler_: Scaler
    model_: Headed
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
        - `checkpoint`: a file that is written after every epoch; the same call resumes from it.
        - `progress`: whether to show a bar, or a `Progress` of your own.
        """
        if y is not None:
            raise ValueError(
                "fit: y is given; what is learned is in the frame itself, labels in a column named by label."
            )
        self._check_parameters()
        chosen = entry(self.model)
        table, left_out = read_training(self, frame)
        classes, codes = self._classes(table)
        settings = choose_settings(table, self.model, self.get_params(), self.ahead)
        split = random_split(len(table.ids), (0.8, 0.2, 0.0), self.seed, stratify=codes)
        if len(split.validation) == 0:
            raise ValueError("the training table: there are too few series of each label to set some aside; add more.")
        series = table.panel(settings.unit).series
        scaler = Scaler.fit(series[split.train])
        series = scaler.scale(series)
        task, data, folds = self._training(series, split, codes)
        # Nothing is refused from here on. Where training is cut short, no old model may go with the new settings.
        self.__dict__.pop("model_", None)
        self.entry_, self.settings_, self.columns_, self.left_out_ = chosen, settings, table.columns, left_out
        self.clock_, self.scaler_ = table.clock, scaler
        self.validation_ids_ = table.ids[split.validation].tolist()
        if classes is not None:
            self.classes_ = classes
        self._train(task, data, folds, series, checkpoint, progress)
        return self

    def _train(self, task: Task, data: Any, split: Split, series: Series, checkpoint, progress) -> None:
        """Fit and keep the best parameters, the history and a summary."""
        s = self.settings_
        recipe = Recipe(
            epochs=s.epochs,
            algorithm="joint",  # one gradient instead of two: half the time
            batch_size=min(s.batch_size, len(split.train)),
            patience=s.patience,
            clip=10.0,
            eval_batch=64,
            reference=256,
        )
        shown = progress if not isinstance(progress, bool) else (Bar(s.model) if progress else Quiet())
        member = Member(s.seed, 0, s.learning_rate, s.penalty)
        done = fit(self._build, task, data, split, recipe, [member], checkpoint=checkpoint, progress=shown)
        self.model_ = without_sampling(done.model(0))
        self.history_ = {name: values[:, 0] for name, values in done.history.items()}
        self.summary_ = Summary(
            series=len(series),
            validation_series=len(split.validation),
            observations=int(series.observed.sum()),
            epochs=len(self.history_["loss"]),
            best_epoch=int(done.best_epoch[0]) + 1,
            metric=task.monitor,
            validation=float(done.best_score[0]),
            seconds=round(done.seconds, 1),
            parameters=parameter_count(self.model_),
            skipped_updates=int(self.history_["skipped"].sum()),
            failed_solves=int(self.history_["failed"].sum()),
            notes=done.notes,
        )

    def attention(self, frame: Any) -> Any:
        """The attention over time as a frame: id, time, which variable attends to which, and how much."""
        self._check_fitted()
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

    def _classes(self, table: Table) -> tuple[list[Any] | None, np.ndarray | None]:
        """The classes of a classifier, and for each series which of them it has."""
        return None, None

    def _training(self, series: Series, split: Split, codes: np.ndarray | None) -> tuple[Task, Any, Split]:
        """The task, its data and their split, of scaled series."""
        raise NotImplementedError

    def _build(self, key) -> Headed:
        """A model whose outputs are means and variances of the variables."""
        kind, given = self.entry_, sizes(self.settings_, len(self.columns_.values))
        one, two = jax.random.split(key)
        head = None if kind.state is None else GaussianHead(kind.state(given), given.variables, key=two)
        return Headed(kind.build(given, one), head)

    # --- frames for a fitted model ------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        check_is_fitted(self, msg="this %(name)s is not fitted yet: call fit(frame) first, or load a saved one.")

    def _read(self, frame: Any, what: str, labelled: bool = False) -> Table:
        """A frame for the model; columns beside those that it was trained on are ignored."""
        table = read(frame, self.columns_ if labelled else self.columns_.unlabelled, what=what)
        check_observed(table, what)
        if table.clock.kind != self.clock_.kind:
            raise ValueError(
                f"{what}: the time column {self.columns_.time!r} holds {table.clock.kind}s; the model was trained on "
                f"{self.clock_.kind}s. Convert it."
            )
        return table

    def _scaled(self, table: Table, what: str) -> Panel:
        """The series of a table as the model takes them."""
        self._check_reach(
            table.last - table.first,
            lambda k: f"{table.clock.show(table.last[k])}, the last time of {table.named(k)},",
            what,
            depth=4,
        )
        panel = table.panel(self.settings_.unit)
        series = self.scaler_.scale(panel.series)
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
