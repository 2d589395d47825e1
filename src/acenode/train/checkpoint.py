"""Checkpoints: arrays as safetensors with a JSON head, written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import safe_open
from safetensors.numpy import save


class CheckpointMismatch(ValueError):
    """The file belongs to another run."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save_arrays(path: Path, tree: PyTree, head: dict[str, Any]) -> None:
    """Every array of `tree`, in the order of its leaves, and `head`, which must fit into JSON."""
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | np.ndarray)]
    named = {f"{i:05d}": np.asarray(leaf, order="C") for i, leaf in enumerate(arrays)}
    write_atomically(Path(path), save(named, metadata={"head": json.dumps(head)}))


def load_head(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["head"])


def load_arrays(path: Path, like: PyTree) -> PyTree:
    """The saved arrays in the places they have in `like`, which must have the same shapes."""
    arrays, rest = eqx.partition(like, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    with safe_open(path, framework="numpy") as file:
        names = sorted(file.keys())
        if len(names) != len(leaves):
            raise CheckpointMismatch(f"{path} holds {len(names)} arrays; this run has {len(leaves)}.")
        loaded = [file.get_tensor(name) for name in names]
    for i, (new, old) in enumerate(zip(loaded, leaves, strict=True)):
        if new.shape != old.shape or new.dtype != old.dtype:
            raise CheckpointMismatch(
                f"{path}: array {i} is {new.dtype}{new.shape}; this run has {old.dtype}{old.shape} there."
            )
    return eqx.combine(jax.tree.unflatten(structure, [jnp.asarray(x) for x in loaded]), rest)
