"""Latent-ODE and ACE-Latent-ODE on records like those of PhysioNet 2012: time of a training iteration, and of many
models at once.

Batches of 50 records of up to 203 rows (75 in the mean) and 41 variables, three samples of z(0), ODE encoder, mortality
label: the published setting. An iteration of ACE is both steps of Algorithm 1. Measured in `fit`, over whole epochs of
57 iterations and 320 records to validate, which is part of the time, after a first epoch that compiles. (In the
mortality runs under `results` the generative ODE takes as many evaluations in the last epoch as in the first.)
"""

import statistics
import time

import numpy as np
from record import arguments, save, show

from acenode.datasets.split import Split
from acenode.paper.latent import kinds
from acenode.paper.physionet import SIZES, mortality_data, mortality_model, recipe
from acenode.series import Panel, series, stack
from acenode.tasks import BinaryClassification
from acenode.train import Member, Quiet, fit

BATCH = 50
ROWS = {"Latent-ODE": "Latent-ODE (ODE Enc.)", "ACE-Latent-ODE": "ACE-Latent-ODE (ODE Enc.)"}


def records(count: int, longest: int) -> Panel:
    """Made up, with as many rows and as few values as the real ones."""
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        rows = int(np.clip(random.gamma(6.0, longest / 16), 1, longest))
        minutes = np.sort(random.choice(48 * 60, rows, replace=False))
        values = random.random((rows, SIZES.variables))
        many.append(series(minutes / 60, values, random.random(values.shape) < 0.14))
    many[0] = series(np.arange(longest) / 5, random.random((longest, SIZES.variables)))  # all are padded to this one
    return Panel(stack(many), np.arange(count), tuple(f"v{i}" for i in range(SIZES.variables)))


class Clock(Quiet):
    """Notes when each epoch ends."""

    def __init__(self):
        self.ends = []

    def epoch(self, epoch, record, samples):
        self.ends.append(time.perf_counter())


def seconds(name: str, models: int, data, split: Split, epochs: int) -> float:
    """An epoch of so many models at once."""
    clock = Clock()
    build = mortality_model(kinds(SIZES)[ROWS[name]])
    members = [Member(seed, 0, 3e-3, 1e-2) for seed in range(models)]
    fit(build, BinaryClassification(noise=0.2), data, split, recipe(epochs), members, progress=clock)
    return statistics.median(np.diff(clock.ends))


def main() -> None:
    parser = arguments(__doc__ or "", "patients")
    parser.add_argument("--models", type=int, nargs="+", default=[1], help="sizes of ensembles (default: %(default)s)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="which to measure (default: all)")
    given = parser.parse_args()
    if given.rows != list(ROWS) and given.out == parser.get_default("out"):
        parser.error("--rows measures a part: give --out, so as not to write over the whole.")
    iterations, validated, longest, epochs = (2, 20, 20, 2) if given.quick else (57, 320, 203, 3)
    train = iterations * BATCH
    split = Split(np.arange(train), np.arange(train, train + validated), np.arange(0))
    panel = records(train + validated, longest)
    data = mortality_data(panel, (np.arange(len(panel)) % 7 == 0).astype(np.float32), split.train)
    epoch_s, iteration_ms = {}, {}
    for name in given.rows:
        taken = {str(models): seconds(name, models, data, split, epochs) for models in given.models}
        epoch_s[name] = {models: round(s, 3) for models, s in taken.items()}
        iteration_ms[name] = {models: round(1e3 * s / iterations, 2) for models, s in taken.items()}
    columns = [f"{m} models" if m > 1 else "one model" for m in given.models]
    show(
        ["training iteration, ms", *columns],
        [[n, *(f"{ms:.0f}" for ms in t.values())] for n, t in iteration_ms.items()],
    )
    show(["epoch, s", *columns], [[n, *(f"{s:.1f}" for s in t.values())] for n, t in epoch_s.items()])
    measured = {"training_iteration_ms": iteration_ms, "epoch_s": epoch_s}
    path = save(given.out, "patients", given.quick, batch=BATCH, rows=longest, iterations=iterations, **measured)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
