"""Columns of words as columns of true and false, one for each word."""

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from .columns import reads_as_number
from .table import frame_of

LIMIT = 20  # words of a column, at most

Categories = dict[Any, tuple[str, ...]]  # the words of each such column


def find_categories(frame: Any, names: tuple[Any, ...], what: str) -> Categories:
    """Which of these columns hold words, and which words; one with too many of them is refused.

    A column in which some cells read as numbers is none of words: there a word is a mistake.
    """
    table = frame_of(frame, what)
    found: Categories = {}
    for name in names:
        if name not in table.columns:
            continue
        given = table.get_column(name)
        if given.dtype not in (nw.String, nw.Categorical, nw.Enum, nw.Object):
            continue
        words = [word for word in given.cast(nw.String).unique().to_list() if isinstance(word, str) and word.strip()]
        plain = given.dtype != nw.Object or all(isinstance(item, str) for item in given.drop_nulls().to_list())
        if not words or not plain or any(map(reads_as_number, words)):
            continue
        if len(words) > LIMIT:
            raise ValueError(
                f"{what}: column {name!r} holds {len(words)} different words, such as {sorted(words)[0]!r}; at most "
                f"{LIMIT} become columns of true and false. Leave it out (in a command, --drop), or group its words."
            )
        found[name] = tuple(sorted(words))
    return found


def encode(frame: Any, categories: Mapping[Any, tuple[str, ...]]) -> tuple[Any, dict[Any, str]]:
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
        items = table.get_column(name).cast(nw.String).to_list()
        items = [item if isinstance(item, str) and item.strip() else None for item in items]
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
