"""Series followed one observation at a time: many at once, each by its state alone."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compiled import compiled
from ..models.gru_ode_bayes import GRUODEBayes, Memory
from ..series.categories import encoded
from ..series.columns import shown, stands_for_blank
from .inputs import mask_of

_TOO_FAR = 50  # times the longest training series: the longest gap between two observations
_LARGEST = float(np.finfo(np.float32).max)
SIZES = (1, 8, 64)  # to which a batch is padded, so that few programs are compiled


class Followed(NamedTuple):
    """A series given by `update`: the state of each model (a batch of one), the first and last time, and the values of
    the static columns, NaN where it has none."""

    memory: tuple[Memory, ...]
    origin: float
    last: float
    static: np.ndarray


class Row(NamedTuple):
    """One observation of a series: its time and its values, NaN where missing."""

    id: Any
    time: float
    values: np.ndarray


class NotLater(ValueError):
    """The time of an observation is not after the last one of its series."""


def models(estimator: Any) -> tuple[Any, ...]:
    """The models of a fitted estimator, all that answer together."""
    return tuple(each.model for each in estimator.members_.models)


def check_followable(estimator: Any) -> None:
    """Refuse a model that has no state to follow."""
    if estimator.task != "forecast" or not all(isinstance(model, GRUODEBayes) for model in models(estimator)):
        raise ValueError(
            f"update: {estimator.settings_.model} cannot take observations one at a time; train with "
            "model='gru-ode-bayes'."
        )
    if estimator.columns_.future:
        raise ValueError("update: the model has columns that are known ahead; predict from the whole table instead.")


def variables(estimator: Any) -> tuple[Any, ...]:
    """The columns of values of the training table; one of words is one column."""
    words = estimator.categories_
    made = {encoded(name, word) for name, some in words.items() for word in some}
    return (*(name for name in (*estimator.columns_.values, *estimator.left_out_) if name not in made), *words)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=5)  # of who calls `update`


def read_row(
    estimator: Any, id: Any, time: Any, values: Mapping[str, Any], warn: Callable[[str], object] = _warn
) -> Row:
    """An observation as the model takes it."""
    names = variables(estimator)
    unknown = [name for name in values if name not in names]
    if unknown:
        raise ValueError(f"update: there is no variable {unknown[0]!r}; the model has {', '.join(map(str, names))}.")
    now = float(estimator.clock_.read([time], "update(time=...)")[0])
    given = {**values, **_from_words(estimator, values, warn)}
    x = np.asarray([_value(given.get(name), name) for name in estimator.columns_.values])
    if estimator.columns_.missing:
        x = np.where(stands_for_blank(x, estimator.columns_.missing), np.nan, x)
    return Row(id, now, x)


def check_later(estimator: Any, row: Row, before: Followed | None) -> None:
    """Refuse an observation not after the last one of its series, too far from it, or with other static values."""
    if before is None:
        return
    clock, unit = estimator.clock_, estimator.settings_.unit
    if row.time <= before.last:
        raise NotLater(
            f"update: {shown(row.id)} was already observed at {clock.show(before.last)}; give a later time than "
            f"that, not {clock.show(row.time)}."
        )
    check_gap(estimator, row.id, row.time, before, "update(time=...)")
    if np.float32((row.time - before.origin) / unit) <= np.float32((before.last - before.origin) / unit):
        raise ValueError(
            f"update: {clock.show(row.time)} and {clock.show(before.last)}, the last time of {shown(row.id)}, are the "
            "same number in single precision, so far are they from the first; follow the series under a new id."
        )
    static = mask_of(estimator.columns_, estimator.columns_.static)
    given = row.values[static]
    differs = ~np.isnan(given) & (given != before.static)
    if differs.any():
        k = int(np.argmax(differs))
        name = list(compress(estimator.columns_.values, static))[k]
        was = "blank" if np.isnan(before.static[k]) else f"{before.static[k]:g}"
        raise ValueError(
            f"update: the static column {name!r} of {shown(row.id)} was {was} in its first observation and is "
            f"{given[k]:g} now; a series has one value in all its rows. Leave it out, or follow the series under a new "
            "id."
        )


def check_gap(estimator: Any, id: Any, time: float, before: Followed, what: str) -> None:
    """Refuse a time so far from the last observation that the solver would take steps for hours."""
    settings = estimator.settings_
    reach = settings.span * settings.unit / (1 + estimator.ahead)
    if time - before.last > _TOO_FAR * reach:
        raise ValueError(
            f"{what}: {estimator.clock_.show(time)} is more than {_TOO_FAR} times as far from the last observation of "
            f"{shown(id)} as any training series was long; give a nearer time, or follow the series under a new id."
        )


def observe(estimator: Any, rows: Sequence[Row], before: Sequence[Followed | None]) -> list[Followed]:
    """The series after one observation each, in one call of the model."""
    together, columns = models(estimator), estimator.columns_
    static = mask_of(columns, columns.static)
    start = first(estimator).memory if None in before else ()
    new = [
        Followed(start, row.time, row.time, row.values[static]) if b is None else b
        for row, b in zip(rows, before, strict=True)
    ]
    x = np.stack([row.values for row in rows])
    x[:, static] = [b.static for b in new]
    seen = ~np.isnan(x)
    scaled = np.where(seen, (x - np.asarray(estimator.scaler_.shift)) / np.asarray(estimator.scaler_.spread), 0.0)
    moments = [(row.time - b.origin) / estimator.settings_.unit for row, b in zip(rows, new, strict=True)]
    # A row of blanks says nothing, as in a table: its series does not move.
    telling = np.flatnonzero(seen.any(axis=1))
    memories = [b.memory for b in new]
    for begin in range(0, len(telling), SIZES[-1]):
        part = telling[begin : begin + SIZES[-1]]
        size = next(s for s in SIZES if s >= len(part))
        places = np.concatenate([part, np.full(size - len(part), part[-1])])
        memory = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(memories[k] for k in places))
        moment = np.asarray(moments, np.float32)[places].astype(memory[0].time.dtype)  # as in a table
        after = _observe(together, memory, moment, scaled[places].astype(np.float32), seen[places])
        after = jax.tree.map(np.asarray, after)
        for i, k in enumerate(part):
            memories[k] = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], after)
    return [b._replace(memory=m, last=row.time) for m, b, row in zip(memories, new, rows, strict=True)]


def emit(estimator: Any, memory: tuple[Memory, ...], moment: np.ndarray) -> tuple[tuple[Memory, ...], list[Any]]:
    """The states at a later time, and what each model says then: mean and log variance of every (scaled) variable."""
    after, said = _emit(models(estimator), memory, jnp.asarray(moment))
    return after, [(np.asarray(mean[0]), np.asarray(log_variance[0])) for mean, log_variance in said]


def first(estimator: Any) -> Followed:
    """A series before any observation."""
    memory = jax.tree.map(np.asarray, _start(models(estimator)))
    return Followed(memory, 0.0, 0.0, np.full(len(estimator.columns_.static), np.nan))


def _from_words(estimator: Any, values: Mapping[str, Any], warn: Callable[[str], object]) -> dict[str, float]:
    """The columns of true and false of those of words. A blank is blank in all; another word is false in all."""
    made: dict[str, float] = {}
    for name, words in estimator.categories_.items():
        word = values.get(name)
        if word is None or (isinstance(word, float) and math.isnan(word)) or not str(word).strip():
            continue
        word = str(word).lower() if isinstance(word, bool) else str(word)  # as in a table
        if word not in words:
            warn(f"update: {name!r} is {word!r}, a word that it never was in training; it counts as none of those.")
        made |= {encoded(name, each): float(word == each) for each in words}
    return made


def _value(given: Any, name: Any) -> float:
    try:
        value = np.nan if given is None else float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"update: {name!r} is {given!r}; give a number, or None where it is missing.") from error
    if abs(value) > _LARGEST:
        raise ValueError(f"update: {name!r} is {given!r}; give a finite number, or None where it is missing.")
    return value


@compiled
def _start(models: tuple[GRUODEBayes, ...]) -> tuple[Memory, ...]:
    return tuple(model.begin() for model in models)


@compiled
def _observe(models: tuple[GRUODEBayes, ...], memory: tuple[Memory, ...], moment, values, seen) -> tuple[Memory, ...]:
    both = zip(models, memory, strict=True)
    return tuple(model.observe(model.advance(own, moment), values, seen) for model, own in both)


@compiled
def _emit(models: tuple[GRUODEBayes, ...], memory: tuple[Memory, ...], moment):
    after = tuple(model.advance(own, moment) for model, own in zip(models, memory, strict=True))
    return after, [model.emit(own) for model, own in zip(models, after, strict=True)]
