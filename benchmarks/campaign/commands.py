"""The real command line on small generated data: what it is run with, and what it leaves behind."""

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_safetensors

from .samples import machines, physiome_series

ROOT = Path(__file__).parents[2]
TRAIN = ("--id", "machine", "--time", "hour", "--hidden", "4", "--no-report")
_TEMPORARY = re.compile(r"\.part$|-probe$|^\.\S+-[0-9a-f]{8}(-new|-old)?$|-journal$|-wal$|-shm$|^tmp")
_TIMES = ("seconds", "when", "check")  # and the checksum of what holds them


def environment(cache: Path, **more: str) -> dict[str, str]:
    """Compiled programs are shared by all runs of a part."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ACENODE", "JAX", "XLA"))}
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [inherited.get("PYTHONPATH")])])
    return {
        **inherited,
        "PYTHONPATH": path,
        "ACENODE_COMPILATION_CACHE": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PLATFORMS": "cpu",
        **more,
    }


def start(arguments: tuple[str, ...], folder: Path, env: dict[str, str], **given: Any) -> subprocess.Popen:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "acenode", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **given
    )


def finish(process: subprocess.Popen, seconds: float = 300) -> str:
    """What it printed."""
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        process.kill()
        process.wait()


def prepare(folder: Path) -> None:
    """The inputs of all commands: a table, and a packed set."""
    folder.mkdir(parents=True, exist_ok=True)
    machines(12).to_csv(folder / "table.csv", index=False)
    made = physiome_series(series=20, moments=10)
    (folder / "data").mkdir(exist_ok=True)
    np.savez(folder / "data" / "TOY.npz", x=made.values, targets=made.targets, span=np.float64(made.span))


def train(epochs: int, model: str = "gru-d") -> tuple[str, ...]:
    return ("train", "table.csv", *TRAIN, "--model", model, "--epochs", str(epochs), "--out", "model")


def reproduce(epochs: int) -> tuple[str, ...]:
    chosen = ("--set", "TOY", "--row", "GRU-D", "--seeds", "2", "--epochs", str(epochs))
    return ("reproduce", "physiome", *chosen, "--data-dir", "data")


def export(format: str = "stablehlo") -> tuple[str, ...]:
    return ("export", "model", "--out", f"program.{format}", "--format", format, "--rows", "8", "--queries", "2")


def left(folder: Path) -> dict[str, str]:
    """A checksum of every file below a folder; times and dates aside, and a database by its rows."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def temporary(folder: Path) -> list[str]:
    """Files and folders that only a write under way has."""
    return sorted(path.name for path in folder.rglob("*") if _TEMPORARY.search(path.name))


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".json":
        content = json.dumps(_timeless(json.loads(content)), sort_keys=True).encode()
    elif path.suffix == ".sqlite":
        with sqlite3.connect(path) as base:
            content = repr(base.execute("SELECT * FROM followed ORDER BY id").fetchall()).encode()
        base.close()
    elif path.suffix == ".safetensors":  # a checkpoint has times in its head
        arrays = load_safetensors(content)
        content = b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
    elif path.suffix == ".md":
        content = re.sub(rb"[\d.,]+ ?(s|seconds|minutes)\b", b"", content)
    return hashlib.sha256(content).hexdigest()


def _timeless(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _timeless(value) for name, value in found.items() if name not in _TIMES}
    return [_timeless(value) for value in found] if isinstance(found, list) else found
