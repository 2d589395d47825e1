"""A full disk and a lost device cost a sentence, not the work."""

import pytest
from benchmarks.campaign import faults


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # forks beside JAX's threads
def test_nothing_is_lost():
    found = faults.run(0.1)
    assert found["tried"] > 0 and not found["losses"], found["examples"]
