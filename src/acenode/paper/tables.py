"""Every table of the paper and its rows, and the generated one whose optimum is known."""

from . import activity, climate, double_ou, images, physionet
from .baseline import Baseline
from .row import Row

TABLES: dict[str, tuple[Row | Baseline, ...]] = {
    **images.TABLES,
    "ushcn": climate.ROWS,
    **physionet.TABLES,
    "activity": activity.ROWS,
    "double-ou": double_ou.ROWS,
}
