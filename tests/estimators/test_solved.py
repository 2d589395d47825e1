"""Models in closed form, from frame to folder: the plain baselines, and a linear model on statistics."""

import numpy as np
import pandas as pd
import pytest
from frames import labelled, machines, refused

from acenode.estimators import Classifier, Forecaster, Imputer, Regressor, load

GIVEN = {"id": "machine", "time": "hour"}


@pytest.fixture(scope="module")
def many():
    return machines(80)


@pytest.mark.slow
def test_the_last_value_is_what_a_forecast_is_compared_with(many):
    fitted = Forecaster(**GIVEN, model="last-value").fit(many)
    metrics = fitted.evaluate(many)
    np.testing.assert_allclose(metrics["mse"], metrics["mse_baseline"], rtol=1e-4)
    own = many[(many["machine"] == "m03") & many["heat"].notna()]
    answer = fitted.predict(many, at=[25.0])
    answer = answer[(answer["machine"] == "m03") & (answer["variable"] == "heat")]
    np.testing.assert_allclose(answer["mean"], own["heat"].iloc[-1], rtol=1e-5)
    assert fitted.history_ == {} and fitted.summary_.epochs == 0


@pytest.mark.slow
def test_a_linear_map_beats_the_last_value_of_waves(many, tmp_path):
    linear = Forecaster(**GIVEN, model="linear").fit(many)
    metrics = linear.evaluate(many)
    assert metrics["mse"] < metrics["mse_baseline"]
    linear.save(tmp_path / "m")
    one, two = (each.predict(many, at=[25.0]) for each in (linear, load(tmp_path / "m")))
    np.testing.assert_allclose(one["q0.95"], two["q0.95"], rtol=1e-5)


@pytest.mark.slow
def test_interpolation_is_what_an_imputer_is_compared_with(many):
    metrics = Imputer(**GIVEN, model="interpolation").fit(many).evaluate(many)
    np.testing.assert_allclose(metrics["mse"], metrics["mse_baseline"], rtol=1e-4)


@pytest.mark.slow
def test_labels_from_statistics(many, tmp_path):
    heat = many.groupby("machine")["heat"].transform("mean")
    table = many.assign(state=np.where(heat > heat.median(), "hot", "cold"))
    fitted = Classifier(**GIVEN, label="state", model="statistics").fit(table)
    metrics = fitted.evaluate(table)
    assert metrics["auc"] > 0.9
    plain = Classifier(**GIVEN, label="state", model="frequencies").fit(table)
    assert plain.evaluate(table)["auc"] == pytest.approx(0.5)
    fitted.save(tmp_path / "m")
    one, two = (each.predict_proba(table) for each in (fitted, load(tmp_path / "m")))
    np.testing.assert_allclose(one["p_hot"], two["p_hot"], rtol=1e-5)


@pytest.mark.slow
def test_a_number_for_each_series(many, tmp_path):
    table = many.assign(total=100 + 20 * many.groupby("machine")["heat"].transform("mean"))
    fitted = Regressor(**GIVEN, label="total", model="statistics").fit(table)
    assert fitted.score(table) > 0.6
    answer = fitted.predict(many)
    assert list(answer.columns) == ["machine", "total"] and 70 < answer["total"].mean() < 130
    fitted.save(tmp_path / "m")
    np.testing.assert_allclose(load(tmp_path / "m").predict(many)["total"], answer["total"], rtol=1e-6)
    refused(lambda: Regressor(**GIVEN, label="state").fit(labelled(many)), "'state' is 'good'", "--task classify")
    refused(lambda: Regressor(**GIVEN, label="flat").fit(many.assign(flat=3)), "'flat' is 3 in every row")


def targets(total: np.ndarray) -> pd.DataFrame:
    """Short series that all look alike, with these targets."""
    machine = np.repeat(np.arange(len(total)), 3)
    hour = np.tile(np.arange(3.0), len(total))
    return pd.DataFrame({"machine": machine, "hour": hour, "heat": np.sin(hour), "total": total[machine]})


def regressor(**given) -> Regressor:
    return Regressor(**GIVEN, label="total", model="frequencies", **given)


def test_the_scale_of_targets_is_that_of_training_series():
    total = np.random.default_rng(0).normal(100, 10, 50)
    validation = regressor().fit(targets(total)).validation_ids_
    total[validation] += 50
    fitted = regressor().fit(targets(total))
    trained = np.delete(total, validation)
    np.testing.assert_allclose(fitted.target_, (trained.mean(), trained.std()))
    np.testing.assert_allclose(fitted.predict(targets(total))["total"], trained.mean(), rtol=1e-5)
    alone = np.where(np.isin(np.arange(50), validation), total, 5.0)
    refused(lambda: regressor().fit(targets(alone)), "'total' is 5 in every training series", "Add more series")


def test_one_absurd_target_does_not_shape_the_scale():
    total = np.random.default_rng(0).normal(100, 10, 50)
    honest = regressor().fit(targets(total))
    absurd = next(k for k in range(50) if k not in honest.validation_ids_)
    total[absurd] = 1e9
    with pytest.warns(UserWarning, match="the training table: 1 of 'total' lie far outside the others"):
        fitted = regressor().fit(targets(total))
    assert abs(fitted.target_[0] - honest.target_[0]) < 10 and fitted.target_[1] < 5 * honest.target_[1]
    assert fitted.evaluate(targets(total))["mse"] > 1e15  # what is evaluated on keeps its values


def test_weights_shape_a_fit():
    total = np.repeat([10.0, 20.0], 40)
    table = targets(total).assign(counts=np.repeat([9.0, 1.0], 120))
    answer = regressor(weight="counts").fit(table).predict(table)
    np.testing.assert_allclose(answer["total"], 11, atol=0.6)
    assert abs(regressor().fit(table.drop(columns="counts")).predict(table)["total"].mean() - 15) < 0.6


def test_a_target_of_words_is_named():
    table = targets(np.arange(10)).assign(total=lambda t: t["total"].astype(str).replace("7", "long"))
    refused(lambda: regressor().fit(table), "the target 'total' is 'long'", "--task classify")


def test_a_baseline_of_another_task_is_refused(many):
    refused(lambda: Imputer(**GIVEN, model="last-value").fit(many), "'last-value'", "choose from mean, interpolation")
