"""Part 1: SIGKILL at random moments of `acenode train`, `reproduce`, `export` and `serve`.

A run is killed several times, each time started again, and then finished. Every file must be bit-identical to those of
the undisturbed run (times and dates aside), and no temporary file may stay. An update that `serve` acknowledged must
be there after the kill.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from acenode.estimators import Forecaster

from . import commands
from .samples import SMALL, machines, untrained
from .tally import Tally

KILLS = 200
SHARES = {"train": 0.4, "reproduce": 0.25, "export": 0.15, "serve": 0.2}
IN_A_ROW = 5  # kills before a run is let finish
UPDATES = 60


def run(scale: float) -> dict[str, Any]:
    """200 kills at scale 1."""
    tally = Tally()
    draw = random.Random(25)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        env = commands.environment(folder / "compiled")
        made = folder / "made"
        commands.prepare(made)
        operations = _operations(made, env)
        for name, operation in operations.items():
            kills = max(1, round(KILLS * SHARES[name] * scale))
            _undisturbed(operation, times=2 if scale >= 0.05 else 1)
            while kills > 0:
                row = min(kills, draw.randint(1, 2 * IN_A_ROW - 1))
                done, loss = operation.chain(operation, row, draw)
                for _ in range(done - 1):
                    tally.add(name)
                tally.add(name, loss)
                kills -= max(1, done)
                print(f"  {name}: {tally.tried[name]} kills, {tally.losses[name]} losses", flush=True)
    return tally.result()


class Operation(NamedTuple):
    """A command, the folder it begins from, and the folder of its undisturbed run."""

    name: str
    arguments: tuple[str, ...]
    begin: Path
    whole: Path
    env: dict[str, str]
    chain: Callable
    took: list[float]


def _operations(made: Path, env: dict[str, str]) -> dict[str, Operation]:
    given = {
        "train": (commands.train(40), made, _chain),
        "reproduce": (commands.reproduce(12), made, _chain),
        "export": (commands.export(), made.with_name("trained"), _chain),
        "serve": (
            ("serve", "model", "--port", "0", "--state", "state.sqlite"),
            made.with_name("trained"),
            _serve_chain,
        ),
    }
    shutil.copytree(made, made.with_name("trained"))
    untrained(Forecaster(**SMALL, model="gru-ode-bayes"), machines(12)).save(made.with_name("trained") / "model")
    return {
        name: Operation(name, arguments, begin, made.with_name(f"whole-{name}"), env, chain, [])
        for name, (arguments, begin, chain) in given.items()
    }


def _undisturbed(operation: Operation, times: int) -> None:
    """Run it: the first time compiles, and the second must be the same."""
    found = []
    for _ in range(times):
        shutil.rmtree(operation.whole, ignore_errors=True)
        shutil.copytree(operation.begin, operation.whole)
        began = time.monotonic()
        loss = (
            _finish_serve(operation, operation.whole)
            if operation.name == "serve"
            else _finish(operation, operation.whole)
        )
        if loss:
            raise SystemExit(f"{operation.name} fails undisturbed: {loss}")
        operation.took[:] = [time.monotonic() - began]
        found.append(commands.left(operation.whole))
    if found[0] != found[-1]:
        changed = [name for name in found[0] if found[0].get(name) != found[-1].get(name)]
        raise SystemExit(f"{operation.name}: two undisturbed runs differ in {', '.join(changed)}")


def _chain(operation: Operation, kills: int, draw: random.Random) -> tuple[int, str | None]:
    """Kill a run so many times, finish it and compare; how many kills hit, and the loss."""
    folder = operation.whole.with_name("disturbed")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(operation.begin, folder)
    done = 0
    for _ in range(kills):
        process = commands.start(operation.arguments, folder, operation.env)
        _wait(process, folder, operation.took[0], draw)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            done += 1
        said = commands.finish(process)
        if process.returncode not in (0, -signal.SIGKILL):
            return max(1, done), f"a start after a kill ended with {process.returncode}: {said[-300:]}"
        if process.returncode == 0:
            break
    return max(1, done), _finish(operation, folder) or _compare(operation, folder)


def _wait(process: subprocess.Popen, folder: Path, took: float, draw: random.Random) -> None:
    """Until a random moment of the run; every other time just after a file was written or begun."""
    began = time.monotonic()
    until = began + draw.uniform(0.3, 1.0) * took
    chased = draw.random() < 0.5
    changes = draw.randint(1, 6)
    before = _state(folder)
    while time.monotonic() < until + (took if chased else 0) and process.poll() is None:
        if chased:
            now = _state(folder)
            changes -= now != before
            before = now
            if changes <= 0:
                time.sleep(draw.uniform(0, 0.003))
                return
            time.sleep(0.0005)
        else:
            time.sleep(0.005)


def _state(folder: Path) -> list[tuple[str, int]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found.append((f"{place}/{name}", os.stat(f"{place}/{name}").st_mtime_ns))
            except OSError:
                pass
    return found


def _finish(operation: Operation, folder: Path) -> str | None:
    process = commands.start(operation.arguments, folder, operation.env)
    said = commands.finish(process)
    return f"it ended with {process.returncode}: {said[-300:]}" if process.returncode else None


def _compare(operation: Operation, folder: Path) -> str | None:
    stays = commands.temporary(folder)
    if stays:
        return f"temporary files stay: {', '.join(stays)}"
    right, found = commands.left(operation.whole), commands.left(folder)
    if right.keys() != found.keys():
        return f"other files: {sorted(right.keys() ^ found.keys())}"
    changed = [name for name in right if right[name] != found[name]]
    return f"differs from the undisturbed run: {', '.join(changed)}" if changed else None


# --- the service ------------------------------------------------------------------------------------------------


class Service:
    """`acenode serve` in a process of its own."""

    def __init__(self, operation: Operation, folder: Path):
        self.process = commands.start(operation.arguments, folder, operation.env)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if " at http://" not in line:
            raise RuntimeError(f"it did not start: {line}{commands.finish(self.process)}")
        self.address = line.split(" at ", 1)[1].split(";")[0]
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=60).close()
                return
            except OSError:
                time.sleep(0.05)

    def update(self, number: int) -> int:
        """The status of an observation; 0 where the service is gone."""
        values = {"heat": (number * 37 % 100) / 50 - 1, "flow": 20 + number % 7}
        body = json.dumps({"id": f"s{number % 3}", "time": 0.1 * number, "values": values}).encode()
        request = urllib.request.Request(f"{self.address}/update", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        commands.finish(self.process)


def _finish_serve(operation: Operation, folder: Path, first: int = 0) -> str | None:
    """Send all updates from `first` on and stop the service in order."""
    service = Service(operation, folder)
    answers = [service.update(number) for number in range(first, UPDATES)]
    service.end(signal.SIGTERM)
    # The first may have been stored, and its answer been lost with the service.
    bad = [a for k, a in enumerate(answers) if a != 200 and not (k == 0 and first and a == 409)]
    return f"updates were answered with {bad}" if bad else None


def _serve_chain(operation: Operation, kills: int, draw: random.Random) -> tuple[int, str | None]:
    folder = operation.whole.with_name("disturbed")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(operation.begin, folder)
    number = done = 0
    for _ in range(kills):
        try:
            service = Service(operation, folder)
        except RuntimeError as error:
            return max(1, done), str(error)
        until = min(UPDATES - 1, number + draw.randint(0, 12))
        first = number
        while number < until:
            answer = service.update(number)
            if answer != 200 and not (answer == 409 and number == first):
                break
            number += 1
        if number != until:
            service.end(signal.SIGKILL)
            return done + 1, f"update {number} was answered with {answer}"
        number += _killed_while(service, number, draw) == 200
        done += 1
    return done, _finish_serve(operation, folder, number) or _compare(operation, folder)


def _killed_while(service: Service, number: int, draw: random.Random) -> int:
    """Kill the service while it takes in an update; the status that the client saw."""
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(service.update(number)))
    client.start()
    time.sleep(draw.uniform(0, 0.02))
    service.end(signal.SIGKILL)
    client.join()
    return answers[0]
