"""Mutated files are refused in a sentence or read."""

import pytest
from benchmarks.campaign import fuzz


@pytest.mark.slow
def test_nothing_is_lost():
    found = fuzz.run(0.02)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
