"""Tampered model folders are refused by name; nothing in one is executed."""

import hashlib
import json
import os
import pickle
import re
from pathlib import Path

import pytest
from frames import machines
from untrained import untrained

import acenode
from acenode.estimators import Forecaster, ModelFolderError, load
from acenode.estimators.saved import ARRAYS, HEAD, _digest


@pytest.fixture(scope="module")
def small():
    return untrained(Forecaster(id="machine", time="hour", hidden=4, model="gru-d"), machines(12))


@pytest.fixture
def folder(small, tmp_path):
    return small.save(tmp_path / "model")


def change(folder, part, signed=False):
    """Another value of a part of the head, with the old checksum or a new one."""
    head = json.loads((folder / HEAD).read_text())
    check = head.pop("check")
    part(head)
    (folder / HEAD).write_text(json.dumps({**head, "check": _digest(head) if signed else check}))


@pytest.mark.parametrize(
    "part",
    [
        lambda h: h["settings"].update(hidden=5),
        lambda h: h["settings"].update(unit=h["settings"]["unit"] * 2),
        lambda h: h["scaler"].update(shift=[9.0, 9.0]),
        lambda h: h["columns"].update(values=["flow", "heat"]),
        lambda h: h["versions"].update(acenode="9.9"),
        lambda h: h["parameters"].update(quantiles=[0.4, 0.6]),
        lambda h: h["clock"].update(kind="datetime"),
        lambda h: h.update(sha256="0" * 64),
        lambda h: h.update(more=1),
    ],
)
def test_a_changed_config_is_refused(folder, part):
    change(folder, part)
    with pytest.raises(ModelFolderError, match=r"model\.json was changed since it was saved"):
        load(folder)


def test_every_changed_byte_of_the_weights_is_refused(folder):
    content = (folder / ARRAYS).read_bytes()
    for place in range(0, len(content), max(1, len(content) // 50)):
        changed = bytearray(content)
        changed[place] ^= 1
        (folder / ARRAYS).write_bytes(changed)
        with pytest.raises(ModelFolderError, match=r"model\.safetensors was changed since it was saved"):
            load(folder)
    (folder / ARRAYS).write_bytes(content)
    load(folder)


def test_a_folder_of_a_newer_version_says_so(folder):
    change(folder, lambda h: h.update(format=h["format"] + 1), signed=True)
    with pytest.raises(ModelFolderError, match="Update acenode"):
        load(folder)


def test_a_folder_of_a_newer_version_that_does_not_fit_says_so(folder):
    def newer(head):
        head["versions"]["acenode"] = "99.1.0"
        head["settings"]["temperature"] = 0.1

    change(folder, newer, signed=True)
    with pytest.raises(
        ModelFolderError, match=rf"acenode 99\.1\.0 saved it, and this is {acenode.__version__}: update"
    ):
        load(folder)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("name", [ARRAYS, HEAD])
def test_a_pickle_in_the_place_of_a_file_is_not_executed(folder, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    bomb = pickle.dumps(Bomb())
    (folder / name).write_bytes(bomb)
    if name == ARRAYS:
        change(folder, lambda h: h.update(sha256=hashlib.sha256(bomb).hexdigest()), signed=True)
    with pytest.raises(ModelFolderError, match=f"{name} is damaged"):
        load(folder)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)  # which it would be
    assert (tmp_path / "exploded").exists()


def test_no_module_unpickles_or_evaluates_what_it_reads():
    executes = re.compile(r"pickle\.loads?\(|cloudpickle|joblib\.load\(|(?<![\w.])(?:eval|exec)\(|allow_pickle=True")
    root = Path(acenode.__file__).parent
    found = {p.relative_to(root).as_posix() for p in root.rglob("*.py") if executes.search(p.read_text())}
    # The Physiome-ODE systems are published as Python programs: making that data set is running them.
    assert found <= {"datasets/physiome_raw.py"}
