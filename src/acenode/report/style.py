"""One look for all figures."""

from contextlib import contextmanager
from typing import Any

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
TRUTH = "#1f2933"
COLOURS = ("#d1495b", "#2e86ab", "#8f9779", "#edae49", "#66546e", "#3a7d44")


@contextmanager
def figure_style():
    """Matplotlib settings for everything drawn inside; needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    settings: dict[Any, Any] = {
        "font.size": 9,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.titlecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "legend.frameon": False,
        "figure.facecolor": "white",
    }
    with matplotlib.rc_context(settings):
        yield
