"""The short forms of the campaign: the same functions, little of each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
