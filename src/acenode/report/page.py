"""An HTML page with its pictures beside it: sections of words, tables and figures. It fetches nothing."""

import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from ..train.checkpoint import write_atomically
from .plots import THEME

_LIST = "<!-- Written with this page (SHA-256, file):\n"


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, what it shows in words, and its width and height in pixels."""

    name: str
    svg: str
    alt: str
    caption: str = ""
    size: tuple[int, int] = (480, 320)

    @property
    def file(self) -> str:
        return f"{self.name}.svg"


@dataclass(frozen=True)
class Table:
    """Columns, rows, and which row is the best."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: int | None = None


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, paragraphs, tables and pictures."""

    title: str
    words: Sequence[str]
    content: Sequence[Picture | Table] = ()


def picture(name: str, figure, alt: str, caption: str = "") -> Picture:
    """A matplotlib figure as a picture; the figure is closed."""
    import matplotlib
    import matplotlib.pyplot as plt

    svg = io.StringIO()
    unnamed = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", dpi=130, bbox_inches="tight", transparent=True, metadata=unnamed)
    plt.close(figure)
    text = svg.getvalue()
    width, height = (round(float(each) * 4 / 3) for each in re.findall(r' (?:width|height)="([\d.]+)pt"', text)[:2])
    return Picture(name, _themed(text), alt, caption, (width, height))


def _themed(svg: str) -> str:
    """An SVG whose colours go dark with the reader's screen."""
    names = {light: f"--colour{k}" for k, light in enumerate(THEME)}
    for light, name in names.items():
        svg = svg.replace(light, f"var({name})")
    light, dark = (" ".join(f"{names[a]}:{b};" for a, b in pairs) for pairs in (((c, c) for c in THEME), THEME.items()))
    style = f"<style>:root {{{light}}} @media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}</style>"
    return svg[svg.index("<svg") :].replace(">", f">{style}", 1)


@cache
def environment():
    """The templates; everything that is put into them is escaped."""
    import jinja2

    options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    made = jinja2.Environment(loader=jinja2.PackageLoader("acenode.report"), autoescape=True, **options)
    made.filters["g"] = "{:g}".format
    return made


def write(folder: Path, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write every picture and then `index.html`; return the page's path."""
    drawn = {p.file: p.svg.encode() for section in sections for p in section.content if isinstance(p, Picture)}
    return write_page(folder, "page.html.j2", drawn, title=title, lead=lead, sections=sections)


def write_page(folder: Path, template: str, files: Mapping[str, bytes | Path], **given: object) -> Path:
    """Write the files (bytes, or a file to copy) and then the page that a template makes of what is given.

    The page ends with a list of the files. One that an earlier page lists and this one does not have is removed,
    unless it was changed since. One that already lies where its copy would be is not the page's, and not listed.
    """
    text, page = environment().get_template(template).render(**given), folder / "index.html"
    earlier, written = _listed(page), {}
    for name, source in files.items():
        place = folder / name
        if isinstance(source, Path) and place.exists() and place.samefile(source):
            continue
        content = source.read_bytes() if isinstance(source, Path) else source
        write_atomically(place, content)
        written[name] = sha256(content).hexdigest()
    for name in earlier.keys() - files.keys():
        _remove(folder, name, earlier[name])
    lines = "".join(f"{digest}  {html.escape(name)}\n" for name, digest in written.items())
    write_atomically(page, f"{text}{_LIST}{lines}-->\n".encode())
    return page


def _listed(page: Path) -> dict[str, str]:
    after = page.read_text(encoding="utf-8", errors="replace").partition(_LIST)[2] if page.is_file() else ""
    pairs = (line.split("  ", 1) for line in after.split("\n") if "  " in line)
    return {html.unescape(name): digest for digest, name in pairs}


def _remove(folder: Path, name: str, digest: str) -> None:
    """Remove a file that is as it was written, and the folders that are empty without it."""
    place = folder / name
    inside = place.parent.resolve().is_relative_to(folder.resolve())
    if inside and place.is_file() and sha256(place.read_bytes()).hexdigest() == digest:
        place.unlink()
        for parent in place.parents:
            if parent == folder or any(parent.iterdir()):
                return
            parent.rmdir()
