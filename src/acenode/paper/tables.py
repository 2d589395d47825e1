"""Every table of the paper and its rows, and ours: known optimum, settings, Physiome-ODE, known influence."""

from . import activity, climate, double_ou, images, known_truth, physiome, physionet, settings
from .baselines import Baseline
from .published import published
from .row import Row

TABLES: dict[str, tuple[Row | Baseline, ...]] = {
    **images.TABLES,
    "ushcn": climate.ROWS,
    **physionet.TABLES,
    "activity": activity.ROWS,
    "double-ou": double_ou.ROWS,
    settings.TABLE: settings.ROWS,
    physiome.TABLE: physiome.ROWS,
    known_truth.TABLE: known_truth.ROWS,
}


def names() -> list[str]:
    """Of all tables, those included whose numbers come from the rows of others."""
    return list(dict.fromkeys([*TABLES, *(p.table for p in published())]))


def rows_of(table: str) -> dict[str, Row | Baseline]:
    """The rows by their names in this table: its own, or those of other tables that its numbers come from.

    Where a table has several data sets, a name begins with that of its data set.
    """
    if table in TABLES:
        return {f"{row.dataset}, {row.name}" if row.dataset else row.name: row for row in TABLES[table]}
    ours = {(row.table, row.name): row for rows in TABLES.values() for row in rows}
    return {p.row: ours[p.ours_table, p.ours_row] for p in published() if p.table == table}
