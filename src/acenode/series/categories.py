"""Columns of words as columns of true and false, one for each word."""

import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import narwhals as nw

from .columns import reads_as_number, stands_for_blank
from .table import frame_of

LIMIT = 20  # words of a column, at most
_MISWRITTEN = re.compile(  # numbers as 36,1 and 1,234.5 and 5%
    r"[+-]?(\d*,\d+|\d{1,3}([.,' ]\d{3})+([.,]\d+)?)(\s*%)?|[+-]?\d+(\.\d+)?\s*%"
)

Categories = dict[Any, tuple[str, ...]]  # the words of each such column


def find_categories(frame: Any, names: tuple[Any, ...], what: str, missing: Sequence[float] = ()) -> Categories:
    """Which of these columns hold words, and which words; one with too many of them is refused.

    A column in which some cells read as numbers is none of words: there a word is a mistake. So is one of numbers that
    are written in another way.
    """
    table = frame_of(frame, what)
    found: Categories = {}
    for name in names:
        if name not in table.columns:
            continue
        given = table.get_column(name)
        if given.dtype not in (nw.String, nw.Categorical, nw.Enum, nw.Object):
            continue
        words = [word for word in words_of(given.cast(nw.String).unique(), missing) if word is not None]
        plain = given.dtype != nw.Object or all(
            isinstance(item, str) or (isinstance(item, Real) and stands_for_blank(float(item), missing))
            for item in given.drop_nulls().to_list()
        )
        if not words or not plain or any(map(reads_as_number, words)):
            continue
        if all(map(_MISWRITTEN.fullmatch, map(str.strip, words))):
            raise ValueError(
                f"{what}: column {name!r} holds {sorted(words)[0]!r}; write numbers with a decimal point, and without "
                "thousands separators or %. Or leave the column out (in a command, --drop)."
            )
        if len(words) > LIMIT:
            raise ValueError(
                f"{what}: column {name!r} holds {len(words)} different words, such as {sorted(words)[0]!r}; at most "
                f"{LIMIT} become columns of true and false. Leave it out (in a command, --drop), or group its words."
            )
        found[name] = tuple(sorted(words))
    return found


def words_of(given: nw.Series, missing: Sequence[float] = ()) -> list[str | None]:
    """The words of a column, None where it is blank or holds a number that stands for that."""

    def read(item: Any) -> str | None:
        blank = not isinstance(item, str) or not item.strip()
        stands = not blank and missing and reads_as_number(item) and stands_for_blank(float(item), missing)
        return None if blank or stands else item

    return [read(item) for item in given.cast(nw.String).to_list()]


def hold(frame: Any, categories: Mapping[Any, tuple[str, ...]], number: float) -> bool:
    """Whether a cell of these columns is a number."""
    table = nw.from_native(frame, eager_only=True)
    cells = (table.get_column(name).cast(nw.String).unique().to_list() for name in categories)
    return any(reads_as_number(cell) and float(cell) == number for some in cells for cell in some)


def encode(
    frame: Any, categories: Mapping[Any, tuple[str, ...]], missing: Sequence[float] = ()
) -> tuple[Any, dict[Any, str]]:
    """The frame with a column `name=word` for each word in place of `name`; and a word that is not among them.

    A blank is blank in all of them; another word is false in all.
    """
    if not categories:
        return frame, {}
    table = nw.from_native(frame, eager_only=True)
    strange: dict[Any, str] = {}
    made: list[nw.Series] = []
    present = [name for name in categories if name in table.columns]
    for name in present:
        items = words_of(table.get_column(name), missing)
        unknown = [item for item in items if item is not None and item not in categories[name]]
        if unknown:
            strange[name] = unknown[0]
        for word in categories[name]:
            column = [None if item is None else float(item == word) for item in items]
            made.append(nw.new_series(encoded(name, word), column, nw.Float64, backend=table.implementation))
    return table.drop(*present).with_columns(*made).to_native(), strange


def encoded(name: Any, word: str) -> str:
    """The name of the column that says whether `name` is `word`."""
    return f"{name}={word}"


def expanded(names: tuple[Any, ...], categories: Mapping[Any, tuple[str, ...]]) -> tuple[Any, ...]:
    """Names of columns after `encode`, in the order they had."""
    return tuple(
        each for name in names for each in ([encoded(name, word) for word in categories.get(name, ())] or [name])
    )


def collapsed(names: tuple[Any, ...], categories: Mapping[Any, tuple[str, ...]]) -> tuple[Any, ...]:
    """Names of columns before `encode`, each once."""
    before = {encoded(name, word): name for name, words in categories.items() for word in words}
    return tuple(dict.fromkeys(before.get(name, name) for name in names))
