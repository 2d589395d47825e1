"""One small fitted estimator of each kind, shared: compiling takes nearly all of the time."""

import pytest
from frames import labelled, machines

from acenode.estimators import Classifier, Forecaster, Imputer
from acenode.estimators.registry import Entry
from acenode.models import GRUD, Filter

SMALL = {"id": "machine", "time": "hour", "hidden": 8, "epochs": 2}


@pytest.fixture(scope="session")
def frame():
    return machines()


@pytest.fixture(scope="session")
def forecaster(frame):
    return Forecaster(**SMALL, model="ace-variables").fit(frame)


@pytest.fixture(scope="session")
def own_entry():
    def build(sizes, key):
        return Filter(GRUD(sizes.variables, sizes.hidden, key=key))

    return Entry(build, lambda s: s.hidden, lambda s: s.hidden, "a filter of my own")


@pytest.fixture(scope="session")
def classifier(frame, own_entry):
    """One with a model of the user's own."""
    return Classifier(**SMALL, label="state", model=own_entry).fit(labelled(frame))


@pytest.fixture(scope="session")
def imputer(frame):
    return Imputer(**SMALL, model="ace-latent-ode").fit(frame)
