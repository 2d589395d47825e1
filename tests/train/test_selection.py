"""Validation every epoch, the best parameters, stopping early, the history, evaluation."""

from dataclasses import dataclass, field, replace
from importlib import import_module

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_task import NOTHING, Descent, Place, Regression, build, leaves, pairs, place, split

from acenode.tasks import Report
from acenode.train import Member, Recipe, evaluate, fit, take
from acenode.train.layout import Layout

VALIDATION = import_module("acenode.train.evaluate")  # the package has a function of this name

DATA, SPLIT = np.arange(6.0), split(4, 2)
DESCENT = Recipe(epochs=6, batch_size=4, optimiser="sgd")  # one step an epoch


@pytest.mark.slow
@pytest.mark.parametrize("monitor, better", [("distance", "lower"), ("nearness", "higher")])
def test_the_parameters_of_the_best_validation_epoch_are_returned(monitor, better):
    done = fit(place, Descent(3.0, monitor, better), DATA, SPLIT, DESCENT, [Member(learning_rate=1.0)])
    assert done.history["validation_distance"][:, 0].tolist() == [2, 1, 0, 1, 2, 3]
    assert done.history["validation_nearness"][:, 0].tolist() == [-2, -1, 0, -1, -2, -3]
    assert done.best_epoch.tolist() == [2] and done.best_score.tolist() == [0]
    assert float(done.model().at) == 3.0


def test_without_patience_all_epochs_are_run_and_told():
    members = [Member(learning_rate=rate) for rate in (1.0, 0.5, 0.25)]
    done = fit(place, Descent(3.0), DATA, SPLIT, DESCENT, members)
    counted = ("nfe", "nfe_backward", "skipped", "failed")
    names = ("loss", "attention_loss", *counted, "validation_distance", "validation_nearness")
    assert {name: values.shape for name, values in done.history.items()} == dict.fromkeys(names, (6, 3))
    assert done.best_epoch.tolist() == [2, 5, 5]
    assert [float(done.model(k).at) for k in range(3)] == [3.0, 3.0, 1.5]
    assert done.models.at.shape == (3,) and done.seconds > 0 and done.notes == ()
    # the loss of an epoch is the mean over its steps, before each; there is no attention to train
    np.testing.assert_allclose(done.history["loss"][:, 1], -0.5 * np.arange(6))
    assert not done.history["attention_loss"].any()


def test_the_average_of_the_parameters_is_judged_and_kept():
    """Every step adds 1; the average keeps (1 + i) / (10 + i) of itself, and no more than it is told to."""
    done = fit(place, Descent(100.0), DATA, SPLIT, replace(DESCENT, average=0.2), [Member(learning_rate=1.0)])
    average, expected = 0.0, []
    for i in range(6):
        keep = min(0.2, (1 + i) / (10 + i))
        average = keep * average + (1 - keep) * (i + 1)
        expected.append(100 - average)
    np.testing.assert_allclose(done.history["validation_distance"][:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(done.history["loss"][:, 0], -np.arange(6))  # training itself is the same
    np.testing.assert_allclose(float(done.model().at), average, rtol=1e-6)


@pytest.mark.slow
def test_an_average_goes_on_from_a_checkpoint(tmp_path):
    recipe, member = replace(DESCENT, average=0.9), [Member(learning_rate=1.0)]
    whole = fit(place, Descent(100.0), DATA, SPLIT, recipe, member)
    file = tmp_path / "run.safetensors"
    fit(place, Descent(100.0), DATA, SPLIT, replace(recipe, epochs=2), member, checkpoint=file)
    resumed = fit(place, Descent(100.0), DATA, SPLIT, recipe, member, checkpoint=file)
    assert float(resumed.model().at) == float(whole.model().at)


@pytest.mark.slow
def test_patience_stops_each_member_on_its_own():
    recipe = Recipe(epochs=20, batch_size=4, optimiser="sgd", patience=2)
    members = [Member(learning_rate=rate) for rate in (1.0, 0.5)]
    done = fit(place, Descent(), DATA, SPLIT, recipe, members)
    distance = done.history["validation_distance"]
    assert distance.shape == (8, 2)  # the best epochs are 2 and 5; two more each
    assert distance[:5, 0].tolist() == [2, 1, 0, 1, 2] and distance[:, 1].tolist() == [2.5, 2, 1.5, 1, 0.5, 0, 0.5, 1]
    assert np.isnan(distance[5:, 0]).all() and not done.history["skipped"][5:, 0].any()  # nothing is told after it
    assert done.best_epoch.tolist() == [2, 5] and done.models.at.tolist() == [3, 3]
    assert done.best_score.tolist() == [0, 0]


def test_scores_that_are_not_numbers_are_never_the_best():
    recipe = Recipe(epochs=20, batch_size=4, optimiser="sgd", patience=3)
    done = fit(place, Descent(goal=np.nan), DATA, SPLIT, recipe)
    assert len(done.history["loss"]) == 3 and done.best_epoch.tolist() == [-1]
    assert float(done.model().at) == 0  # what it started with


@dataclass(frozen=True)
class Failing(Descent):
    """Every loss comes without two samples."""

    calls: list = field(default_factory=list, compare=False)

    def outputs(self, model, batch, key):
        self.calls.append("outputs")
        return super().outputs(model, batch, key)

    def loss(self, model, batch, key, epoch):
        self.calls.append("loss")
        return -model.at, Report(jnp.asarray(2), jnp.asarray(30.0), jnp.asarray(20.0))


def test_failed_solves_are_counted_and_told_of():
    done = fit(place, Failing(), DATA, SPLIT, replace(DESCENT, batch_size=2))  # two steps an epoch
    told = {"failed": 4, "nfe": 30, "nfe_backward": 20}  # a sum, and means over the steps
    assert {name: done.history[name][:, 0].tolist() for name in told} == {n: [x] * 6 for n, x in told.items()}
    (note,) = done.notes
    assert "24 solves failed" in note and "seed=0" in note and "max_steps" in note


@pytest.mark.slow
def test_everything_is_compiled_once():
    one, many = Failing(), Failing()
    fit(place, one, DATA, SPLIT, replace(DESCENT, epochs=1))
    fit(place, many, DATA, SPLIT, replace(DESCENT, epochs=4))
    assert one.calls.count("loss") == many.calls.count("loss") > 0
    assert [*one.calls, *many.calls].count("outputs") <= 1  # both runs are validated by one program


class Noting:
    """A progress that keeps what it was told."""

    def __init__(self):
        self.told = []

    def start(self, recipe, members, task, first_epoch):
        self.told.append(("start", recipe.epochs, len(members), task.monitor, first_epoch))

    def epoch(self, epoch, record, samples):
        self.told.append(("epoch", epoch, float(record["validation_distance"][0]), samples))

    def stop(self):
        self.told.append("stop")


def test_progress_is_told_the_start_every_epoch_and_the_stop():
    note = Noting()
    fit(place, Descent(), DATA, SPLIT, Recipe(epochs=2, batch_size=50, optimiser="sgd"), progress=note)
    near = pytest.approx([2.999, 2.998])
    assert note.told[0] == ("start", 2, 1, "distance", 0) and note.told[-1] == "stop"
    assert [t[1] for t in note.told[1:-1]] == [0, 1] and [t[2] for t in note.told[1:-1]] == near
    assert [t[3] for t in note.told[1:-1]] == [4, 4]  # a batch is no larger than what there is to train on


def test_progress_is_stopped_when_training_breaks_off():
    note = Noting()

    def broken(*told):
        raise KeyboardInterrupt

    note.epoch = broken
    with pytest.raises(KeyboardInterrupt):
        fit(place, Descent(), DATA, SPLIT, DESCENT, [Member(learning_rate=1.0)], progress=note)
    assert note.told[-1] == "stop"


# --- evaluation -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluate_gives_the_metrics_over_the_whole_set_whatever_the_parts():
    data = pairs(24)
    models = [build(jax.random.key(seed)) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x) if eqx.is_array(x[0]) else x[0], *models)
    rows = [np.asarray([5, 3, 17, 1, 22, 8, 23]), np.asarray([2, 0, 11])]
    errors = [(np.asarray(m(data.x)[0]) - data.y)[i] for m, i in zip(models, rows, strict=True)]
    for part in (256, 3):
        found = evaluate(stacked, Regression(), data, rows, eval_batch=part)
        np.testing.assert_allclose(found["mse"], [np.mean(e**2) for e in errors], rtol=1e-12)
        np.testing.assert_allclose(found["worst"], [np.abs(e).max() for e in errors], rtol=1e-12)
    together = evaluate(stacked, Regression(), data, rows[0], eval_batch=4)
    np.testing.assert_allclose(together["mse"][0], found["mse"][0], rtol=1e-12)
    one = evaluate(models[1], Regression(), data, rows[1], ensemble=False)
    np.testing.assert_allclose(one["mse"], found["mse"][1], rtol=1e-12)
    for a, b in zip(leaves(take(stacked, 1)), leaves(models[1]), strict=True):
        np.testing.assert_array_equal(a, b)


class Moody(eqx.Module):
    """A place that tells whether it is in inference mode."""

    at: jax.Array
    inference: bool = False


class Mood(Descent):
    """The loss falls only while training is training; the score is 1 in inference mode."""

    def loss(self, model, batch, key, epoch):
        return (0.0 if model.inference else -1.0) * model.at, NOTHING

    def outputs(self, model, batch, key):
        return jnp.full(batch.shape, float(model.inference))

    def metrics(self, outputs, batch, weight):
        return {"distance": outputs[0]}


@pytest.mark.slow
def test_training_trains_and_evaluation_is_in_inference_mode_however_a_model_comes():
    assert evaluate(Moody(jnp.zeros(())), Mood(), DATA, [0], ensemble=False) == {"distance": 1.0}
    known = Moody(jnp.asarray(2.0), inference=True)  # as `Fit.model` gives it
    done = fit(lambda key: known, Mood(), DATA, SPLIT, replace(DESCENT, epochs=1), [Member(learning_rate=1.0)])
    assert float(done.model().at) == 3.0 and done.model().inference


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], r"evaluate\(indices=...\) is empty"),
        ([3, 24], r"evaluate\(indices=...\) points to sample 24; there are 24"),
        ([-1, 2], r"evaluate\(indices=...\) points to sample -1"),
        (np.ones(24, bool), r"evaluate\(indices=...\) has dtype bool"),
        ([[1, 2], [3], [4]], r"evaluate\(indices=...\): 3 arrays of indices for 2 members"),
    ],
)
def test_evaluate_refuses_rows_that_are_not_there(rows, message):
    with pytest.raises(ValueError, match=message):
        evaluate(Place(jnp.zeros(2)), Descent(), np.arange(24.0), rows)


def test_a_run_without_any_finite_score_says_so():
    done = fit(place, Descent(np.nan), DATA, SPLIT, DESCENT, [Member(learning_rate=1.0)])
    assert done.best_epoch.tolist() == [-1] and len(done.notes) == 1
    assert "no epoch had a finite validation score" in done.notes[0]


@dataclass(frozen=True)
class Alone(Descent):
    """Its outputs cannot be mapped over members."""

    def outputs(self, model, batch, key):
        at = jax.pure_callback(np.asarray, model.at, model.at)
        return jnp.broadcast_to(at, batch.shape)


def test_members_are_validated_at_once_as_far_as_memory_allows(monkeypatch):
    members = [Member(learning_rate=r) for r in (1.0, 0.5)]
    with pytest.raises(NotImplementedError, match="vmap"):
        fit(place, Alone(3.0), DATA, SPLIT, DESCENT, members)
    monkeypatch.setattr(VALIDATION, "AT_ONCE", 1)
    done = fit(place, Alone(3.0), DATA, SPLIT, DESCENT, members)
    assert done.history["validation_distance"][:3].tolist() == [[2.0, 2.5], [1.0, 2.0], [0.0, 1.5]]


def test_parts_of_validation_divide_the_members_and_fit_into_memory(monkeypatch):
    def members(count, samples, **layout):
        return VALIDATION._parts(Layout(count, **layout), jnp.zeros((count, samples)), 512).members

    assert (members(12, 512), members(7, 512), members(12, 1), members(12, 1000)) == (4, 1, 12, 4)
    assert members(12, 1, at_once=2) == 2 and members(12, 512, at_once=6) == 3
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert (members(12, 512), members(64, 512)) == (12, 16)


@dataclass(frozen=True)
class Drawn(Descent):
    """What is measured is drawn."""

    def metrics(self, outputs, batch, weight):
        return {**super().metrics(outputs, batch, weight), "drawn": outputs[0]}

    def outputs(self, model, batch, key):
        return jnp.broadcast_to(jax.random.uniform(key), batch.shape)


def test_every_validation_draws_anew_for_every_member_and_epoch():
    drawn = fit(place, Drawn(), DATA, SPLIT, DESCENT, [Member(0), Member(1)]).history["validation_drawn"]
    assert drawn.shape == (6, 2) and len(np.unique(drawn)) == 12


def test_a_member_that_is_not_there():
    with pytest.raises(IndexError, match="an ensemble of 2 has no member 2"):
        take(Place(jnp.zeros(2)), 2)
