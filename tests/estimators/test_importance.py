"""`Forecaster.importance`: hiding a variable that others follow hurts their forecasts; when attention is readable."""

import numpy as np
import pandas as pd
import pytest

from acenode import Forecaster
from acenode.estimators.importance import Importance, read_attention


def leading(series: int = 40, rows: int = 24, seed: int = 0) -> pd.DataFrame:
    """`leader` is a slow random level for each series; `follower` moves to it, `alone` has a level of its own."""
    random = np.random.default_rng(seed)
    parts = []
    for id in range(series):
        level, own = random.normal(0, 1, 2)
        hours = np.arange(rows) / 2
        late = 1 - np.exp(-np.maximum(hours - 8, 0))  # the follower begins to follow after the context
        noise = random.normal(0, 0.05, (3, rows))
        before = (1 - late) * random.normal(0, 1, rows)
        values = {"leader": level + noise[0], "follower": before + late * level + noise[1], "alone": own + noise[2]}
        parts.append(pd.DataFrame({"id": id, "hour": hours, **values}))
    return pd.concat(parts)


@pytest.mark.slow
def test_the_variable_that_others_follow_is_important():
    table = leading()
    model = Forecaster(
        id="id", time="hour", model="gru-ode-bayes", horizon=0.3, hidden=16, epochs=60, learning_rate=1e-2
    ).fit(table)
    frame = model.importance(leading(seed=1))
    found = frame.set_index(["forecast", "hidden"]).increase
    assert list(frame.columns) == ["forecast", "hidden", "mse", "increase", "standard_error"] and len(frame) == 9
    assert found["follower", "leader"] > 0.1
    for name in ("leader", "alone"):  # nothing tells as much of a constant level as its own values
        assert found[name, name] > 0.3 and found[name, name] == max(found[name])


PAIRS = np.asarray([[0.5, 0.4, 0.1], [0.1, 0.8, 0.1], [0.3, 0.2, 0.5]])
EACH = np.ones(3, bool)


@pytest.mark.parametrize(
    "weights, informative, says",
    [
        (PAIRS, True, "active"),
        (PAIRS.T, False, "rank correlation"),
        (np.asarray([[0.95, 0.03, 0.02]] * 3), False, "attend to one and the same"),
    ],
)
def test_an_attention_is_informative_where_perturbation_agrees(weights, informative, says):
    moving = np.broadcast_to(weights, (2, 4, 3, 3)).copy()
    moving[:, 0] += 0.02 * np.asarray([1, -1, 0])
    reading = read_attention(moving, np.ones((2, 4), bool), Importance(np.ones(3), PAIRS, np.zeros((3, 3))), EACH)
    assert reading.informative == informative and says in str(reading)


def test_a_constant_attention_is_inactive():
    constant = np.broadcast_to(PAIRS, (2, 4, 3, 3))
    reading = read_attention(constant, np.ones((2, 4), bool), Importance(np.ones(3), PAIRS, np.zeros((3, 3))), EACH)
    assert not reading.informative and "inactive" in str(reading)
