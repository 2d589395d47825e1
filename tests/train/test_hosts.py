"""Two processes train one ensemble; one of them is killed, and both resume from the one checkpoint."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from acenode.train.checkpoint import load_head
from acenode.train.hosts import _given

SCRIPT = Path(__file__).with_name("run_on_hosts.py")
EPOCHS = 12


def start(folder: Path, name: str) -> list[subprocess.Popen]:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    processes = []
    for number in range(2):
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(number),
        }
        environment.pop("JAX_ENABLE_X64", None)
        command = [sys.executable, SCRIPT, folder / name, folder / f"{name}.npz", str(EPOCHS)]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    return processes


def finish(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]


def epochs_done(checkpoint: Path) -> int:
    return load_head(checkpoint)["epochs"] if checkpoint.exists() else 0


@pytest.mark.slow
def test_a_killed_host_is_a_resume_and_not_a_loss(tmp_path):
    finish(start(tmp_path, "whole"))
    first, second = start(tmp_path, "killed")
    while epochs_done(tmp_path / "killed") < 2:
        assert first.poll() is second.poll() is None, (first.communicate(), second.communicate())
        time.sleep(0.01)
    second.send_signal(signal.SIGKILL)
    second.communicate(timeout=60)
    first.communicate(timeout=200)  # ends by itself, as its partner is gone
    assert first.returncode != 0
    assert 2 <= epochs_done(tmp_path / "killed") < EPOCHS
    assert [path.name for path in tmp_path.glob("*killed*")] == ["killed"]
    finish(start(tmp_path, "killed"))
    whole, resumed = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("whole", "killed"))
    assert whole["loss"].shape == (EPOCHS, 3)
    assert whole.keys() == resumed.keys()
    assert all(whole[name].tobytes() == resumed[name].tobytes() for name in whole)


JAX = {"JAX_COORDINATOR_ADDRESS": "node0:1234", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}
TORCHRUN = {"MASTER_ADDR": "node0", "MASTER_PORT": "1234", "WORLD_SIZE": "4", "RANK": "3"}
FOUND = {"coordinator_address": "node0:1234", "num_processes": 4, "process_id": 3}


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, None),
        (JAX, FOUND),
        (TORCHRUN, FOUND),
        ({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, None),
        ({"SLURM_NTASKS": "4"}, {}),  # JAX knows how to ask Slurm
        ({"SLURM_NTASKS": "1"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, {}),
    ],
)
def test_the_usual_environments_are_understood(environment, expected):
    assert _given(environment) == expected


def test_a_half_said_environment_is_refused():
    with pytest.raises(ValueError, match="JAX_PROCESS_ID is not"):
        _given({name: value for name, value in JAX.items() if name != "JAX_PROCESS_ID"})
