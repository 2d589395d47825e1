"""A training run in a process of its own, for `test_resume.py` to kill.

    python run_to_resume.py CHECKPOINT RESULT EPOCHS [WRITES]

With WRITES it kills itself while it writes its checkpoint for that time, half of it on the disk.
"""

import os
import signal
import sys

import equinox as eqx
import jax
import numpy as np
from toy_task import Regression, build, leaves, pairs, split

from acenode.ode import Correlation
from acenode.train import Member, Recipe, fit


def measured(key):
    """The toy with an attention that starts from a statistic of the batch, so there is something to measure."""
    return eqx.tree_at(lambda m: m.ode.initial, build(key), Correlation(2))


def die_in_write(number: int) -> None:
    real, count = os.fsync, 0

    def fsync(file):
        nonlocal count
        count += 1
        if count == number:
            os.ftruncate(file, os.fstat(file).st_size // 2)
            real(file)
            os.kill(os.getpid(), signal.SIGKILL)
        real(file)

    os.fsync = fsync


def main(checkpoint: str, result: str, epochs: str, writes: str = "0") -> None:
    die_in_write(int(writes))
    samples = 6000
    data = jax.tree.map(lambda x: x.astype(np.float32), pairs(samples))
    recipe = Recipe(epochs=int(epochs), batch_size=2, optimiser="adam", reference=64)
    members = [Member(0), Member(1, learning_rate=3e-3, penalty=0.01)]
    done = fit(measured, Regression(), data, split(samples - 8, 8), recipe, members, checkpoint=checkpoint)
    arrays = {f"parameter {i}": leaf for i, leaf in enumerate(leaves(done.models))}
    np.savez(result, best_epoch=done.best_epoch, best_score=done.best_score, **arrays, **done.history)


if __name__ == "__main__":
    main(*sys.argv[1:])
