"""An MLflow model answers as the estimator does, with the real MLflow and files only."""

import os
import warnings

import pandas as pd
import pytest

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before it is imported: no test needs a network
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of its own type hints
    pytest.importorskip("mlflow.pyfunc", reason="needs acenode[mlflow]")
    import mlflow

from acenode.estimators import load
from acenode.serve.mlflow import Predictor, log_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore:::mlflow", "ignore::FutureWarning", "ignore::UserWarning")
AT = [24.0, 26.5]


@pytest.mark.slow
def test_a_saved_model_answers_the_same(forecaster, frame, tmp_path):
    save_model(forecaster, tmp_path / "model")
    again = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    answer = again.predict(frame, params={"at": AT})
    pd.testing.assert_frame_equal(answer, forecaster.predict(frame, at=AT))
    with pytest.raises(ValueError, match="say at which times"):
        again.predict(frame)
    assert not [p for p in (tmp_path / "model").rglob("*") if p.suffix in (".pkl", ".pickle")]


@pytest.mark.slow
def test_what_is_known_ahead_is_given_as_records(planned_forecaster, planned, tmp_path):
    save_model(planned_forecaster, tmp_path / "model")
    again = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    records = [{"machine": "m00", "hour": 25.0, "plan": 0.5, "part": "day"}, {"machine": "m03", "hour": 26, "plan": 1}]
    answer = again.predict(planned, params={"at": {"records": records}})
    pd.testing.assert_frame_equal(answer, planned_forecaster.predict(planned, at=pd.DataFrame(records)))
    pd.testing.assert_frame_equal(answer, Predictor(planned_forecaster).predict(planned, {"at": records}))
    with pytest.raises(ValueError, match="say at which times"):
        again.predict(planned)
    with pytest.raises(ValueError, match="there is no column 'part"):
        again.predict(planned, params={"at": {"records": [{"machine": "m00", "hour": 25.0, "plan": 0.5}]}})


@pytest.mark.slow
def test_a_logged_model_answers_the_same(classifier_folder, frame, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    classifier = load(classifier_folder)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = log_model(classifier, name="classifier")
    again = mlflow.pyfunc.load_model(logged.model_uri)
    pd.testing.assert_frame_equal(again.predict(frame), classifier.predict_proba(frame))
