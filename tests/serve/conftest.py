"""A saved model of each kind, and the service of a followed one, shared."""

import pytest
from frames import labelled, machines
from untrained import untrained

from acenode.estimators import Classifier, Forecaster, Imputer

pytest.importorskip("fastapi", reason="the service needs acenode[serve]")

SMALL = {"id": "machine", "time": "hour", "hidden": 4}


@pytest.fixture(scope="session")
def frame():
    return machines(12)


@pytest.fixture(scope="session")
def forecaster(frame):
    return untrained(Forecaster(**SMALL, model="gru-ode-bayes"), frame)


@pytest.fixture(scope="session")
def folder(forecaster, tmp_path_factory):
    return forecaster.save(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def classifier_folder(frame, tmp_path_factory):
    made = untrained(Classifier(**SMALL, label="state", model="gru-d"), labelled(frame))
    return made.save(tmp_path_factory.mktemp("served") / "classifier")


@pytest.fixture(scope="session")
def imputer_folder(frame, tmp_path_factory):
    made = untrained(Imputer(**SMALL, model="gru-d"), frame)
    return made.save(tmp_path_factory.mktemp("served") / "imputer")
