"""How far the predictions of one fitted model can be trusted: coverage of its bands, residuals, reliability."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from ..report.plots import COLOURS, FAINT, INK, WIDTH, figure_style

LEVELS = np.asarray([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
_POINTS = 2000  # at most so many in a scatter plot


def coverage(standardised: np.ndarray) -> np.ndarray:
    """The part of standardised residuals inside the central band of each of `LEVELS`."""
    half = np.asarray([NormalDist().inv_cdf(0.5 + level / 2) for level in LEVELS])
    return (np.abs(standardised)[:, None] <= half).mean(axis=0)


def calibration(standardised: np.ndarray):
    """Coverage of the central bands against their level; on the diagonal they hold what they promise."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(WIDTH * 0.75, WIDTH * 0.7), layout="constrained")
        axis.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=(0, (4, 2)), label="as promised")
        axis.plot(LEVELS, coverage(standardised), "o-", ms=3.5, color=COLOURS[1], label="observed")
        axis.set(xlabel="level of the band", ylabel="values inside", xlim=(0, 1), ylim=(0, 1))
        axis.legend(loc="upper left")
        return figure


def residuals(predicted: np.ndarray, error: np.ndarray, standardised: np.ndarray):
    """Residuals against predictions, and the standardised ones beside a normal distribution."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, (one, two) = plt.subplots(1, 2, figsize=(1.5 * WIDTH, 0.6 * WIDTH), layout="constrained")
        some = np.unique(np.linspace(0, len(error) - 1, min(len(error), _POINTS)).astype(int))
        one.plot(predicted[some], error[some], "o", ms=2, alpha=0.4, color=COLOURS[1], mew=0)
        one.axhline(0.0, color=INK, lw=0.8)
        one.set(xlabel="predicted (scaled)", ylabel="residual")
        edges = np.linspace(-5, 5, 41)
        two.hist(np.clip(standardised, -5, 5), edges, density=True, color=COLOURS[1], alpha=0.5, label="residuals")
        normal = NormalDist()
        two.plot(edges, [normal.pdf(x) for x in edges], color=INK, lw=1, label="normal")
        two.set(xlabel="residual / standard deviation", ylabel="density")
        two.legend(loc="upper right", fontsize=8)
        return figure


def reliability(probability: np.ndarray, truth: np.ndarray, classes: Sequence[str], bins: int = 8):
    """Of each class (of two the second alone), how frequent it is where the model gives it so much probability."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(WIDTH * 0.75, WIDTH * 0.7), layout="constrained")
        axis.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=(0, (4, 2)), label="as promised")
        shown = range(1, 2) if len(classes) == 2 else range(min(len(classes), len(COLOURS)))
        for k in shown:
            order = np.argsort(probability[:, k], kind="stable")
            parts = [part for part in np.array_split(order, bins) if len(part)]
            mean = [probability[part, k].mean() for part in parts]
            often = [(truth[part] == k).mean() for part in parts]
            axis.plot(mean, often, "o-", ms=3.5, color=COLOURS[k], label=str(classes[k]))
        axis.set(xlabel="predicted probability", ylabel="frequency", xlim=(0, 1), ylim=(0, 1))
        axis.legend(loc="upper left", fontsize=8)
        return figure
