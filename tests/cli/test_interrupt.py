"""Ctrl-C in `acenode train`: answered at once, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from own_tables import FORECAST, QUICK, rows, train, write

from acenode.estimators.auto import OWNER
from acenode.train.checkpoint import load_head


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("own") / "data.csv", rows())


# A training whose first epoch ends when a file is there, or after a minute.
SLOW = """
import os, signal, sys, time
from pathlib import Path
from acenode.cli.main import app
from acenode.estimators import base

signal.signal(signal.SIGINT, signal.default_int_handler)
real = base.train_named

def slow(*arguments):
    *others, progress = arguments
    shown = progress.epoch

    def epoch(number, record, samples):
        if number == 0:
            os.write(1, b"begun\\n")
            began = time.monotonic()
            while not Path(sys.argv[1]).exists() and time.monotonic() < began + 60:
                time.sleep(0.01)
        shown(number, record, samples)

    progress.epoch = epoch
    return real(*others, progress)

base.train_named = slow
app(sys.argv[2:])
"""


@pytest.fixture
def interrupted(tmp_path, data):
    """A training that has been answered its Ctrl-C in the first of fifty epochs, and the file that ends the epoch."""
    end = tmp_path / "end"
    command = ["train", data, "--id", "patient", "--time", "hour", "--out", tmp_path / "model", *QUICK, *FORECAST[:-1]]
    command[command.index("--epochs") + 1] = "50"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}  # as here, to resume
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, end, *map(str, command)], text=True, env=environment, **pipes
    ) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline().startswith("Stopping at the end of the epoch, with the best model so far")
            yield process, end
        finally:
            process.kill()


@pytest.mark.slow
def test_ctrl_c_is_answered_at_once_and_keeps_the_best_so_far(interrupted, tmp_path, data):
    process, end = interrupted
    end.touch()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "stopped after epoch 1 of 50; the best so far is kept." in errors and "Traceback" not in errors
    head = json.loads((tmp_path / "model" / "model.json").read_text())
    assert head["summary"]["epochs"] == 1
    again = train(data, tmp_path / "model", *FORECAST[:-1])  # two epochs, of which one is done
    assert again.exit_code == 0, again.output
    after = json.loads((tmp_path / "model" / "model.json").read_text())
    assert after["history"]["loss"][0] == head["history"]["loss"][0] and len(after["history"]["loss"]) == 2
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_and_loses_no_epoch(interrupted, tmp_path):
    process, _ = interrupted
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == -signal.SIGINT
    assert (tmp_path / ".model-training.safetensors").exists()


# A search whose first candidate is compiled when a file is there, or after a minute.
SLOW_SEARCH = """
import os, signal, sys, time
from pathlib import Path
from acenode.cli.main import app
from acenode.estimators import auto, base

signal.signal(signal.SIGINT, signal.default_int_handler)
auto.CANDIDATES["forecast"] = ("gru-d",)

class Slow(base.Search):
    def _tell(self, run, record):
        if run.epochs == 1:
            os.write(1, b"begun\\n")
            began = time.monotonic()
            while not Path(sys.argv[1]).exists() and time.monotonic() < began + 60:
                time.sleep(0.01)
        super()._tell(run, record)

base.Search = Slow
app(sys.argv[2:])
"""


@pytest.fixture
def interrupted_search(tmp_path, data):
    """A search that has been answered its Ctrl-C in the first epoch of its candidate, and the file that ends that."""
    end = tmp_path / "end"
    command = ["train", data, "--id", "patient", "--time", "hour", "--out", tmp_path / "model", *QUICK, "--minutes", 60]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_SEARCH, end, *map(str, command)], text=True, env=environment, **pipes
    ) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            while not (line := process.stderr.readline()).startswith("Stopping at the end of the epoch"):
                assert line  # else it ended without an answer
            yield process, end
        finally:
            process.kill()


@pytest.mark.slow
def test_ctrl_c_ends_a_search_with_the_best_so_far(interrupted_search, tmp_path):
    process, end = interrupted_search
    end.touch()
    shown, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "stopped before the budget was spent; the best so far is kept." in errors and "gru-d" in shown
    head = json.loads((tmp_path / "model" / "model.json").read_text())
    assert "gru-d" in [row["model"] for row in head["leaderboard"]]
    assert sorted(file.name for file in (tmp_path / ".model-training").iterdir()) == ["gru-d-0.safetensors", OWNER]


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_search_at_once_and_loses_no_epoch(interrupted_search, tmp_path):
    process, _ = interrupted_search
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == -signal.SIGINT
    assert load_head(tmp_path / ".model-training" / "gru-d-0.safetensors")["epochs"] == 1
