"""Small packed sets of Physiome-ODE, and a checkout of its benchmark with one system, made up."""

import csv
from pathlib import Path

import numpy as np

from acenode.datasets.physiome import PhysiomeSet

# It has a solution that a test can write down.
DECAY = """
from numpy import *
sizeStates = 2
sizeConstants = 1

def initConsts():
    return [1.0, 2.0], [0.5]

def computeRates(voi, states, constants):
    return [-constants[0] * states[0], -2 * constants[0] * states[1]]
"""
LINE = {"T": "4.0", "d_states": "0.3", "d_constants": "0.05", "channel_scores": "[2.5, 1.5]"}


def clean(series: int = 40, moments: int = 20, channels: int = 3, targets=(0, 2)) -> PhysiomeSet:
    """Sines of random phase and frequency."""
    random = np.random.default_rng(0)
    phase, speed = random.uniform(0, 6, (series, 1, channels)), random.uniform(2, 8, (series, 1, channels))
    times = np.linspace(0, 1, moments)[:, None]
    values = np.sqrt(2) * np.sin(speed * times + phase)
    return PhysiomeSet("TOY", values.astype(np.float32), np.asarray(targets), 15.0)


def pack(folder: Path, name: str = "TOY", **changes) -> Path:
    """The packed file of such a set; `changes` are other arrays than its own, or None to leave one out."""
    made = clean()
    arrays = {"x": made.values.astype(np.float16), "targets": made.targets, "span": np.float64(made.span)} | changes
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    np.savez_compressed(path, **{key: array for key, array in arrays.items() if array is not None})
    return path


def checkout(folder: Path, source: str = DECAY, **changes: str) -> Path:
    """A checkout that holds the system of DUP01 alone, or one in its place."""
    line = {"domain": "calcium_dynamics", "model": "dupont_1991a", **LINE, **changes}
    (folder / "resources").mkdir(parents=True)
    with (folder / "resources" / "Top50_final.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        writer.writeheader()
        writer.writerow(line)
    place = folder / "models" / line["domain"] / line["model"]
    place.mkdir(parents=True)
    (place / "model.py").write_text(source)
    return folder
