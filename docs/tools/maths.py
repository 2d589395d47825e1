"""Mathematics as SVG, drawn while building: no script and no font is loaded by a reader, and it follows the theme."""

import html

import ziamath
from sphinx.application import Sphinx

ziamath.config.svg2 = False  # paths, not symbols with ids that would be there twice
EM = 16.0  # pixels of the text beside it


def svg(latex: str, block: bool) -> str:
    """A formula whose size follows that of the text, standing on its line."""
    drawn = ziamath.Latex(latex.strip(), size=EM * 1.06, inline=not block, color="currentColor")
    root = drawn.svgxml()
    width, height = (float(root.get(side, "0")) / EM for side in ("width", "height"))
    root.set("width", f"{width:.3f}em")
    root.set("height", f"{height:.3f}em")
    root.set("role", "img")
    root.set("aria-label", " ".join(latex.split()))
    low = sum(float(each) for each in root.get("viewBox", "0 0 0 0").split()[1::2])  # below the line of text
    if not block:
        root.set("style", f"vertical-align:{-low / EM:.3f}em")
    from xml.etree import ElementTree

    return ElementTree.tostring(root, encoding="unicode")


def _inline(self, node) -> None:
    self.body.append(f'<span class="math">{svg(node.astext(), block=False)}</span>')
    from docutils.nodes import SkipNode

    raise SkipNode


def _block(self, node) -> None:
    from docutils.nodes import SkipNode

    number = f'<span class="eqno">({html.escape(str(node["number"]))})</span>' if node.get("number") else ""
    ids = f' id="{html.escape(node["ids"][0])}"' if node.get("ids") else ""
    self.body.append(f'<div class="math block"{ids}>{svg(node.astext(), block=True)}{number}</div>\n')
    raise SkipNode


def setup(app: Sphinx) -> dict:
    app.add_html_math_renderer("svg", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
