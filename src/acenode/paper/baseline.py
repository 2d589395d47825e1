"""`Baseline`: a row of a table that is not trained, such as the last value carried forward."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Baseline:
    """A prediction from the training data alone; a table of forecasts without one tells little.

    Unless the test data are other ones for each seed (`by_seed`), one seed is all there is.
    """

    table: str
    name: str
    score: Callable[[Any, Sequence[int]], Sequence[Mapping[str, float]]]  # metrics on test data, one for each seed
    checksum: Callable[[Any], str]  # of the data in this folder
    protocol: str = "comparable"
    by_seed: bool = False
    config: dict[str, object] = field(default_factory=dict)
    dataset: str = ""
    query: str = ""
