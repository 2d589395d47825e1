"""Every table of the paper and its rows."""

from . import activity, climate, images, physionet
from .baseline import Baseline
from .row import Row

TABLES: dict[str, tuple[Row | Baseline, ...]] = {
    **images.TABLES,
    "ushcn": climate.ROWS,
    **physionet.TABLES,
    "activity": activity.ROWS,
}
