"""The noisy Brusselator: two chemicals that chase each other around a limit cycle.

    dx = (1 - (b + 1) x + a x^2 y) dt + volatility dW_1
    dy = (b x - a x^2 y) dt + volatility dW_2,    corr(dW_1, dW_2) = rho

As in GRU-ODE-Bayes: a = 0.3, b = 1.4; from around the fixed point (1, b/a), with a deviation of 0.3; 1,000 series over
[0, 50] seen at 20 to 29 moments of a grid of 0.1, without noise; 80 % of the rows show both variables; asked are the
first three rows after time 35. The published volatility is named 0.1 and the correlation 0.99, but both are 0.01 and
-0.99 in the published series (measured between neighbouring rows), so these are the defaults. The paths are integrated
ten times more finely.
"""

from dataclasses import dataclass

import numpy as np

from ..series import Panel
from .sporadic import look

VARIABLES = ("x", "y")
AFTER, ROWS = 35.0, 3


@dataclass(frozen=True)
class Reaction:
    """The constants of the reaction and its noise."""

    a: float = 0.3
    b: float = 1.4
    volatility: float = 0.01
    rho: float = -0.99

    def __post_init__(self):
        if not self.a > 0 or not self.b > 0 or not self.volatility >= 0 or not -1 <= self.rho <= 1:
            raise ValueError(
                f"{self}: needs a positive a and b, a volatility that is not negative, and rho in [-1, 1]."
            )

    def drift(self, state: np.ndarray) -> np.ndarray:
        """The rate of change (..., 2) without noise; zero at (1, b/a)."""
        x, y = state[..., 0], state[..., 1]
        turned = self.a * x * x * y
        return np.stack([1 - (self.b + 1) * x + turned, self.b * x - turned], axis=-1)

    def shocks(self, normals: np.ndarray, dt: float) -> np.ndarray:
        """The noise of a step of `dt`, from independent standard normal numbers (..., 2)."""
        first, other = normals[..., 0], normals[..., 1]
        second = self.rho * first + np.sqrt(1 - self.rho**2) * other
        return self.volatility * np.sqrt(dt) * np.stack([first, second], axis=-1)


@dataclass(frozen=True)
class Brusselator:
    """Sporadic observations, and the truth: the whole paths on a grid."""

    panel: Panel
    grid: np.ndarray  # (grid,)
    truth: np.ndarray  # (samples, grid, 2)
    reaction: Reaction

    def __len__(self) -> int:
        return len(self.panel)


def step(state: np.ndarray, shock: np.ndarray, reaction: Reaction, dt: float) -> np.ndarray:
    """One step: the classical Runge-Kutta method for the drift, then the noise."""
    k1 = reaction.drift(state)
    k2 = reaction.drift(state + dt / 2 * k1)
    k3 = reaction.drift(state + dt / 2 * k2)
    k4 = reaction.drift(state + dt * k3)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4) + shock


def generate(
    samples: int = 1_000,
    until: float | int = 50.0,
    steps: int = 500,
    rows: int = 25,
    both: float | int = 0.8,
    seed: int = 0,
    reaction: Reaction = Reaction(),  # noqa: B008
    finer: int = 10,
) -> Brusselator:
    """Make the data set: paths on a grid of `steps` equal steps, each integrated in `finer` parts, seen about `rows`
    times each.
    """
    if samples < 1 or steps < 1 or finer < 1 or not until > 0:
        raise ValueError(
            f"brusselator.generate(samples={samples}, until={until}, steps={steps}, finer={finer}): needs at least "
            "one sample, step and part of it, and a positive until."
        )
    random = np.random.default_rng(seed)
    grid = until * np.arange(steps + 1) / steps
    dt = until / (steps * finer)
    state = np.asarray([1.0, reaction.b / reaction.a]) + 0.3 * random.normal(0.0, 1.0, (samples, 2))
    truth = np.empty((samples, steps + 1, 2), np.float32)
    truth[:, 0] = state
    for i in range(1, steps + 1):
        for _ in range(finer):
            state = step(state, reaction.shocks(random.normal(0.0, 1.0, (samples, 2)), dt), reaction, dt)
        truth[:, i] = state
    panel = Panel(look(truth, grid, rows, both, random), np.arange(samples), VARIABLES)
    return Brusselator(panel, grid, truth, reaction)
