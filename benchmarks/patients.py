"""Latent-ODE and ACE-Latent-ODE on records like those of PhysioNet 2012: time of a training iteration, and of many
models at once.

Batches of 50 records of up to 203 rows (75 in the mean) and 41 variables, three samples of z(0), ODE encoder, mortality
label: the published setting. An iteration of ACE is both steps of Algorithm 1. Measured in `fit`, over whole epochs,
after a first one that compiles; as training goes on, solvers take more steps than here.
"""

import statistics
import time

import numpy as np
from record import arguments, save, show

from acenode.datasets.split import Split
from acenode.paper.latent import kinds
from acenode.paper.physionet import SIZES, mortality_data, mortality_model, recipe
from acenode.series import Panel, series, stack
from acenode.tasks import LabelSeries
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


def milliseconds(name: str, models: int, data, split: Split, epochs: int) -> float:
    """A training iteration of so many models at once."""
    clock = Clock()
    build = mortality_model(kinds(SIZES)[ROWS[name]])
    members = [Member(seed, 0, 3e-3, 1e-2) for seed in range(models)]
    fit(build, LabelSeries(noise=0.2), data, split, recipe(epochs), members, progress=clock)
    return 1e3 * statistics.median(np.diff(clock.ends)) / (len(split.train) // BATCH)


def main() -> None:
    parser = arguments(__doc__ or "", "patients")
    parser.add_argument("--models", type=int, nargs="+", default=[1], help="sizes of ensembles (default: %(default)s)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="which to measure (default: all)")
    given = parser.parse_args()
    if given.rows != list(ROWS) and given.out == parser.get_default("out"):
        parser.error("--rows measures a part: give --out, so as not to write over the whole.")
    train, longest, epochs = (2 * BATCH, 20, 2) if given.quick else (10 * BATCH, 203, 5)
    split = Split(np.arange(train), np.arange(train, train + 20), np.arange(0))
    panel = records(train + 20, longest)
    data = mortality_data(panel, (np.arange(len(panel)) % 7 == 0).astype(np.float32), split.train)
    taken = {
        name: {str(models): round(milliseconds(name, models, data, split, epochs), 2) for models in given.models}
        for name in given.rows
    }
    show(
        ["training iteration, ms", *(f"{m} models" if m > 1 else "one model" for m in given.models)],
        [[name, *(f"{ms:.0f}" for ms in each.values())] for name, each in taken.items()],
    )
    path = save(given.out, "patients", given.quick, batch=BATCH, rows=longest, training_iteration_ms=taken)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
