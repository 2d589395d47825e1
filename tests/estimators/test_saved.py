"""Saved models: equal after loading, refused when damaged, never half written."""

import copy
import json
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.export
import numpy as np
import pandas as pd
import pytest
from frames import labelled

from acenode.estimators import ModelFolderError, load
from acenode.estimators.exported import export
from acenode.estimators.saved import ARRAYS, HEAD, read_head
from acenode.series.table import read
from acenode.train import checkpoint

AT = [24.0, 26.5, 28.0]


@pytest.fixture
def folder(forecaster, tmp_path):
    return forecaster.save(tmp_path / "model")


def rewrite(folder, **changes):
    """A head with other words and the right checksum, as another version might have written it."""
    from acenode.estimators.saved import _digest

    head = json.loads((folder / HEAD).read_text())
    head.pop("check")
    head |= changes
    (folder / HEAD).write_text(json.dumps({**head, "check": _digest(head)}))


# --- what comes back --------------------------------------------------------------------------------------------------


def test_a_loaded_forecaster_answers_the_same(forecaster, frame, folder):
    again = load(folder)
    pd.testing.assert_frame_equal(again.predict(frame, at=AT), forecaster.predict(frame, at=AT), rtol=0, atol=0)
    assert again.get_params() == forecaster.get_params()
    assert again.settings_ == forecaster.settings_ and again.summary_ == forecaster.summary_
    assert again.columns_ == forecaster.columns_ and again.clock_ == forecaster.clock_
    assert again.validation_ids_ == forecaster.validation_ids_ and again.left_out_ == forecaster.left_out_
    assert repr(again) == repr(forecaster)
    np.testing.assert_array_equal(again.history_["loss"], forecaster.history_["loss"])
    again.update("a", 1.0, {"heat": 0.2})
    assert len(again.predict(at=[3.0])) == 2


@pytest.mark.slow
def test_a_loaded_imputer_fills_the_same(imputer, frame, tmp_path):
    """Its attention rests on statistics of the training data, which are saved with it."""
    again = load(imputer.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(again.transform(frame), imputer.transform(frame), rtol=0, atol=0)
    assert again.evaluate(frame) == imputer.evaluate(frame)


@pytest.mark.parametrize("classes", [[False, True], [0, 7], [0.5, 1.5], ["good", "worn"]])
def test_classes_keep_their_type(classifier, own_entry, frame, tmp_path, classes):
    other = copy.copy(classifier)
    other.classes_ = classes
    again = load(other.save(tmp_path / "model"), model=own_entry)
    assert again.classes_ == classes and [type(c) for c in again.classes_] == [type(c) for c in classes]
    assert set(again.predict(frame)["state"]) <= set(classes)


def test_parameters_of_numpy_come_back_as_plain_ones(forecaster, tmp_path):
    other = copy.copy(forecaster).set_params(hidden=np.int64(8), values=pd.Index(["heat", "flow"]))
    again = load(other.save(tmp_path / "model"))
    assert type(again.hidden) is int and again.values == ("heat", "flow")


def test_a_classifier_with_an_own_model_needs_its_entry_and_answers_the_same(
    classifier, own_entry, frame, tmp_path, folder
):
    saved = classifier.save(tmp_path / "own")
    with pytest.raises(ModelFolderError, match=r"a model of your own: give its Entry, load\(folder, model=entry\)"):
        load(saved)
    again = load(saved, model=own_entry)
    pd.testing.assert_frame_equal(again.predict_proba(frame), classifier.predict_proba(frame), rtol=0, atol=0)
    assert again.score(labelled(frame)) == classifier.score(labelled(frame))
    with pytest.raises(ModelFolderError, match="was fitted with ace-variables: load it without model"):
        load(folder, model=own_entry)


def test_the_head_tells_columns_versions_and_summary(folder):
    head = read_head(folder)
    assert head["columns"]["values"] == ["heat", "flow"] and head["estimator"] == "Forecaster"
    assert {"acenode", "jax", "equinox", "python"} <= set(head["versions"])
    assert head["summary"]["series"] == 24 and head["settings"]["model"] == "ace-variables"
    assert {p.name for p in folder.iterdir()} == {HEAD, ARRAYS, "README.md"}


@pytest.mark.slow
def test_double_precision_is_read_in_single(folder):
    """Models are saved here in double precision; a process that computes in single precision takes them too."""
    assert read_head(folder)["precision"] == "float64"
    code = (
        "import sys, jax, pandas as pd; from acenode.estimators import load; m = load(sys.argv[1])\n"
        "print({str(x.dtype) for x in jax.tree.leaves(m.model_) if hasattr(x, 'dtype')})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'float32'}"
    assert not done.stderr.strip()


# --- what is refused --------------------------------------------------------------------------------------------------


def flip_a_byte(folder):
    content = bytearray((folder / ARRAYS).read_bytes())
    content[-5] ^= 1
    (folder / ARRAYS).write_bytes(content)


def cut_the_head(folder):
    text = (folder / HEAD).read_text()
    (folder / HEAD).write_text(text[: len(text) // 2])


def change_the_head(folder):
    text = (folder / HEAD).read_text()
    (folder / HEAD).write_text(text.replace('"unit": 2', '"unit": 3'))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flip_a_byte, "model.safetensors was changed since it was saved; restore"),
        (lambda f: (f / ARRAYS).unlink(), "has no model.safetensors; restore"),
        (lambda f: (f / HEAD).unlink(), "is not a saved model: it has no model.json"),
        (cut_the_head, "model.json is damaged .*; restore"),
        (change_the_head, "model.json was changed since it was saved"),
        (lambda f: (f / HEAD).write_text("[]"), "model.json is damaged"),
        (lambda f: (f / HEAD).write_bytes(b"\xff\xfe"), "model.json is damaged"),
        (lambda f: rewrite(f, format=2), "has format 2; this version reads 5. Train again, or use the acenode that"),
        (lambda f: rewrite(f, format=6), "has format 6; this version reads 5. Update acenode or train again"),
        (lambda f: rewrite(f, estimator="Oracle"), "does not fit together .*Oracle"),
        (lambda f: rewrite(f, columns={"id": "machine"}), "does not fit together"),
        (
            lambda f: rewrite(f, scaler={"shift": [0.0, [1.0]], "spread": [1.0], "kind": ""}),
            "does not fit together",
        ),
    ],
)
def test_a_damaged_folder_is_refused(folder, damage, says):
    damage(folder)
    with pytest.raises(ModelFolderError, match=says) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_arrays_of_another_size_are_refused(folder):
    settings = {**read_head(folder)["settings"], "hidden": 40}
    rewrite(folder, settings=settings)
    with pytest.raises(ModelFolderError, match="does not fit together"):
        load(folder)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ModelFolderError, match="is not a saved model"):
        load(tmp_path / "nothing")


# --- writing ----------------------------------------------------------------------------------------------------------


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_with_other_files_is_left_alone(forecaster, folder):
    (folder / "notes.txt").write_text("mine")
    before = content(folder)
    with pytest.raises(ModelFolderError, match="holds other files, such as notes.txt; choose an empty"):
        forecaster.save(folder)
    assert content(folder) == before


def test_a_file_is_not_a_folder(forecaster, tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ModelFolderError, match="is a file; choose a folder"):
        forecaster.save(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


def test_an_old_model_is_replaced(forecaster, classifier, folder):
    classifier.save(folder)
    assert read_head(folder)["estimator"] == "Classifier"
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_an_empty_folder_and_new_ones_above_are_fine(forecaster, tmp_path):
    (tmp_path / "empty").mkdir()
    assert forecaster.save(tmp_path / "empty") == tmp_path / "empty"
    assert read_head(forecaster.save(tmp_path / "a" / "b" / "model"))["format"] == 5


@pytest.mark.skipif(os.name == "nt", reason="permissions of another kind")
def test_others_may_read_a_model_as_any_new_folder(folder):
    (folder.parent / "plain").mkdir()
    assert folder.stat().st_mode == (folder.parent / "plain").stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("step", ["arrays", "head", "move"])
def test_a_full_disk_leaves_all_as_it_was(forecaster, tmp_path, monkeypatch, exists, step):
    target = tmp_path / "model"
    if exists:
        forecaster.save(target)
    before = content(tmp_path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    moves = os.replace

    def no_move_to_target(source, place):
        # Moving the old model away works, and so does moving it back.
        if os.fspath(place) == os.fspath(target) and (
            not exists or "old" not in seen.setdefault(os.fspath(source), "new")
        ):
            full()
        seen[os.fspath(place)] = "old"
        return moves(source, place)

    seen: dict[str, str] = {}
    if step == "arrays":
        monkeypatch.setattr(checkpoint, "save_arrays", full)
    elif step == "head":
        monkeypatch.setattr(checkpoint, "write_atomically", lambda p, c: full() if p.name == HEAD else p.write_bytes(c))
    else:
        monkeypatch.setattr(os, "replace", no_move_to_target)
    with pytest.raises(ModelFolderError, match="could not be written .No space left on device.; free some space"):
        forecaster.save(target)
    monkeypatch.undo()
    assert content(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == (["model"] if exists else [])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="may write anywhere")
def test_an_unwritable_folder_is_told(forecaster, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(ModelFolderError, match="could not be written .Permission denied."):
        forecaster.save(locked / "model")


def test_a_folder_below_a_file_is_told(forecaster, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelFolderError, match="could not be written"):
        forecaster.save(tmp_path / "file" / "model")


def test_loading_does_not_compute_the_first_weights(folder, monkeypatch):
    """A model is built as shapes only: computing weights that are thrown away would take seconds."""
    made = []
    shapes = eqx.filter_eval_shape
    monkeypatch.setattr(eqx, "filter_eval_shape", lambda *a: made.append(shapes(*a)) or made[-1])
    load(folder)
    (model,) = made
    assert not any(isinstance(x, jax.Array | np.ndarray) for x in jax.tree.leaves(model))


def test_an_exported_program_has_no_answer_beyond_its_steps(forecaster, frame, tmp_path):
    beside = export(forecaster, tmp_path / "f.stablehlo", rows=8, queries=2)
    assert "NaN" in json.loads(beside.read_text())["conventions"]["reach"]
    program = jax.export.deserialize(bytearray((tmp_path / "f.stablehlo").read_bytes()))
    series = forecaster._scaled(read(frame[:1], forecaster.columns_), "the table").series
    times = np.repeat(np.asarray(series.times, np.float32), 8, axis=1)
    values = np.full((1, 8, 2), np.nan, np.float32)
    values[0, 0] = frame[["heat", "flow"]].to_numpy()[0]
    for queried, known in (([[1.0, 2.0]], True), ([[1.0, 1e4]], False)):
        mean, sd = program.call(times, values, np.ones(1, np.int32), np.asarray(queried, np.float32))
        assert (np.isfinite(mean).all() and np.isfinite(sd).all()) if known else np.isnan(mean).all()


DEAD = 2**22 + 1  # a process that cannot be: numbers of processes end before


def test_what_a_killed_save_left_behind_is_removed(forecaster, folder):
    (folder.parent / f".{folder.name}-{DEAD}-0123abcd-new").mkdir()
    running = folder.parent / f".{folder.name}-{os.getpid()}-0123abcd-new"
    running.mkdir()
    forecaster.save(folder)
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, running.name}


def test_a_save_killed_between_its_two_moves_is_completed(folder):
    new, old = (folder.with_name(f".{folder.name}-{DEAD}-0123abcd-{kind}") for kind in ("new", "old"))
    before = (folder / HEAD).read_bytes()
    folder.rename(new)
    old.mkdir()
    load(folder)
    assert (folder / HEAD).read_bytes() == before and not new.exists() and not old.exists()
