"""Checkpoints: arrays as safetensors with a JSON head, written whole or not at all."""

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

# All in one entry of the metadata: of several, the order in the file is another in every process.
_HEAD, _SUMS = "head", "sha256"


class CheckpointMismatch(ValueError):
    """The file belongs to another run."""


class DamagedCheckpoint(ValueError):
    """The file is cut off, changed or no checkpoint; the message says what to do."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if is_left_behind(left.name.split(".")[-2]):
            left.unlink(missing_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def is_left_behind(pid: str) -> bool:
    """Whether the process that made a temporary file is no more: it was killed, and the file is of no use."""
    if not pid.isdecimal() or os.name == "nt":  # where the signal 0 would end a process
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def save_arrays(path: Path, tree: PyTree, head: dict[str, Any]) -> None:
    """Every array of `tree`, in the order of its leaves, and `head`, which must fit into JSON."""
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | np.ndarray)]
    named = {f"{i:05d}": np.asarray(leaf, order="C") for i, leaf in enumerate(arrays)}
    sums = {"head": _digest_of_head(head), "arrays": _digest(list(named.values()))}
    write_atomically(Path(path), save(named, metadata={_HEAD: json.dumps({**head, _SUMS: sums})}))


def load_head(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        head, sums = _read_head(file)
        _check(sums.get("head"), _digest_of_head(head))
        return head


def _read_head(file: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The head and the checksums; older files have none."""
    head = json.loads((file.metadata() or {})[_HEAD])
    return head, head.pop(_SUMS, {})


def _digest_of_head(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head).encode()).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except FileNotFoundError:
        raise
    except (SafetensorError, ValueError, TypeError, LookupError, AttributeError, OSError) as error:
        raise DamagedCheckpoint(f"{path} is damaged ({error}); restore it, or delete it and train again.") from error


def _digest(arrays: Sequence[np.ndarray]) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _check(written: str | None, found: str) -> None:
    if written is not None and written != found:
        raise ValueError("its content was changed since it was written")


def load_arrays(path: Path, like: PyTree) -> PyTree:
    """The saved arrays in the places they have in `like`, which must have the same shapes."""
    arrays, rest = eqx.partition(like, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    with _opened(path) as file:
        loaded = [file.get_tensor(name) for name in sorted(file.keys())]
        _check(_read_head(file)[1].get("arrays"), _digest(loaded))
    if len(loaded) != len(leaves):
        raise CheckpointMismatch(f"{path} holds {len(loaded)} arrays; this run has {len(leaves)}.")
    for i, (new, old) in enumerate(zip(loaded, leaves, strict=True)):
        if new.shape != old.shape or new.dtype != old.dtype:
            raise CheckpointMismatch(
                f"{path}: array {i} is {new.dtype}{new.shape}; this run has {old.dtype}{old.shape} there."
            )
    return eqx.combine(jax.tree.unflatten(structure, [jnp.asarray(x) for x in loaded]), rest)
