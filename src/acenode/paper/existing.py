"""What is there already of a row: its result files, and what of it is still to be trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import results
from .row import Refused, Row, Setting


class Existing(NamedTuple):
    """The result files of some seeds of a row, and the settings they were made with; none where there is no file."""

    files: Mapping[int, Path]
    made: Mapping[int, Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path, row: Any, seeds: Sequence[int], quick: bool = False) -> "Existing":
        files = {seed: results.path_of(folder, row.table, row.name, seed, quick, row.dataset) for seed in seeds}
        # All are read, or a broken file would count as done.
        return cls(files, {seed: results.read(path).config for seed, path in files.items() if path.exists()})

    def missing(self, row: Row, epochs: int, queried: Sequence[Setting] | None) -> list[int]:
        """The seeds without a result that has the settings of the row now, as many epochs and those that are queried.

        Refuses to replace a result by that of a shorter training.
        """
        seeds = [seed for seed in self.files if not self._done(seed, row, epochs, queried)]
        for seed in seeds:
            had = int(self.made.get(seed, {}).get("epochs", 0))
            if had > epochs:
                raise Refused(
                    f"{self.files[seed]} is of a training of {had} epochs with other settings; {epochs} epochs will "
                    "not replace it. Write to another folder of results, or train as many."
                )
        return seeds

    def _done(self, seed: int, row: Row, epochs: int, queried: Sequence[Setting] | None) -> bool:
        made = self.made.get(seed)
        if made is None or made.get("epochs", 0) < epochs or row.changed(made):
            return False
        own = [{name: made.get(name) for name in ("learning_rate", "penalty")}]
        tried = {(each["learning_rate"], each["penalty"]) for each in made.get("grid", own)}
        return queried is None or tried in (set(queried), set(row.rates_only(queried)))

    def tried(self, seeds: Sequence[int]) -> Sequence[Setting]:
        """The settings among which older results of these seeds were chosen, if they were."""
        for seed in seeds:
            made = self.made.get(seed, {})
            if "grid" in made:
                return tuple((each["learning_rate"], each["penalty"]) for each in made["grid"])
        return ()
