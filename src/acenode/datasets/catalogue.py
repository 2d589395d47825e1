"""Every data set of the library as a small value: what it is, its files, how it is loaded and described.

To add one, add a value to `CATALOGUE`. Nothing heavy is imported before a data set is loaded or fetched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files
from .files import Folder, Remote

if TYPE_CHECKING:
    from .facts import Facts


@dataclass(frozen=True)
class Table:
    """Series as a pyarrow table: one row for each id and time, blanks where nothing was observed."""

    rows: Any
    id: str
    time: str
    label: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set.

    `folder` is the name of its folder in a data folder, and `needs` its files there, each by the names (or patterns) it
    may have; a generated data set has none. `official` gives the files to fetch. `load` reads what lies in a data
    folder, `facts` describes what `load` gave; `table` makes a table of what lies there, where it is series.

    A collection of sets has `sets`, which names those that lie in a data folder; `load` and `table` then need the name
    of one besides. `make` makes one of them from what a person has to get first, as `source` says.
    """

    name: str
    what: str
    size: str
    licence: str
    load: Callable[..., Any]
    facts: Callable[[Any], "Facts"]
    folder: str = ""
    needs: tuple[tuple[str, ...], ...] = ()
    official: Callable[[], tuple[Remote, ...]] | None = None
    table: "Callable[..., Table] | None" = None
    sets: Callable[[Folder | None], list[str]] | None = None
    make: Callable[..., Path] | None = None
    source: str = ""

    @property
    def generated(self) -> bool:
        return not self.needs

    def places(self, data_dir: Folder | None = None) -> list[Path]:
        """Where its files are looked for."""
        return [*files.user_folders(self.folder, data_dir), files.cache_folder() / self.folder]

    def steps(self) -> str:
        """How a person gets the official files."""
        if self.make is not None:
            return self.source
        if self.official is None:
            return f"{self.name} has no official files to fetch."
        return files.by_hand(self.folder, *(remote.url for remote in self.official()))

    def found(self, data_dir: Folder | None = None) -> Path | None:
        """The folder that holds its files, or None."""
        if self.generated:
            return None
        for place in self.places(data_dir):
            if all(any(_exists(place, name) for name in names) for names in self.needs):
                return place
        return None


def _exists(place: Path, pattern: str) -> bool:
    return place.is_dir() and any(place.glob(pattern))


def _later(path: str) -> Callable[..., Any]:
    """The function `module:name` of this package, imported when it is called."""
    module, name = path.split(":")

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(f".{module}", __package__), name)(*args, **options)

    return call


# --- what is loaded, described and written as a table ----------------------------------------------------------------


def _load_physionet(data_dir: Folder | None) -> Any:
    from . import physionet

    return physionet.load(physionet.present(data_dir), data_dir=data_dir, clean=physionet.PUBLISHED)


def _physionet_table(data_dir: Folder | None) -> Table:
    """Without the sentinels and the impossible values."""
    import numpy as np
    import pyarrow as pa

    from . import physionet

    data = physionet.load(physionet.present(data_dir), data_dir=data_dir)
    rows = _panel_rows(data, "record", "hour")
    died = dict(zip(data.panel.ids.tolist(), data.died.tolist(), strict=True))
    labels = [None if np.isnan(died[record]) else int(died[record]) for record in rows["record"].to_pylist()]
    return Table(rows.append_column("died", pa.array(labels, pa.int8())), "record", "hour", "died")


def _load_physiome(data_dir: Folder | None, name: str) -> Any:
    from . import physiome

    return physiome.load(name, data_dir)


def _panel_rows(data: Any, id: str, time: str) -> Any:
    from ..series import to_wide

    return to_wide(data.panel, id=id, time=time, backend="pyarrow")


def _table(load: Callable[..., Any], id: str) -> Callable[..., Table]:
    return lambda *where: Table(_panel_rows(load(*where), id, "time"), id, "time")


def _generated(name: str, what: str, size: str, path: str) -> DataSet:
    """A data set made by the function `module:name`."""

    def load(data_dir: Folder | None) -> Any:
        return _later(path)()

    return DataSet(name, what, size, "generated", load, _later("facts:of_generated"), table=_table(load, "series"))


# --- all of them -----------------------------------------------------------------------------------------------------

_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

_ALL = (
    DataSet(
        name="mnist",
        what="handwritten digits, grey, 28x28",
        size="70,000 images, 12 MB",
        licence="CC BY-SA 3.0",
        load=_later("mnist:load"),
        facts=_later("facts:of_images"),
        folder="mnist",
        needs=tuple((f"{name}.gz", name) for name in _IDX),
        official=_later("mnist:official"),
    ),
    DataSet(
        name="svhn",
        what="house numbers, one digit in colour, 32x32",
        size="99,289 images, 246 MB",
        licence="non-commercial use",
        load=_later("svhn:load"),
        facts=_later("facts:of_images"),
        folder="svhn",
        needs=(("train_32x32.mat",), ("test_32x32.mat",)),
        official=_later("svhn:official"),
    ),
    DataSet(
        name="cifar10",
        what="photographs of ten kinds of things, 32x32",
        size="60,000 images, 170 MB",
        licence="none stated",
        load=_later("cifar10:load"),
        facts=_later("facts:of_images"),
        folder="cifar10",
        needs=(("cifar-10-binary.tar.gz", "cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin"),),
        official=_later("cifar10:official"),
    ),
    DataSet(
        name="physionet",
        what="PhysioNet 2012: two days of intensive care, and who died",
        size="12,000 stays, 41 variables",
        licence="ODC-By 1.0",
        load=_load_physionet,
        facts=_later("facts:of_physionet"),
        folder="physionet2012",
        needs=(("set-a", "set-a.tar*", "set-a.tgz", "set-a-[bc]*.t*"),),
        official=_later("physionet:official"),
        table=_physionet_table,
    ),
    DataSet(
        name="activity",
        what="Human Activity: where four tags on a body are, and what it does",
        size="25 recordings, 164,860 lines, 21 MB",
        licence="CC BY 4.0",
        load=_later("activity:load"),
        facts=_later("facts:of_activity"),
        folder="activity",
        needs=(
            (
                "ConfLongDemo_JSI.txt",
                "all_sequences_quantised.parquet",
                "ConfLongDemo_JSI_A01-A04_full_precision.csv",
            ),
        ),
        official=_later("activity:official"),
    ),
    DataSet(
        name="ushcn",
        what="USHCN: daily climate of the United States, seen sporadically, as published",
        size="some 1,100 stations, 350,665 rows",
        licence="public data",
        load=_later("ushcn:load_national"),
        facts=_later("facts:of_climate"),
        folder="ushcn",
        needs=(("small_chunked_sporadic.csv",),),
        official=_later("ushcn:official_national"),
        table=_table(_later("ushcn:load_national"), "station"),
    ),
    DataSet(
        name="ushcn-maine",
        what="USHCN Maine: the same of one state, over more than a century",
        size="12 stations, 1.7 million values, 2 MB",
        licence="public data",
        load=_later("ushcn:load_maine"),
        facts=_later("facts:of_climate"),
        folder="ushcn",
        needs=(("state17_ME.txt.gz", "state17_ME.txt"),),
        official=_later("ushcn:official_maine"),
        table=_table(_later("ushcn:load_maine"), "window"),
    ),
    DataSet(
        name="physiome",
        what="Physiome-ODE: series of 50 published physiological ODEs, the clean ones before noise and masks",
        size="50 sets of 2,000 series, 2 to 56 variables",
        licence="CC BY (models), Apache-2.0 (benchmark)",
        load=_load_physiome,
        facts=_later("facts:of_physiome"),
        folder="physiome",
        needs=(("*.npz",),),
        table=_table(_load_physiome, "series"),
        sets=_later("physiome:names"),
        make=_later("physiome_raw:make"),
        source="It is made from a checkout of the benchmark: clone https://github.com/kloetergensc/Physiome-ODE, "
        "then call acenode data get physiome --from CHECKOUT --set LI01, with any of its sets; without --set all 50.",
    ),
    _generated(
        *("ou", "double Ornstein-Uhlenbeck process, with the best possible prediction"),
        *("10,000 series, 2 variables", "ou:generate"),
    ),
    _generated(
        *("kuramoto", "oscillators on a signed graph that switches, with their true influence"),
        *("1,000 series, 10 variables", "kuramoto:generate"),
    ),
    _generated(
        *("springs", "bodies on springs, with their true influence"),
        *("1,000 series, 20 variables", "springs:generate"),
    ),
    _generated(
        *("charged", "charged particles, with their true influence"),
        *("1,000 series, 20 variables", "springs:charged"),
    ),
    _generated(
        *("gene-regulation", "ten genes, one knocked out, with their true influence"),
        *("1,000 series, 10 variables", "gene_regulation:generate"),
    ),
    _generated(
        *("multi-region-sir", "an epidemic in regions whose mobility changes, with their true influence"),
        *("1,000 series, 12 variables", "multi_region_sir:generate"),
    ),
    DataSet(
        name="regions",
        what="regions whose influence on each other turns; the data of the demo",
        size="400 series, 6 variables",
        licence="generated",
        load=lambda data_dir: _later("regions:generate")(),
        facts=_later("facts:of_regions"),
    ),
)
CATALOGUE = {each.name: each for each in _ALL}
