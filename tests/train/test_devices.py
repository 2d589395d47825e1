"""Ensembles over several devices: the same numbers, no exchange, and mini-batches that devices share."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("run_on_devices.py")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What `run_on_devices.py` saw on four devices, in single precision."""
    path = tmp_path_factory.mktemp("devices") / "told.json"
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "ACENODE_COMPILATION_CACHE": str(path.with_name("compiled")),  # a program that was read is not compiled again
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment.pop("JAX_ENABLE_X64", None)
    done = subprocess.run([sys.executable, SCRIPT, path], env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(path.read_text())


def test_there_are_four_devices(told):
    assert told["devices"] == 4


def test_every_member_ends_in_the_same_bits_on_two_and_on_four_devices(told):
    assert len(set(told["ensemble"]["2"])) == 8
    assert told["ensemble"]["2"] == told["ensemble"]["4"]


def test_one_device_and_four_differ_by_rounding(told):
    """XLA compiles a program for one device in another way: after 12 steps the last bit or two differ."""
    alone, four = (np.asarray(told["parameters"][n]) for n in ("1", "4"))
    assert np.abs(alone).max() > 0.1
    np.testing.assert_allclose(four, alone, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_of_four_devices_is_resumed_on_two(told):
    assert told["written after"] == 1
    assert told["resumed"] == told["ensemble"]["4"]


def test_a_shared_batch_trains_alike_within_rounding(told):
    """Sums of gradients in another order; after 12 steps of Adam in single precision."""
    alone, shared = (np.asarray(told["batch"][n]) for n in ("1", "4"))
    assert np.abs(alone).max() > 0.1
    np.testing.assert_allclose(shared, alone, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shape", ["alone", "2x1", "4x1"])
def test_members_exchange_nothing(told, shape):
    found = told["programs"][shape]
    assert found["loops"] >= 3  # the epoch's and those of the solver, there and back
    assert found["collectives"] == []


def test_a_shared_batch_is_one_sum_a_step_and_none_in_a_solver(told):
    found = told["programs"]["2x2"]
    assert found["loops"] >= 3
    assert found["collectives"] == [1]  # in the loop over mini-batches itself, no deeper


def test_what_cannot_be_is_refused_with_the_reason(told):
    many, none, batch, divisor, statistic = told["refused"]
    assert "devices=9" in many and "1 to 4" in many
    assert "jax.devices()" in none
    assert "batch_devices=5" in batch and "1 to 4" in batch
    assert "batch of 8" in divisor and "batch_size" in divisor
    assert "statistic of the whole mini-batch" in statistic
