"""Checkpoints: whole or not there, readable without running code, and of this run or refused."""

import json
import os
import sys
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy_task import Descent, Place, place, same, split

from acenode.train import CheckpointMismatch, Member, Recipe, fit
from acenode.train.checkpoint import DamagedCheckpoint, load_arrays, load_head, save_arrays, write_atomically
from acenode.train.fit import _alike, _fingerprint, _numbers

TREE = {"a": jnp.arange(3.0), "b": [jnp.asarray(7, jnp.int32), "a word", None], "c": jnp.asarray([[True], [False]])}


def test_arrays_come_back_as_they_were(tmp_path):
    path = tmp_path / "new folder" / "run"
    save_arrays(path, TREE, {"epochs": 3, "history": {"loss": [[1.5, float("nan")]]}})
    empty = jax.tree.map(lambda x: jnp.zeros_like(x) if isinstance(x, jax.Array) else x, TREE)
    back = load_arrays(path, empty)
    assert jax.tree.structure(back) == jax.tree.structure(TREE) and back["b"][1] == "a word"
    assert same(back, TREE) and back["b"][0].shape == () and back["b"][0].dtype == jnp.int32
    head = load_head(path)
    assert head["epochs"] == 3 and np.isnan(head["history"]["loss"][0][1])


def test_a_checkpoint_is_plain_data(tmp_path):
    save_arrays(tmp_path / "run", TREE, {"epochs": 3})
    content = (tmp_path / "run").read_bytes()
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    assert json.loads(head.pop("__metadata__")["head"]).keys() == {"epochs", "sha256"}
    assert load_head(tmp_path / "run") == {"epochs": 3}
    assert {name: entry["dtype"] for name, entry in head.items()} == {"00000": "F64", "00001": "I32", "00002": "BOOL"}
    assert len(content) - 8 - size == 3 * 8 + 4 + 2  # numbers, and nothing else


@pytest.mark.parametrize(
    "like, message",
    [
        ({"a": jnp.zeros(3)}, "holds 3 arrays; this run has 1"),
        ({**TREE, "a": jnp.zeros(4)}, r"array 0 is float64\(3,\); this run has float64\(4,\)"),
        ({**TREE, "a": jnp.zeros(3, jnp.float32)}, r"array 0 is float64.*float32"),
    ],
)
def test_arrays_of_another_shape_are_refused(tmp_path, like, message):
    save_arrays(tmp_path / "run", TREE, {})
    with pytest.raises(CheckpointMismatch, match=message):
        load_arrays(tmp_path / "run", like)


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path, monkeypatch, moment):
    path = tmp_path / "run"
    write_atomically(path, b"old")

    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(os, moment, full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["run"]


# --- going on from one ----------------------------------------------------------------------------------------

DATA, SPLIT = np.arange(6.0), split(4, 2)
RECIPE = Recipe(epochs=2, batch_size=2, optimiser="adam")
MEMBERS = (Member(0, learning_rate=1.0), Member(1, learning_rate=0.5))


def run(path=None, *, build=place, task=Descent(), data=DATA, splits=SPLIT, recipe=RECIPE, members=MEMBERS):  # noqa: B008
    return fit(build, task, data, splits, recipe, members, checkpoint=path)


def single(key) -> Place:
    """In single precision: also its score is, whatever the default precision."""
    return Place(jnp.zeros((), jnp.float32))


@pytest.mark.parametrize("build", [place, single])
def test_more_epochs_go_on_from_the_old_checkpoint(tmp_path, build):
    path = tmp_path / "run"
    short = run(path, build=build)
    assert load_head(path)["epochs"] == 2 and short.history["loss"].shape == (2, 2)
    longer = replace(RECIPE, epochs=5)
    resumed, whole = run(path, build=build, recipe=longer), run(build=build, recipe=longer)
    assert same(resumed.models, whole.models)
    assert resumed.best_epoch.tolist() == whole.best_epoch.tolist()
    for name, values in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], values)
    again = run(path, build=build, recipe=longer)  # nothing left to do
    assert same(again.models, whole.models) and again.history["loss"].shape == (5, 2)
    assert again.seconds > resumed.seconds > short.seconds


def test_every_kind_of_device_that_trained_is_named(tmp_path, monkeypatch):
    assert run(tmp_path / "run").devices == ("cpu",)
    monkeypatch.setattr(sys.modules[fit.__module__], "device_kind", lambda: "another")
    assert run(tmp_path / "run").devices == ("cpu",)  # nothing was left to train
    assert run(tmp_path / "run", recipe=replace(RECIPE, epochs=3)).devices == ("cpu", "another")
    old = {name: each for name, each in load_head(tmp_path / "run").items() if name != "devices"}
    content = (tmp_path / "run").read_bytes()
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    head["__metadata__"]["head"] = json.dumps(old)  # as it was written before devices were
    packed = json.dumps(head).encode()
    (tmp_path / "run").write_bytes(len(packed).to_bytes(8, "little") + packed + content[8 + size :])
    assert run(tmp_path / "run", recipe=replace(RECIPE, epochs=4)).devices == ("unknown", "another")


def test_a_member_that_had_stopped_stays_stopped(tmp_path):
    path, recipe = tmp_path / "run", Recipe(epochs=6, batch_size=4, optimiser="sgd", patience=2)
    members = (Member(0, learning_rate=1.5), Member(1, learning_rate=0.1))  # at the goal after two epochs, and later
    run(path, recipe=recipe, members=members)
    longer = replace(recipe, epochs=9)
    resumed, whole = (run(p, recipe=longer, members=members) for p in (path, None))
    assert same(resumed.models, whole.models) and resumed.best_epoch.tolist() == whole.best_epoch.tolist() == [1, 8]
    assert np.isnan(whole.history["loss"][4:, 0]).all() and np.isfinite(whole.history["loss"][:, 1]).all()
    for name, values in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], values)


def test_a_checkpoint_is_written_after_every_epoch_in_a_folder_made_for_it(tmp_path):
    path = tmp_path / "deep" / "er" / "run"
    seen = []

    class Looking:
        def start(self, *args): ...

        def epoch(self, epoch, record, samples):
            seen.append((epoch, load_head(path)["epochs"]))

        def stop(self): ...

    fit(place, Descent(), DATA, SPLIT, replace(RECIPE, epochs=3), MEMBERS, checkpoint=str(path), progress=Looking())
    assert seen == [(0, 1), (1, 2), (2, 3)] and os.listdir(path.parent) == ["run"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    run(path)
    return path


@pytest.mark.parametrize(
    "other",
    [
        {"data": DATA + 1},
        {"data": DATA.astype(np.float32)},
        {"splits": split(3, 3)},
        {"members": (MEMBERS[0], Member(1, learning_rate=0.25))},
        {"members": MEMBERS[:1]},
        {"members": (MEMBERS[0], Member(2, learning_rate=0.5))},
        {"recipe": replace(RECIPE, batch_size=1)},
        {"recipe": replace(RECIPE, norm="l1")},
        {"recipe": replace(RECIPE, optimiser="sgd")},
        {"recipe": replace(RECIPE, optimiser="adamax")},  # its state looks like adam's
        {"recipe": replace(RECIPE, optimiser=optax.sgd(1.0, momentum=0.9)), "members": MEMBERS[:1]},
        {"recipe": replace(RECIPE, schedule=optax.constant_schedule(0.5))},
        {"build": lambda key: [place(key), place(key)], "task": None},
        {"build": single},
    ],
    ids=lambda other: ", ".join(other),
)
def test_the_checkpoint_of_another_run_is_refused(written, other):
    class Two(Descent):
        def loss(self, model, batch, key, epoch):
            return super().loss(model[0], batch, key, epoch)

    if "task" in other:
        other = {**other, "task": Two()}
    before = written.read_bytes()
    with pytest.raises(CheckpointMismatch, match=r"another run.*checkpoint"):
        run(written, **other)
    assert written.read_bytes() == before


def test_the_schedule_is_known_by_what_it_does(tmp_path):
    def falling(after: int) -> Recipe:  # another function with every call, as in another process
        return replace(RECIPE, schedule=lambda i: jnp.where(i < after, 1.0, 0.1))

    path = tmp_path / "run"
    run(path, recipe=falling(400))
    longer = replace(falling(400), epochs=3)
    assert same(run(path, recipe=longer).models, run(recipe=longer).models)
    for other in (falling(500), replace(RECIPE, schedule=lambda i: jnp.where(i < 401, 1.0, 0.1003))):
        with pytest.raises(CheckpointMismatch, match="another run"):
            run(path, recipe=other)
    few = tmp_path / "few"
    run(few, recipe=falling(3))
    with pytest.raises(CheckpointMismatch, match="another run"):
        run(few, recipe=falling(7))


def test_a_schedule_may_be_rounded_otherwise(tmp_path):
    """As on another device."""
    for factor in (1.0, 1.0 + 3e-7):
        run(tmp_path / "run", recipe=replace(RECIPE, schedule=lambda i, f=factor: f * (0.5 + 0.5 * jnp.cos(i / 4000))))


def test_a_schedule_inside_an_optimiser_is_known_too(tmp_path):
    def of(after: int) -> Recipe:
        return replace(RECIPE, optimiser=optax.adam(optax.piecewise_constant_schedule(1e-2, {after: 0.1})))

    alone = [Member(0)]  # all have the rate of the optimiser
    run(tmp_path / "run", recipe=of(5), members=alone)
    run(tmp_path / "run", recipe=of(5), members=alone)
    with pytest.raises(CheckpointMismatch, match="another run"):
        run(tmp_path / "run", recipe=of(50), members=alone)


def test_a_model_that_is_there_already_is_known_by_its_weights(tmp_path):
    def of(at: float):
        return lambda key: Place(jnp.asarray(at))

    run(tmp_path / "run", build=of(0.5))
    run(tmp_path / "run", build=of(0.500001))  # as another device may round it
    for other in (0.6, -0.5):
        with pytest.raises(CheckpointMismatch, match="another run"):
            run(tmp_path / "run", build=of(other))


def test_a_schedule_without_bounds_has_its_checkpoint(tmp_path):
    growing = replace(RECIPE, schedule=lambda i: 2.0**i)
    assert same(run(tmp_path / "run", recipe=growing).models, run(tmp_path / "run", recipe=growing).models)


def test_what_a_killed_write_left_behind_does_not_matter(written, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(written.read_bytes())
    dead, running = (tmp_path / f".run.{pid}.part" for pid in (2**22 + 1, os.getppid()))
    for part in (dead, running):
        part.write_bytes(written.read_bytes()[:100])
    longer = replace(RECIPE, epochs=3)
    assert same(run(path, recipe=longer).models, run(recipe=longer).models)
    assert running.exists() and not dead.exists()


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-9], lambda c: c[:-1] + bytes([c[-1] ^ 1]), lambda c: b"", lambda c: c[9:]]
)
def test_a_damaged_checkpoint_is_refused(written, tmp_path, damage):
    path = tmp_path / "run"
    path.write_bytes(damage(written.read_bytes()))
    with pytest.raises(DamagedCheckpoint, match="run is damaged .*delete it and train again"):
        run(path)


class Weighed(eqx.Module):
    """A task with an array of its own, on models with a number and a function that are not trained."""

    weight: np.ndarray | jax.Array
    monitor: str = "distance"
    better: str = "lower"

    def __hash__(self):
        return 0

    def loss(self, model, batch, key, epoch):
        return Descent().loss(model[0], batch, key, epoch)

    def first_states(self, model, batch, key):
        return Descent().first_states(model[0], batch, key)

    def outputs(self, model, batch, key):
        return Descent().outputs(model[0], batch, key)

    def metrics(self, outputs, batch, weight):
        return Descent().metrics(outputs, batch, weight)


def test_what_is_not_trained_belongs_to_a_run_too(tmp_path):
    def of(rate=0.1, bend=jnp.tanh, weight=1.0):
        return {"build": lambda key: (place(key), rate, bend), "task": Weighed(jnp.asarray(weight))}

    run(tmp_path / "run", **of())
    run(tmp_path / "run", **of())
    for other in (of(rate=0.5), of(bend=jax.nn.relu), of(weight=2.0)):
        with pytest.raises(CheckpointMismatch, match="another run"):
            run(tmp_path / "run", **other)


class Plain(Descent):
    """A task without a description of its own."""

    __repr__ = object.__repr__


def test_a_task_is_known_by_what_it_does():
    def told(task):
        return _fingerprint(task, Recipe(), [Member()], (jnp.zeros(1),), None, {"x": np.zeros(2)}, [])

    assert told(Plain(1.0)) == told(Plain(1.0)) != told(Plain(0.0))


@pytest.mark.slow
@pytest.mark.parametrize("rates", [(1.0, 100.0), (1e-7, 2e-7)])
def test_an_optimiser_is_known_by_what_it_does(rates):
    one, again, other = (_numbers(place(None), Recipe(optimiser=optax.sgd(r))) for r in (rates[0], *rates))
    assert _alike(one, again) and not _alike(one, other)
