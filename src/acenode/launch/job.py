"""`Job`: one row of a table, on one data set, as plain values that any process can train from."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..paper.baselines import Baseline
    from ..paper.row import Row


class Outcome(NamedTuple):
    """What a job tells at its end; the results are in files."""

    said: str
    failed: bool = False


@dataclass(frozen=True)
class Job:
    """Trains a row as `acenode reproduce` does, into the same files. Called again, it resumes from its checkpoint.

    The folders have to be the same for all processes that jobs run in.
    """

    table: str
    name: str  # of the row
    dataset: str
    seeds: tuple[int, ...]
    results: str
    runs: str
    epochs: int | None = None
    learning_rates: tuple[float, ...] = ()
    penalties: tuple[float, ...] = ()
    grid: bool = False
    quick: bool = False
    data_dir: str | None = None

    def __call__(self) -> Outcome:
        """Train it; a fault that the user can mend is told, any other raised."""
        from ..datasets.files import DataCorrupted, DataNotFound
        from ..paper.baselines import Baseline
        from ..paper.reproduce import reproduce, summary
        from ..paper.results import BrokenResult
        from ..paper.row import Refused
        from ..train import CheckpointMismatch

        given = {"epochs": self.epochs, "learning_rates": self.learning_rates, "penalties": self.penalties}
        given |= {"grid": self.grid, "quick": self.quick, "data_dir": self.data_dir and Path(self.data_dir)}
        row = self.find()
        try:
            done = reproduce(row, self.seeds, Path(self.results), Path(self.runs), **given)
        except (DataNotFound, DataCorrupted, BrokenResult, CheckpointMismatch, Refused, ImportError) as error:
            return Outcome(str(error), failed=True)
        if not done:
            return Outcome(f"done before, see {Path(self.results) / self.table}")
        return Outcome(summary(done, "mse" if isinstance(row, Baseline) else row.task.monitor))

    def find(self) -> "Row | Baseline":
        """The row itself, which holds functions and could not be sent."""
        from ..paper import physiome
        from ..paper.tables import TABLES

        rows = physiome.rows(self.dataset) if self.table == physiome.TABLE else TABLES[self.table]
        return next(row for row in rows if (row.name, row.dataset) == (self.name, self.dataset))
