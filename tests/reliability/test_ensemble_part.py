"""A poisoned member of an ensemble changes no other."""

import pytest
from benchmarks.campaign import ensemble


@pytest.mark.slow
def test_nothing_is_lost():
    found = ensemble.run(0.01)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
