"""Check a built site: every internal link leads somewhere, nothing is loaded from another host, and it is small.

python docs/tools/check_site.py docs/_build/html
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGEST = 15_000_000  # bytes of the whole site
LOADED = {  # attributes by which a page loads something
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("object", "data"),
    ("video", "src"),
    ("audio", "src"),
    ("use", "href"),
    ("image", "href"),
}
_NAMES = {"canonical", "search", "index", "next", "prev", "author", "help", "copyright"}  # links that load nothing
_CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        self.loaded += [given[name] for kind, name in LOADED if kind == tag and name in given]
        self.loaded += [a or b for a, b in _CSS.findall(given.get("style", ""))]
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and not set(given.get("rel", "").split()) <= _NAMES:
            self.loaded.append(given.get("href", ""))
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.loaded += [a or b for a, b in _CSS.findall(data)]


def faults(site: Path) -> list[str]:
    """Everything that is wrong, one line each."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: there are no pages"]
    for path, page in pages.items():
        for each in page.loaded:
            found += _loaded(site, path, each)
        for each in page.links:
            found += _link(site, path, each, pages)
    for path in sorted(site.rglob("*.css")):
        for a, b in _CSS.findall(path.read_text(encoding="utf-8")):
            found += _loaded(site, path, a or b)
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and ".doctrees" not in path.parts)
    if size > LARGEST:
        found.append(f"the site has {size:,} bytes, more than {LARGEST:,}")
    return found


def _loaded(site: Path, path: Path, address: str) -> list[str]:
    parts = urlsplit(address)
    if parts.scheme == "data" or not (parts.path or parts.netloc):
        return []
    where = path.relative_to(site)
    if parts.scheme or parts.netloc:
        return [f"{where}: loads {address} from another host"]
    return [] if (path.parent / unquote(parts.path)).is_file() else [f"{where}: loads {address}, which is not there"]


def _link(site: Path, path: Path, address: str, pages: dict[Path, Page]) -> list[str]:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return []
    where = path.relative_to(site)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return [f"{where}: the link to {address} leads nowhere"]
    known = pages.get(target)
    if parts.fragment and known is not None and unquote(parts.fragment) not in known.ids:
        return [f"{where}: there is no place {address}"]
    return []


def main() -> None:
    site = Path(sys.argv[1])
    found = faults(site)
    for each in found:
        print(each, file=sys.stderr)
    if found:
        sys.exit(f"{len(found)} faults in {site}")
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages, no broken link, nothing from another host")


if __name__ == "__main__":
    main()
