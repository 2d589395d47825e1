"""The code in README and CONTRIBUTING runs as it stands, and the public door leads where it says."""

import re
from pathlib import Path

import pytest

import acenode

ROOT = Path(__file__).parent.parent


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.S)


@pytest.mark.parametrize("name, count", [("README.md", 1), ("CONTRIBUTING.md", 4)])
def test_every_code_block_runs(name, count):
    found = blocks(name)
    assert len(found) == count
    for block in found:
        exec(compile(block, name, "exec"), {})


def test_every_public_name_is_there():
    for name in acenode.__all__:
        assert getattr(acenode, name) is not None
    assert set(dir(acenode)) == set(acenode.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        acenode.nonsense  # noqa: B018
