"""The code in README and CONTRIBUTING runs as it stands: Python, and the commands on the tables of `examples`."""

import inspect
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from acenode.cli.own import train

ROOT = Path(__file__).parent.parent


def blocks(name, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), flags=re.S)


def block_with(word):
    """The commands of README that name it."""
    (found,) = [block for block in blocks("README.md", "sh") if word in block]
    return found


@pytest.fixture
def checkout(tmp_path):
    """A folder with `examples`, as a checkout has it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


COUNTS = {"README.md": 2, "CONTRIBUTING.md": 5}


@pytest.mark.slow
@pytest.mark.parametrize("name, number", [(name, k) for name, count in COUNTS.items() for k in range(count)])
def test_every_code_block_runs(name, number, checkout, monkeypatch):
    found = blocks(name)
    assert len(found) == COUNTS[name]
    monkeypatch.chdir(checkout)
    exec(compile(found[number], name, "exec"), {})


def run(commands, folder, **environment):
    """Run commands in a shell that finds this `acenode`; the first that fails ends it.

    Where training has a budget of time, it gets a minute here.
    """
    if "minutes" in inspect.signature(train).parameters:
        commands = commands.replace("acenode train ", "acenode train --minutes 1 ")
    bin = folder / "bin"
    bin.mkdir()
    (bin / "acenode").write_text(f'#!/bin/sh\nexec {sys.executable} -m acenode "$@"\n')
    (bin / "acenode").chmod(0o755)
    given = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu", **environment}
    given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(["sh", "-e", "-c", commands], cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_commands_of_the_readme_run_on_the_example(checkout):
    shown = run(block_with("data.csv"), checkout)
    forecast = pd.read_csv(checkout / "examples" / "forecast.csv")
    assert set(forecast.hour) == {24, 48} and forecast.patient.nunique() == 8
    scores = dict(line.split() for line in shown.splitlines() if line.startswith("mse"))
    assert float(scores["mse"]) < float(scores["mse_baseline"])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_service_of_the_readme_answers(checkout):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A shell that fails leaves the service behind, unless it says what to do on its way out.
    train = "acenode train examples/data.csv --id patient --time hour --model gru-ode-bayes --epochs 1 --out model/"
    served = block_with("serve").replace("8000", str(port))
    shown = run(f"{train}\ntrap 'kill $!' EXIT\n{served}", checkout)
    assert '"pulse"' in shown and (checkout / "model.onnx").stat().st_size > 1000


@pytest.mark.slow
def test_the_commands_of_the_readme_run_on_records_like_physionets(tmp_path):
    """A stand-in of the official files, with a column that never varies, as theirs have."""
    _write_records(tmp_path / "data" / "physionet2012")
    run(block_with("physionet"), tmp_path, ACENODE_DATA=str(tmp_path / "data"))
    risk = pd.read_csv(tmp_path / "risk.csv")
    assert sorted(risk.record) == list(range(100, 106)) and risk.p_1.between(0, 1).all()


def _write_records(folder):
    random = np.random.default_rng(0)
    died = {number: number % 2 for number in range(24)}
    for letter, numbers in (("a", died), ("b", range(100, 106))):
        (folder / f"set-{letter}").mkdir(parents=True)
        for number in numbers:
            lines = ["Time,Parameter,Value", f"00:00,RecordID,{number}", f"00:00,Age,{random.integers(30, 90)}"]
            for hour in sorted(random.choice(range(1, 48), 6, replace=False)):
                rate = 75 + 25 * died.get(number, 0) + random.normal(0, 8)
                lines += [f"{hour:02d}:15,HR,{rate:.0f}", f"{hour:02d}:15,MechVent,1"]
            (folder / f"set-{letter}" / f"{number}.txt").write_text("\n".join(lines) + "\n")
    outcomes = ["RecordID,In-hospital_death", *(f"{number},{label}" for number, label in died.items())]
    (folder / "Outcomes-a.txt").write_text("\n".join(outcomes) + "\n")


def test_the_examples_are_what_their_script_writes(tmp_path):
    shutil.copy(ROOT / "examples" / "make_tables.py", tmp_path)
    subprocess.run([sys.executable, "make_tables.py"], cwd=tmp_path, check=True)
    for name in ("data.csv", "new.csv", "test.csv", "labelled.csv"):
        assert (tmp_path / name).read_text() == (ROOT / "examples" / name).read_text()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
