"""Exported ONNX programs answer as the models do, run by onnxruntime."""

import copy
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from frames import labelled, machines
from jax import lax
from typer.testing import CliRunner
from untrained import untrained

from acenode.cli.main import app
from acenode.estimators import MODELS, Classifier, Forecaster, Imputer
from acenode.estimators.calibration import Calibration
from acenode.estimators.exported import _program, export
from acenode.estimators.members import Members
from acenode.estimators.onnx_graph import NotTranslated
from acenode.estimators.onnx_program import to_onnx

ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnx", reason="needs acenode[export]")

SMALL = {"id": "machine", "time": "hour", "hidden": 4}
ROWS, QUERIES = 8, 3
QUICK = ("gru-d", "gru-ode-bayes")


def run(content, inputs):
    session = ort.InferenceSession(content)
    return session.run(None, dict(zip([each.name for each in session.get_inputs()], inputs, strict=True)))


def inputs(estimator, labels):
    """Two series, the second shorter, with blanks."""
    random = np.random.default_rng(0)
    times = np.sort(random.uniform(0, 8, (2, ROWS)), axis=1).astype(np.float32)
    times -= times[:, :1]
    values = (random.normal(size=(2, ROWS, 2)) * [1, 5] + [0, 20]).astype(np.float32)
    values[random.random(values.shape) < 0.3] = np.nan
    times[1, 5:], values[1, 5:] = times[1, 4], np.nan
    given = [times, values, np.asarray([ROWS, 5], np.int32)]
    return given if labels else [*given, np.asarray([[1.0, 6.5, 12.0], [0.0, 3.0, 9.0]], np.float32)]


def check(estimator, place):
    beside = export(estimator, place, format="onnx", batch=2, rows=ROWS, queries=QUERIES)
    told = json.loads(beside.read_text())
    labels = estimator.task == "classify"
    given = inputs(estimator, labels)
    answers = run(place.read_bytes(), given)
    function, _ = _program(estimator, 2, ROWS, QUERIES)
    expected = jax.tree.leaves(jax.jit(function)(*given))
    assert told["format"] == "onnx" and len(told["outputs"]) == len(answers) == len(expected)
    for answer, value in zip(answers, expected, strict=True):
        assert np.isfinite(answer).all() and answer.dtype == np.float32
        np.testing.assert_allclose(answer, value, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_every_forecaster_answers_the_same(name, tmp_path):
    check(untrained(Forecaster(**SMALL, model=name), machines(12)), tmp_path / "model.onnx")


def test_a_classifier_answers_the_same(tmp_path):
    made = untrained(Classifier(**SMALL, label="state", model="gru-d"), labelled(machines(12)))
    check(made, tmp_path / "model.onnx")


def mixed(first, second):
    """One estimator with the models of both, and a band that is corrected."""
    made = copy.copy(first)
    names, models = ("gru-d", second.settings_.model), (first.model_, second.model_)
    made.members_, made.calibration_ = Members(names, (0.6, 0.4), models), Calibration((1.0, 4.0), (0.5, 1.5))
    return made


def test_an_ensemble_of_forecasters_answers_as_predict_does(tmp_path):
    frame = machines(12)
    made = mixed(untrained(Forecaster(**SMALL, model="gru-d"), frame), Forecaster(**SMALL, model="linear").fit(frame))
    check(made, tmp_path / "model.onnx")
    times, values, length, queries = inputs(made, False)
    unit = made.settings_.unit
    series = [
        pd.DataFrame({"machine": k, "hour": unit * times[k, :n], "heat": values[k, :n, 0], "flow": values[k, :n, 1]})
        for k, n in enumerate(length)
    ]
    asked = pd.DataFrame({"machine": np.repeat([0, 1], QUERIES), "hour": (unit * queries).ravel()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # far from what twelve machines have shown
        told = made.predict(pd.concat(series), at=asked)
    mean, sd = run((tmp_path / "model.onnx").read_bytes(), [times, values, length, queries])
    late = (queries >= np.take_along_axis(times, length[:, None] - 1, axis=1)).ravel()  # the program uses all rows
    assert late.sum() > 1
    for k, name in enumerate(("heat", "flow")):
        own = told[told["variable"] == name][late]
        np.testing.assert_allclose(mean[..., k].ravel()[late], own["mean"], rtol=2e-3, atol=1e-3)
        upper = (mean + 1.6448536 * sd)[..., k].ravel()
        np.testing.assert_allclose(upper[late], own["q0.95"], rtol=2e-3, atol=1e-3)


def test_an_ensemble_of_classifiers_answers_the_same(tmp_path):
    frame, given = labelled(machines(12)), {**SMALL, "label": "state"}
    made = mixed(
        untrained(Classifier(**given, model="gru-d"), frame), Classifier(**given, model="statistics").fit(frame)
    )
    check(made, tmp_path / "model.onnx")


def test_an_imputer_answers_the_same(tmp_path):
    frame = machines(12)
    made = mixed(untrained(Imputer(**SMALL, model="gru-d"), frame), Imputer(**SMALL, model="interpolation").fit(frame))
    check(made, tmp_path / "model.onnx")


def test_the_command_exports_it(tmp_path):
    folder = untrained(Forecaster(**SMALL, model="gru-d"), machines(12)).save(tmp_path / "model")
    out = tmp_path / "model.onnx"
    done = CliRunner().invoke(app, ["export", str(folder), "--format", "onnx", "--rows", "8", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert [each.name for each in ort.InferenceSession(out).get_inputs()] == ["times", "values", "length", "queries"]


def test_another_format_is_refused(tmp_path):
    made = untrained(Forecaster(**SMALL, model="gru-d"), machines(12))
    with pytest.raises(ValueError, match="expected one of stablehlo, onnx"):
        export(made, tmp_path / "model", format="torch")
    assert not list(tmp_path.iterdir())


# --- the translation --------------------------------------------------------------------------------------------------

X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
I = np.asarray([2, -1, 7], np.int32)  # one from the end, one outside


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.at[i].get(mode="fill", fill_value=9.0),
        lambda x, i: (x > 0).at[i].get(mode="fill"),
        lambda x, i: jax.vmap(lambda row, k: row[k])(x, i),
        lambda x, i: x[1:, ::2],
        lambda x, i: x.at[i].set(5.0, mode="drop"),
        lambda x, i: x.at[i, 1].add(5.0, mode="drop"),
        lambda x, i: x.at[:, i].min(-1.0, mode="clip"),
        lambda x, i: jax.vmap(lambda row, k: row.at[k].max(2.0))(x, i),
        lambda x, i: jnp.sort(x, axis=0),
        lambda x, i: lax.cummax(jnp.concatenate([x, -x]), axis=0),
        lambda x, i: lax.cummin(x, axis=1, reverse=True),
        lambda x, i: lax.cummax(i),
        lambda x, i: jnp.argsort(jnp.floor(x), axis=1),  # with ties
        lambda x, i: jnp.searchsorted(jnp.sort(x[0]), x[1]),
        lambda x, i: lax.pad(x, 7.0, ((-1, 2, 0), (1, -1, 0))),
        lambda x, i: jnp.einsum("ij,kj->ki", x, x),
        lambda x, i: jnp.einsum("bi,bj->bij", x, x),
        lambda x, i: lax.scan(lambda c, row: (c + row.sum(), c * row), 0.5, x, reverse=True),
        lambda x, i: lax.scan(lambda c, _: (c * 1.5, None), x, None, length=3)[0],
        lambda x, i: lax.while_loop(lambda c: (c[1] < 40).any(), lambda c: (c[0] + 1, c[1] * 2 + 1), (0, x * x)),
        lambda x, i: lax.cond(x[0, 0] > 0, lambda: x, lambda: x * 2),
        lambda x, i: lax.scan(lambda c, row: (lax.cond(c > 0, lambda: c - 1, lambda: row[0]), c), 1.0, x),
        lambda x, i: (jnp.where(x > 0, x > 1, x < -1).astype(int), jnp.cumsum(i), (x > 0).any(axis=1), x.max(axis=0)),
        lambda x, i: (jax.nn.softmax(x), jnp.isfinite(x / 0), jnp.expm1(x), x**3, -i // 2, jnp.tile(x, (2, 1))),
    ],
)
def test_operations_mean_the_same(function):
    given = (X, I)
    with jax.enable_x64(False):
        expected = jax.tree.leaves(function(*map(jnp.asarray, given)))
        flat = lambda *a: jax.tree.leaves(function(*a))  # noqa: E731
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in given]
        model = to_onnx(flat, shapes, ["x", "i"], [f"o{k}" for k in range(len(expected))])
    # An input that the function does not use is none of the session's.
    session = ort.InferenceSession(model.SerializeToString())
    answers = session.run(
        None, {each.name: dict(zip("xi", given, strict=True))[each.name] for each in session.get_inputs()}
    )
    for answer, value in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), "draws random numbers"),
        (lambda x: jnp.linalg.cholesky(x[:3, :3]), "no translation of the operation"),
        (lambda x: lax.switch(x[0, 0].astype(int), [lambda: x, lambda: x + 1, lambda: x + 2]), "more than two"),
    ],
)
def test_what_has_no_translation_is_refused(function, says):
    with jax.enable_x64(False), pytest.raises(NotTranslated, match=says):
        to_onnx(lambda x: [function(x)], [jax.ShapeDtypeStruct(X.shape, X.dtype)], ["x"], ["o"])
