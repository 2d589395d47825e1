"""The code in README and CONTRIBUTING runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.S)


@pytest.mark.slow
@pytest.mark.parametrize("name, count", [("README.md", 1), ("CONTRIBUTING.md", 5)])
def test_every_code_block_runs(name, count):
    found = blocks(name)
    assert len(found) == count
    for block in found:
        exec(compile(block, name, "exec"), {})
