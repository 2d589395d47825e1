"""Every table of the paper that can be reproduced so far, and its rows."""

from . import climate, images, physionet
from .row import Row

TABLES: dict[str, tuple[Row, ...]] = {
    **images.TABLES,
    "ushcn": climate.ROWS,
    "physionet-classification": physionet.ROWS,
}
