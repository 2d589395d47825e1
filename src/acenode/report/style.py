"""One look for all figures."""

from contextlib import contextmanager
from typing import Any

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
TRUTH = "#1f2933"
COLOURS = ("#d1495b", "#2e86ab", "#8f9779", "#edae49", "#66546e", "#3a7d44")
CLASS_COLOURS = (*COLOURS, "#5bc0be", "#b5651d", "#e39ec1", "#15616d")
SHADE = "#f5f1e6"

_DARK = ("#f2707f", "#58b4db", "#b3bb9c", "#f0bd66", "#ae97ba", "#6cb878", "#5bc0be", "#d98a4a", "#e39ec1", "#3f9fb0")

# What a page that goes dark puts in the place of each colour: a name, and the dark one.
THEME = {
    INK: ("ink", "#e4e7eb"),
    FAINT: ("faint", "#8b97a3"),
    GRID: ("grid", "#323f4b"),
    SHADE: ("shade", "#2a2a24"),
    **{light: (f"colour{k}", dark) for k, (light, dark) in enumerate(zip(CLASS_COLOURS, _DARK, strict=True))},
}


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
        "text.color": INK,
        "figure.facecolor": "white",
    }
    with matplotlib.rc_context(settings):
        yield
