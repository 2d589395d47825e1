"""Which rows of a table are drawn in one axes, and in which colours."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..paper.row import Row
from ..paper.tables import TABLES
from .style import CLASS_COLOURS

Runs = Mapping[str, Sequence[Any]]

_TRAINED = [row for rows in TABLES.values() for row in rows if isinstance(row, Row)]
_BASES = {row.name: row.base for row in _TRAINED if row.base}
_CONTROLS = {row.name: row.control for row in _TRAINED if row.control}
_LINES = 8  # at most, in one axes


@dataclass(frozen=True)
class Panel:
    """One axes: its title, and its rows with their colours. Those `beside` are there to compare: another has them too.

    A row keeps its colour for itself where it has nothing to draw.
    """

    title: str
    colours: Mapping[str, str]
    beside: Collection[str] = ()

    def drawn(self, runs: Runs) -> dict[str, Sequence[Any]]:
        """Those of its rows that have runs; none if other panels have them all."""
        found = {row: runs[row] for row in self.colours if runs.get(row)}
        return {} if set(found) <= set(self.beside) else found


def panels(rows: Sequence[str]) -> list[Panel]:
    """Rows by kind, which is what follows the comma of their name; a kind of many is parted.

    An attentive row and the row it extends are in each panel, if there are such, and always in the same colours.
    """
    kinds: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: ", " in row):
        kinds.setdefault("" if _variants(rows) else row.partition(", ")[2], []).append(row)
    leads = {kind: _lead(own, rows) for kind, own in kinds.items()}
    every = {row for lead in leads.values() for row in lead}
    # A kind that is there only to be extended by another is in the other's panel.
    own_panels = {kind: own for kind, own in kinds.items() if leads[kind] or not every.issuperset(own)}
    made = []
    for kind, own in own_panels.items():
        for part, some in _parts(own, leads[kind]):
            beside = [row for row in leads[kind] if row not in some and row.partition(", ")[2] in own_panels]
            named = (kind, "" if _variants(rows) else part)
            title = ": ".join(filter(None, named)) or ("the paper's models" if len(own_panels) > 1 else "")
            made.append(Panel(title, _colours(list(dict.fromkeys([*leads[kind], *some]))), beside))
    return made


def _variants(rows: Sequence[str]) -> bool:
    """Whether all rows but one are variants of one attentive model, each a kind of its own."""
    return len(rows) > 2 and sum(row in _BASES for row in rows) == len(rows) - 1


def _lead(own: Sequence[str], rows: Sequence[str]) -> list[str]:
    """The first attentive row, and the rows it is compared with, if there are such."""
    first = next((row for row in own if row in _BASES), None)
    return [] if first is None else [first, *(row for row in rows if row in (_BASES[first], _CONTROLS.get(first)))]


def _parts(own: Sequence[str], lead: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Rows in parts that are not too many for one axes, each with what to call it."""
    if len({*own, *lead}) <= _LINES:
        return [("", list(own))]
    kin = [row for row in own if row in _BASES or row in _BASES.values() or row.startswith("Augmented-")]
    candidates = [row for row in own if row not in kin]
    made = []
    for name, some in (("with and without attention", kin), ("baselines", candidates)):
        count = 1 if len({*some, *lead}) <= _LINES else math.ceil(len(some) / (_LINES - len(lead)))
        made.extend((name, part.tolist()) for part in (np.array_split(some, count) if some else ()))
    return made


def _colours(rows: Sequence[str]) -> dict[str, str]:
    """A colour for each row: an attentive row, the row it extends and their kin have theirs, others what is left."""
    red, blue, olive, yellow, violet, green, *more, teal = CLASS_COLOURS
    kin = {"ACE-": red, "Augmented-": yellow, "FC-ACE-": violet, "Fixed-ACE-": green}
    taken: dict[str, str] = {}
    for row in rows:
        own = next((c for start, c in kin.items() if row.startswith(start)), blue if row in _BASES.values() else None)
        if own and own not in taken.values():
            taken[row] = own
    left = (c for c in (*more, olive, yellow, violet, green, teal) if c not in taken.values())
    return {row: taken.get(row) or next(left) for row in rows}
