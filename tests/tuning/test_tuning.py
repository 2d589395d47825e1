"""Tuning: what Optuna is asked and told, places that are reused, a study that resumes, and the command."""

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import jax
import numpy as np
import pytest
from frames import machines
from typer.testing import CliRunner

import acenode
from acenode.cli.main import app
from acenode.estimators import Forecaster
from acenode.estimators.auto import Work
from acenode.tasks import Forecast
from acenode.train import Member, Recipe, fit
from acenode.tuning.pool import Pool, Seat
from acenode.tuning.space import Shape, Space, default_sizes
from acenode.tuning.storage import Storage

optuna = pytest.importorskip("optuna", reason="needs acenode[tune]")
RANGES = {"learning_rate": (1e-3, 1e-1), "weight_decay": (1e-6, 1e-2), "penalty": (1e-5, 1e-2)}
SPACE = Space(("gru-d", "ace-variables"), (4, 8), **RANGES, seed=7)


def work(better="lower", epochs=16, data=0.0) -> Work:
    task = Forecast(better=better)
    rows = np.arange(8)
    recipe = Recipe(epochs=epochs)
    return Work(task, np.full(8, data), rows[:6], rows[6:], "forecast", lambda name: None, recipe, 1e-3, 0.0, 7)


def seated(storage: Storage, score: float, epochs: int) -> Seat:
    trial, _, member = storage.ask(Shape("gru-d", 4))
    return Seat(trial, member, [{"loss": 0.0}] * epochs, epochs - 1, score)


# --- Optuna --------------------------------------------------------------------------------------------------------


def test_a_trial_varies_what_one_program_can_hold_and_lambda_only_with_an_attention():
    storage = Storage(work(), SPACE, None)
    members = []
    for _ in range(6):
        trial, shape, member = storage.ask(Shape("gru-d", 8))
        assert shape == Shape("gru-d", 8) and "penalty" not in trial.params
        members.append(member)
    assert len({m.learning_rate for m in members}) == len({m.seed for m in members}) == 6
    assert all(1e-3 <= m.learning_rate <= 1e-1 and 1e-6 <= m.weight_decay <= 1e-2 for m in members)
    _, _, attentive = storage.ask(Shape("ace-variables", 4))
    assert 1e-5 <= attentive.penalty <= 1e-2


@pytest.mark.parametrize("better, best, worst", [("lower", 0.1, 0.9), ("higher", 0.9, 0.1)])
def test_halving_keeps_the_best_and_drops_the_worst_at_a_rung(better, best, worst):
    storage = Storage(work(better), SPACE, None)
    assert storage.rungs == [1, 4]
    scores = [0.5, 0.9, 0.1, 0.6, 0.4, 0.7, 0.3, 0.8]
    seats = [seated(storage, score, 1) for score in scores]
    dropped = [score for score, seat in zip(scores, seats, strict=True) if storage.hopeless(seat)]
    assert best not in dropped and worst in dropped and len(dropped) >= 4


def test_between_rungs_nothing_is_dropped():
    storage = Storage(work(), SPACE, None)
    assert not any(storage.hopeless(seated(storage, score, 2)) for score in (0.1, math.inf, math.nan))


def test_what_diverged_is_dropped_and_counts_as_done():
    storage = Storage(work(), SPACE, None)
    seat = seated(storage, math.inf, 4)
    assert storage.hopeless(seat)
    storage.tell(seat, False)
    assert storage.told == 1 and storage.study.trials[0].state.name == "PRUNED"


def test_a_killed_process_leaves_trials_that_the_next_one_tries_again(tmp_path):
    first = Storage(work(), SPACE, tmp_path / "study.db")
    first.tell(seated(first, 0.5, 16), True)
    running, shape, member = first.ask()
    second = Storage(work(), SPACE, tmp_path / "study.db")
    assert second.told == 1
    trial, again, same = second.ask()
    assert trial.params == running.params and again == shape
    assert same.learning_rate == member.learning_rate
    assert optuna.load_study(study_name="acenode", storage=f"sqlite:///{tmp_path / 'study.db'}").best_value == 0.5


def test_the_dashboard_of_optuna_shows_the_trials(tmp_path):
    dashboard = pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard")
    storage = Storage(work(), SPACE, tmp_path / "study.db")
    for score in (0.5, 0.2):
        storage.tell(seated(storage, score, 16), finished=True)
    page = dashboard.wsgi(f"sqlite:///{tmp_path / 'study.db'}")

    def asked(path: str) -> dict:
        said = {}
        environment = {"PATH_INFO": path}
        setup_testing_defaults(environment)
        parts = page(environment, lambda status, headers, *_: said.update(status=status))
        assert said["status"].startswith("200"), said
        return json.loads(b"".join(parts))

    (study,) = asked("/api/studies")["study_summaries"]
    assert study["study_name"] == "acenode"
    trials = asked(f"/api/studies/{study['study_id']}")["trials"]
    assert [trial["values"] for trial in trials] == [[0.5], [0.2]]
    assert {each["name"] for each in trials[0]["params"]} >= {"learning_rate", "weight_decay", "hidden"}


def test_a_study_of_other_data_is_refused(tmp_path):
    Storage(work(), SPACE, tmp_path / "study.db")
    with pytest.raises(ValueError, match="a study of other data"):
        Storage(work(data=1.0), SPACE, tmp_path / "study.db")


def test_each_size_is_a_program_so_several_models_have_one():
    assert default_sizes(16, ["gru-d"]) == (8, 16, 32)
    assert default_sizes(16, ["gru-d", "mtan"]) == (16,)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"trials": 0}, "trials=0"),
        ({"hidden": (4, 0)}, "sizes are at least 1"),
        ({"learning_rate": (0.1, 0.01)}, "the smaller first"),
        ({"minutes": 0}, "minutes=0"),
    ],
)
def test_arguments_without_sense_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        acenode.tune(Forecaster(model="gru-d"), None, **given)


def test_a_solved_model_has_nothing_to_tune():
    with pytest.raises(ValueError, match="nothing to tune"):
        acenode.tune(Forecaster(model="last-value"), None)


def test_a_missing_optuna_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'acenode\[tune\]'"):
        Storage(work(), SPACE, None)


# --- training ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forecaster():
    return Forecaster(id="machine", time="hour", model="gru-d", hidden=4, epochs=4)


@pytest.mark.slow
def test_a_place_that_is_taken_over_trains_as_if_alone(forecaster):
    task, data, folds, _ = forecaster._prepare(machines())
    own = forecaster._work(task, data, folds)
    own = replace(own, recipe=replace(own.recipe, epochs=3, patience=3))
    pool = Pool(own, Shape("gru-d", 4), own.build("gru-d"), 2)
    first, second = Member(1, 0, 1e-2, 0.0, 1e-3), Member(2, 0, 3e-3, 0.0, 0.1)
    pool.waiting += [(None, first), (None, Member(3, weight_decay=0.0))]
    pool.seat()
    pool.epoch()
    pool.leave(pool.live[1])
    pool.waiting.append((None, second))
    pool.seat()
    for _ in range(3):
        pool.epoch()
    alone = fit(own.build("gru-d"), task, own.data, own.split, own.recipe, [first, second])
    old, new = pool.live
    assert (old.epochs, new.epochs) == (4, 3)
    for k, seat in enumerate((old, new)):
        found = [record["validation_negll"] for record in seat.history[:3]]
        np.testing.assert_allclose(found, alone.history["validation_negll"][:, k], rtol=1e-6)
    assert new.best_score == pytest.approx(alone.best_score[1], rel=1e-6)
    kept = jax.tree.leaves(pool.best_of(new))
    expected = [leaf[1:] for leaf in jax.tree.leaves(alone.models) if isinstance(leaf, jax.Array)]
    for a, b in zip(kept, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_a_study_ends_with_its_best_trial_and_resumes(forecaster, tmp_path):
    given = {"hidden": (4,), "places": 3, "minutes": 10, "study": tmp_path / "study.db"}
    done = acenode.tune(forecaster, machines(), trials=5, **given)
    told = [t for t in done.study.trials if t.state.name in ("COMPLETE", "PRUNED")]
    assert len(told) == 5 and done.score == pytest.approx(min(t.value or math.inf for t in told))
    assert done.estimator.settings_.learning_rate == done.settings["learning_rate"]
    assert done.estimator.summary_.validation == pytest.approx(done.score, rel=1e-5)
    assert len(done.estimator.leaderboard_) == 5
    frame = machines()
    assert len(done.estimator.predict(frame, at=[24.0])) > 0
    again = acenode.tune(Forecaster(**forecaster.get_params()), frame, trials=6, **given)
    assert len([t for t in again.study.trials if t.state.name in ("COMPLETE", "PRUNED")]) == 6
    assert again.score <= done.score + 1e-9  # the old best is kept beside the study


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)])


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "data.csv"
    with path.open("w", newline="") as file:
        rows = [(k, i, math.sin(i + k), k % 2) for k in range(12) for i in range(6)]
        csv.writer(file).writerows([("who", "when", "value", "label"), *rows])
    return path


@pytest.mark.slow
def test_the_command_tunes_and_saves_the_best(table, tmp_path):
    given = ("--id", "who", "--time", "when", "--value", "value", "--model", "gru-d", "--hidden", 4, "--epochs", 2)
    result = run(table, *given, "--trials", 3, "--places", 3, "--minutes", 10, "--out", tmp_path / "model", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.output.splitlines()[-1])
    assert told["trials"] == 3 and told["settings"]["hidden"] == 4
    assert (tmp_path / "model.db").exists()
    assert acenode.load(tmp_path / "model").settings_.learning_rate == told["settings"]["learning_rate"]


@pytest.mark.parametrize(
    "given, said",
    [
        (("--task", "classify"), "classify needs a label"),
        (("--label", "label"), "--label is for --task classify or regress"),
        (("--model", "nonsense"), "no model of this name"),
        (("--model", "last-value"), "nothing to tune"),
    ],
)
def test_faults_of_the_command_are_sentences(table, tmp_path, given, said):
    result = run(table, "--id", "who", "--time", "when", "--out", tmp_path / "model", *given)
    assert result.exit_code == 1 and said in result.output
    assert not (tmp_path / "model").exists()
