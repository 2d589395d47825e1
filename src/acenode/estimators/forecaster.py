"""`Forecaster`: values of irregular series at later times, with their uncertainty."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np

from ..models.gru_ode_bayes import GRUODEBayes, Memory
from ..series import Scaler, forecast
from ..tasks import Forecast, GaussianHead, Headed
from ..tasks.forecast import mixture, predictions
from ..train import Progress
from . import base, explain
from .registry import entry
from .saved import save as save_estimator
from .table import Table, frame_of, read, shown, times_of, write_times


class Forecaster(base.Estimator):
    """Learns from a table of measurements how series go on.

        forecaster = Forecaster(id="patient", time="hour").fit(frame)
        forecaster.predict(frame, at=[24, 48])

    - `id`, `time`, `values`: the names of the columns; `values` defaults to all others;
    - `model`: a name from `acenode models`;
    - `horizon`: the last part of each series (0 to 1) that validation forecasts from what came before;
    - `quantiles`: what `predict` gives besides the mean;
    - the others are chosen from the data where they are `None`; a fitted estimator shows them.
    """

    task = "forecast"

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        model: str = "ace-variables",
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
        self.id, self.time, self.values, self.model = id, time, values, model
        self.horizon, self.quantiles = horizon, quantiles
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def fit(
        self, frame: Any, y: None = None, *, checkpoint: str | Path | None = None, progress: Progress | bool = False
    ) -> "Forecaster":
        """Train on a frame with one row for each id and time; blanks are missing values."""
        if not 0 < self.horizon < 1:
            raise ValueError(f"Forecaster(horizon={self.horizon}): expected a part between 0 and 1.")
        for q in self.quantiles:
            if not 0 < q < 1:
                raise ValueError(f"Forecaster(quantiles=...): {q} is not between 0 and 1.")
        kind = entry(self.model)
        table = base.read_training(frame, self.id, self.time, self.values, None)
        settings, clock = base.choose_settings(table, self.model, self.get_params(), horizon=1.0)
        split = base.split_of(len(table.ids), self.seed)
        series = table.panel(clock).series
        scaler = Scaler.fit(series[split.train])
        series = scaler.scale(series)
        cut = (1 - self.horizon) * np.take_along_axis(series.times, series.length[:, None] - 1, axis=1)
        entire = np.isin(np.arange(len(series)), split.train) if kind.filters else None
        data = forecast(series, cut, entire=entire)
        self.settings_, self.clock_, self.scaler_, self.columns_ = settings, clock, scaler, table.columns
        task = Forecast()
        observations = int(series.observed.sum())
        base.train(self, self._build, task, data, split, observations, checkpoint=checkpoint, progress=progress)
        self._forget()
        return self

    def _build(self, key) -> Headed:
        kind, sizes = entry(self.settings_.model), base.sizes(self.settings_, len(self.columns_.values))
        one, two = jax.random.split(key)
        head = None if kind.state is None else GaussianHead(kind.state(sizes), sizes.variables, key=two)
        return Headed(kind.build(sizes, one), head)

    def _forget(self) -> None:
        self.memory_: dict[Any, tuple[Memory, float]] = {}

    # --- asking -----------------------------------------------------------------------------------------------

    def predict(self, frame: Any = None, at: Any = None) -> Any:
        """A frame (id, time, variable, mean, quantiles) at later times, of the kind of `frame`.

        `at` are times as in the time column, asked of every id; or a frame with the columns id and time. Without
        `frame`, the series that `update` has been told of are carried on.
        """
        self._check_fitted()
        if at is None:
            raise ValueError("predict(at=...): say at which times, e.g. at=[24, 48], or give a frame of ids and times.")
        if frame is None:
            return self._predict_followed(at)
        table = read(frame, self.columns_, what="the table to predict from")
        asked = self._asked(at, table.ids, table.kind, table.zone)
        self._check_asked(asked, table)
        mean, sd = self._answer(table, asked)
        return self._answer_frame(asked, table.ids, mean, sd, table)

    def score(self, frame: Any, y: None = None) -> float:
        """Minus the negative log likelihood per value of the last part of each series: higher is better."""
        return -self.evaluate(frame)["negll"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """MSE (of scaled values), NegLL and coverage of the last part (`horizon`) of each series."""
        self._check_fitted()
        table = read(frame, self.columns_, what="the table to evaluate on")
        series = self.scaler_.scale(table.panel(self._clock(table)).series)
        cut = (1 - self.horizon) * np.take_along_axis(series.times, series.length[:, None] - 1, axis=1)
        question = forecast(series, cut)
        task = Forecast()
        outputs = eqx.filter_jit(task.outputs)(self.model_, question, jax.random.key(0))
        metrics = task.metrics(outputs, jax.tree.map(jnp.asarray, question), jnp.ones(len(series)))
        return {name: float(value) for name, value in metrics.items()}

    def attention(self, frame: Any) -> Any:
        """The attention over time as a frame: id, time, which variable attends to which, and how much."""
        self._check_fitted()
        return explain.attention_frame(self, frame)

    def plot(self, frame: Any, id: Any, at: Any, out: str | Path | None = None):
        """A picture of one series with its forecast bands, and its attention where the model has one."""
        self._check_fitted()
        return explain.plot_forecast(self, frame, id, at, out)

    def save(self, folder: str | Path) -> Path:
        """Save into a folder: safetensors and JSON. `acenode.load(folder)` reads it."""
        self._check_fitted()
        return save_estimator(self, folder)

    # --- one observation at a time ----------------------------------------------------------------------------

    def update(self, id: Any, time: Any, values: dict[str, float | None]) -> "Forecaster":
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
        x = np.asarray([[np.nan if values.get(n) is None else values[n] for n in self.columns_.values]], np.float32)
        if np.isinf(x).any():
            raise ValueError(f"update: a value of {id!r} is not finite; give a number or None.")
        memory, origin = self.memory_.get(id, (None, now))
        if memory is None:
            memory = eqx.filter_jit(lambda m: m.remember())(model)
        moment = np.asarray([(now - origin) / self.clock_.unit], np.float32)
        if moment[0] < float(memory.time[0]) or (id in self.memory_ and moment[0] == float(memory.time[0])):
            raise ValueError(f"update: {id!r} was already observed at or after {time!r}; times must go on.")
        seen = ~np.isnan(x)
        scaled = np.where(seen, (x - np.asarray(self.scaler_.shift)) / np.asarray(self.scaler_.spread), 0.0)
        memory = _take_in(model, memory, jnp.asarray(moment), jnp.asarray(scaled, jnp.float32), jnp.asarray(seen))
        self.memory_[id] = (memory, origin)
        return self

    def _predict_followed(self, at) -> Any:
        if not self.memory_:
            raise ValueError("predict: no frame was given and no observation by update; give one of them.")
        model = self.model_.model
        ids = np.empty(len(self.memory_), object)
        ids[:] = list(self.memory_)
        asked = self._asked(at, ids, self.clock_.kind, self.clock_.zone)
        answers = np.zeros((2, len(asked.codes), len(self.columns_.values)), np.float32)
        carried = {code: self.memory_[item] for code, item in enumerate(ids)}
        for k in np.argsort(asked.times, kind="stable"):  # from one asked time to the next, as a whole history is
            memory, origin = carried[asked.codes[k]]
            moment = np.float32((asked.times[k] - origin) / self.clock_.unit)
            if moment < float(memory.time[0]):
                who = shown(ids[asked.codes[k]])
                raise ValueError(f"predict: {who} was observed later than an asked time; ask for later ones.")
            memory, mean, sd = _ask(model, memory, jnp.asarray([moment]))
            carried[asked.codes[k]] = (memory, origin)
            answers[:, k] = mean[0], sd[0]
        mean = np.asarray(self.scaler_.unscale(answers[0]))
        sd = np.asarray(self.scaler_.unscale_deviation(answers[1]))
        backend = "pandas" if isinstance(at, list | tuple | np.ndarray) else frame_of(at, "at").implementation.value
        like = Table(
            ids, asked.codes, asked.times, mean, None, self.clock_.kind, self.clock_.zone, self.columns_, backend
        )
        return self._answer_frame(asked, ids, mean, sd, like)

    # --- parts ------------------------------------------------------------------------------------------------

    def _clock(self, table: Table):
        if table.kind != self.clock_.kind:
            raise ValueError(
                f"the time column {self.columns_.time!r} holds {table.kind}s; the model was trained on "
                f"{self.clock_.kind}s. Convert it."
            )
        return self.clock_

    def _moments(self, times, what: str) -> np.ndarray:
        """Given times as numbers, or as seconds since 1970."""
        if self.clock_.kind == "number":
            try:
                return np.asarray(times, np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{what}: {times[0]!r} is not a number, as the times of the model are.") from error
        try:
            import pandas as pd

            moments = pd.DatetimeIndex(pd.to_datetime(list(times)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what}: {times[0]!r} is not a date, as the times of the model are.") from error
        if moments.tz is None and self.clock_.zone is not None:
            moments = moments.tz_localize(self.clock_.zone)
        return moments.as_unit("us").asi8 / 1e6

    def _asked(self, at, ids: np.ndarray, kind, zone) -> "_Asked":
        """Which times are asked of which series."""
        if isinstance(at, list | tuple | range | np.ndarray):
            times = np.sort(self._moments(list(at), "predict(at=...)"))
            if len(times) == 0 or not np.isfinite(times).all():
                raise ValueError("predict(at=...): give at least one time, all of them finite.")
            return _Asked(np.repeat(np.arange(len(ids)), len(times)), np.tile(times, len(ids)))
        table = frame_of(at, "predict(at=...)")
        for column in (self.columns_.id, self.columns_.time):
            if column not in table.columns:
                raise ValueError(f"predict(at=...): there is no column {column!r}; give the columns of ids and times.")
        times, given_kind, _ = times_of(table.get_column(self.columns_.time), "predict(at=...)")
        if given_kind != self.clock_.kind:
            raise ValueError(f"predict(at=...): the times are {given_kind}s, those of the model {self.clock_.kind}s.")
        code = {item: k for k, item in enumerate(ids.tolist())}
        wanted = table.get_column(self.columns_.id).to_list()
        unseen = [item for item in wanted if item not in code]
        if unseen:
            raise ValueError(
                f"predict(at=...): {self.columns_.id} {unseen[0]!r} is asked for, but the table has no rows of it."
            )
        return _Asked(np.asarray([code[item] for item in wanted]), times)

    def _check_asked(self, asked: "_Asked", table: Table) -> None:
        early = asked.times < table.first[asked.codes]
        if early.any():
            k = int(np.argmax(early))
            raise ValueError(
                f"predict(at=...): {asked.times[k]:g} lies before the first row of {self.columns_.id} "
                f"{shown(table.ids[asked.codes[k]])}, {table.first[asked.codes[k]]:g}; ask for later times."
            )
        ahead = (asked.times - table.first[asked.codes]) / self.clock_.unit
        if (ahead > self.settings_.span).any():
            raise ValueError(
                f"predict(at=...): {asked.times[int(np.argmax(ahead))]:g} is more than twice as far from the start of "
                "its series as any training series was long; ask for nearer times."
            )
        if (ahead > self.settings_.span / 2).any():
            warnings.warn(
                f"predict(at=...): {asked.times[int(np.argmax(ahead))]:g} is farther from the start of its series than "
                "any training series reached; such forecasts are guesses.",
                stacklevel=3,
            )

    def _answer(self, table: Table, asked: "_Asked") -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation for each asked id and time, in the units of the data."""
        clock = self._clock(table)
        panel = table.panel(clock)
        most = int(np.bincount(asked.codes, minlength=len(table.ids)).max())
        queries = np.zeros((len(table.ids), most), np.float32)
        place = np.zeros(len(table.ids), int)
        slots = np.empty(len(asked.codes), int)
        for k, (code, time) in enumerate(zip(asked.codes, asked.times, strict=True)):
            slots[k] = place[code]
            queries[code, place[code]] = (time - table.first[code]) / clock.unit
            place[code] += 1
        scaled = base.Panel(self.scaler_.scale(panel.series), panel.ids, panel.variables)
        mean, log_variance = base.in_parts(lambda s, q: _predictions(self.model_, s, q), scaled, queries)
        mean = np.asarray(self.scaler_.unscale(mean))[asked.codes, slots]
        sd = np.asarray(self.scaler_.unscale_deviation(np.exp(0.5 * log_variance)))[asked.codes, slots]
        return mean, sd

    def _answer_frame(self, asked: "_Asked", ids: np.ndarray, mean, sd, table: Table) -> Any:
        names = self.columns_.values
        each = len(names)
        backend: Any = table.implementation
        times = write_times(np.repeat(asked.times, each), table.kind, table.zone, backend)
        data: dict[str, Any] = {
            self.columns_.id: ids[np.repeat(asked.codes, each)].tolist(),
            self.columns_.time: times,
            "variable": list(names) * len(asked.codes),
            "mean": mean.ravel().astype(np.float64),
        }
        for q in self.quantiles:
            data[f"q{q:g}"] = (mean + NormalDist().inv_cdf(q) * sd).ravel().astype(np.float64)
        return nw.from_dict(data, backend=backend).to_native()


class _Asked:
    """Times asked of series: `codes[k]` is the place of the series, `times[k]` the time."""

    def __init__(self, codes: np.ndarray, times: np.ndarray):
        self.codes, self.times = codes, times


@eqx.filter_jit
def _predictions(model: Headed, series, queries):
    trace = model.model(series, queries, jax.random.key(0))
    return mixture(*predictions(model, trace))


@eqx.filter_jit
def _take_in(model: GRUODEBayes, memory: Memory, moment, values, seen) -> Memory:
    return model.observe(model.advance(memory, moment), values, seen)


@eqx.filter_jit
def _ask(model: GRUODEBayes, memory: Memory, moment):
    memory = model.advance(memory, moment)
    mean, log_variance = model.emit(memory)
    return memory, mean, jnp.exp(0.5 * log_variance)
