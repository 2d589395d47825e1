"""Where data files come from: the user's folders, the cache, or the official site (once, checked by checksum)."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..folders import user_cache

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
    """The folder in which downloads and parsed copies are kept; below that of temporary files without a home."""
    return (user_cache() or Path(tempfile.gettempdir()) / "acenode") / "data"


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


def find(name: str, remote: Remote, data_dir: Folder | None = None) -> Path:
    """The official file `remote` of the data set `name`, or the user's own copy of it.

    Looks in `data_dir`, the folder `$ACENODE_DATA` and the cache, and then downloads it into the cache. What lies in
    the user's own folders is taken as it is: it may rightly be a repacked or regenerated copy. The cache holds official
    files only, so these are checked. Raises `DataNotFound` or `DataCorrupted`.
    """
    own = look(name, remote.name, data_dir=data_dir)
    if own is not None:
        return own
    target = cache_folder() / name / remote.name
    if target.exists():
        _check(target, remote, f"{target} (data set {name})", "Delete it; it is then fetched again.")
        return target
    places = "\n".join(f"  {place}" for place in (*user_folders(name, data_dir), target.parent))
    unset = "" if os.environ.get("ACENODE_DATA") else "\nThe environment variable ACENODE_DATA is not set."
    absent = f"{remote.name} of the data set {name} was not found. Looked in:\n{places}{unset}"
    _download(target, remote, lambda fault: f"{absent}\n{fault}\n{by_hand(name, remote.url)}")
    return target


def fetch(name: str, remote: Remote, folder: Path, bar: Any = None) -> Path:
    """The official file `remote` of the data set `name` in `folder`, downloaded if it is not there.

    If that fails, nothing is left behind. `bar` is told how far the download is: pooch sets its `total` and calls
    `update`, `reset` and `close`.
    """
    target = folder / remote.name
    if target.exists():
        _check(target, remote, str(target), "Delete it; it is then fetched again.")
        return target
    absent = [place for place in (folder, *folder.parents) if not place.exists()]

    def fault(why: str) -> str:
        return f"{remote.name} of the data set {name} could not be fetched. {why}\n{by_hand(folder.name, remote.url)}"

    try:
        _download(target, remote, fault, bar)
    finally:
        for place in absent:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
    return target


def by_hand(folder: str, *urls: str) -> str:
    """How a person gets official files."""
    named = f" {urls[0]} " if len(urls) == 1 else "".join(f"\n  {url}" for url in urls) + "\n"
    return (
        f"To get it by hand: download{named}and put it into a folder named {folder}; then pass the folder that holds "
        "it as data_dir (--data-dir), or set the environment variable ACENODE_DATA to it."
    )


def listed(counts: dict[str, int], most: int = 12) -> str:
    """Names with their counts, greatest first: for reports of what was wrong with a file."""
    if not counts:
        return "none"
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in ordered[:most])
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _check(path: Path, remote: Remote, what: str, remedy: str) -> None:
    """Raise `DataCorrupted` about `what` unless the file has the expected checksum."""
    for algorithm, expected in (("sha256", remote.sha256), ("md5", remote.md5)):
        if expected is None:
            continue
        found = digest(path, algorithm)
        if found != expected.lower():
            raise DataCorrupted(f"{what} has {algorithm} {found}, expected {expected}. {remedy}")


def _download(target: Path, remote: Remote, sentence: Callable[[str], str], bar: Any = None) -> None:
    """Download to `target`, which appears only when it is whole and right; `sentence` is the error about a fault."""
    import pooch
    import requests

    def fetch(url: str, part: str, owner) -> None:
        pooch.HTTPDownloader(progressbar=bar or False, timeout=60)(url, part, owner)
        # Checked here rather than by pooch so that the error names both checksums and the remedy.
        remedy = "Nothing was kept. Try again later; if it fails again the official file has changed: please report it."
        _check(Path(part), remote, f"{target.name}, downloaded from {url},", remedy)

    target.parent.mkdir(parents=True, exist_ok=True)
    known_hash = f"sha256:{remote.sha256}" if remote.sha256 else f"md5:{remote.md5}" if remote.md5 else None
    log = pooch.get_logger()
    level = log.level
    if bar is not None:
        log.setLevel("WARNING")  # the bar says the rest
    try:
        # pooch annotates downloaders by other parameter names than it calls them with.
        pooch.retrieve(remote.url, known_hash, target.name, target.parent, downloader=fetch)  # pyright: ignore[reportArgumentType]
    except requests.exceptions.RequestException as error:
        raise DataNotFound(sentence(f"The download from {remote.url} failed: {error}")) from error
    finally:
        log.setLevel(level)
