"""The choice among candidates under a budget, with candidates and a clock that compute nothing."""

import functools as ft
import math
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest
from frames import machines, refused

from acenode import train
from acenode.estimators import Forecaster, auto, base, load
from acenode.estimators.auto import Search, Work
from acenode.estimators.budget import Budget, Pace
from acenode.estimators.named import _epochs
from acenode.tasks import Headed
from acenode.train import Fit, Quiet, Recipe, StopTraining
from acenode.train.checkpoint import load_head


class Time:
    """A clock that moves when something computes."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Kind:
    """A candidate: how long it compiles, how long a step takes, and its score after a number of steps."""

    compiling: float
    step: float
    score: float
    slowness: float = 100.0


KINDS = {
    "gru-d": Kind(8, 0.05, 0.9),
    "gru-ode-bayes": Kind(20, 0.2, 0.7, 20.0),
    "mtan": Kind(10, 0.02, 0.8),
    "latent-ode": Kind(25, 0.5, 1.2),
}


@dataclass
class Task:
    monitor: str = "negll"
    better: str = "lower"

    def metrics(self, outputs, batch, weight):
        return {"negll": np.asarray(outputs, float).mean()}

    def loss(self, model, batch, key, epoch): ...

    def first_states(self, model, batch, key): ...

    def outputs(self, model, batch, key): ...


class Done(Fit):
    def model(self, member=0):
        return Headed(float(self.best_score[member]), None)


def search(monkeypatch, seconds: float, kinds=KINDS, plain: float = 1.0, progress=None, ensemble: int = 5):
    clock = Time()

    class Run(train.Run):
        steps, samples = 64, 640

        def __init__(self, build, task, data, split, recipe, members, checkpoint=None):
            self.kind, self.task, self.members, self.taken, self.epochs = build(None), task, members, 0, 0
            self.history = []

        @property
        def finished(self):
            return self.epochs >= 1000

        def epoch(self, steps=None):
            clock.now += self.kind.compiling * (self.epochs == 0) * (0.3 if self.members[0].seed else 1)
            steps = steps or self.steps
            clock.now += steps * self.kind.step
            self.taken, self.epochs = self.taken + steps, self.epochs + 1
            self.history.append(self.kind.score + math.exp(-self.taken / self.kind.slowness))
            return {}

        def result(self):
            best = int(np.argmin(self.history)) if self.history else -1
            history = {"validation_negll": np.asarray(self.history)[:, None]}
            score = np.asarray([self.history[best]]) if self.history else np.asarray([math.inf])
            return Done(None, tuple(self.members), Recipe(), history, np.asarray([best]), score, 0.0)

    @dataclass
    class Solution:
        says: float = plain
        solve_again: object = None

        def solve(self, built, data, train, validation):
            return Headed(self.says, None)

    monkeypatch.setattr(auto, "Run", Run)
    monkeypatch.setattr(auto, "SOLVED", {"last-value": Solution(), "mean": Solution(2.0), "linear": Solution(3.0)})
    monkeypatch.setattr(auto, "outputs_of", lambda model, rows: np.full(3, model.model))
    made = {name: lambda key, kind=kind: kind for name, kind in kinds.items()}
    build = {**made, **dict.fromkeys(("last-value", "mean", "linear"), lambda key: None)}
    rows = np.arange(3)
    work = Work(Task(), {"x": rows}, rows, rows, "forecast", build.__getitem__, Recipe(), 1e-3, 0.0, 0)
    made = Search(work, Budget(seconds, clock), progress or Quiet(), tuple(kinds), ensemble)
    made.workers = 1
    return made, clock


def test_the_best_candidate_wins_and_the_table_holds_all(monkeypatch):
    made, _ = search(monkeypatch, 300)
    chosen = made.choose()
    assert set(chosen.members.names) == {"gru-ode-bayes"} and math.isclose(sum(chosen.members.weights), 1)
    names = [row["model"] for row in chosen.leaderboard if row["model"] != "ensemble"]
    assert names[0] == "gru-ode-bayes" and set(names) == {*KINDS, "last-value", "mean", "linear"}
    assert chosen.notes == ()


@pytest.mark.parametrize("seconds", [60, 120, 300, 1200])
def test_the_budget_holds_within_a_fifth(monkeypatch, seconds):
    made, clock = search(monkeypatch, seconds)
    made.choose()
    assert 0.3 * seconds < clock.now <= 1.2 * seconds


def test_further_kinds_get_seeds_of_their_own_where_the_best_has_finished(monkeypatch):
    quick = {"gru-d": Kind(8, 0.001, 0.9), "mtan": Kind(10, 0.001, 0.8)}  # 1,000 epochs take a minute
    made, clock = search(monkeypatch, 1200, quick)
    trained = []
    again = made._again
    made._again = lambda best: trained.append((best.name, len(found := again(best)))) or found
    made.choose()
    assert trained == [("mtan", 4), ("gru-d", 4)] and clock.now <= 1200


def test_a_budget_that_is_overdrawn_costs_no_model(monkeypatch):
    made, clock = search(monkeypatch, 300)
    chosen = made.choose()
    best = next(t for t in made.trials if t.run is not None)
    clock.now = 400.0
    assert chosen.members.names and made._again(best) == []


def test_the_mixture_is_the_best_on_the_way_of_a_greedy_selection(monkeypatch):
    made, _ = search(monkeypatch, 300, ensemble=3)
    target = np.asarray([0.7, 0.2, 0.1, 0.0])
    metrics = lambda outputs, batch, weight: {"negll": np.abs(outputs - target).sum()}  # noqa: E731
    monkeypatch.setattr(Task, "metrics", lambda self, *given: metrics(*given))
    found = made._greedy(list(np.eye(4)))
    assert sorted(found) == [0] * 7 + [1] * 2 + [2]  # ten of the twelve that there may be
    made.ensemble = 2
    assert set(made._greedy(list(np.eye(4)))) == {0, 1}
    made.ensemble = 1
    assert made._greedy(list(np.eye(4))) == [0]
    assert made._greedy([np.full(4, np.nan)] * 2) == [1]  # none has a prediction: the last is a baseline


def test_what_is_solved_for_learns_from_validation_series_once_it_is_chosen(monkeypatch):
    made, _ = search(monkeypatch, 300, plain=0.1)
    given = []

    def solve_again(built, data, train, validation):
        given.append((train.tolist(), validation.tolist()))
        return Headed(0.5, None)

    auto.SOLVED["last-value"].solve_again = solve_again
    chosen = made.choose()
    assert given == [([0, 1, 2], [0, 1, 2])] and chosen.members.models[0].model == 0.5
    assert chosen.metrics["negll"] == pytest.approx(0.1)  # of the one that had not seen them


def test_a_candidate_without_time_to_compile_is_dropped_with_a_line(monkeypatch):
    slow = {**KINDS, "latent-ode": Kind(500, 0.5, 0.1)}
    slow = {"gru-ode-bayes": Kind(40, 0.1, 0.7), "gru-d": KINDS["gru-d"], "latent-ode": slow["latent-ode"]}
    made, _ = search(monkeypatch, 70, slow)
    made.choose()
    notes = {t.name: t.note for t in made.trials}
    assert "not tried" in notes["latent-ode"] and notes["gru-ode-bayes"] == ""


def test_a_long_epoch_is_cut_into_steps(monkeypatch):
    made, clock = search(monkeypatch, 120, {"gru-d": Kind(8, 3.0, 0.5)})  # a whole epoch takes 192 seconds
    chosen = made.choose()
    assert clock.now <= 144 and "gru-d" in [row["model"] for row in chosen.leaderboard]


def test_where_nothing_beats_the_baselines_that_is_said_first(monkeypatch):
    made, _ = search(monkeypatch, 300, plain=0.1)
    chosen = made.choose()
    assert chosen.members.names == ("last-value",) and chosen.best is None
    assert "no model beats the plain baselines" in chosen.notes[0] and "last-value" in chosen.notes[0]


def test_where_no_candidate_could_be_tried_no_model_is_said_to_be_worse(monkeypatch):
    made, _ = search(monkeypatch, 10, {"gru-ode-bayes": Kind(400, 0.1, 0.7)})
    made.budget.clock.now = 9.0
    chosen = made.choose()
    assert chosen.members.names == ("last-value",)
    assert chosen.notes[0].startswith("no model was trained within the budget: last-value has negll 1.0000")


def test_a_candidate_that_fails_does_not_cost_the_others(monkeypatch):
    made, _ = search(monkeypatch, 300)
    whole = made.work.build

    def build(name):
        if name == "mtan":
            raise MemoryError("no memory")
        return whole(name)

    object.__setattr__(made.work, "build", build)
    chosen = made.choose()
    assert next(row["note"] for row in chosen.leaderboard if row["model"] == "mtan") == "failed: no memory"
    assert "gru-ode-bayes" in chosen.members.names


@dataclass
class Interrupting(Quiet):
    epochs: list = field(default_factory=list)

    def epoch(self, epoch, record, samples):
        self.epochs.append(epoch)
        raise StopTraining


def test_an_interruption_keeps_the_best_so_far(monkeypatch):
    progress = Interrupting()
    made, clock = search(monkeypatch, 300, progress=progress)
    chosen = made.choose()
    assert len(progress.epochs) == 1 and clock.now < 30
    assert chosen.members.names == ("last-value",)  # one step of gru-d is not yet better


def test_the_pace_of_epochs():
    pace = Pace(80.0)  # so about 10 seconds an epoch
    for _ in range(12):
        pace.after(0.5 * pace.steps, 64)
    assert pace.steps in (16, 32)
    assert pace.fits(100.0) and not pace.fits(0.1)
    pace.after(50.0, 64)
    assert pace.steps in (8, 16)


@pytest.mark.parametrize(("seconds", "epochs"), [(60, 8), (36, 1), (20, 1)])
def test_a_named_model_uses_what_compiling_leaves_of_its_budget(seconds, epochs):
    clock = Time()

    class Run(train.Run):
        steps, samples, epochs, seconds, finished = 64, 640, 0, 0.0, False

        def __init__(self): ...

        def epoch(self, steps=None):
            clock.now += 35.0 * (self.epochs == 0) + 0.05 * steps
            self.seconds, self.epochs = clock.now, self.epochs + 1
            return {}

    run = Run()
    said = _epochs(run, Budget(seconds, clock), Quiet())
    assert run.epochs >= epochs and (epochs > 1 or run.epochs == 1)
    assert (epochs > 1) == (said == ())
    assert not said or f"{seconds / 60:g} minutes ended after 16 of the 64 mini-batches" in said[0]
    assert clock.now <= max(seconds, 36)


def test_bad_parameters_are_refused():
    frame = machines()
    given = {"id": "machine", "time": "hour"}
    refused(lambda: Forecaster(**given, minutes=0).fit(frame), "minutes=0", "positive")
    refused(lambda: Forecaster(**given, model=[]).fit(frame), "name at least one")
    refused(lambda: Forecaster(**given, model=["gru-d", "gru-d"]).fit(frame), "'gru-d' is named twice")
    refused(lambda: Forecaster(**given, model=["gru-d", "gpt"]).fit(frame), "'gpt'", "no model of this name")
    refused(lambda: Forecaster(**given, ensemble=0).fit(frame), "ensemble=0")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no model beats")
def test_a_search_resumes_from_its_folder(tmp_path):
    frame, folder = machines(40), tmp_path / "search"
    given = {"id": "machine", "time": "hour", "model": ["gru-d"], "minutes": 60, "ensemble": 2, "hidden": 4}
    Forecaster(**given, epochs=4).fit(frame, checkpoint=folder)
    losses = lambda seed: load_head(folder / f"gru-d-{seed}.safetensors")["history"]["loss"]  # noqa: E731
    before = [losses(0), losses(1)]
    Forecaster(**given, epochs=7).fit(frame, checkpoint=folder)  # three more
    assert [len(each) for each in before] == [4, 4]
    assert [losses(seed)[:4] for seed in (0, 1)] == before and len(losses(0)) == len(losses(1)) == 7
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    for other in ({"seed": 9}, {}):
        with pytest.raises(train.CheckpointMismatch, match="belongs to another search"):
            Forecaster(**given, **other, epochs=7).fit(frame if other else machines(30), checkpoint=folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no model beats")
def test_further_seeds_as_one_program_end_as_one_by_one(monkeypatch, tmp_path):
    frame, found = machines(40), {}
    given = {"id": "machine", "time": "hour", "model": ["gru-d"], "minutes": 60, "ensemble": 3, "hidden": 4}
    for together in (True, False):
        monkeypatch.setattr(base, "Search", ft.partial(Search, together=together))
        folder = tmp_path / str(together)
        Forecaster(**given, epochs=3).fit(frame, checkpoint=folder)
        heads = [load_head(file) for file in sorted(folder.glob("gru-d-[12]*.safetensors"))]
        found[together] = np.concatenate([np.asarray(head["history"]["loss"]) for head in heads], axis=1)
    assert found[True].shape == (3, 2)
    np.testing.assert_allclose(found[True], found[False], rtol=1e-4)


def test_a_search_takes_a_folder_and_a_model_a_file(tmp_path):
    frame, given = machines(12), {"id": "machine", "time": "hour", "hidden": 4}
    (tmp_path / "file").touch()
    refused(lambda: Forecaster(**given).fit(frame, checkpoint=tmp_path / "file"), "is a file", "takes a folder")
    named = Forecaster(**given, model="gru-d")
    refused(lambda: named.fit(frame, checkpoint=tmp_path), "is a folder", "takes a file")


@pytest.mark.slow
def test_a_search_from_frame_to_folder(tmp_path):
    frame = machines(40)
    search = Forecaster(id="machine", time="hour", model=["gru-d"], minutes=60, epochs=3, ensemble=2, hidden=4)
    with pytest.warns(UserWarning, match="no model beats the plain baselines"):
        search.fit(frame)
    assert set(search.leaderboard_["model"]) >= {"last-value", "mean", "linear", "gru-d"}
    assert search.settings_.model == search.members_.names[0]
    search.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.leaderboard_["model"].tolist() == search.leaderboard_["model"].tolist()
    one, two = (e.predict(frame, at=[25.0]) for e in (search, again))
    np.testing.assert_allclose(one["q0.95"], two["q0.95"], rtol=1e-5)
    assert jax.tree.leaves(search.members_.models)
