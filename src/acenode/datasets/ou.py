"""The double Ornstein-Uhlenbeck process: two variables drawn to a level of their own by nearly the same noise.

    dY = theta (level - Y) dt + sigma dW,    corr(dW_1, dW_2) = rho,    Y(0) = 0

As in GRU-ODE-Bayes: theta = 1, sigma = 0.1, rho = 0.99; levels drawn for each series around 1 and -1 with a deviation
of 1/sqrt(12); 10,000 series over [0, 10] observed at 16 to 23 times of a grid of 0.05, without noise; 20 % of the rows
show both variables; the query is the first row after time 4. Three things differ. The levels are normal instead of
uniform (of the same mean and deviation), so that the best possible prediction is known in closed form, `exact_filter`;
give `levels="uniform"` for the published draw. The paths have the exact transition density instead of Euler steps. And
nothing is seen at time 0, where the process is known.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..series import Panel, Series, series as one_series, stack

VARIABLES = ("Y1", "Y2")
AFTER, ROWS = 4.0, 1


@dataclass(frozen=True)
class Process:
    """The constants of the process; the levels of a series have `means` and the deviation `spread`."""

    theta: float = 1.0
    sigma: float = 0.1
    rho: float = 0.99
    means: tuple[float, float] = (1.0, -1.0)
    spread: float = 1 / math.sqrt(12)

    def __post_init__(self):
        if not self.theta > 0 or not self.sigma > 0 or not -1 < self.rho < 1 or not self.spread >= 0:
            raise ValueError(
                f"{self}: needs a positive theta and sigma, rho between -1 and 1, and a spread that is not negative."
            )

    def noise(self, gap: np.ndarray) -> np.ndarray:
        """The covariance (..., 2, 2) that the noise adds in `gap` units of time."""
        scale = self.sigma**2 * -np.expm1(-2 * self.theta * gap) / (2 * self.theta)
        return scale[..., None, None] * np.asarray([[1, self.rho], [self.rho, 1]])


@dataclass(frozen=True)
class DoubleOU:
    """Sporadic observations, and the truth: the whole paths on a grid, and the level of each variable."""

    panel: Panel
    grid: np.ndarray  # (grid,)
    truth: np.ndarray  # (samples, grid, 2)
    level: np.ndarray  # (samples, 2)
    process: Process

    def __len__(self) -> int:
        return len(self.panel)


def generate(
    samples: int = 10_000,
    until: float | int = 10.0,
    steps: int = 200,
    rows: int = 20,
    both: float | int = 0.2,
    seed: int = 0,
    process: Process = Process(),
    levels: Literal["normal", "uniform"] = "normal",
) -> DoubleOU:
    """Make the data set: paths on a grid of `steps` equal steps, seen about `rows` times each."""
    if samples < 1 or steps < 1 or not until > 0 or levels not in ("normal", "uniform"):
        raise ValueError(
            f"ou.generate(samples={samples}, until={until}, steps={steps}, levels={levels!r}): needs at least one "
            "sample and one step, a positive until, and levels 'normal' or 'uniform'."
        )
    random = np.random.default_rng(seed)
    grid = until * np.arange(1, steps + 1) / steps
    if levels == "normal":
        away = random.normal(0.0, 1.0, (samples, 2))
    else:
        away = math.sqrt(12) * random.uniform(-0.5, 0.5, (samples, 2))
    level = np.asarray(process.means) + process.spread * away
    truth = paths(level, until / steps, steps, random, process)
    panel = Panel(look(truth, grid, rows, both, random), np.arange(samples), VARIABLES)
    return DoubleOU(panel, grid, truth, level, process)


def paths(
    level: np.ndarray,
    gap: float,
    steps: int,
    random: np.random.Generator,
    process: Process = Process(),
) -> np.ndarray:
    """Paths (samples, steps, 2) at times `gap`, `2 gap`, ..., with exactly the distribution of the process."""
    keep = np.exp(-process.theta * gap)
    root = np.linalg.cholesky(process.noise(np.asarray(gap)))
    y = np.zeros_like(level)
    found = np.empty((len(level), steps, 2), np.float32)
    for i in range(steps):
        y = level + keep * (y - level) + random.normal(0.0, 1.0, level.shape) @ root.T
        found[:, i] = y
    return found


def look(
    paths: np.ndarray, grid: np.ndarray, rows: int, both: float | int, random: np.random.Generator, vary: float = 0.2
) -> Series:
    """Observations of each path (samples, grid, 2) at random times of the grid.

    A sample has from `(1 - vary) * rows` to just below `(1 + vary) * rows` rows; with probability `both` a row shows
    both variables, else either one.
    """
    low, high = round((1 - vary) * rows), max(round((1 + vary) * rows), round((1 - vary) * rows) + 1)
    if low < 1 or high - 1 > len(grid) or not 0 <= both <= 1:
        raise ValueError(
            f"ou.generate(rows={rows}, both={both}): needs rows between 1 and the {len(grid)} times of the grid "
            f"(they vary by {vary:.0%}), and a probability of both."
        )
    looks = []
    for path in paths:
        at = np.sort(random.choice(len(grid), random.integers(low, high), replace=False))
        kind = random.choice(3, len(at), p=[(1 - both) / 2, (1 - both) / 2, both])
        seen = np.stack([kind != 1, kind != 0], axis=1)
        looks.append(one_series(grid[at], path[at], seen))
    return stack(looks)


class Predicted(NamedTuple):
    """Mean and variance of each variable at each row, given the observations of strictly earlier rows."""

    mean: np.ndarray  # (samples, rows, 2)
    variance: np.ndarray  # (samples, rows, 2)


def exact_filter(series: Series, process: Process = Process()) -> Predicted:
    """The best possible prediction of each row from the rows before it: the Kalman filter of levels and values.

    Exact for normal levels, and for known ones (`spread=0`). For uniform levels it is the best linear prediction, with
    its true mean squared error. For a forecast several rows ahead, give a series with nothing observed after that time.
    Of no meaning in rows of padding.
    """
    times, values, seen = (np.asarray(x) for x in (series.times, series.values, series.observed))
    if (seen.any(-1) & (times <= 0)).any():
        raise ValueError("exact_filter: a value is observed at time 0 or before; the process starts there, at 0.")
    n, rows, _ = values.shape
    gaps = np.diff(times.astype(np.float64), axis=1, prepend=0.0)
    # The state is (Y_1, Y_2, level_1, level_2).
    mean = np.tile(np.asarray([0.0, 0.0, *process.means]), (n, 1))
    cov = np.tile(np.diag([0.0, 0.0, process.spread**2, process.spread**2]), (n, 1, 1))
    predicted = Predicted(np.empty((n, rows, 2)), np.empty((n, rows, 2)))
    for row in range(rows):
        mean, cov = _moved(mean, cov, gaps[:, row], process)
        predicted.mean[:, row] = mean[:, :2]
        predicted.variance[:, row] = cov[:, [0, 1], [0, 1]]
        for j in (0, 1):
            mean, cov = _seen(mean, cov, j, values[:, row, j].astype(np.float64), seen[:, row, j])
    return predicted


def negll(series: Series, predicted: Predicted, where: np.ndarray | None = None) -> float:
    """The negative log likelihood per observed value, or per value of those observed that `where` selects.

    With the predictions of `exact_filter` it is the least that any model can reach on average.
    """
    from scipy.stats import norm  # slow to import

    chosen = np.asarray(series.observed) if where is None else np.asarray(series.observed) & where
    if not chosen.any():
        raise ValueError("negll: no observed value is chosen; expected at least one.")
    values, mean, variance = (np.asarray(x)[chosen] for x in (series.values, *predicted))
    return float(-norm.logpdf(values, mean, np.sqrt(variance)).mean())


def _moved(mean: np.ndarray, cov: np.ndarray, gap: np.ndarray, process: Process) -> tuple[np.ndarray, np.ndarray]:
    """The state after `gap` (samples,) units of time."""
    keep = np.exp(-process.theta * gap)[:, None, None]
    two, none = np.eye(2), np.zeros((len(gap), 2, 2))
    move = np.block([[keep * two, (1 - keep) * two], [none, none + two]])
    cov = move @ cov @ np.swapaxes(move, 1, 2)
    cov[:, :2, :2] += process.noise(gap)
    return np.einsum("nij,nj->ni", move, mean), cov


def _seen(
    mean: np.ndarray, cov: np.ndarray, j: int, value: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The state once `value` of variable j is known, in the samples where it was `seen`."""
    variance = np.where(seen, cov[:, j, j], 1.0)
    gain = np.where(seen[:, None], cov[:, :, j] / variance[:, None], 0.0)
    mean = mean + gain * (value - mean[:, j])[:, None]
    cov = cov - gain[:, :, None] * cov[:, j, None, :]
    # What was seen is certain; rounding would leave a little doubt, or less than none.
    certain = seen[:, None, None] & ((np.arange(4) == j)[:, None] | (np.arange(4) == j))
    return mean, np.where(certain, 0.0, cov)
