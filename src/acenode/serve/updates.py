"""Observations that arrive at about the same time, taken in by one call of the model and one commit."""

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from ..estimators import follow
from .store import Kept, Store

log = logging.getLogger("acenode.serve")


class Busy(Exception):
    """More is waiting than can be answered soon, or it could not be stored."""


class _Waiting(NamedTuple):
    row: follow.Row
    answer: Future[Kept]


class Updates:
    """Takes in observations, many at once. An answer is given when its observation is on the disk, never before.

    One thread does it all. Two observations of one series are taken in one after the other, in the order they came.
    """

    def __init__(self, estimator: Any, store: Store, most: int = follow.SIZES[-1], waiting: int = 4096):
        self._estimator, self._store, self._most, self._limit = estimator, store, most, waiting
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="acenode-updates", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def compile(self) -> None:
        """Compile the programs now, so that no observation waits for it."""
        rows = [follow.Row("", 0.0, np.zeros(len(self._estimator.columns_.values)))] * self._most
        for size in follow.SIZES:
            if size <= self._most:
                after = follow.observe(self._estimator, rows[:size], [None] * size)
                follow.observe(self._estimator, [row._replace(time=1e-3) for row in rows[:size]], after)

    async def take(self, row: follow.Row) -> Kept:
        """The series after the observation, when that is stored."""
        answer: Future[Kept] = Future()
        answer.set_running_or_notify_cancel()  # a client that leaves does not take its observation back
        with self._changed:
            if self._closed or len(self._queue) >= self._limit:
                raise Busy("The service is busy or stopping; try again in a moment.")
            self._queue.append(_Waiting(row, answer))
            self._changed.notify()
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """Take in what is waiting, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            try:
                self._take_in(batch)
            except sqlite3.Error as error:
                log.error("the states could not be stored: %s", error)
                self._refuse(batch, Busy(f"The observation could not be stored ({error}); try again later."))
            except Exception as error:
                log.exception("an update failed")
                self._refuse(batch, error)

    def _next(self) -> list[_Waiting]:
        """The longest waiting, one for each series; nothing when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            chosen: dict[str, _Waiting] = {}
            later: list[_Waiting] = []
            while self._queue and len(chosen) < self._most:
                each = self._queue.popleft()
                if each.row.id in chosen:
                    later.append(each)
                else:
                    chosen[each.row.id] = each
            self._queue.extendleft(reversed(later))
            return list(chosen.values())

    def _take_in(self, batch: list[_Waiting]) -> None:
        stored = self._store.get(each.row.id for each in batch)
        good: list[_Waiting] = []
        for each in batch:
            before = stored.get(each.row.id)
            try:
                follow.check_later(self._estimator, each.row, before and before.followed)
                good.append(each)
            except ValueError as error:
                self._refuse([each], error)
        if not good:
            return
        before = [stored.get(each.row.id) for each in good]
        after = follow.observe(self._estimator, [each.row for each in good], [b and b.followed for b in before])
        kept = [Kept(a, 1 if b is None else b.observations + 1) for a, b in zip(after, before, strict=True)]
        self._store.put([each.row.id for each in good], kept)
        for each, k in zip(good, kept, strict=True):
            each.answer.set_result(k)

    def _refuse(self, batch: list[_Waiting], error: Exception) -> None:
        for each in batch:
            if not each.answer.done():
                each.answer.set_exception(error)
