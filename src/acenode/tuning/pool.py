"""`Pool`: places of one compiled program, in each of which a trial trains until another takes the place."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..compiled import compiled
from ..estimators.auto import Work
from ..train import Member
from ..train.algorithm import Rates
from ..train.evaluate import padded
from ..train.layout import Devices, Layout
from ..train.program import Program, Rows
from .space import Shape


@dataclass
class Seat:
    """A trial in its place, and how it went so far."""

    trial: Any  # of Optuna
    member: Member
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
    best_score: float = np.nan
    stopped: bool = False

    @property
    def epochs(self) -> int:
        return len(self.history)


class Pool:
    """All trials of one shape that train at the moment, as one ensemble."""

    def __init__(self, work: Work, shape: Shape, build: Callable, places: int, devices: Devices = None):
        self.work, self.shape, self.recipe = work, shape, work.recipe
        layout = Layout.of(places, devices)
        self.seats: list[Seat | None] = [None] * places
        self.waiting: list[tuple[Any, Member]] = []
        self._layout = layout
        self._here = jax.tree.map(jnp.asarray, work.training_data(shape.model))
        self._data = layout.share(self._here)
        self._rows = Rows(*padded([work.train] * places), *padded([work.validation] * places))
        self._own_rows = layout.put(self._rows)
        self._program = Program(build, work.task, work.recipe, len(work.train), layout)
        self._members = [Member(work.seed, weight_decay=0.0)] * places
        self._state: Any = None
        self._static: PyTree = None
        self.compiling = 0.0  # seconds of the first epoch

    @property
    def live(self) -> list[Seat]:
        return [seat for seat in self.seats if seat is not None]

    @property
    def free(self) -> int:
        """Places that nobody trains in or waits for."""
        return len(self.seats) - len(self.live) - len(self.waiting)

    @property
    def samples(self) -> int:
        """How many an epoch takes, of all trials together."""
        return self._program.steps * self._program.batch * len(self.live)

    def seat(self) -> None:
        """Give free places to those who wait, each with first weights from its own seed."""
        places = [k for k, seat in enumerate(self.seats) if seat is None][: len(self.waiting)]
        if not places:
            return
        for k in places:
            trial, member = self.waiting.pop(0)
            self.seats[k], self._members[k] = Seat(trial, member), member
        new = np.zeros(len(self.seats), bool)
        new[places] = True
        seeds = jnp.asarray([m.seed for m in self._members], jnp.int32)
        rates = Rates.of(self.recipe, self._members)
        state, static = self._program.start(seeds, self._rows, rates, self._here)
        self._seeds, self._rates = self._layout.put(seeds), self._layout.put(rates)
        fresh = self._layout.put(state)
        if self._state is None:
            self._state, self._static = fresh, static
            self._program.check_monitor(fresh, static, self._seeds, self._own_rows, self._data)
        else:
            self._state = _replaced(self._layout.put(new), fresh, self._state)

    def epoch(self) -> dict[str, np.ndarray]:
        """One more epoch of all; the record of it."""
        began = time.perf_counter()
        had = np.asarray([0 if seat is None else seat.epochs for seat in self.seats])
        told = (self._seeds, self._own_rows, self._rates, self._data, had)
        self._state, record = self._program.epoch(self._state, self._static, *told)
        found = self._layout.get((self._state.best_epoch, self._state.best_score, self._state.stopped))
        for k, seat in enumerate(self.seats):
            if seat is not None:
                seat.history.append({name: float(values[k]) for name, values in record.items()})
                seat.best_epoch, seat.best_score, seat.stopped = int(found[0][k]), float(found[1][k]), bool(found[2][k])
        self.compiling = self.compiling or time.perf_counter() - began
        taken = [k for k, seat in enumerate(self.seats) if seat is not None]
        return {name: values[taken] for name, values in record.items()}

    def leave(self, seat: Seat) -> None:
        """Free the place of a trial."""
        self.seats[self.seats.index(seat)] = None

    def best_of(self, seat: Seat) -> PyTree:
        """The best parameters of a trial, on the host, with an ensemble axis of one."""
        k = self.seats.index(seat)
        return jax.tree.map(lambda x: x[k : k + 1], self._layout.get(self._state.best))


@compiled
def _replaced(new, fresh: PyTree, state: PyTree) -> PyTree:
    """`fresh` in the places that are `new`, `state` in the others."""

    def one(a, b):
        return jnp.where(new.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(one, fresh, state)
