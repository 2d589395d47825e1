"""Looking at generated paths now and then, at one variable or at both, as the synthetic sets of GRU-ODE-Bayes do."""

import numpy as np

from ..series import Series, series as one_series, stack


def look(
    paths: np.ndarray, grid: np.ndarray, rows: int, both: float | int, random: np.random.Generator, vary: float = 0.2
) -> Series:
    """Some moments of each path (samples, grid, 2).

    A sample has from `(1 - vary) * rows` to just below `(1 + vary) * rows` rows, at random moments of the grid; with
    probability `both` a row shows both variables, else either one.
    """
    low, high = round((1 - vary) * rows), max(round((1 + vary) * rows), round((1 - vary) * rows) + 1)
    if low < 1 or high - 1 > len(grid) or not 0 <= both <= 1:
        raise ValueError(
            f"sporadic.look(rows={rows}, both={both}): needs rows between 1 and the {len(grid)} moments of the grid "
            f"(they vary by {vary:.0%}), and a probability of both."
        )
    looks = []
    for path in paths:
        at = np.sort(random.choice(len(grid), random.integers(low, high), replace=False))
        kind = random.choice(3, len(at), p=[(1 - both) / 2, (1 - both) / 2, both])
        seen = np.stack([kind != 1, kind != 0], axis=1)
        looks.append(one_series(grid[at], path[at], seen))
    return stack(looks)
