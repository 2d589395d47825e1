"""A run killed with SIGKILL and started again ends, bit for bit, where an uninterrupted one ends."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from acenode.train.checkpoint import load_head

SCRIPT = Path(__file__).with_name("run_to_resume.py")
EPOCHS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("resume")


def start(folder: Path, name: str, epochs: int = EPOCHS, *more: str) -> subprocess.Popen:
    environment = {
        **os.environ,
        "ACENODE_COMPILATION_CACHE": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
    }
    environment.pop("JAX_ENABLE_X64", None)
    command = [sys.executable, SCRIPT, folder / name, folder / f"{name}.npz", str(epochs), *more]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL  # and had not ended by itself


def epochs_done(checkpoint: Path) -> int:
    return load_head(checkpoint)["epochs"] if checkpoint.exists() else 0


def wait_for_epoch(process: subprocess.Popen, checkpoint: Path, epochs: int) -> float:
    """Wait until so many epochs are on the disk; the time this took after the one before."""
    before = time.monotonic()
    while (done := epochs_done(checkpoint)) < epochs:
        assert process.poll() is None, process.communicate()[1]
        if done < epochs - 1:
            before = time.monotonic()
        time.sleep(0.005)
    return time.monotonic() - before


@pytest.fixture(scope="module")
def uninterrupted(folder):
    finish(start(folder, "whole"))


def equal(folder: Path, name: str) -> bool:
    whole, other = (dict(np.load(folder / f"{n}.npz")) for n in ("whole", name))
    assert {"parameter 0", "loss", "attention_loss", "validation_mse", "best_score"} <= whole.keys() == other.keys()
    assert whole["loss"].shape == (EPOCHS, 2)
    return all(whole[k].tobytes() == other[k].tobytes() for k in whole)


@pytest.mark.slow
def test_killed_twice_at_any_moment(folder, uninterrupted):
    checkpoint = folder / "killed"
    first = start(folder, "killed")
    wait_for_epoch(first, checkpoint, 1)
    time.sleep(random.uniform(0.0, 0.3))
    kill(first)
    done = epochs_done(checkpoint)
    assert 1 <= done < EPOCHS - 3
    second = start(folder, "killed")
    wait_for_epoch(second, checkpoint, done + 1)
    time.sleep(0.5 * wait_for_epoch(second, checkpoint, done + 2))  # the middle of the next
    kill(second)
    assert epochs_done(checkpoint) < EPOCHS
    finish(start(folder, "killed"))
    assert equal(folder, "killed")


@pytest.mark.slow
def test_killed_while_writing_and_asked_for_more_epochs(folder, uninterrupted):
    broken = start(folder, "longer", 4, "3")
    broken.communicate(timeout=120)
    assert broken.returncode == -signal.SIGKILL
    assert epochs_done(folder / "longer") == 2
    (part,) = folder.glob(".longer.*.part")
    assert 0 < part.stat().st_size < (folder / "longer").stat().st_size
    finish(start(folder, "longer"))
    assert equal(folder, "longer") and not part.exists()


def test_the_compiled_programs_are_kept_between_processes(folder, uninterrupted):
    assert [*(folder / "compiled").glob("jit__train-*")]
