"""`acenode serve`: what it refuses, and what a SIGKILL costs."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from typer.testing import CliRunner

from acenode.cli.main import app


def said(*args):
    done = CliRunner().invoke(app, ["serve", *map(str, args)])
    assert done.exit_code == 1 and "Traceback" not in done.output
    return done.output


def test_what_cannot_be_served_is_refused(folder, tmp_path):
    assert "is not a saved model" in said(tmp_path)
    (tmp_path / "text").write_text("not a database, and long enough to be looked at " * 30)
    assert "cannot be used for the states" in said(folder, "--state", tmp_path / "text")
    state = ("--state", tmp_path / "s.sqlite")
    assert "cannot listen at 203.0.113.1, port 0" in said(folder, *state, "--host", "203.0.113.1", "--port", 0)


def test_the_command_line_imports_no_service():
    code = "import sys, acenode.cli.main; print([m for m in ('fastapi', 'uvicorn', 'jax', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Service:
    """The real command in a process of its own."""

    def __init__(self, folder, state):
        command = [sys.executable, "-m", "acenode", "serve", str(folder), "--port", "0", "--state", str(state)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "http://127.0.0.1:" in line  # this machine alone, unless told otherwise
        self.address = line.split(" at ", 1)[1].split(";")[0]
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.address}/health")
                return
            except OSError:
                time.sleep(0.1)

    def update(self, id, moment):
        body = json.dumps({"id": id, "time": moment, "values": {"heat": 0.5}}).encode()
        request = urllib.request.Request(f"{self.address}/update", body, {"content-type": "application/json"})
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_a_kill_loses_no_acknowledged_update(folder, tmp_path):
    service = Service(folder, tmp_path / "state.sqlite")
    try:
        assert all(service.update(f"s{k % 3}", float(k)) == 200 for k in range(12))
        service.end(signal.SIGKILL)
        service = Service(folder, tmp_path / "state.sqlite")
        assert [service.update(f"s{k % 3}", float(k)) for k in (9, 10, 11)] == [409] * 3  # they are there
        assert [service.update(f"s{k % 3}", float(k)) for k in (12, 13, 14)] == [200] * 3
    finally:
        service.end(signal.SIGTERM)
    assert [p.name for p in tmp_path.iterdir()] == ["state.sqlite"]  # and nothing beside it
