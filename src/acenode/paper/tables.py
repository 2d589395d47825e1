"""Every table of the paper that can be reproduced so far, and its rows."""

from . import physionet
from .row import Row

TABLES: dict[str, tuple[Row, ...]] = {"physionet-classification": physionet.ROWS}
