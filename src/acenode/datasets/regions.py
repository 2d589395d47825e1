"""Generated regions whose influence on each other turns with the tide: the data set of the demo.

Regions lie on a ring. Each is an oscillator with a level, which can be observed, and a hidden momentum. A region does
not swing by its own state but by what it hears from the ring, and whom it hears moves in time, at first mostly itself,
later more and more the next region:

    heard_i(t) = sum_j influence_ij(t) x_j(t),        x_j = (level, momentum) of region j
    dx_i/dt    = speed * (momentum heard, -level heard)

with `influence(t)` a softmax over the ring around a direction that turns. So the truth is known at every moment,
which no real data set offers.
"""

from dataclasses import dataclass

import numpy as np

from ..series import Series, series as one_series, stack


@dataclass(frozen=True)
class Regions:
    """Noisy, irregular observations of every sample, and the truth on a fine grid."""

    series: Series
    grid: np.ndarray  # (grid,)
    truth: np.ndarray  # (samples, grid, regions)
    influence: np.ndarray  # (grid, regions, regions)
    names: tuple[str, ...]


def influence(times: np.ndarray, regions: int, logit: float = 6.0, turn: float = 5.0) -> np.ndarray:
    """Who listens to whom at each time; rows add up to one. Shape (times, regions, regions).

    At time 0 every region hears mostly itself, after `turn` units of time mostly the next one on the ring.
    """
    place = 2 * np.pi * np.arange(regions) / regions
    direction = 2 * np.pi / regions * np.asarray(times) / turn
    away = place[None, None, :] - place[None, :, None] - direction[:, None, None]
    logits = logit * np.cos(away)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def slope(x: np.ndarray, w: np.ndarray, speed: float = 1.0) -> np.ndarray:
    """dx/dt of samples (samples, regions, 2) under the influence `w`."""
    level, momentum = np.moveaxis(np.einsum("ij,sjc->sic", w, x), -1, 0)
    return speed * np.stack([momentum, -level], axis=-1)


def generate(
    samples: int = 400,
    regions: int = 6,
    until: float = 10.0,
    rows: int = 40,
    missing: float = 0.5,
    noise: float = 0.1,
    seed: int = 0,
) -> Regions:
    """Make the data set: integrate finely, then look at random moments, at some regions only, with noise."""
    if samples < 1 or regions < 2 or rows < 1 or not 0 <= missing < 1 or not until > 0 or not noise >= 0:
        raise ValueError(
            f"regions.generate(samples={samples}, regions={regions}, until={until}, rows={rows}, missing={missing}, "
            f"noise={noise}): needs at least one sample, two regions, one row, missing in [0, 1), a positive until, "
            "and a noise that is not negative."
        )
    random = np.random.default_rng(seed)
    step = 0.02
    grid = np.arange(0.0, until + step / 2, step)
    if rows >= len(grid):
        raise ValueError(f"regions.generate(until={until}, rows={rows}): there are only {len(grid) - 1} moments.")
    middle = influence(grid + step / 2, regions)
    w = influence(grid, regions)
    x = np.stack([random.normal(0.0, 1.0, (samples, regions)), np.zeros((samples, regions))], axis=-1)  # at rest
    truth = [x[..., 0]]
    for i in range(len(grid) - 1):  # the classical Runge-Kutta method
        k1 = slope(x, w[i])
        k2 = slope(x + step / 2 * k1, middle[i])
        k3 = slope(x + step / 2 * k2, middle[i])
        k4 = slope(x + step * k3, w[i + 1])
        x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        truth.append(x[..., 0])
    truth = np.stack(truth, axis=1)

    looks = []
    for sample in truth:
        at = np.append(0, np.sort(random.choice(np.arange(1, len(grid)), size=rows, replace=False)))
        values = sample[at] + random.normal(0.0, noise, (rows + 1, regions))
        seen = random.random((rows + 1, regions)) > missing
        seen[0] = True
        seen[np.arange(rows + 1), random.integers(0, regions, rows + 1)] = True  # no row without any observation
        looks.append(one_series(grid[at], values, seen))
    names = tuple(f"region {chr(ord('A') + i)}" for i in range(regions))
    return Regions(stack(looks), grid.astype(np.float32), truth.astype(np.float32), w.astype(np.float32), names)
