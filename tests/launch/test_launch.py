"""Rows as jobs of an engine: the same files, and a job whose process dies is done again from its checkpoint."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.launch import Job, Outcome, on_ray, on_slurm
from acenode.paper.tables import TABLES

HERE = Path(__file__).parent
PATHS = [str(HERE), str(HERE.parent / "train")]


def job(folder: Path, name: str = "one", **given):
    sys.path[:0] = [path for path in PATHS if path not in sys.path]
    from toy_job import ToyJob

    return ToyJob("toy", name, "", (0, 1), str(folder / "results"), str(folder / "runs"), **given)


@pytest.fixture
def reachable(monkeypatch):
    """Processes that are started from here find the toy job and this library, and compile quickly."""
    source = str(HERE.parent.parent / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*PATHS, source, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def metrics(folder: Path) -> dict[str, dict]:
    files = sorted((folder / "results").rglob("*.json"))
    return {file.name: json.loads(file.read_text())["metrics"] for file in files}


def pids(folder: Path, name: str = "one") -> list[str]:
    return (folder / "runs" / f"{name}.pids").read_text().split()


# --- what a job is ---------------------------------------------------------------------------------------------------


def test_every_row_of_every_table_is_found_again_by_its_job(tmp_path):
    for table, rows in TABLES.items():
        for row in rows:
            if table != "physiome":
                found = Job(table, row.name, row.dataset, (0,), "results", "runs").find()
                assert found is row


def test_a_row_of_a_packed_set_is_found_by_its_set():
    found = Job("physiome", "GRU-ODE-Bayes", "DUP01", (0,), "results", "runs").find()
    assert (found.name, found.dataset) == ("GRU-ODE-Bayes", "DUP01")


def test_a_fault_of_the_users_is_told_and_not_raised(tmp_path):
    assert job(tmp_path, refuses=True)() == Outcome("there is no such thing as a toy.", failed=True)


# --- Slurm ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit leaves its logs open
def test_the_debug_executor_writes_the_same_files_and_a_second_call_finds_them(tmp_path):
    pytest.importorskip("submitit", reason="needs acenode[slurm]")
    ((_, outcome),) = on_slurm([job(tmp_path)], tmp_path / "logs", {"cluster": "debug"})
    assert not outcome.failed and "mse" in outcome.said and "2 seeds" in outcome.said
    assert len(metrics(tmp_path)) == 2
    ((_, again),) = on_slurm([job(tmp_path)], tmp_path / "logs", {"cluster": "debug"})
    assert "done before" in again.said


@pytest.mark.slow
def test_the_local_executor_trains_in_other_processes_and_tells_of_one_that_died(tmp_path, reachable):
    pytest.importorskip("submitit", reason="needs acenode[slurm]")
    jobs = [job(tmp_path, "one"), job(tmp_path, "two", dies=True), job(tmp_path, "three", refuses=True)]
    given = {"cluster": "local", "timeout_min": 5}
    outcomes = [outcome for _, outcome in on_slurm(jobs, tmp_path / "logs", given)]
    assert [outcome.failed for outcome in outcomes] == [False, True, True]
    assert "did not end" in outcomes[1].said and "no such thing" in outcomes[2].said
    assert {str(os.getpid())}.isdisjoint(pids(tmp_path) + pids(tmp_path, "two"))
    ((_, resumed),) = on_slurm(jobs[1:2], tmp_path / "logs", given)
    assert not resumed.failed and len(pids(tmp_path, "two")) == 2
    found = metrics(tmp_path)
    assert len(found) == 4
    one, two = ([found[name] for name in sorted(found) if which in name] for which in ("one", "two"))
    assert one == two  # the killed run ended with the numbers of one that was never stopped


def test_what_submitit_does_not_know_is_refused(tmp_path):
    pytest.importorskip("submitit", reason="needs acenode[slurm]")
    with pytest.raises(ValueError, match="submitit refuses the resources"):
        list(on_slurm([job(tmp_path)], tmp_path / "logs", {"cluster": "debug", "nonsense": 1}))


def test_a_job_that_slurm_takes_away_is_submitted_again(tmp_path):
    submitit = pytest.importorskip("submitit", reason="needs acenode[slurm]")
    from acenode.launch.slurm import Requeued

    again = Requeued(job(tmp_path)).checkpoint()
    assert isinstance(again, submitit.helpers.DelayedSubmission)
    assert again.function.job == job(tmp_path)


# --- Ray -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path, reachable, monkeypatch):
    """The address of two nodes of Ray on this machine, with a processor each."""
    pytest.importorskip("ray", reason="needs acenode[ray]")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [Path(sys.executable).with_name("ray"), "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    kinds = ("--head", f"--port={port}", "--include-dashboard=false"), (f"--address={address}",)
    nodes = []
    try:
        for number, kind in enumerate(kinds):
            log = tmp_path / f"node-{number}.log"
            with log.open("w") as file:
                nodes.append(subprocess.Popen([*command, *kind], stdout=file, stderr=subprocess.STDOUT))
            while "runtime started" not in log.read_text():
                assert nodes[-1].poll() is None, log.read_text()[-3000:]
                time.sleep(0.2)
        yield address
    finally:
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            node.wait(60)


def driven_by_ray(folder, resources: dict) -> None:
    """Two jobs, one of which kills its worker, in a process of its own: Ray warns, and leaves threads behind."""
    script = folder / "drive.py"
    script.write_text(
        "import json, sys\n"
        "from pathlib import Path\n"
        "from toy_job import ToyJob\n"
        "from acenode.launch import on_ray\n"
        "folder = Path(sys.argv[1])\n"
        "places = (str(folder / 'results'), str(folder / 'runs'))\n"
        "jobs = [ToyJob('toy', 'one', '', (0, 1), *places), ToyJob('toy', 'two', '', (0, 1), *places, dies=True)]\n"
        "print(json.dumps([list(outcome) for _, outcome in on_ray(jobs, json.loads(sys.argv[2]))]))\n"
    )
    command = [sys.executable, script, folder, json.dumps(resources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert [failed for _, failed in outcomes] == [False, False], outcomes
    assert len(pids(folder)) == 1 and len(set(pids(folder, "two"))) == 2
    found = metrics(folder)
    one, two = ([found[name] for name in sorted(found) if which in name] for which in ("one", "two"))
    assert len(one) == 2 and one == two


@pytest.mark.slow
def test_a_worker_of_ray_that_dies_is_replaced_and_resumes(tmp_path, reachable):
    pytest.importorskip("ray", reason="needs acenode[ray]")
    driven_by_ray(tmp_path, {"num_cpus": 0.5})


@pytest.mark.slow
def test_jobs_on_a_cluster_of_two_nodes_one_of_whose_workers_is_killed(tmp_path, cluster):
    driven_by_ray(tmp_path, {"num_cpus": 1, "address": cluster})


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", "double-ou", *map(str, arguments)])


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--launcher", "slurm", "--resource", "minutes"), "expected KEY=VALUE"),
        (("--launcher", "ray", "--minutes", "3"), "--minutes and --jobs are for --launcher local"),
        (("--resource", "num_gpus=1"), "--resource is for --launcher slurm or ray"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 1 and said in result.output


@pytest.mark.parametrize("launcher, package", [("slurm", "submitit"), ("ray", "ray")])
def test_a_missing_package_is_named(launcher, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    result = run("--launcher", launcher)
    assert result.exit_code == 1 and f"pip install 'acenode[{launcher}]'" in result.output


def test_the_command_sends_one_job_a_row_with_its_settings(monkeypatch, tmp_path):
    sent = []

    def engine(jobs, logs, resources):
        sent.extend([resources, *jobs])
        return [(each, Outcome("done")) for each in jobs]

    monkeypatch.setattr("acenode.launch.on_slurm", engine)
    rows = [row.name for row in TABLES["double-ou"]][:2]
    chosen = [option for name in rows for option in ("--row", name)]
    folders = ("--results", tmp_path / "a", "--runs", tmp_path / "b")
    resources = ("--resource", "timeout_min=60", "--resource", "slurm_partition=gpu")
    result = run(*chosen, "--launcher", "slurm", *resources, "--seeds", 3, "--epochs", 2, *folders)
    assert result.exit_code == 0, result.output
    given, *jobs = sent
    assert given == {"timeout_min": 60, "slurm_partition": "gpu"}
    assert [each.name for each in jobs] == rows
    assert {(each.seeds, each.epochs, each.results) for each in jobs} == {((0, 1, 2), 2, str(tmp_path / "a"))}


def test_importing_the_launchers_loads_no_engine():
    code = "import sys, acenode.launch; print([m for m in ('ray', 'submitit', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_on_ray_refuses_options_that_ray_does_not_know(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs acenode[ray]")
    monkeypatch.setattr(ray, "init", lambda **_: None)
    with pytest.raises(ValueError, match="Ray refuses the resources"):
        list(on_ray([job(tmp_path)], {"nonsense": 1}))
