"""Every data set of the library as a small value: what it is, its files, how it is loaded and described.

To add one, add a value to `CATALOGUE`. Nothing heavy is imported before a data set is loaded or fetched.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
    may have; a generated data set has none. `official` gives the files to fetch, and `steps` says how to do that by
    hand. `load` reads what lies in a data folder, `facts` describes what `load` gave; `table` makes a table of what
    lies there, where it is series.
    """

    name: str
    what: str
    size: str
    licence: str
    load: Callable[[Folder | None], Any]
    facts: Callable[[Any], "Facts"]
    folder: str = ""
    needs: tuple[tuple[str, ...], ...] = ()
    official: Callable[[], tuple[Remote, ...]] | None = None
    table: "Callable[[Folder | None], Table] | None" = None
    steps: Callable[[], str] = str

    @property
    def generated(self) -> bool:
        return not self.needs

    def places(self, data_dir: Folder | None = None) -> list[Path]:
        """Where its files are looked for."""
        return [*files.user_folders(self.folder, data_dir), files.cache_folder() / self.folder]

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


def _by_hand(folder: str, remotes: tuple[Remote, ...]) -> str:
    urls = "".join(f"\n  {remote.url}" for remote in remotes)
    return (
        f"To get it by hand: download{urls}\nand put it into a folder named {folder}; then pass the folder that holds "
        "it as --data-dir, or set the environment variable ACENODE_DATA to it."
    )


# --- images ----------------------------------------------------------------------------------------------------------


def _mnist() -> tuple[Remote, ...]:
    from . import mnist

    return tuple(Remote(name, mnist.URL + name, md5=md5) for name, md5 in mnist.MD5.items())


def _svhn() -> tuple[Remote, ...]:
    from . import svhn

    return tuple(Remote(name, svhn.URL + name, md5=md5) for name, md5 in svhn.MD5.items())


def _cifar10() -> tuple[Remote, ...]:
    from . import cifar10

    return (Remote(cifar10.ARCHIVE, cifar10.URL, md5=cifar10.MD5),)


def _load_images(name: str) -> Callable[[Folder | None], Any]:
    def load(data_dir: Folder | None) -> Any:
        from importlib import import_module

        return import_module(f".{name}", __package__).load(data_dir)

    return load


def _image_facts(images: Any) -> "Facts":
    from .facts import of_images

    return of_images(images)


# --- time series -----------------------------------------------------------------------------------------------------


def _physionet() -> tuple[Remote, ...]:
    from . import physionet

    return tuple(Remote(name, physionet.URL + name, sha256=sha256) for name, sha256 in physionet.SHA256.items())


def _load_physionet(data_dir: Folder | None) -> Any:
    from . import physionet

    return physionet.load(physionet.present(data_dir), data_dir=data_dir, clean=physionet.PUBLISHED)


def _physionet_facts(data: Any) -> "Facts":
    from .facts import of_physionet

    return of_physionet(data)


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


def _panel_rows(data: Any, id: str, time: str) -> Any:
    from ..series import to_wide

    return to_wide(data.panel, id=id, time=time, backend="pyarrow")


def _table(load: Callable[[Folder | None], Any], id: str) -> Callable[[Folder | None], Table]:
    return lambda data_dir: Table(_panel_rows(load(data_dir), id, "time"), id, "time")


def _activity() -> tuple[Remote, ...]:
    from . import activity

    return (Remote(activity.FILES["original"], activity.URL, md5=activity.MD5),)


def _activity_steps() -> str:
    from . import activity

    return activity.by_hand()


def _load_activity(data_dir: Folder | None) -> Any:
    from . import activity

    return activity.load(data_dir)


def _activity_facts(data: Any) -> "Facts":
    from .facts import of_activity

    return of_activity(data)


def _national() -> tuple[Remote, ...]:
    from . import ushcn

    return (Remote(ushcn.NATIONAL, ushcn.NATIONAL_URL, sha256=ushcn.NATIONAL_SHA256),)


def _maine() -> tuple[Remote, ...]:
    from . import ushcn

    return (Remote(ushcn.MAINE, ushcn.MAINE_URL, sha256=ushcn.MAINE_SHA256),)


def _load_national(data_dir: Folder | None) -> Any:
    from . import ushcn

    return ushcn.load_national(data_dir)


def _load_maine(data_dir: Folder | None) -> Any:
    from . import ushcn

    return ushcn.load_maine(data_dir)


def _national_facts(data: Any) -> "Facts":
    from .facts import of_climate

    return of_climate(data, dict.fromkeys(data.panel.variables, "scaled"))


def _maine_facts(data: Any) -> "Facts":
    from .facts import of_climate

    units = {"PRCP": "0.01 in", "SNOW": "0.1 in", "SNWD": "in", "TMAX": "degrees F", "TMIN": "degrees F"}
    return of_climate(data, units)


# --- generated -------------------------------------------------------------------------------------------------------


def _generate(name: str) -> Callable[[Folder | None], Any]:
    def load(data_dir: Folder | None) -> Any:
        from importlib import import_module

        return import_module(f".{name}", __package__).generate()

    return load


def _panel_facts(data: Any) -> "Facts":
    from .facts import of_panel

    return of_panel(data.panel)


def _region_facts(data: Any) -> "Facts":
    import numpy as np

    from ..series import Panel
    from .facts import of_panel

    return of_panel(Panel(data.series, np.arange(len(data.series)), data.names))


# --- all of them -----------------------------------------------------------------------------------------------------

_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

_ALL = (
    DataSet(
        name="mnist",
        what="handwritten digits, grey, 28x28",
        size="70,000 images, 12 MB",
        licence="CC BY-SA 3.0",
        load=_load_images("mnist"),
        facts=_image_facts,
        folder="mnist",
        needs=tuple((f"{name}.gz", name) for name in _IDX),
        official=_mnist,
        steps=lambda: _by_hand("mnist", _mnist()),
    ),
    DataSet(
        name="svhn",
        what="house numbers, one digit in colour, 32x32",
        size="99,289 images, 246 MB",
        licence="non-commercial use",
        load=_load_images("svhn"),
        facts=_image_facts,
        folder="svhn",
        needs=(("train_32x32.mat",), ("test_32x32.mat",)),
        official=_svhn,
        steps=lambda: _by_hand("svhn", _svhn()),
    ),
    DataSet(
        name="cifar10",
        what="photographs of ten kinds of things, 32x32",
        size="60,000 images, 170 MB",
        licence="none stated",
        load=_load_images("cifar10"),
        facts=_image_facts,
        folder="cifar10",
        needs=(("cifar-10-binary.tar.gz", "cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin"),),
        official=_cifar10,
        steps=lambda: _by_hand("cifar10", _cifar10()),
    ),
    DataSet(
        name="physionet",
        what="PhysioNet 2012: two days of intensive care, and who died",
        size="12,000 stays, 41 variables",
        licence="ODC-By 1.0",
        load=_load_physionet,
        facts=_physionet_facts,
        folder="physionet2012",
        needs=(("set-a", "set-a.tar*", "set-a.tgz", "set-a-[bc]*.t*"),),
        official=_physionet,
        table=_physionet_table,
        steps=lambda: _by_hand("physionet2012", _physionet()),
    ),
    DataSet(
        name="activity",
        what="Human Activity: where four tags on a body are, and what it does",
        size="25 recordings, 164,860 lines, 21 MB",
        licence="CC BY 4.0",
        load=_load_activity,
        facts=_activity_facts,
        folder="activity",
        needs=(
            (
                "ConfLongDemo_JSI.txt",
                "all_sequences_quantised.parquet",
                "ConfLongDemo_JSI_A01-A04_full_precision.csv",
            ),
        ),
        official=_activity,
        steps=_activity_steps,
    ),
    DataSet(
        name="ushcn",
        what="USHCN: daily climate of the United States, seen sporadically, as published",
        size="some 1,100 stations, 350,665 rows",
        licence="public data",
        load=_load_national,
        facts=_national_facts,
        folder="ushcn",
        needs=(("small_chunked_sporadic.csv",),),
        official=_national,
        table=_table(_load_national, "station"),
        steps=lambda: _by_hand("ushcn", _national()),
    ),
    DataSet(
        name="ushcn-maine",
        what="USHCN Maine: the same of one state, over more than a century",
        size="12 stations, 1.7 million values, 2 MB",
        licence="public data",
        load=_load_maine,
        facts=_maine_facts,
        folder="ushcn",
        needs=(("state17_ME.txt.gz", "state17_ME.txt"),),
        official=_maine,
        table=_table(_load_maine, "window"),
        steps=lambda: _by_hand("ushcn", _maine()),
    ),
    DataSet(
        name="ou",
        what="double Ornstein-Uhlenbeck process, with the best possible prediction",
        size="10,000 series, 2 variables",
        licence="generated",
        load=_generate("ou"),
        facts=_panel_facts,
        table=_table(_generate("ou"), "series"),
    ),
    DataSet(
        name="regions",
        what="regions whose influence on each other turns; the data of the demo",
        size="400 series, 6 variables",
        licence="generated",
        load=_generate("regions"),
        facts=_region_facts,
    ),
)
CATALOGUE = {each.name: each for each in _ALL}
