"""Hard vector fields: within tolerance, or a status that says why."""

import pytest
from benchmarks.campaign import solver


@pytest.mark.slow
def test_nothing_is_lost():
    found = solver.run(0.01)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
