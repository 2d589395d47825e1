"""Every table of the paper that can be reproduced so far, and its rows."""

from . import images, physionet
from .row import Row

TABLES: dict[str, tuple[Row, ...]] = {
    **images.TABLES,
    "physionet-classification": physionet.ROWS,
}
