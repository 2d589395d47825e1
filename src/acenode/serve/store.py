"""The states of followed series in a SQLite file: what was committed survives a crash."""

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..estimators import follow
from ..estimators.saved import ARRAYS, HEAD

_FORMATS = ("1", "2")  # without static columns and with them


class StoreError(ValueError):
    """The file of the states cannot be used."""


class Kept(NamedTuple):
    """A series as it is stored, and how many observations there were of it."""

    followed: follow.Followed
    observations: int


class Store:
    """States by id. One process has the file to itself; any thread may call.

    `like` is a series before any observation. `model` names the model that the states belong to.
    """

    def __init__(self, path: str | Path, like: follow.Followed, model: str):
        self.path = Path(path)
        leaves, self._structure = jax.tree.flatten((like.memory, like.static))
        arrays = [np.asarray(leaf) for leaf in leaves]
        ends = np.cumsum([array.nbytes for array in arrays]).tolist()
        self._size = ends[-1]
        self._leaves = [(a.shape, a.dtype, a.size, end - a.nbytes) for a, end in zip(arrays, ends, strict=True)]
        self._format = _FORMATS[like.static.size > 0]
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=2.0)
            try:
                self._prepare(model)
            except BaseException:
                self._base.close()
                raise
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path} cannot be used for the states of followed series ({error}); stop the other service that "
                "uses it, or name another file with --state."
            ) from error

    def _prepare(self, model: str) -> None:
        run = self._base.execute
        run("PRAGMA locking_mode=EXCLUSIVE")
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")  # a commit is on the disk before it is answered
        run("BEGIN IMMEDIATE")
        run("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        run(
            "CREATE TABLE IF NOT EXISTS followed (id TEXT PRIMARY KEY, origin REAL NOT NULL, last REAL NOT NULL, "
            "count INTEGER NOT NULL, state BLOB NOT NULL)"
        )
        run("INSERT OR IGNORE INTO about VALUES ('format', ?), ('model', ?)", (self._format, model))
        run("COMMIT")
        self._count: int = run("SELECT count(*) FROM followed").fetchone()[0]  # a scan, and so done once
        about = dict(run("SELECT name, value FROM about").fetchall())
        if about["format"] != self._format:
            raise StoreError(f"{self.path} was made by another version of acenode; name another file with --state.")
        if about["model"] != model:
            raise StoreError(
                f"{self.path} holds states of another model; name another file with --state, or delete this one."
            )

    def get(self, ids: Iterable[str]) -> dict[str, Kept]:
        """The stored series among `ids`."""
        found = {}
        with self._lock:
            for id in ids:
                row = self._base.execute(
                    "SELECT origin, last, count, state FROM followed WHERE id = ?", (id,)
                ).fetchone()
                if row is not None:
                    origin, last, count, state = row
                    memory, static = self._unpacked(id, state)
                    found[id] = Kept(follow.Followed(memory, origin, last, static), count)
        return found

    def put(self, ids: Sequence[str], kept: Sequence[Kept]) -> None:
        """Store all or none of them, and return when they are on the disk."""
        rows = [
            (id, k.followed.origin, k.followed.last, k.observations, self._packed(k.followed))
            for id, k in zip(ids, kept, strict=True)
        ]
        with self._lock:
            try:
                self._base.execute("BEGIN IMMEDIATE")
                self._base.executemany("INSERT OR REPLACE INTO followed VALUES (?, ?, ?, ?, ?)", rows)
                self._base.execute("COMMIT")
            except sqlite3.Error:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise
            self._count += sum(k.observations == 1 for k in kept)

    def __len__(self) -> int:
        return self._count

    def close(self) -> None:
        with self._lock:
            self._base.close()

    def _packed(self, followed: follow.Followed) -> bytes:
        leaves = jax.tree.leaves((followed.memory, followed.static))
        return b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)

    def _unpacked(self, id: str, state: bytes) -> Any:
        if len(state) != self._size:
            raise StoreError(f"{self.path}: the state of {id!r} is damaged; delete the file and follow anew.")
        leaves = [np.frombuffer(state, dtype, count, at).reshape(shape) for shape, dtype, count, at in self._leaves]
        return jax.tree.unflatten(self._structure, leaves)


def fingerprint(folder: str | Path) -> str:
    """A name for the model of a folder, which changes with it."""
    digest = hashlib.sha256()
    for name in (HEAD, ARRAYS):
        digest.update((Path(folder) / name).read_bytes())
    return digest.hexdigest()
