"""`Forecaster`: values of irregular series at later times, with their uncertainty."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np

from ..compiled import compiled
from ..datasets.split import Split
from ..models.gru_ode_bayes import GRUODEBayes, Memory
from ..series import Query, Scaler, Series, forecast
from ..tasks import Forecast, Headed
from ..train import Progress
from . import base, explain, pictures
from .registry import Entry, entry
from .saved import save as save_estimator
from .table import (
    Kind,
    given_times,
    moments_of,
    read,
    shown,
    shown_time,
    stand_for_blanks,
    times_of,
    write_frame,
    write_times,
)

_CUTS, _CUT_BETWEEN = 2, (0.2, 1.0)  # how often each series is cut for training, and at which parts of its time


class Forecaster(base.Estimator):
    """Learns from a table of measurements how series go on.

        forecaster = Forecaster(id="patient", time="hour").fit(frame)
        forecaster.predict(frame, at=[24, 48])

    - `id`, `time`, `values`: the names of the columns; `values` defaults to all others;
    - `missing`: a number such as -999 that stands for a blank, or several;
    - `model`: a name from `acenode models`, or your own: an `Entry` of `acenode.estimators.registry`;
    - `horizon`: the last part of each series (0 to 1) that validation forecasts from what came before;
    - `quantiles`: what `predict` gives besides the mean;
    - the others are chosen from the data where they are `None`; a fitted estimator shows them.
    """

    task = "forecast"
    ahead = 1.0

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        missing: int | float | Sequence[int | float] | None = None,
        model: str | Entry = "ace-variables",
        horizon: float = 0.25,
        quantiles: tuple[float, ...] = (0.05, 0.95),
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        penalty: float | None = None,
        patience: int | None = None,
        seed: int = 0,
    ):
        self.id, self.time, self.values, self.missing, self.model = id, time, values, missing, model
        self.horizon, self.quantiles = horizon, quantiles
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def fit(
        self, frame: Any, y: Any = None, *, checkpoint: str | Path | None = None, progress: Progress | bool = False
    ) -> "Forecaster":
        """Train on a frame with one row for each id and time; blanks are missing values."""
        base.no_target(y)
        if not 0 < self.horizon < 1:
            raise ValueError(f"Forecaster(horizon={self.horizon}): expected a part between 0 and 1.")
        for q in self.quantiles:
            if not 0 < q < 1:
                raise ValueError(f"Forecaster(quantiles=...): {q} is not between 0 and 1.")
        kind = entry(self.model)
        for name in (self.id, self.time):
            if name in ("variable", "mean", *map(_quantile, self.quantiles)):
                raise ValueError(f"the training table: {name!r} is a column of the answers too; rename it.")
        table = base.read_training(self, frame)
        settings, clock = base.choose_settings(table, self.model, self.get_params(), self.ahead)
        split = base.split_of(len(table.ids), self.seed)
        series = table.panel(clock).series
        scaler = Scaler.fit(series[split.train])
        series = scaler.scale(series)
        data, split = self._training_queries(series, split)
        if not data.scored[split.validation].any():
            raise ValueError(
                f"the training table: no series set aside has values in its last {self.horizon:.0%} to forecast; give "
                "longer series or a larger horizon."
            )
        self.settings_, self.clock_, self.scaler_, self.columns_ = settings, clock, scaler, table.columns
        self.entry_ = kind
        task = Forecast()
        base.train(self, self._build, task, data, split, series, checkpoint=checkpoint, progress=progress)
        self._forget()
        return self

    def _build(self, key) -> Headed:
        return self._gaussian(key)

    def _training_queries(self, series: Series, split: Split) -> tuple[Query, Split]:
        """The last part of every series, to validate by; behind that each training series, cut at random moments.

        A model that only ever answered about the next row would be lost further ahead.
        """
        random = np.random.default_rng(self.seed)
        chosen = np.tile(split.train, _CUTS)
        cuts = random.uniform(*_CUT_BETWEEN, (len(chosen), 1)) * _last_times(series[chosen])
        queried = [self._last_part(series), forecast(series[chosen], cuts)]
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *queried)
        return together, Split(len(series) + np.arange(len(chosen)), split.validation, split.test)

    def _last_part(self, series: Series) -> Query:
        """What is asked of series: their last part, from what came before."""
        return forecast(series, (1 - self.horizon) * _last_times(series))

    def _forget(self) -> None:
        self.memory_: dict[Any, _Followed] = {}

    # --- asking -----------------------------------------------------------------------------------------------

    def predict(self, frame: Any = None, at: Any = None) -> Any:
        """A frame (id, time, variable, mean, quantiles) at later times, of the kind of `frame`.

        `at` are times as in the time column, asked of every id; or a frame with the columns id and time. Dates may be
        text such as 2020-01-31T14:00; without a time zone they are in that of the frame. Without `frame`, the series
        that `update` has been told of are carried on.
        """
        self._check_fitted()
        if at is None:
            raise ValueError("predict(at=...): say at which times, e.g. at=[24, 48], or give a frame of ids and times.")
        if frame is None:
            return self._predict_followed(at)
        what = "the table to predict from"
        table = read(frame, self.columns_, what=what)
        self._clock(table, what)
        queried = self._asked(at, table.ids, table.zone)
        early = queried.times < table.first[queried.codes]
        if early.any():
            k = int(np.argmax(early))
            who, begins = table.ids[queried.codes[k]], float(table.first[queried.codes[k]])
            raise ValueError(
                f"predict(at=...): {table.shown_time(queried.times[k])} lies before the first row of {self.columns_.id} "
                f"{shown(who)}, {table.shown_time(begins)}; ask for later times."
            )
        since = queried.times - table.first[queried.codes]
        self._check_reach(since, lambda k: table.shown_time(queried.times[k]), "predict(at=...)")
        mean, sd = self._answer(self._scaled(table, what), queried, since / self.clock_.unit)
        return self._answer_frame(queried, table.ids, mean, sd, table.kind, table.zone, table.implementation)

    def score(self, frame: Any, y: None = None) -> float:
        """Minus the negative log likelihood per value of the last part of each series: higher is better."""
        return -self.evaluate(frame)["negll"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """MSE (of scaled values), NegLL and coverage of the last part (`horizon`) of each series.

        `mse_baseline` is the MSE of the last known value of each variable: what a model has to beat.
        """
        self._check_fitted()
        what = "the table to evaluate on"
        panel = self._scaled(read(frame, self.columns_, what=what), what)
        query = self._last_part(panel.series)
        if not query.scored.any():
            raise ValueError(
                f"{what}: no series has values in its last {self.horizon:.0%} to forecast; give longer ones."
            )
        return base.measured(self.model_, query, panel)

    def attention(self, frame: Any) -> Any:
        """The attention over time as a frame: id, time, which variable attends to which, and how much."""
        self._check_fitted()
        return explain.attention_frame(self, frame)

    def plot(self, frame: Any, id: Any, at: Any, out: str | Path | None = None):
        """A picture of one series with its forecast bands, and its attention where the model has one."""
        self._check_fitted()
        return pictures.plot_forecast(self, frame, id, at, out)

    def save(self, folder: str | Path) -> Path:
        """Save into a folder: safetensors and JSON. `acenode.load(folder)` reads it."""
        self._check_fitted()
        return save_estimator(self, folder)

    # --- one observation at a time ----------------------------------------------------------------------------

    def update(self, id: Any, time: Any, values: Mapping[str, Any]) -> "Forecaster":
        """Take in one more observation of a series, known or new, without its history.

        For models that are a GRU-ODE-Bayes. The answers are those of `predict` on the whole history.
        """
        self._check_fitted()
        model = self.model_.model
        if not isinstance(model, GRUODEBayes):
            raise ValueError(
                f"update: {self.settings_.model} needs the whole history; choose a model such as ace-variables."
            )
        unknown = [name for name in values if name not in self.columns_.values]
        if unknown:
            known = ", ".join(self.columns_.values)
            raise ValueError(f"update: there is no variable {unknown[0]!r}; the model knows {known}.")
        now = float(self._moments([time], "update(time=...)")[0])
        x = np.asarray([[_value(values.get(name), name) for name in self.columns_.values]])
        x = np.where(stand_for_blanks(x, self.columns_.missing), np.nan, x)
        known = self.memory_.get(id)
        if known is not None and now <= known.last:
            raise ValueError(
                f"update: {shown(id)} was already observed at {self._shown_time(known.last)}; give a later time than "
                f"that, not {self._shown_time(now)}."
            )
        memory, origin = (_remember(model), now) if known is None else (known.memory, known.origin)
        seen = ~np.isnan(x)
        if seen.any():  # a row of blanks says nothing, as in a table
            moment = np.asarray([(now - origin) / self.clock_.unit], np.float32)
            scaled = np.where(seen, (x - np.asarray(self.scaler_.shift)) / np.asarray(self.scaler_.spread), 0.0)
            memory = _take_in(model, memory, jnp.asarray(moment), jnp.asarray(scaled, jnp.float32), jnp.asarray(seen))
        self.memory_[id] = _Followed(memory, origin, now)
        return self

    def _predict_followed(self, at) -> Any:
        if not self.memory_:
            raise ValueError("predict: no frame was given and no observation by update; give one of them.")
        model, kind, zone = self.model_.model, self.clock_.kind, self.clock_.zone
        ids = np.empty(len(self.memory_), object)
        ids[:] = list(self.memory_)
        followed = list(self.memory_.values())
        queried = self._asked(at, ids, zone)
        late = np.asarray([each.last for each in followed])[queried.codes] >= queried.times
        if late.any():
            k = int(np.argmax(late))
            who, last = shown(ids[queried.codes[k]]), self._shown_time(followed[queried.codes[k]].last)
            raise ValueError(
                f"predict(at=...): {who} was observed at {last}, not before {self._shown_time(queried.times[k])}; ask "
                "for later times."
            )
        since = queried.times - np.asarray([each.origin for each in followed])[queried.codes]
        self._check_reach(since, lambda k: self._shown_time(queried.times[k]), "predict(at=...)")
        moments = (since / self.clock_.unit).astype(np.float32)
        answers = np.zeros((2, len(queried.codes), len(self.columns_.values)), np.float32)
        carried = [each.memory for each in followed]
        for k in np.argsort(queried.times, kind="stable"):  # from one asked time to the next, as a whole history is
            code = queried.codes[k]
            carried[code], mean, sd = _ask(model, carried[code], jnp.asarray(moments[k : k + 1]))
            answers[:, k] = mean[0], sd[0]
        mean = np.asarray(self.scaler_.unscale(answers[0]))
        sd = np.asarray(self.scaler_.unscale_deviation(answers[1]))
        given = given_times(at)
        backend = given.implementation.value if isinstance(given, nw.DataFrame) else _installed()
        return self._answer_frame(queried, ids, mean, sd, kind, zone, backend)

    # --- parts ------------------------------------------------------------------------------------------------

    def _shown_time(self, time: float) -> str:
        return shown_time(time, self.clock_.kind, self.clock_.zone)

    def _moments(self, times: Sequence[Any], what: str) -> np.ndarray:
        """Given times as numbers, or as seconds since 1970."""
        return moments_of(times, self.clock_.kind, self.clock_.zone, what)

    def _asked(self, at: Any, ids: np.ndarray, zone: str | None) -> "_Asked":
        """Which times are asked of which series."""
        given, what = given_times(at), "predict(at=...)"
        if not isinstance(given, nw.DataFrame):
            times = np.unique(moments_of(given, self.clock_.kind, zone, what))
            if len(times) == 0:
                raise ValueError(f"{what}: give at least one time.")
            return _Asked(np.repeat(np.arange(len(ids)), len(times)), np.tile(times, len(ids)))
        for column in (self.columns_.id, self.columns_.time):
            if column not in given.columns:
                raise ValueError(f"{what}: there is no column {column!r}; give the columns of ids and times.")
        times, kind, at_zone = times_of(given.get_column(self.columns_.time), what)
        if kind != self.clock_.kind:
            raise ValueError(f"{what}: the times are {kind}s, those of the model {self.clock_.kind}s; convert them.")
        if (at_zone is None) != (zone is None):
            have, lack = ("those asked for", "those known") if zone is None else ("those known", "those asked for")
            raise ValueError(f"{what}: {have} have a time zone and {lack} have none; give both or none of them one.")
        code = {item: k for k, item in enumerate(ids.tolist())}
        wanted = given.get_column(self.columns_.id).to_list()
        unseen = [item for item in wanted if item not in code]
        if unseen:
            raise ValueError(
                f"{what}: {self.columns_.id} {shown(unseen[0])} is asked for, but the table has no rows of it; leave "
                "it out or add its rows."
            )
        return _Asked(np.asarray([code[item] for item in wanted]), times)

    def _answer(self, panel: base.Panel, queried: "_Asked", since: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation for each asked id and time, in the units of the data."""
        used, codes = np.unique(queried.codes, return_inverse=True)
        order = np.lexsort((since, codes))  # in time, as a solver walks
        starts = np.searchsorted(codes[order], np.arange(len(used) + 1))
        counts = np.diff(starts)
        places = np.minimum(np.arange(counts.max()), counts[:, None] - 1)  # filled up with the last
        queries = since[order][starts[:-1, None] + places].astype(np.float32)
        slots = np.empty(len(codes), int)
        slots[order] = np.arange(len(codes)) - starts[codes[order]]
        mean, log_variance = base.gaussians(self.model_, panel[used], queries)
        mean = np.asarray(self.scaler_.unscale(mean))[codes, slots]
        sd = np.asarray(self.scaler_.unscale_deviation(np.exp(0.5 * log_variance)))[codes, slots]
        return mean, sd

    def _answer_frame(
        self, queried: "_Asked", ids: np.ndarray, mean, sd, kind: Kind, zone: str | None, backend: Any
    ) -> Any:
        names = self.columns_.values
        each = len(names)
        data: dict[str, Any] = {
            self.columns_.id: ids[np.repeat(queried.codes, each)].tolist(),
            self.columns_.time: write_times(np.repeat(queried.times, each), kind, zone, backend),
            "variable": list(names) * len(queried.codes),
            "mean": mean.ravel().astype(np.float64),
        }
        for q in self.quantiles:
            data[_quantile(q)] = (mean + NormalDist().inv_cdf(q) * sd).ravel().astype(np.float64)
        return write_frame(data, backend)


def _last_times(series: Series) -> np.ndarray:
    return np.take_along_axis(np.asarray(series.times), np.asarray(series.length)[:, None] - 1, axis=1)


class _Followed(NamedTuple):
    """A series that is followed: what the model knows, and the first and last time it was told of."""

    memory: Memory
    origin: float
    last: float


class _Asked:
    """Times asked of series: `codes[k]` is the place of the series, `times[k]` the time."""

    def __init__(self, codes: np.ndarray, times: np.ndarray):
        self.codes, self.times = codes, times


def _quantile(q: float) -> str:
    return f"q{q:g}"


def _value(given: Any, name: str) -> float:
    try:
        value = np.nan if given is None else float(given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"update: {name!r} is {given!r}; give a number, or None where it is missing.") from error
    if np.isinf(np.float32(value)):
        raise ValueError(f"update: {name!r} is {given!r}; give a finite number, or None where it is missing.")
    return value


def _installed() -> str:
    """The first library of frames that there is."""
    return next(name for name in ("pandas", "polars", "pyarrow") if find_spec(name) is not None)


@compiled
def _remember(model: GRUODEBayes) -> Memory:
    return model.fit_reference_statistics()


@compiled
def _take_in(model: GRUODEBayes, memory: Memory, moment, values, seen) -> Memory:
    return model.observe(model.advance(memory, moment), values, seen)


@compiled
def _ask(model: GRUODEBayes, memory: Memory, moment):
    memory = model.advance(memory, moment)
    mean, log_variance = model.emit(memory)
    return memory, mean, jnp.exp(0.5 * log_variance)
