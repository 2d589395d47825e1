"""Part 4: what a machine does to a command: no space, no right to write, no home, two at once, a wrong clock, a file
that vanishes, a device that is lost.

The command must end with a sentence and without a traceback, what was there before must be as it was, and the next
start, on a healthy machine, must work.
"""

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import commands
from .tally import Tally

# The real command line, with a part of the machine replaced.
LOST_DEVICE = """
import jax
from acenode.train.program import Program
real, count = Program.epoch, 0
def epoch(*args):
    global count
    count += 1
    if count > 3:
        raise jax.errors.JaxRuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: the device was lost")
    return real(*args)
Program.epoch = epoch
"""
NOT_LISTED = """
import pwd
def getpwuid(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
"""
CLOCK_SET_BACK = """
import time
real = time.time
begun = real()
time.time = lambda: begun - 3 * (real() - begun) - 3e7
time.time_ns = lambda: int(1e9 * time.time())
"""
PATCHED = "{}\nimport sys\nfrom acenode.cli.main import run\nsys.argv[0] = 'acenode'\nrun()\n"


def run(scale: float) -> dict[str, Any]:
    """Every fault, for as many commands as the scale allows."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        machine = Machine(Path(place))
        faults: list[Callable] = [no_space, read_only, no_home, lost_device, clock, two_at_once, vanishing]
        chosen = faults if scale >= 0.2 else [no_space, lost_device]
        for fault in chosen:
            for kind, loss in fault(machine, scale):
                tally.add(kind, loss)
                print(f"  {kind}: {loss or 'well'}", flush=True)
    return tally.result()


class Machine:
    """Folders with inputs and with a trained model, and how commands are run in copies of them."""

    def __init__(self, place: Path):
        self.place, self.env = place, commands.environment(place / "compiled")
        commands.prepare(place / "made")
        self.fresh("whole", place / "made")
        self.check(commands.train(6), "whole")
        (place / "compiled").mkdir(exist_ok=True)

    def fresh(self, name: str, begin: Path | None = None) -> Path:
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(begin or self.place / "made", folder)
        return folder

    def run(self, arguments: tuple[str, ...], name: str, patch: str = "", **given: Any) -> tuple[int, str]:
        """Exit code and output of a command in a folder."""
        program = ["-c", PATCHED.format(patch)] if patch else ["-m", "acenode"]
        env = given.pop("env", self.env)
        process = subprocess.run(
            [sys.executable, *program, *arguments],
            cwd=self.place / name,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            **given,
        )
        return process.returncode, process.stdout

    def check(self, arguments: tuple[str, ...], name: str) -> None:
        code, said = self.run(arguments, name)
        if code:
            raise SystemExit(f"{' '.join(arguments)} fails undisturbed: {said}")

    def next_start(self, arguments: tuple[str, ...], name: str) -> str | None:
        """What is wrong with the next start on a healthy machine."""
        code, said = self.run(arguments, name)
        if code:
            return f"the next start ended with {code}: {said[-300:]}"
        stays = commands.temporary(self.place / name)
        return f"temporary files stay: {', '.join(stays)}" if stays else None


def sentence(code: int, said: str) -> str | None:
    """What is wrong with how a command ended."""
    if "Traceback" in said:
        return f"a traceback: {said[-400:]}"
    if code != 1 or "acenode: " not in said:
        return f"it ended with {code}: {said[-300:]}"
    return None


def no_space(machine: Machine, scale: float):
    """Files cannot grow beyond a few bytes, as on a full disk."""
    for name, arguments in (
        ("train", commands.train(6)),
        ("reproduce", commands.reproduce(2)),
        ("export", commands.export()),
        ("predict", ("predict", "model", "table.csv", "--at", "30", "--out", "predicted.csv")),
    ):
        most = 100 if name == "predict" else 3000  # predictions are a short file
        for size in (0, 100, most) if scale >= 0.2 else (100,):
            begin = machine.place / "whole" if name in ("export", "predict", "train") else None
            folder = machine.fresh("disk", begin)
            before = commands.left(folder)
            env = {**machine.env, "ACENODE_COMPILATION_CACHE": "off"} if name != "train" else machine.env

            def limit(size: int = size) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            code, said = machine.run(arguments, "disk", env=env, preexec_fn=limit)
            loss = sentence(code, said)
            after = commands.left(folder)
            lost = [each for each in before if after.get(each) != before[each]]
            loss = loss or (f"changed: {', '.join(lost)}" if lost else None)
            yield f"no space, {name}", loss or machine.next_start(arguments, "disk")


def _bound_by_modes() -> None:
    """Let root, too, write only where the mode of a file allows it: prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)."""
    if os.getuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(24, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def read_only(machine: Machine, scale: float):
    """A folder that may not be written into; and a place below a file."""
    for name, arguments in (
        ("train", commands.train(3)),
        ("reproduce", commands.reproduce(2)),
        ("export", commands.export()),
    ):
        begin = machine.place / "whole" if name == "export" else None
        folder = machine.fresh("locked", begin)
        before = commands.left(folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        env = {**machine.env, "ACENODE_COMPILATION_CACHE": "off"}
        loss = sentence(*machine.run(arguments, "locked", env=env, preexec_fn=_bound_by_modes))
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        loss = loss or (None if commands.left(folder) == before else "files changed")
        yield f"read-only folder, {name}", loss or machine.next_start(arguments, "locked")
    for name, arguments in (("train", commands.train(3)), ("export", commands.export())):
        folder = machine.fresh("below", machine.place / "whole" if name == "export" else None)
        (folder / "file").write_text("no folder")
        below = tuple("file/x" if k and arguments[k - 1] == "--out" else each for k, each in enumerate(arguments))
        yield (
            f"place below a file, {name}",
            sentence(*machine.run(below, "below")) or machine.next_start(arguments, "below"),
        )


def no_home(machine: Machine, scale: float):
    """No HOME and no entry in the list of users; the caches have no place."""
    for name, arguments in (("train", commands.train(3)), ("reproduce", commands.reproduce(2))):
        folder = machine.fresh("homeless")
        names = ("HOME", "XDG_CACHE_HOME", "ACENODE_COMPILATION_CACHE", "USERPROFILE")
        env = {each: value for each, value in machine.env.items() if each not in names}
        code, said = machine.run(arguments, "homeless", NOT_LISTED, env=env)
        loss = f"it ended with {code}: {said[-300:]}" if code or "Traceback" in said else None
        strange = [path.name for path in folder.iterdir() if path.name.startswith("~")]
        yield f"no home, {name}", loss or (f"made {', '.join(strange)} in the working folder" if strange else None)


def lost_device(machine: Machine, scale: float):
    """The device fails in the fourth epoch; the next start ends where an undisturbed run does."""
    for name, arguments in (("train", commands.train(6)), ("reproduce", commands.reproduce(6))):
        machine.fresh("undisturbed")
        machine.check(arguments, "undisturbed")
        folder = machine.fresh("lost")
        loss = sentence(*machine.run(arguments, "lost", LOST_DEVICE))
        loss = loss or machine.next_start(arguments, "lost")
        same = commands.left(folder) == commands.left(machine.place / "undisturbed")
        yield f"lost device, {name}", loss or (None if same else "differs from the undisturbed run")


def clock(machine: Machine, scale: float):
    """The clock runs backwards, and all files are from the future."""
    for name, arguments in (("train", commands.train(6)), ("reproduce", commands.reproduce(4))):
        machine.fresh("undisturbed")
        machine.check(arguments, "undisturbed")
        folder = machine.fresh("clock")
        machine.run(arguments, "clock", LOST_DEVICE)  # leaves a checkpoint
        future = time.time() + 1e7
        for path in (*folder.rglob("*"), *(machine.place / "compiled").iterdir()):
            os.utime(path, (future, future))
        code, said = machine.run(arguments, "clock", CLOCK_SET_BACK)
        loss = f"it ended with {code}: {said[-300:]}" if code or "Traceback" in said else None
        same = commands.left(folder) == commands.left(machine.place / "undisturbed")
        yield f"clock set back, {name}", loss or (None if same else "differs from the undisturbed run")


def two_at_once(machine: Machine, scale: float):
    """Two processes with one empty cache of programs and of data; one result file; one model folder."""
    for name, arguments in (("train", commands.train(4)), ("reproduce", commands.reproduce(3))):
        machine.fresh("undisturbed")
        machine.check(arguments, "undisturbed")
        for shared in (False, True):
            folders = [machine.fresh("one"), machine.place / "one" if shared else machine.fresh("two")]
            cache = machine.place / f"cache-{name}-{shared}"
            env = commands.environment(cache)
            both = [commands.start(arguments, folder, env) for folder in folders]
            said = [commands.finish(process) for process in both]
            bad = [s[-300:] for s, p in zip(said, both, strict=True) if p.returncode or "Traceback" in s]
            # In one folder one of them may find the checkpoint of the other gone or the work done.
            loss = f"a process failed: {bad[0]}" if bad else None
            for folder in folders:
                same = commands.left(folder) == commands.left(machine.place / "undisturbed")
                loss = loss or (None if same else "differs from the undisturbed run")
            loss = loss or next((f"temporary: {commands.temporary(f)}" for f in folders if commands.temporary(f)), None)
            yield f"two at once, {name}{', one folder' if shared else ''}", loss


def _without_one(kind: Any, folder: Path):
    """The results of the folder without one of its files, as far as it can be read: what is away at first is not there.

    So PhysioNet's records without a file of outcomes have none that are known.
    """
    from .formats import digest

    for name, content in kind.files.items():
        (folder / name).unlink()
        try:
            yield digest(kind.read(folder))
        except (ValueError, OSError):
            pass
        (folder / name).write_bytes(content)


def vanishing(machine: Machine, scale: float):
    """Files that are removed and put back while they are read."""
    from acenode.datasets import files

    from .formats import digest, formats

    files.cache_folder = lambda: machine.place / "cache"
    for kind in formats(machine.place / "formats"):
        folder = machine.place / "vanishing"
        for name, content in kind.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        right = {digest(kind.read(folder)), *_without_one(kind, folder)}
        stop = threading.Event()

        def disturb(folder: Path = folder, names: tuple[str, ...] = tuple(kind.files), stop=stop) -> None:
            while not stop.is_set():
                for name in names:
                    os.rename(folder / name, folder.with_suffix(".away"))
                    time.sleep(0.0005)
                    os.rename(folder.with_suffix(".away"), folder / name)
                    time.sleep(0.0005)

        other = threading.Thread(target=disturb)
        other.start()
        loss, refusals = None, 0
        until = time.monotonic() + 2 * min(1.0, 5 * scale)
        while time.monotonic() < until and loss is None:
            try:
                found = digest(kind.read(folder))
                loss = None if found in right else "another result"
            except (ValueError, OSError) as error:
                refusals += 1
                loss = None if str(folder) in f"{error} {getattr(error, 'filename', '')}" else f"unnamed: {error!r}"
            except Exception as error:
                loss = f"{type(error).__name__}: {error}"
        stop.set()
        other.join()
        shutil.rmtree(folder)
        yield f"vanishing, {kind.name}", loss
