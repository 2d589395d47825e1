"""What the tests have to make small data and models with, for the campaign to use too."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[2] / "tests"
for folder in (_TESTS, _TESTS / "train"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from frames import labelled as labelled, machines as machines  # noqa: E402
from physiome_sets import clean as physiome_series  # noqa: E402, F401
from untrained import untrained as untrained  # noqa: E402

SMALL = {"id": "machine", "time": "hour", "hidden": 4}
