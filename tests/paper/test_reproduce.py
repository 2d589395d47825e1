"""A row is trained once, chosen by validation, and written down; baselines beside it; what is kept for pictures."""

import json
from dataclasses import asdict, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.datasets.split import Split
from acenode.layers import mlp
from acenode.models import Filter, LatentODE, RNNDt
from acenode.models.encoders import GRUEncoder
from acenode.ode import CoEvolvingODE, Correlation, MLPField, Pairwise, Solver, pairwise_field
from acenode.paper import results
from acenode.paper.baselines import Baseline, last_value, mean_value, published_mse
from acenode.paper.figures import attention_over_time, error_over_time, has_g
from acenode.paper.reproduce import reproduce
from acenode.paper.row import Prepared, Refused, Row
from acenode.paper.tables import TABLES
from acenode.series import extrapolate, hold_out, series, stack
from acenode.tasks import Headed, Reconstruction, ValueHead
from acenode.train import Quiet, Recipe

SPLIT = Split(np.arange(12), np.arange(12, 18), np.arange(18, 24))


def records():
    random = np.random.default_rng(0)
    many = []
    for _ in range(24):
        times = np.sort(random.choice(np.arange(1, 64), 6, replace=False)) / 64
        values = np.sin(6 * times)[:, None] + 0.05 * random.normal(size=(6, 2))
        many.append(series(times, values, random.random((6, 2)) < 0.8))
    return stack(many)


def build(key, mean):
    assert mean.shape == (2,)
    one, two = jax.random.split(key)
    return Headed(Filter(RNNDt(2, 3, key=one)), ValueHead(eqx.nn.Linear(3, 2, key=two)))


def attentive_latent_ode(key, samples):
    one, two, three, four = jax.random.split(key, 4)
    g = pairwise_field("linear_h2", 3, 4, 1, key=four)
    known = Correlation(3, reference=jnp.eye(3))
    ode = CoEvolvingODE(MLPField(3, 4, 1, key=three), g, Pairwise(), known, Solver("euler", step=0.25))
    return LatentODE(GRUEncoder(2, 4, key=one), mlp(4, 6, 4, 1, key=two), ode, (3,), samples=samples)


@pytest.fixture(scope="module")
def prepared():
    return Prepared(extrapolate(records(), 0.5), SPLIT, "made up", {"mean": np.zeros(2)}, "a made-up copy")


def row(prepared, queried):
    def data(data_dir, seeds):
        queried.append(list(seeds))
        return prepared

    return Row(
        "toy",
        "a small one",
        data,
        Reconstruction(noise=0.5),
        build,
        lambda epochs: Recipe(epochs=epochs, batch_size=6, eval_batch=6),
        epochs=11,
        learning_rate=1e-3,
        penalty=1e-2,
        grid=((1e-7, 0.0), (1e-7, 0.1), (3e-2, 0.0), (3e-2, 0.1)),
        figures={"error_over_time": error_over_time},
    )


class Epochs(Quiet):
    """Notes which epochs were trained."""

    def __init__(self):
        self.seen: list[int] = []

    def epoch(self, epoch, record, samples) -> None:
        self.seen.append(epoch)


@pytest.mark.slow
def test_a_row_is_trained_once_and_written_down(prepared, tmp_path):
    queried = []
    args = row(prepared, queried), [0, 1], tmp_path / "results", tmp_path / "runs"
    done = reproduce(*args, epochs=2, progress=Quiet())
    assert [r.seed for r in done] == [0, 1]
    assert all(r.epochs == 2 and r.config["learning_rate"] == 1e-3 and r.config["penalty"] == 1e-2 for r in done)
    assert done[0].protocol == "a made-up copy, comparable"
    assert results.load(tmp_path / "results") == done
    kept = done[0].figures["error_over_time"]
    scored = np.asarray(prepared.data.scored)[SPLIT.test]
    assert sum(kept["values"]) == scored.sum()
    mean = np.dot(kept["mse"], kept["values"]) / sum(kept["values"])
    np.testing.assert_allclose(mean, done[0].metrics["mse_per_value"], rtol=1e-4)
    assert reproduce(*args, epochs=2, progress=Quiet()) == []
    assert queried == [[0, 1]]  # nothing is loaded where nothing is missing
    (longer,) = reproduce(args[0], [0], *args[2:], epochs=3, progress=Quiet())  # nor is a shorter run done
    assert longer.epochs == 3 and reproduce(*args, epochs=2, progress=Quiet()) == []
    other = replace(args[0], config={"scaling": "another"})
    with pytest.raises(Refused, match="of 3 epochs .* 1 epochs will not replace it"):
        reproduce(other, [0], *args[2:], epochs=1, progress=Quiet())
    epochs = Epochs()
    (again,) = reproduce(other, [0], *args[2:], epochs=3, progress=epochs)  # what was made otherwise is not done
    assert epochs.seen == [0, 1, 2]  # and does not go on from its checkpoint
    assert again.config["scaling"] == "another" and other.changed(again.config) == ()
    recipe = other.recipe
    clipped = replace(other, recipe=lambda epochs: replace(recipe(epochs), clip=0.5, eval_batch=3))
    assert clipped.changed(again.config) == ("clip",) and args[0].changed(longer.config) == ()


@pytest.mark.slow
def test_the_command_stops_in_time_and_resumes(prepared, tmp_path, monkeypatch):
    monkeypatch.setitem(TABLES, "toy", (row(prepared, []),))
    queried = ["reproduce", "toy", "--seeds", "1", "--epochs", "2"]
    places = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    for _ in range(2):  # an epoch each: the second ends with the last one, and has not tested yet
        cut = CliRunner().invoke(app, [*queried, *places, "--minutes", "1e-9"])
        assert cut.exit_code == 75 and "The same call resumes from the last whole epoch." in cut.stderr
        assert results.load(tmp_path / "results") == []
    whole = CliRunner().invoke(app, [*queried, *places])
    assert whole.exit_code == 0 and "over 1 seed\n" in whole.stdout
    (kept,) = results.load(tmp_path / "results")
    (never_cut,) = reproduce(row(prepared, []), [0], tmp_path, tmp_path / "whole", epochs=2, progress=Quiet())
    assert kept.metrics == never_cut.metrics and kept.history == never_cut.history


@pytest.mark.slow
def test_a_quick_run_is_marked_and_does_not_stand_in_for_a_real_one(prepared, tmp_path):
    args = row(prepared, []), [0], tmp_path / "results", tmp_path / "runs"
    (quick,) = reproduce(*args, quick=True, progress=Quiet())
    assert quick.config["quick"] and quick.epochs == 2
    (real,) = reproduce(*args, epochs=1, progress=Quiet())
    assert "quick" not in real.config
    assert len(results.load(tmp_path / "results")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("queried", [{"grid": True}, {"learning_rates": [1e-7, 3e-2]}], ids=["the paper's", "ours"])
def test_the_grid_is_decided_by_validation(prepared, tmp_path, queried):
    done = reproduce(row(prepared, []), [0, 1], tmp_path, tmp_path, **queried, epochs=8, progress=Quiet())
    assert [r.config["learning_rate"] for r in done] == [3e-2, 3e-2]  # the other one hardly moves
    tried = done[0].config["grid"]
    # A model without g has nothing that lambda could draw at.
    assert [(each["learning_rate"], each["penalty"]) for each in tried] == [(1e-7, 1e-2), (3e-2, 1e-2)]
    best = np.mean([r.validation["validation_mse"] for r in done])
    np.testing.assert_allclose(tried[1]["validation"], best, rtol=1e-3)
    assert tried[1]["validation"] < tried[0]["validation"]
    again = row(prepared, []), [0, 1], tmp_path, tmp_path
    assert reproduce(*again, **queried, epochs=8, progress=Quiet()) == []
    assert reproduce(*again, epochs=8, progress=Quiet()) == []  # any rate will do where none is named
    other = replace(again[0], config={"scaling": "another"})
    (anew,) = reproduce(other, [0], *again[2:], epochs=8, progress=Quiet())  # what was chosen is chosen again
    assert anew.config["learning_rate"] == 3e-2 and len(anew.config["grid"]) == 2
    (own,) = reproduce(other, [0], *again[2:], learning_rates=[1e-3], epochs=8, progress=Quiet())
    assert own.config["learning_rate"] == 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("evolution", ["evolved", "frozen", None])
def test_lambda_is_tried_where_there_is_a_g(prepared, key, evolution):
    model = build(key, **prepared.given)
    if evolution is not None:
        ode = attentive_latent_ode(key, 1)
        if evolution == "frozen":
            ode = eqx.tree_at(lambda m: m.ode.g, ode, None)
        model = Headed(ode, model.head)
    assert has_g(eqx.filter_eval_shape(lambda: model)) == (evolution == "evolved")


@pytest.mark.slow
def test_a_diverged_run_is_a_file_that_any_reader_of_json_takes(prepared, tmp_path):
    (done,) = reproduce(row(prepared, []), [0], tmp_path, tmp_path / "runs", epochs=1, progress=Quiet())
    away = replace(done, metrics={"mse": np.inf, "negll": -np.inf}, history={"loss": [1.0, np.nan]})
    path = results.save(tmp_path, away)
    words = json.loads(path.read_text(), parse_constant=pytest.fail)  # called for Infinity and NaN
    assert words["metrics"] == {"mse": "inf", "negll": "-inf"}
    read = results.read(path)
    assert read.metrics == away.metrics and np.isnan(read.history["loss"][1])
    np.testing.assert_equal(asdict(read), asdict(away))


def test_a_baseline_is_written_once(tmp_path):
    calls = []

    def score(data_dir, seeds):
        calls.append(list(seeds))
        return [{"mse": 1.0 + s} for s in seeds]

    same = Baseline("toy", "the same for all", score, lambda data_dir: "sum")
    (one,) = reproduce(same, range(3), tmp_path, tmp_path)
    assert (one.seed, one.parameters, one.metrics["mse"]) == (0, 0, 1.0)
    assert reproduce(same, range(3), tmp_path, tmp_path) == [] and calls == [[0]]
    folded = Baseline("toy", "by fold", score, lambda data_dir: "sum", by_seed=True)
    assert [r.metrics["mse"] for r in reproduce(folded, range(2), tmp_path, tmp_path)] == [1.0, 2.0]


def test_values_without_a_model():
    whole = stack(
        [series([0.0, 0.2, 0.6, 0.8], [[1, 9], [2, np.nan], [3, 5], [5, 6]]), series([0.1, 0.7], [[4, 2]] * 2)]
    )
    query = extrapolate(whole, 0.5)
    np.testing.assert_array_equal(query.times, np.asarray([[0.6, 0.8], [0.7, 0.7]], np.float32))
    np.testing.assert_array_equal(query.observed[1], [[True, True], [False, False]])
    last = last_value(query, np.asarray([0]))
    np.testing.assert_array_equal(last[0], [[2, 9], [2, 9]])
    np.testing.assert_array_equal(last[1, 0], [4, 2])
    mean = mean_value(query, np.asarray([0]))
    np.testing.assert_array_equal(mean[0, 0], [4, 5.5])
    got = published_mse(query, last, np.asarray([0, 1]))
    np.testing.assert_allclose(got["mse"], np.mean([[(1 + 9) / 2, (16 + 9) / 2], [0, 0]]))
    np.testing.assert_allclose(got["mse_per_value"], (1 + 9 + 16 + 9) / 6)


def test_hidden_points_are_asked_for_and_not_known():
    whole = records()
    query = hold_out(whole, 0.3, seed=1)
    hidden = np.asarray(query.scored)
    assert not (hidden & query.context.observed).any()
    np.testing.assert_array_equal(hidden | query.context.observed, whole.observed)
    assert not query.context.values[hidden].any() and 0.2 < hidden.sum() / whole.observed.sum() < 0.4
    with pytest.raises(ValueError, match="part"):
        hold_out(whole, 1.0)


@pytest.mark.slow
def test_the_mean_attention_is_kept_with_its_entropy(key):
    model = attentive_latent_ode(key, 0)
    query = extrapolate(records(), 0.5)
    args = {"until": 1.0, "unit": 48.0, "points": 3}
    kept = attention_over_time(eqx.nn.inference_mode(Headed(model, None)), Reconstruction(), query, SPLIT.test, **args)
    assert kept["times"] == [0, 24, 48]
    np.testing.assert_allclose(np.sum(kept["matrices"], axis=-1), 1, atol=3e-4)  # kept with four digits
    assert all(0 < e <= np.log(3) + 1e-6 for e in kept["entropy"])
    queried = jnp.full((1, 1), 1.0)
    last = eqx.filter_jit(model)(query.context[18:19], queried, key, attention=True).attention
    assert last.shape == (1, 1, 1, 3, 3)


@pytest.mark.slow
def test_other_learning_rates_have_checkpoints_of_their_own(prepared, tmp_path):
    runs = tmp_path / "runs"
    for k, rates in enumerate([(), (2e-3,), (1e-3, 2e-3), (2e-3, 3e-3)]):
        reproduce(row(prepared, []), [0], tmp_path / str(k), runs, epochs=1, learning_rates=rates, progress=Quiet())
        assert len([*runs.rglob("*.safetensors")]) == k + 1


def test_every_attentive_row_names_the_row_that_it_extends():
    for rows in TABLES.values():
        names = {each.name for each in rows}
        for each in rows:
            base = each.base if isinstance(each, Row) else ""
            assert bool(base) == ("ACE" in each.name) and (not base or base in names), each.name


@pytest.mark.slow
def test_a_kill_while_figures_are_made_loses_no_seed(prepared, tmp_path):
    drawn = []

    def killed(*_):
        drawn.append(1)
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return {}

    args = replace(row(prepared, []), figures={"attention": killed}), [0, 1], tmp_path / "results", tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        reproduce(*args, epochs=1, progress=Quiet())
    assert results.load(tmp_path / "results") == []  # or a later call would look for another checkpoint
    trained = (tmp_path / "runs").rglob("*.safetensors")
    before = {path: path.stat().st_mtime_ns for path in trained}
    assert len(reproduce(*args, epochs=1, progress=Quiet())) == 2
    assert before and {path: path.stat().st_mtime_ns for path in before} == before  # nothing was trained again


@pytest.mark.slow
def test_a_kill_between_two_result_files_trains_nothing_again(prepared, tmp_path):
    asked = []
    args = row(prepared, asked), [0, 1], tmp_path / "results", tmp_path / "runs"
    whole = reproduce(*args, epochs=2, progress=Quiet())
    results.path_of(tmp_path / "results", "toy", "a small one", 1).unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (again,) = reproduce(*args, epochs=2, progress=Quiet())
    assert asked == [[0, 1], [0, 1]] and replace(again, seconds=whole[1].seconds) == whole[1]
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(after) == len(before) + 1 and {path: after[path] for path in before} == before
