"""`acenode reproduce`: bad input is told in a sentence, Ctrl-C is answered at once."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.paper.baselines import Baseline
from acenode.paper.row import Refused
from acenode.paper.tables import TABLES


def reproduced(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def baseline(score) -> Baseline:
    return Baseline("toy", "a baseline", score, lambda data_dir: "sum")


@pytest.mark.parametrize("table, row", [("ushcn", "GRU-Simple"), ("ushcn", "LOCF"), ("attention-type", "FC, ushcn")])
def test_no_more_seeds_than_folds(table, row, tmp_path, monkeypatch):
    monkeypatch.setattr("acenode.datasets.ushcn.load_maine", lambda *_: pytest.fail("the data were loaded"))
    answer = reproduced(table, "--row", row, "--seeds", 6, "--results", tmp_path, "--runs", tmp_path)
    assert answer.exit_code == 1
    assert answer.stderr.startswith("acenode: --seeds 6: each seed of ushcn is a fold") and "are 5" in answer.stderr


@pytest.mark.parametrize(
    "option, value", [("--learning-rate", "nan"), ("--learning-rate", "inf"), ("--penalty", "nan")]
)
def test_rates_are_numbers(option, value, tmp_path):
    answer = reproduced("mnist", option, value, "--results", tmp_path, "--runs", tmp_path)
    assert answer.exit_code == 1 and f"{option} has to be a number" in answer.stderr


def test_what_a_row_refuses_is_a_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise Refused("toy: there is no such fold.")

    monkeypatch.setitem(TABLES, "toy", (baseline(refuse),))
    answer = reproduced("toy", "--results", tmp_path)
    assert answer.exit_code == 1 and answer.stderr == "acenode: toy: there is no such fold.\n"


def test_a_fault_of_the_program_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setitem(TABLES, "toy", (baseline(lambda *_: np.zeros(2) + np.zeros(3)),))
    answer = reproduced("toy", "--results", tmp_path)
    assert isinstance(answer.exception, ValueError) and "broadcast" in str(answer.exception)


def test_results_that_cannot_be_written_are_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setitem(TABLES, "toy", (baseline(lambda *_: [{"mse": 1.0}]),))
    answer = reproduced("toy", "--results", tmp_path / "file")
    assert answer.exit_code == 1 and answer.stderr.startswith(f"acenode: cannot use {tmp_path / 'file'}")


def test_a_row_that_is_not_there_brings_up_those_with_such_a_name():
    answer = reproduced("ushcn", "--rows", "gru-d,T-LSTM")
    assert answer.exit_code == 1
    told, near, rest = answer.stderr.split(". ")
    assert told == "acenode: table ushcn has no row 'gru-d,T-LSTM'"
    assert {"GRU-D", "T-LSTM"} <= set(near.removeprefix("Near to it: ").split("; "))
    assert rest == "Each row needs a --row of its own; see all with: acenode tables ushcn\n"
    assert "Near to it: GRU-ODE-Bayes;" in reproduced("ushcn", "--row", "gru-ode-bayes").stderr
    assert "Near" not in reproduced("ushcn", "--row", "?").stderr


# Two rows in their first epoch, which ends when a file is there, or after a minute.
TWO_ROWS = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from acenode.cli.main import app
from acenode.paper import reproduce
from acenode.train import Member

signal.signal(signal.SIGINT, signal.default_int_handler)
RECORD = {name: np.zeros(1) for name in ("loss", "attention_loss", "nfe", "validation_negll")}

def waited_for():
    frame, calls = sys._current_frames()[threading.main_thread().ident], []
    while frame:
        calls.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return "Future.exception" in calls

def run(row, *_, progress, **__):
    progress.start(row.recipe(10_000), [Member()], row.task, 0)
    while not waited_for():
        time.sleep(0.01)
    os.write(1, b"begun\\n")
    began = time.monotonic()
    while not Path(sys.argv[1]).exists() and time.monotonic() < began + 60:
        time.sleep(0.01)
    for epoch in range(10_000):
        os.write(1, b"kept\\n")
        progress.epoch(epoch, RECORD, 10)
        time.sleep(0.1)

reproduce.reproduce = run
app(["reproduce", "double-ou", "--jobs", "2", "--row", "GRU-ODE-Bayes", "--row", "ACE-GRU-ODE-Bayes"])
"""


@pytest.fixture
def two_rows(tmp_path):
    """A process that has been answered its Ctrl-C, and the file that ends its epoch."""
    end = tmp_path / "end"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen([sys.executable, "-c", TWO_ROWS, end], text=True, env=environment, **pipes) as process:
        try:
            assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline() == (
                "Stopping at the end of the epoch; Ctrl-C again stops at once. "
                "The same call resumes from the last whole epoch.\n"
            )
            yield process, end
        finally:
            process.kill()


def test_after_a_ctrl_c_the_rows_end_at_their_next_epoch(two_rows):
    process, end = two_rows
    end.touch()
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and 2 <= rest.count("kept") < 10_000
    assert "Traceback" not in errors


def test_a_second_ctrl_c_kills(two_rows):
    process, _ = two_rows
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == -signal.SIGINT
