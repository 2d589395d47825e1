"""Tampered model folders are refused by name, and nothing in a file is executed."""

import pytest
from benchmarks.campaign import tamper


@pytest.mark.slow
def test_nothing_is_lost():
    found = tamper.run(0.01)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
