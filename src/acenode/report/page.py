"""One self-contained HTML page: words, tables and pictures, no server and nothing to fetch.

What a page says is given as plain text and escaped here, all of it.
"""

import base64
import html
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from .beside import write_all
from .style import THEME

_PAGE_COLOURS = {  # light, dark
    "back": ("#ffffff", "#14181d"),
    "card": ("#f7f7f4", "#1d232a"),
    "line": ("#e4e7eb", "#323f4b"),
    "soft": ("#52606d", "#a3aeba"),
    "accent": ("#b93a4c", "#f2808d"),
    "link": ("#1f6f91", "#7cc4e4"),
    "good": ("#2d6b38", "#7cc68a"),
    "bad": ("#b3392f", "#f2938a"),
}


Tone = Literal["", "good", "bad", "soft"]


@dataclass(frozen=True)
class Picture:
    """A figure as PNG bytes, and what it shows in words. An `svg` takes the PNG's place on the page: it can go dark."""

    name: str
    png: bytes
    alt: str
    caption: str = ""
    svg: str = ""


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side where the screen is wide enough."""

    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its text: how it is meant, where it leads."""

    text: str
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """`best` is the row to stand out, `below` holds what opens under a row, `words` names columns that are no numbers.

    A `stacked` table is a list of cards where the screen is narrow; its last column is words.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    best: int | None = None
    caption: str = ""
    below: Mapping[int, "Details"] = field(default_factory=dict)
    stacked: bool = False
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Details:
    """What opens on a click or a key."""

    summary: str
    words: Sequence[str] = ()
    table: Table | None = None


@dataclass(frozen=True)
class Bullets:
    title: str
    sentences: Sequence[str]


Content = Picture | Gallery | Table | Details | Bullets


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading. `short` is its name in the list of contents."""

    title: str
    words: Sequence[str]
    content: Sequence[Content] = ()
    short: str = ""

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", (self.short or self.title).lower()).strip("-")


def picture(name: str, figure, alt: str, caption: str = "") -> Picture:
    """A matplotlib figure as a picture; the figure is closed."""
    import matplotlib
    import matplotlib.pyplot as plt

    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=130, bbox_inches="tight")
    unnamed = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", dpi=130, bbox_inches="tight", transparent=True, metadata=unnamed)
    plt.close(figure)
    return Picture(name, png.getvalue(), alt, caption, _themed(svg.getvalue()))


def _themed(svg: str) -> str:
    """An SVG to stand in a page: without its own size, and with the page's colours for the light ones it was drawn in.

    Names inside it are the same in every figure; those of them that nothing refers to are left out.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    for light, (name, _) in THEME.items():
        svg = svg.replace(light, f"var(--{name})")
    return svg


def render(title: str, lead: str, sections: Sequence[Section], *, contents: bool = False) -> str:
    """The page as a string; with `contents` it has a list of its sections that stays in sight."""
    body = "\n".join(_section(s) for s in sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{_style()}</style></head>\n"
        f"<body>{_contents(sections) if contents else ''}"
        f'<main id="main"><h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>\n{body}\n</main></body></html>\n'
    )


@cache
def _style() -> str:
    colours = _PAGE_COLOURS | {name: (light, dark) for light, (name, dark) in THEME.items()}

    def root(which: int) -> str:
        return ":root {" + " ".join(f"--{name}:{each[which]};" for name, each in colours.items()) + "}"

    rules = files("acenode.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"{root(0)}\n@media (prefers-color-scheme: dark) {{ {root(1)} }}\n{rules}"


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#{s.anchor}">{html.escape(s.short or s.title)}</a></li>' for s in sections)
    skip = '<a class="skip" href="#main">Skip the contents</a>'
    return f'{skip}<nav aria-label="Contents" tabindex="-1"><ul>{links}</ul></nav>'


def _section(section: Section) -> str:
    parts = "".join(map(_content, section.content))
    words = _paragraphs(section.words)
    return f'<section id="{section.anchor}"><h2>{html.escape(section.title)}</h2>{words}{parts}</section>'


def _content(part: Content) -> str:
    match part:
        case Picture():
            return _picture(part)
        case Gallery():
            return f'<div class="gallery">{"".join(map(_picture, part.pictures))}</div>'
        case Table():
            return _table(part)
        case Details():
            return _details(part)
        case Bullets():
            items = "".join(f"<li>{html.escape(s)}</li>" for s in part.sentences)
            return f"<h3>{html.escape(part.title)}</h3><ul>{items}</ul>"


def _paragraphs(words: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(w)}</p>" for w in words)


def _picture(p: Picture) -> str:
    alt = html.escape(p.alt)
    shown = f'<img alt="{alt}" src="data:image/png;base64,{base64.b64encode(p.png).decode()}">'
    if p.svg:
        shown = p.svg.replace("<svg", f'<svg role="img" aria-label="{alt}"', 1)
    caption = f"<figcaption>{html.escape(p.caption)}</figcaption>" if p.caption else ""
    return f"<figure>{shown}{caption}</figure>"


def _table(table: Table) -> str:
    caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(
        f'<th scope="col"{_class("words" if c in table.words else "")}>{html.escape(c)}</th>' for c in table.columns
    )
    rows = "".join(
        f"<tr{' class=best' if i == table.best else ''}>{_cells(table, row)}</tr>{_below(table, i)}"
        for i, row in enumerate(table.rows)
    )
    style = "scroll stacked" if table.stacked else "scroll"
    # A keyboard can scroll only what it can reach.
    reach = f' tabindex="0" role="region" aria-label="{html.escape(table.caption or "table")}"'
    return (
        f'<div class="{style}"{"" if table.stacked else reach}>'
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cells(table: Table, row: Sequence[str | Cell]) -> str:
    made = []
    for k, (column, each) in enumerate(zip(table.columns, row, strict=True)):
        cell = Cell(each) if isinstance(each, str) else each
        text = html.escape(cell.text)
        if cell.link:
            text = f'<a href="{html.escape(cell.link)}">{text}</a>'
        style = _class(cell.tone, "words" if column in table.words else "")
        if table.stacked and k and text:
            made.append(f'<td{style} data-column="{html.escape(column)}"><span>{text}</span></td>')
        else:
            made.append(f"<td{style}>{text}</td>")
    return "".join(made)


def _class(*names: str) -> str:
    joined = " ".join(filter(None, names))
    return f' class="{joined}"' if joined else ""


def _below(table: Table, row: int) -> str:
    if row not in table.below:
        return ""
    return f'<tr class="more"><td colspan="{len(table.columns)}">{_details(table.below[row])}</td></tr>'


def _details(details: Details) -> str:
    table = _table(details.table) if details.table else ""
    inside = _paragraphs(details.words) + table
    return f'<details><summary>{html.escape(details.summary)}</summary><div class="inside">{inside}</div></details>'


def _pictures(sections: Sequence[Section]) -> Iterator[Picture]:
    for section in sections:
        for part in section.content:
            if isinstance(part, Gallery):
                yield from part.pictures
            elif isinstance(part, Picture):
                yield part


def write(
    folder: Path,
    title: str,
    lead: str,
    sections: Sequence[Section],
    *,
    contents: bool = False,
    copies: Mapping[str, Path] = MappingProxyType({}),
) -> Path:
    """Write every picture as a PNG, a copy of each file that is named, and then `index.html`; return the page's path.

    What an earlier page wrote into the folder and this one does not is removed.
    """
    page, pictures = folder / "index.html", {f"{each.name}.png": each.png for each in _pictures(sections)}
    write_all(page, render(title, lead, sections, contents=contents), {**copies, **pictures})
    return page
