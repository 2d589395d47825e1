"""Where data files come from: the user's folders, the cache, or the official site (once, checked by checksum)."""

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

Folder = str | os.PathLike[str]


class DataNotFound(FileNotFoundError):
    """A file of a data set is neither on this machine nor to be downloaded; the message says how to get it."""


class DataCorrupted(ValueError):
    """A file of a data set is damaged or not the official one; the message says what to do."""


class Remote(NamedTuple):
    """An official file: its name here, where it is, and its checksum as far as one is known."""

    name: str
    url: str
    sha256: str | None = None
    md5: str | None = None


def cache_folder() -> Path:
    """The folder in which downloads and parsed copies are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("acenode", appauthor=False)) / "data"


def user_folders(name: str, data_dir: Folder | None = None) -> list[Path]:
    """Folders of the user's own that may hold the data set `name`: `data_dir`, then `$ACENODE_DATA`.

    Either may be the data set's own folder, or a folder that holds one named after each data set.
    """
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DataNotFound(f"{name}: the given data folder {os.fspath(data_dir)!r} is not a folder.")
    given = [Path(folder) for folder in (data_dir, os.environ.get("ACENODE_DATA")) if folder]
    return [place for folder in given for place in (folder / name, folder)]


def look(name: str, relative: str, *, data_dir: Folder | None = None) -> Path | None:
    """The file (or folder) `relative` of the data set `name` in the user's own folders, or None."""
    for place in user_folders(name, data_dir):
        if (place / relative).exists():
            return place / relative
    return None


def find(
    name: str,
    relative: str,
    *,
    data_dir: Folder | None = None,
    url: str | None = None,
    sha256: str | None = None,
    md5: str | None = None,
    steps: str,
) -> Path:
    """The file `relative` of the data set `name`.

    Looks in `data_dir`, the folder `$ACENODE_DATA` and the cache, and then downloads `url` into the cache. What lies
    in the user's own folders is taken as it is: it may rightly be a repacked or regenerated copy. The cache holds
    official files only, so these are checked against `sha256` (or `md5`).

    `steps` tells a person how to get the file by hand. Raises `DataNotFound` or `DataCorrupted`.
    """
    own = look(name, relative, data_dir=data_dir)
    if own is not None:
        return own
    target = cache_folder() / name / relative
    if target.exists():
        _check(target, sha256, md5, f"{target} (data set {name})", "Delete it; it is then fetched again.")
        return target
    searched = [*user_folders(name, data_dir), target.parent]
    if url is None:
        raise DataNotFound(_not_found(name, relative, searched, "It cannot be downloaded automatically.", steps))
    _download(target, url, sha256, md5, lambda fault: _not_found(name, relative, searched, fault, steps))
    return target


def fetch(name: str, remote: Remote, folder: Path, *, steps: str, bar: Any = None) -> Path:
    """The official file `remote` of the data set `name` in `folder`, downloaded if it is not there.

    If that fails, nothing is left behind. `bar` is told how far the download is: pooch sets its `total` and calls
    `update`, `reset` and `close`.
    """
    target = folder / remote.name
    if target.exists():
        _check(target, remote.sha256, remote.md5, str(target), "Delete it; it is then fetched again.")
        return target
    absent = [place for place in (folder, *folder.parents) if not place.exists()]

    def fault(why: str) -> str:
        return f"{remote.name} of the data set {name} could not be fetched. {why}\n{steps}"

    try:
        _download(target, remote.url, remote.sha256, remote.md5, fault, bar)
    finally:
        for place in absent:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
    return target


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _check(path: Path, sha256: str | None, md5: str | None, what: str, remedy: str) -> None:
    """Raise `DataCorrupted` about `what` unless the file has the expected checksum."""
    for algorithm, expected in (("sha256", sha256), ("md5", md5)):
        if expected is None:
            continue
        found = digest(path, algorithm)
        if found != expected.lower():
            raise DataCorrupted(f"{what} has {algorithm} {found}, expected {expected}. {remedy}")


def _download(target: Path, url: str, sha256: str | None, md5: str | None, not_found, bar: Any = None) -> None:
    """Download `url` to `target`, which appears only when it is whole and right."""
    import pooch
    import requests

    def fetch(url: str, part: str, owner) -> None:
        pooch.HTTPDownloader(progressbar=bar or False, timeout=60)(url, part, owner)
        # Checked here rather than by pooch so that the error names both checksums and the remedy.
        remedy = "Nothing was kept. Try again later; if it fails again the official file has changed: please report it."
        _check(Path(part), sha256, md5, f"{target.name}, downloaded from {url},", remedy)

    target.parent.mkdir(parents=True, exist_ok=True)
    known_hash = _known_hash(sha256, md5)
    log = pooch.get_logger()
    level = log.level
    if bar is not None:
        log.setLevel("WARNING")  # the bar says the rest
    try:
        # pooch annotates downloaders by other parameter names than it calls them with.
        pooch.retrieve(url, known_hash, target.name, target.parent, downloader=fetch)  # pyright: ignore[reportArgumentType]
    except requests.exceptions.RequestException as error:
        raise DataNotFound(not_found(f"The download from {url} failed: {error}")) from error
    finally:
        log.setLevel(level)


def _known_hash(sha256: str | None, md5: str | None) -> str | None:
    """The checksum as pooch writes it."""
    if sha256 is not None:
        return f"sha256:{sha256}"
    return None if md5 is None else f"md5:{md5}"


def _not_found(name: str, relative: str, searched: list[Path], fault: str, steps: str) -> str:
    """The message of `DataNotFound`."""
    places = "\n".join(f"  {place}" for place in searched)
    unset = "" if os.environ.get("ACENODE_DATA") else "\nThe environment variable ACENODE_DATA is not set."
    return f"{relative} of the data set {name} was not found. Looked in:\n{places}{unset}\n{fault}\n{steps}"
