"""A job that any process can train in seconds: a made-up row."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from toy_task import Regression, build, pairs

from acenode.datasets.split import Split
from acenode.launch import Job, Outcome
from acenode.paper.row import Prepared, Refused, Row
from acenode.train import Recipe


@dataclass(frozen=True)
class ToyJob(Job):
    """Writes down which process trains it; `dies` in its first write of a checkpoint after the first, once."""

    samples: int = 60
    dies: bool = False
    refuses: bool = False

    def __call__(self) -> Outcome:
        notes = Path(self.runs) / f"{self.name}.pids"
        notes.parent.mkdir(parents=True, exist_ok=True)
        first = not notes.exists()
        with notes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.dies and first:
            _die_in_write(2)
        return super().__call__()

    def find(self) -> Row:
        def data(data_dir, seeds):
            if self.refuses:
                raise Refused("there is no such thing as a toy.")
            made = jax.tree.map(lambda x: x.astype(np.float32), pairs(self.samples))
            rows = np.arange(self.samples)
            return Prepared(made, Split(rows[:-20], rows[-20:-10], rows[-10:]), "made up")

        def recipe(epochs: int) -> Recipe:
            return Recipe(epochs=epochs, batch_size=10, algorithm="joint")

        return Row("toy", self.name, data, Regression(), build, recipe, epochs=4, learning_rate=1e-3)


def _die_in_write(number: int) -> None:
    """Kill this process, as SIGKILL does, when it writes a file for this time."""
    real, count = os.fsync, 0

    def fsync(file):
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        real(file)

    os.fsync = fsync
