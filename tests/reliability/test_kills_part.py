"""Killed and started again, a command ends where an undisturbed one does."""

import pytest
from benchmarks.campaign import kills


@pytest.mark.slow
def test_nothing_is_lost():
    found = kills.run(0.01)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
