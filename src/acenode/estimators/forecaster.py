"""`Forecaster`: values of irregular series at later times, with their uncertainty."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import compress
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import narwhals as nw
import numpy as np

from ..datasets.split import Split
from ..series import Panel, Query, Series, forecast
from ..series.categories import collapsed
from ..series.columns import read_numbers, shown
from ..series.frames import Missing, default_backend, write_frame
from ..series.table import Columns, Table, column_of, frame_of
from ..series.times import Clock, read_times
from ..tasks import Forecast, Task
from . import explain, follow
from .base import Estimator, values_calibration
from .calibration import Calibration
from .importance import Reading, importance_frame, plot_importance, reading_of
from .inference import scores
from .inputs import extended, keep_known, mask_of, only_targets
from .members import mixed
from .registry import AUTO, Entry

_CUTS, _CUT_BETWEEN = 2, (0.2, 1.0)  # how often each series is cut for training, and at which parts of its time
_AT_ONCE = 4096  # series that are cut at a query
_AT = "predict(at=...)"


class Forecaster(Estimator):
    """Learns from a table of measurements how series continue.

        forecaster = Forecaster(id="patient", time="hour").fit(frame)
        forecaster.predict(frame, at=[24, 48])

    - `id`, `time`, `values`: the names of the columns; `values` defaults to all others;
    - `future`: columns whose values are known ahead, such as what day it is; `static`: columns that are the same in all
      rows of a series. Both are inputs and not predicted. `weight`: a column with the weight of each series;
    - a column of words becomes columns of true and false, one for each word;
    - `missing`: a number such as -999 that stands for a blank, or several;
    - `model`: `auto` trains several models and keeps the best on validation (`leaderboard_`), plain baselines among
      them; a list of names compares these; a name from `acenode models` trains that one; an `Entry` of
      `acenode.estimators.registry` is your own;
    - `minutes`: the budget of training, 5 by default: what is best by then is kept;
    - `ensemble`: how many models answer together: by default up to 5 after a comparison, 1 with a named model;
    - `horizon`: the last part of each series (0 to 1) that validation forecasts from what came before;
    - `quantiles`: what `predict` gives besides the mean;
    - the others are chosen from the data where they are `None`; a fitted estimator has them in `settings_`.
    """

    task = "forecast"
    ahead = 1.0

    def __init__(
        self,
        id: str = "id",
        time: str = "time",
        values: Sequence[str] | None = None,
        future: Sequence[str] | None = None,
        static: Sequence[str] | None = None,
        weight: str | None = None,
        missing: Missing = None,
        model: str | Entry | Sequence[str] = AUTO,
        minutes: float | int | None = None,
        ensemble: int | None = None,
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
        self.id, self.time, self.values, self.missing = id, time, values, missing
        self.future, self.static, self.weight = future, static, weight
        self.model, self.minutes, self.ensemble = model, minutes, ensemble
        self.horizon, self.quantiles = horizon, quantiles
        self.hidden, self.epochs, self.batch_size = hidden, epochs, batch_size
        self.learning_rate, self.penalty, self.patience, self.seed = learning_rate, penalty, patience, seed

    def _check_parameters(self) -> None:
        if not 0 < self.horizon < 1:
            raise ValueError(f"Forecaster(horizon={self.horizon}): expected a part between 0 and 1.")
        for q in self.quantiles:
            if not 0 < q < 1:
                raise ValueError(f"Forecaster(quantiles=...): {q} is not between 0 and 1.")
        for name in (self.id, self.time):
            if name in ("variable", "mean", *map(_quantile, self.quantiles)):
                raise ValueError(f"the training table: {name!r} is a column of the forecasts too; rename it.")

    def _training(
        self, series: Series, split: Split, codes: np.ndarray | None, columns: Columns
    ) -> tuple[Task, Query, Split]:
        """The last part of every series, to validate by; behind that each training series, cut at random moments.

        A model that only ever predicted the next row would be lost further ahead.
        """
        random = np.random.default_rng(self.seed)
        chosen = np.tile(split.train, _CUTS)
        cuts = random.uniform(*_CUT_BETWEEN, (len(chosen), 1)) * _last_times(series[chosen])
        future = mask_of(columns, columns.future)
        queries = [
            self._last_part(series, columns),
            keep_known(forecast(series[chosen], cuts), series[chosen], future),
        ]
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *queries)
        if not together.scored[split.validation].any():
            raise ValueError(
                f"the training table: no validation series has values in its last {self.horizon:.0%} to forecast; give "
                "longer series or a larger horizon."
            )
        self._clear_updates()
        return Forecast(), together, Split(len(series) + np.arange(len(chosen)), split.validation, split.test)

    def _read_attention(self, validation: Panel) -> Reading | None:
        return reading_of(self, validation)

    def _calibrated(self, outputs: Any, validation: Query) -> Calibration:
        return values_calibration(outputs, validation, self.columns_, by_horizon=True)

    def _last_part(self, series: Series, columns: Columns | None = None) -> Query:
        """The last part of each series, from what came before and what is known ahead."""
        columns = columns or self.columns_
        query = forecast(series, (1 - self.horizon) * _last_times(series))
        return only_targets(keep_known(query, series, mask_of(columns, columns.future)), columns.targets)

    # --- predicting ---------------------------------------------------------------------------------------------

    def predict(self, frame: Any = None, at: Any = None) -> Any:
        """A frame (id, time, variable, mean, quantiles) at later times, of the kind of `frame`.

        A time before the last row of a series is predicted from the rows up to that time alone.

        `at` are times as in the time column, for every id; or a frame with the columns id and time. Dates may be text
        such as 2020-01-31T14:00; without a time zone they are in that of the frame. Without `frame`, the series that
        `update` has been given are continued.
        """
        self._check_fitted()
        if at is None:
            raise ValueError(f"{_AT}: say at which times, e.g. at=[24, 48], or give a frame of ids and times.")
        if frame is None:
            return self._predict_updated(at)
        what = "the table to predict from"
        table = self._read(frame, what)
        queries = self._queries(at, table.ids, table.clock)
        early = queries.times < table.first[queries.codes]
        named = lambda k: table.named(int(queries.codes[k]))  # noqa: E731
        if early.any():
            k = int(np.argmax(early))
            raise ValueError(
                f"{_AT}: {table.clock.show(queries.times[k])} lies before the first row of {named(k)}, "
                f"{table.clock.show(float(table.first[queries.codes[k]]))}; ask for later times."
            )
        since = queries.times - table.first[queries.codes]
        self._check_reach(since, lambda k: f"{table.clock.show(queries.times[k])} of {named(k)}", _AT)
        if self.columns_.future:
            known = self._known_ahead(at, queries, table)
            table = extended(table, queries.codes, queries.times, known)
        mean, sd = self._predicted(self._scaled(table, what), queries.codes, since / self.settings_.unit)
        return self._frame(queries, table.ids, mean, sd, table.clock, table.backend)

    def score(self, frame: Any, y: None = None) -> float:
        """Minus the negative log likelihood per value of the last part of each series: higher is better."""
        return -self.evaluate(frame)["negll"]

    def evaluate(self, frame: Any) -> dict[str, float]:
        """MSE (of scaled values), NegLL and coverage of the last part (`horizon`) of each series.

        `mse_baseline` is the MSE of the last observed value of each variable: what a model has to beat.
        """
        self._check_fitted()
        what = "the table to evaluate on"
        panel = self._scaled(self._read(frame, what), what)
        query = self._last_part(panel.series)
        if not query.scored.any():
            raise ValueError(
                f"{what}: no series has values in its last {self.horizon:.0%} to forecast; give longer ones."
            )
        context = Panel(query.context, panel.ids, panel.variables)
        return scores(self._gaussians(context, np.asarray(query.times)), query)

    def plot(self, frame: Any, id: Any, at: Any, out: str | Path | None = None):
        """A picture of one series with its forecast bands, and its attention where the model has one."""
        self._check_fitted()
        return explain.plot_forecast(self, frame, id, at, out)

    def importance(self, frame: Any) -> Any:
        """Which variable the forecasts depend on: a frame (forecast, hidden, mse, increase, standard_error).

        Each column is hidden in turn from what comes before the last part (`horizon`) of each series; `increase` is
        by how much the MSE of forecasting the last part grows (of scaled values).
        """
        self._check_fitted()
        return importance_frame(self, frame)

    def plot_importance(self, frame: Any, out: str | Path | None = None):
        """A picture of `importance`: a row for each variable that is forecast, one for each column that is hidden."""
        self._check_fitted()
        return plot_importance(self, frame, out)

    # --- one observation at a time ------------------------------------------------------------------------------

    def update(self, id: Any, time: Any, values: Mapping[str, Any]) -> "Forecaster":
        """Take in one more observation of a series, an old or a new one, without its history.

        For models that are a GRU-ODE-Bayes. The forecasts are those of `predict` on the whole history.
        """
        self._check_fitted()
        follow.check_followable(self)
        row, before = follow.read_row(self, id, time, values), self.memory_.get(id)
        follow.check_later(self, row, before)
        (self.memory_[id],) = follow.observe(self, [row], [before])
        return self

    def _clear_updates(self) -> None:
        self.memory_: dict[Any, follow.Followed] = {}

    def _predict_updated(self, at: Any) -> Any:
        if not self.memory_:
            raise ValueError("predict: no frame was given and no observation by update; give one of them.")
        ids = np.empty(len(self.memory_), object)
        ids[:] = list(self.memory_)
        updated = list(self.memory_.values())
        queries = self._queries(at, ids, self.clock_)
        late = np.asarray([each.last for each in updated])[queries.codes] >= queries.times
        if late.any():
            k = int(np.argmax(late))
            who, last = shown(ids[queries.codes[k]]), self.clock_.show(updated[queries.codes[k]].last)
            raise ValueError(
                f"{_AT}: {who} was observed at {last}, not before {self.clock_.show(queries.times[k])}; ask for later "
                "times."
            )
        for code, time in zip(*queries, strict=True):
            follow.check_gap(self, ids[code], float(time), updated[code], _AT)
        since = queries.times - np.asarray([each.origin for each in updated])[queries.codes]
        moments = (since / self.settings_.unit).astype(np.float32)
        outputs = np.zeros((2, len(queries.codes), len(self.columns_.values)), np.float32)
        memories = [each.memory for each in updated]
        for k in np.argsort(queries.times, kind="stable"):  # from one query time to the next, as a whole history is
            code = queries.codes[k]
            memories[code], said = follow.emit(self, memories[code], moments[k : k + 1])
            mean, log_variance = mixed(said, self.members_.weights)
            outputs[:, k] = mean, np.exp(0.5 * log_variance)
        ahead = queries.times - np.asarray([each.last for each in updated])[queries.codes]
        outputs[1] *= self.calibration_.factor(ahead / self.settings_.unit)[:, None]
        mean = np.asarray(self.scaler_.unscale(outputs[0]))
        sd = np.asarray(self.scaler_.unscale_deviation(outputs[1]))
        given = listed(at)
        backend = given.implementation.value if isinstance(given, nw.DataFrame) else default_backend()
        return self._frame(queries, ids, mean, sd, self.clock_, backend)

    # --- parts --------------------------------------------------------------------------------------------------

    def _queries(self, at: Any, ids: np.ndarray, clock: Clock) -> "_Queries":
        """Which times are queried of which series."""
        given = listed(at)
        if not isinstance(given, nw.DataFrame):
            times = np.unique(clock.read(given, _AT))
            if len(times) == 0:
                raise ValueError(f"{_AT}: give at least one time.")
            return _Queries(np.repeat(np.arange(len(ids)), len(times)), np.tile(times, len(ids)))
        wanted = column_of(given, self.columns_.id, _AT).to_list()
        times, at_clock = read_times(column_of(given, self.columns_.time, _AT), _AT)
        if at_clock.kind != clock.kind:
            raise ValueError(f"{_AT}: the times are {at_clock.kind}s, those of the model {clock.kind}s; convert them.")
        if (at_clock.zone is None) != (clock.zone is None):
            these, others = ("a", "none") if clock.zone is None else ("no", "one")
            raise ValueError(
                f"{_AT}: the query times have {these} time zone, and those of the table have {others}; use one in both "
                "or in neither."
            )
        places = {item: k for k, item in enumerate(ids.tolist())}
        unseen = [item for item in wanted if item not in places]
        if unseen:
            raise ValueError(
                f"{_AT}: {self.columns_.id} {shown(unseen[0])} is queried, but the table has no rows of it; leave it "
                "out or add its rows."
            )
        return _Queries(np.asarray([places[item] for item in wanted]), times)

    def _known_ahead(self, at: Any, queries: "_Queries", table: Table) -> np.ndarray:
        """What the columns known ahead will be at the query times, from the frame of these."""
        names = ", ".join(map(str, collapsed(self.columns_.future, self.categories_)))
        given = listed(at)
        if not isinstance(given, nw.DataFrame):
            raise ValueError(
                f"{_AT}: the model was trained with columns that are known ahead ({names}); give a frame of ids and "
                "times that has them (in a command, --at-file)."
            )
        early = queries.times <= table.last[queries.codes]
        if early.any():
            k = int(np.argmax(early))
            raise ValueError(
                f"{_AT}: {table.clock.show(queries.times[k])} is not after the last row of "
                f"{table.named(queries.codes[k])}; ask for later times."
            )
        _check_once(queries, table)
        whole = frame_of(self._encoded(given.to_native(), _AT), _AT)
        named = compress(self.columns_.values, mask_of(self.columns_, self.columns_.future))
        columns = (column_of(whole, name, _AT) for name in named)
        return np.stack([read_numbers(column, _AT, self.columns_.missing) for column in columns], axis=1)

    def _predicted(self, panel: Panel, codes: np.ndarray, since: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation for each queried series and time, in the units of the data.

        What a series has after a query does not count for it: before its last row, it is the series as it was by then.
        """
        inside = since.astype(np.float32) < _last_times(panel.series)[codes, 0]
        if self.columns_.future or not inside.any():
            return self._answered(panel, codes, since)
        found = np.empty((2, len(codes), len(self.columns_.values)))
        late = ~inside
        if late.any():
            found[:, late] = self._answered(panel, codes[late], since[late])
        places = np.flatnonzero(inside)
        for some in np.split(places, range(_AT_ONCE, len(places), _AT_ONCE)):
            whole = panel[codes[some]]
            context = forecast(whole.series, since[some, None].astype(np.float32)).context
            then = Panel(context, whole.ids, whole.variables)
            found[:, some] = self._answered(then, np.arange(len(some)), since[some])
        return found[0], found[1]

    def _answered(self, panel: Panel, codes: np.ndarray, since: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same from all that the series have."""
        used, codes = np.unique(codes, return_inverse=True)
        order = np.lexsort((since, codes))  # in time, as a solver goes
        starts = np.searchsorted(codes[order], np.arange(len(used) + 1))
        counts = np.diff(starts)
        places = np.minimum(np.arange(counts.max()), counts[:, None] - 1)  # padded with the last
        times = since[order][starts[:-1, None] + places].astype(np.float32)
        slots = np.empty(len(codes), int)
        slots[order] = np.arange(len(codes)) - starts[codes[order]]
        mean, log_variance = self._gaussians(panel[used], times)
        mean = np.asarray(self.scaler_.unscale(mean))[codes, slots]
        sd = np.asarray(self.scaler_.unscale_deviation(np.exp(0.5 * log_variance)))[codes, slots]
        return mean, sd

    def _frame(self, queries: "_Queries", ids: np.ndarray, mean, sd, clock: Clock, backend: Any) -> Any:
        targets = self.columns_.targets
        names, mean, sd = list(compress(self.columns_.values, targets)), mean[:, targets], sd[:, targets]
        data: dict[str, Any] = {
            self.columns_.id: ids[np.repeat(queries.codes, len(names))].tolist(),
            self.columns_.time: clock.write(np.repeat(queries.times, len(names)), backend),
            "variable": names * len(queries.codes),
            "mean": mean.ravel().astype(np.float64),
        }
        for q in self.quantiles:
            data[_quantile(q)] = (mean + NormalDist().inv_cdf(q) * sd).ravel().astype(np.float64)
        return write_frame(data, backend)


class _Queries(NamedTuple):
    """`codes[k]` is the place of a series, `times[k]` the time at which it is queried."""

    codes: np.ndarray
    times: np.ndarray


def _check_once(queries: _Queries, table: Table) -> None:
    """Refuse a time that is queried twice of a series."""
    seen: set[tuple[Any, Any]] = set()
    for code, time in zip(*queries, strict=True):
        if (code, time) in seen:
            raise ValueError(
                f"{_AT}: {table.clock.show(time)} is queried twice of {table.named(code)}; leave out one of the rows."
            )
        seen.add((code, time))


def listed(at: Any) -> "nw.DataFrame | Sequence[Any]":
    """Query times: a frame behind one interface, or a list."""
    seen = nw.from_native(at, pass_through=True, allow_series=True)
    if isinstance(seen, nw.DataFrame | nw.LazyFrame):
        return frame_of(at, _AT)
    if isinstance(seen, nw.Series):
        return seen.to_list()
    if isinstance(at, str | date | np.generic) or not isinstance(at, Iterable):
        return [at]
    return list(at)


def _last_times(series: Series) -> np.ndarray:
    return np.take_along_axis(np.asarray(series.times), np.asarray(series.length)[:, None] - 1, axis=1)


def _quantile(q: float) -> str:
    return f"q{q:g}"
