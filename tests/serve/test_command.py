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
import uvicorn
from fastapi.testclient import TestClient
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


@pytest.fixture
def served(classifier_folder, monkeypatch):
    """The application that a command would serve, and what the command says."""

    def run(server, sockets):
        served.append(server.config.app)
        for each in sockets:
            each.close()

    def command(*args, **env):
        done = CliRunner().invoke(app, ["serve", str(classifier_folder), "--port", "0", *args], env=env)
        assert done.exit_code == 0, done.output
        return TestClient(served.pop()), done.output

    served = []
    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr(uvicorn.Config, "configure_logging", lambda config: None)  # its handlers would outlive the test
    monkeypatch.delenv("ACENODE_TOKEN", raising=False)
    return command


@pytest.mark.parametrize("env", [{}, {"ACENODE_TOKEN": "secret"}])
def test_the_token_is_an_option_or_a_variable(served, env):
    client, _ = served(*([] if env else ["--token", "secret"]), **env)
    assert client.get("/docs").status_code == 401
    assert client.get("/docs", headers={"authorization": "Bearer secret"}).status_code == 200
    assert client.get("/health").status_code == 200


def test_the_longest_body_is_in_kibibytes(served):
    client, _ = served("--max-body", "2")
    answer = client.post("/predict", content=b" " * 2049)
    assert answer.status_code == 413 and "longer than 2,048 bytes" in answer.json()["error"]
    assert client.post("/predict", content=b" " * 2048).status_code == 422


WARNING = "anyone who reaches 0.0.0.0 may use this service; give a --token."


@pytest.mark.parametrize(
    ("args", "warned"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "0.0.0.0", "--token", ""], True),
        (["--host", "0.0.0.0", "--token", "secret"], False),
        (["--host", "localhost"], False),
        ([], False),
    ],
)
def test_an_open_address_without_a_token_is_warned_of(served, args, warned):
    client, said = served(*args)
    assert (WARNING in said) == warned and ("anyone who reaches" in said) == warned
    assert client.get("/docs").status_code == (401 if "secret" in args else 200)


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
