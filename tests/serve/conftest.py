"""A saved model of each kind, and the service of a followed one, shared."""

import numpy as np
import pytest
from frames import labelled, machines
from untrained import untrained

from acenode.estimators import Classifier, Forecaster, Imputer, Regressor

pytest.importorskip("fastapi", reason="the service needs acenode[serve]")

SMALL = {"id": "machine", "time": "hour", "hidden": 4}


@pytest.fixture(scope="session")
def frame():
    return machines(12)


@pytest.fixture(scope="session")
def rough(frame):
    """With a colour in most rows, a size and a make that are the same in all rows of a machine."""
    number = frame["machine"].str[1:].astype(int)
    colours = np.asarray(["red", "blue", None], object)
    return frame.assign(
        colour=colours[np.arange(len(frame)) % 3], size=1.5 * (number % 5), make=np.where(number % 3 == 0, "old", "new")
    )


@pytest.fixture(scope="session")
def forecaster(frame):
    return untrained(Forecaster(**SMALL, model="gru-ode-bayes"), frame)


@pytest.fixture(scope="session")
def folder(forecaster, tmp_path_factory):
    return forecaster.save(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def rough_folder(rough, tmp_path_factory):
    made = untrained(Forecaster(**SMALL, static=["size", "make"], model="gru-ode-bayes"), rough)
    return made.save(tmp_path_factory.mktemp("served") / "rough")


@pytest.fixture(scope="session")
def planned(frame):
    """With a plan for every hour and whether it is day, both known ahead."""
    return frame.assign(plan=np.sin(frame["hour"]), part=np.where(frame["hour"] % 24 < 12, "day", "night"))


@pytest.fixture(scope="session")
def planned_forecaster(planned):
    return untrained(Forecaster(**SMALL, future=["plan", "part"], model="gru-d"), planned)


@pytest.fixture(scope="session")
def classifier_folder(frame, tmp_path_factory):
    made = untrained(Classifier(**SMALL, label="state", model="gru-d"), labelled(frame))
    return made.save(tmp_path_factory.mktemp("served") / "classifier")


@pytest.fixture(scope="session")
def labels_folder(rough, tmp_path_factory):
    """A classifier of two labels, a word and a number, with columns of words and static ones."""
    twice = labelled(rough).assign(spare=rough["machine"].str[1:].astype(int) // 2 % 2)
    made = untrained(Classifier(**SMALL, label=["state", "spare"], static=["size", "make"], model="gru-d"), twice)
    return made.save(tmp_path_factory.mktemp("served") / "labels")


@pytest.fixture(scope="session")
def regressor_folder(frame, tmp_path_factory):
    aged = frame.assign(days=frame["machine"].str[1:].astype(float))
    made = untrained(Regressor(**SMALL, label="days", model="gru-d"), aged)
    return made.save(tmp_path_factory.mktemp("served") / "regressor")


@pytest.fixture(scope="session")
def imputer_folder(frame, tmp_path_factory):
    made = untrained(Imputer(**SMALL, model="gru-d"), frame)
    return made.save(tmp_path_factory.mktemp("served") / "imputer")
