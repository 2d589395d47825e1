"""One self-contained HTML page: words, tables and pictures, no server and nothing to fetch."""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_STYLE = """
:root { --ink:#1f2933; --soft:#52606d; --back:#ffffff; --card:#f7f7f4; --line:#e4e7eb; --accent:#d1495b; }
@media (prefers-color-scheme: dark) {
  :root { --ink:#e4e7eb; --soft:#9aa5b1; --back:#14181d; --card:#1d232a; --line:#323f4b; --accent:#f2808d; } }
* { box-sizing: border-box; }
body { margin:0 auto; max-width:62rem; padding:1.5rem 1.2rem 4rem; font:16px/1.6 system-ui, sans-serif;
  color:var(--ink); background:var(--back); }
h1 { font-size:1.7rem; line-height:1.25; margin:.5rem 0; }
h2 { font-size:1.15rem; margin:2.4rem 0 .4rem; }
p { margin:.5rem 0; max-width:46rem; } .soft { color:var(--soft); }
img { width:100%; height:auto; border-radius:.5rem; background:#fff; border:1px solid var(--line); padding:.4rem; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; }
th, td { text-align:right; padding:.4rem .7rem; border-bottom:1px solid var(--line); white-space:nowrap; }
th:first-child, td:first-child { text-align:left; } th { color:var(--soft); font-weight:600; }
tr.best td { color:var(--accent); font-weight:600; }
"""


@dataclass(frozen=True)
class Picture:
    """A figure as PNG bytes, and what it shows in words."""

    name: str
    png: bytes
    alt: str


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: int | None = None


@dataclass(frozen=True)
class Section:
    title: str
    words: Sequence[str]
    content: Sequence[Picture | Table] = ()


def picture(name: str, figure, alt: str) -> Picture:
    """A matplotlib figure as a picture; the figure is closed."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight")
    plt.close(figure)
    return Picture(name, buffer.getvalue(), alt)


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as a string."""
    body = "\n".join(_section(s) for s in sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>\n{body}\n</main></body></html>\n"
    )


def _section(section: Section) -> str:
    words = "".join(f"<p>{html.escape(w)}</p>" for w in section.words)
    parts = "".join(_picture(c) if isinstance(c, Picture) else _table(c) for c in section.content)
    return f"<section><h2>{html.escape(section.title)}</h2>{words}{parts}</section>"


def _picture(p: Picture) -> str:
    data = base64.b64encode(p.png).decode()
    return f'<p style="max-width:none"><img alt="{html.escape(p.alt)}" src="data:image/png;base64,{data}"></p>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in table.columns)
    rows = "".join(
        f"<tr{' class=best' if i == table.best else ''}>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>"
        for i, row in enumerate(table.rows)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def write(folder: Path, title: str, lead: str, sections: Sequence[Section]) -> Path:
    """Write `index.html` and every picture as a PNG beside it; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for part in section.content:
            if isinstance(part, Picture):
                (folder / f"{part.name}.png").write_bytes(part.png)
    page = folder / "index.html"
    page.write_text(render(title, lead, sections), encoding="utf-8")
    return page
