"""A page and the files beside it. The page ends with a list of them, so that a later one takes away what it has not."""

import html
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from ..train.checkpoint import write_atomically

_LIST = "<!-- Written with this page (SHA-256, file):\n"


def write_all(page: Path, text: str, files: Mapping[str, bytes | Path]) -> None:
    """Write the files, by name from the page's folder, and then the page. A path is a file to copy.

    A file that an earlier page lists and this one does not have is removed, unless it was changed since. One that
    already lies where its copy would be is not the page's, and not listed.
    """
    earlier, written = _listed(page), {}
    for name, source in files.items():
        place = page.parent / name
        if isinstance(source, Path) and place.exists() and place.samefile(source):
            continue
        content = source.read_bytes() if isinstance(source, Path) else source
        write_atomically(place, content)
        written[name] = sha256(content).hexdigest()
    for name in earlier.keys() - files.keys():
        _remove(page.parent, name, earlier[name])
    lines = "".join(f"{digest}  {html.escape(name)}\n" for name, digest in written.items())
    write_atomically(page, f"{text}{_LIST}{lines}-->\n".encode())


def _listed(page: Path) -> dict[str, str]:
    if not page.is_file():
        return {}
    _, _, after = page.read_text(encoding="utf-8", errors="replace").partition(_LIST)
    pairs = (line.split("  ", 1) for line in after.split("\n") if "  " in line)
    return {html.unescape(name): digest for digest, name in pairs}


def _remove(folder: Path, name: str, digest: str) -> None:
    """Remove a file that is as it was written, and the folders that are empty without it."""
    place = folder / name
    inside = place.parent.resolve().is_relative_to(folder.resolve())
    if not inside or not place.is_file() or sha256(place.read_bytes()).hexdigest() != digest:
        return
    place.unlink()
    for parent in place.parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
