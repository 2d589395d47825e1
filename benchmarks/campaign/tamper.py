"""Part 5: tampered model folders, folders of newer versions, and pickles in the place of files.

Every change is to be refused in a sentence that names the file. Nothing that is read may be executed.
"""

import hashlib
import json
import os
import pickle
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np

import acenode
from acenode.estimators import Classifier, Forecaster, Imputer, ModelFolderError, load
from acenode.estimators.saved import ARRAYS, HEAD

from .formats import formats, leaves, other, put, signed
from .samples import SMALL, labelled, machines, untrained
from .tally import Tally

EXECUTES = re.compile(r"pickle\.loads?\(|cloudpickle|joblib\.load\(|(?<![\w.])(?:eval|exec)\(|allow_pickle=True")
# Its systems are published as Python programs: making that data set is running those of a checkout that the user names.
PROGRAMS = {"datasets/physiome_raw.py"}
ROOT = Path(acenode.__file__).parent


class Bomb:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


def run(scale: float) -> dict[str, Any]:
    """Tamper with three model folders: every value of the head, 2,000 bytes of the weights each at scale 1."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as place, chdir(place):
        frame = machines(8)
        for estimator, table in (
            (Forecaster(**SMALL, model="gru-d"), frame),
            (Classifier(**SMALL, label="state", model="gru-d"), labelled(frame)),
            (Imputer(**SMALL, model="gru-d"), frame),
        ):
            tamper_with(untrained(estimator, table).save(Path(type(estimator).__name__)), scale, tally)
        _bombs_in_data(Path("formats"), tally)
    look_into_modules(tally)
    return tally.result()


def tamper_with(folder: Path, scale: float, tally: Tally) -> None:
    """Every way to change one saved model; it is as before afterwards."""
    _heads(folder, scale, tally)
    _weights(folder, scale, tally)
    _versions(folder, tally)
    _absent(folder, tally)
    _bombs_in_a_model(folder, tally)
    load(folder)


def _heads(folder: Path, scale: float, tally: Tally) -> None:
    """Every value of model.json changed, with the old checksum."""
    content = (folder / HEAD).read_text()
    random = np.random.default_rng(0)
    every = [(path, value) for path, value in leaves(json.loads(content)) if path[0] != "format"]
    for path, value in every[:: max(1, round(1 / (4 * scale)))]:
        head = json.loads(content)
        new = other(value, random)
        if new == value or new != new:
            new = "tampered"
        put(head, path, new)
        named = ARRAYS if path == ("sha256",) else HEAD  # either may be the one that was changed
        tally.add("model.json", _refused(folder, {HEAD: json.dumps(head).encode()}, (HEAD, named), "was changed since"))


def _weights(folder: Path, scale: float, tally: Tally) -> None:
    """Bytes of model.safetensors changed, cut off and added."""
    content = (folder / ARRAYS).read_bytes()
    random = np.random.default_rng(1)
    for _ in range(max(20, round(2000 * scale))):
        changed = bytearray(content)
        changed[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
        tally.add("weights", _refused(folder, {ARRAYS: bytes(changed)}, (ARRAYS,), "was changed since"))
    for changed in (content[:-1], content + b"\0", b"", content[: len(content) // 2]):
        tally.add("weights", _refused(folder, {ARRAYS: changed}, (ARRAYS,), "was changed since"))


def _versions(folder: Path, tally: Tally) -> None:
    """A newer format, and a newer version of acenode whose settings do not fit."""
    files = {name: (folder / name).read_bytes() for name in (HEAD, ARRAYS)}

    def changed(change: Callable[[dict], Any]) -> dict[str, bytes]:
        head = json.loads(files[HEAD])
        change(head)
        return signed({**files, HEAD: json.dumps(head).encode()})

    newer = changed(lambda head: head.update(format=head["format"] + 1))
    tally.add("newer format", _refused(folder, newer, (folder.name,), "Update acenode"))

    def misfit(head: dict) -> None:
        head["versions"]["acenode"] = "99.1.0"
        head["settings"]["temperature"] = 0.1

    words = f"acenode 99.1.0 saved it, and this is {acenode.__version__}: update"
    tally.add("newer version", _refused(folder, changed(misfit), (folder.name,), words))


def _absent(folder: Path, tally: Tally) -> None:
    for name in (HEAD, ARRAYS):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        tally.add("file missing", _refused(folder, {}, (name,), "no "))
        (folder / name).write_bytes(kept)


def _bombs_in_a_model(folder: Path, tally: Tally) -> None:
    bomb = pickle.dumps(Bomb())
    files = {name: (folder / name).read_bytes() for name in (HEAD, ARRAYS)}
    for name in files:
        changed = signed({**files, name: bomb})
        tally.add("pickle in a model", _refused(folder, changed, (name,), "damaged") or _exploded())


def _bombs_in_data(place: Path, tally: Tally) -> None:
    """A pickle in the place of every file of every format, and as an array of objects in a packed set."""
    bomb, target = pickle.dumps(Bomb()), place / "read"
    for kind in formats(place):
        for name in kind.files:
            contents = {**kind.files, name: _array_of(bomb) if name.endswith(".npz") else bomb}
            shutil.rmtree(target, ignore_errors=True)
            for each, content in contents.items():
                (target / each).parent.mkdir(parents=True, exist_ok=True)
                (target / each).write_bytes(content)
            try:
                kind.read(target)
            except (ValueError, OSError):
                pass
            tally.add("pickle in data", _exploded())
    pickle.loads(bomb)  # which it would be
    tally.add("pickle that is loaded", None if Path("exploded").exists() else "the bomb does not explode")


def _array_of(bomb: bytes) -> bytes:
    """A packed file whose x is an array of objects."""
    import io

    array = io.BytesIO()
    np.lib.format.write_array(array, np.array([Bomb()], dtype=object), allow_pickle=True)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("x.npy", "targets.npy", "span.npy"):
            archive.writestr(name, array.getvalue())
    return packed.getvalue()


def _exploded() -> str | None:
    return "it was executed" if Path("exploded").exists() else None


def _refused(folder: Path, changed: dict[str, bytes], names: tuple[str, ...], words: str) -> str | None:
    """What is wrong with how a changed folder is refused; the folder is as before afterwards."""
    before = {name: (folder / name).read_bytes() for name in changed}
    for name, content in changed.items():
        (folder / name).write_bytes(content)
    try:
        load(folder)
    except ModelFolderError as error:
        said = str(error)
        return None if words in said and any(name in said for name in names) else f"it says: {said}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for name, content in before.items():
            (folder / name).write_bytes(content)
    return f"it was loaded ({hashlib.sha256(b''.join(changed.values())).hexdigest()[:8]})"


def look_into_modules(tally: Tally) -> None:
    """No module of the package unpickles or evaluates what it reads."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found = EXECUTES.search(path.read_text()) if name not in PROGRAMS else None
        tally.add("module", f"{name} has {found[0]}" if found else None)
