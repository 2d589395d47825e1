"""Followed series take constant memory and give the forecasts of whole histories."""

import pytest
from benchmarks.campaign import service


@pytest.mark.slow
def test_nothing_is_lost():
    found = service.run(0.001)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
