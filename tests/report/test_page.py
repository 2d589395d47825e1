"""The HTML page: self-contained, escaped, with its pictures beside it."""

from acenode.report import page


def test_page_holds_everything_and_escapes(tmp_path):
    picture = page.Picture("dot", b"not really a png", 'a "dot" & more')
    table = page.Table(["model", "score"], [["<b>", "1"], ["plain", "2"]], best=1)
    path = page.write(tmp_path, "A & B", "lead", [page.Section("One", ["words <here>"], [picture, table])])
    text = path.read_text()
    assert (tmp_path / "dot.png").read_bytes() == b"not really a png"
    assert "words &lt;here&gt;" in text and "&lt;b&gt;" in text and "A &amp; B" in text
    assert "&quot;dot&quot;" in text
    assert text.count("<tr class=best>") == 1
    assert 'src="http' not in text and "<script" not in text
