"""Part 2: mutated files of every kind, read in a process with a limit on memory and on time.

A loss is a traceback (an exception that no reader promises), a hang, too much memory, the end of the process, or the
result of the valid file though a value was changed inside of the format.
"""

import json
import multiprocessing
import resource
import shutil
import signal
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .tally import Tally

CASES = 10_000
SECONDS, MEMORY = 10, 2 * 2**30
TOKENS = b"nan|inf|-inf|1e400|-1|0|99999999999999999999|,,|\"|'|;|\t|\x00|\xff\xfe|{}|[]|null|true|24:61|-9999|1e-320"


def mutated(content: bytes, random: np.random.Generator, text: bool) -> bytes:
    """One to three random changes of bytes."""
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(len(changed) + 1))
        end = min(len(changed), at + int(2 ** random.uniform(0, 8)))
        kind = int(random.integers(8 if text else 7))
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del changed[at:end]
        elif kind == 2:
            changed[at:at] = changed[at:end]
        elif kind == 3:
            del changed[at:]
        elif kind == 4:
            changed[at:end] = random.bytes(end - at)
        elif kind == 5:
            changed[at:end] = bytes(end - at)
        elif kind == 6:
            changed[at : at + 4] = bytes.fromhex(str(random.choice(["ffffffff", "7fffffff", "00000080", "ffffff7f"])))
        else:
            tokens = TOKENS.split(b"|")
            changed[at:end] = tokens[int(random.integers(len(tokens)))]
    return bytes(changed)


def run(scale: float) -> dict[str, Any]:
    """Read 10,000 files at scale 1."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        begin, total = 0, max(30, round(CASES * scale))
        while begin < total:
            begin = _watched(Path(folder), begin, total, tally)
    return tally.result(seconds_allowed=SECONDS, memory_allowed=MEMORY)


def _watched(folder: Path, begin: int, total: int, tally: Tally) -> int:
    """Read cases in another process until all are done or it ends; the next case."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(str(folder), begin, total, there), daemon=True)
    worker.start()
    there.close()
    case, kind = begin, "start"
    try:
        while True:
            # A Python handler cannot interrupt what hangs in another language; and the start takes a while.
            if not here.poll(120 if kind == "start" else 3 * SECONDS):
                tally.add(kind, f"case {case}: it hangs", "hang")
                return case + 1
            message = json.loads(here.recv())
            if "done" in message:
                return total
            case, kind = message["case"], message["kind"]
            if "outcome" in message:
                tally.add(kind, message["loss"], message["outcome"])
    except EOFError:
        worker.join()
        tally.add(kind, f"case {case}: the process ended with {worker.exitcode}", "crash")
        return case + 1
    finally:
        worker.kill()
        worker.join()


class _Hang(BaseException):
    """Raised by the alarm."""


def _alarm(*_: Any) -> None:
    raise _Hang


def _work(place: str, begin: int, total: int, pipe: Any) -> None:
    """Read the cases from `begin` on and tell what came of them."""
    from acenode.datasets import files

    from .formats import digest, formats

    folder = Path(place)
    files.cache_folder = lambda: folder / "cache"
    warnings.simplefilter("ignore")
    kinds = list(formats(folder / "made"))
    target = folder / "read"
    right = {}
    for kind in kinds:
        _write(target, kind.files)
        right[kind.name] = digest(kind.read(target))
    signal.signal(signal.SIGALRM, _alarm)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    for case in range(begin, total):
        kind = kinds[case % len(kinds)]
        random = np.random.default_rng((25, case))
        inside = random.random() < 0.3
        if inside:
            contents = kind.change(random)
        else:
            name = str(random.choice(sorted(kind.files)))
            name = next((n for n in kind.files if n == kind.name), name)  # of a model: the file of that name
            contents = kind.signed({**kind.files, name: mutated(kind.files[name], random, kind.text)})
        _write(target, contents)
        pipe.send(json.dumps({"case": case, "kind": kind.name}))
        outcome, loss = _read(kind, target, right[kind.name], inside, digest)
        if inside and contents == kind.files:
            outcome, loss = "same", None  # the change chose the value that was there
        loss = None if loss is None else f"case {case}: {loss}"
        pipe.send(json.dumps({"case": case, "kind": kind.name, "outcome": outcome, "loss": loss}))
        shutil.rmtree(folder / "cache", ignore_errors=True)
    pipe.send(json.dumps({"done": True}))
    pipe.close()


def _write(target: Path, contents: dict[str, bytes]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for name, content in contents.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _read(kind: Any, target: Path, right: str, inside: bool, digest: Any) -> tuple[str, str | None]:
    """How reading ended: refused, same, other, or a kind of loss with its sentence."""
    signal.alarm(SECONDS)
    try:
        found = digest(kind.read(target))
    except _Hang:
        return "hang", f"more than {SECONDS} s"
    except MemoryError as error:
        return "memory", f"MemoryError: {error}"
    except (ValueError, OSError) as error:
        own = type(error).__module__.startswith("acenode.")
        named = str(target) in str(error) or str(target) in str(getattr(error, "filename", ""))
        if own or named:
            return "refused", None
        return "unnamed", _told(error)
    except BaseException as error:
        return "traceback", _told(error)
    finally:
        signal.alarm(0)
    if found != right:
        return "other", None
    return "same", "a value was changed, and the result is the same" if inside else None


def _told(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "acenode" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:200]}"
