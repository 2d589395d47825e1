"""The HTML page: escaped, with its pictures beside it, and nothing from an earlier page that is not its own."""

import re

from acenode.report import page


def test_page_holds_everything_and_escapes(tmp_path):
    picture = page.Picture("dot", "<svg>not really</svg>", 'a "dot" & more', "below <it>")
    table = page.Table(["model", "score"], [["<b>", "1"], ["plain", "2"]], best=1)
    path = page.write(tmp_path, "A & B", "lead", [page.Section("One", ["words <here>"], [picture, table])])
    text = path.read_text()
    assert (tmp_path / "dot.svg").read_text() == "<svg>not really</svg>"
    assert "words &lt;here&gt;" in text and "&lt;b&gt;" in text and "A &amp; B" in text and "below &lt;it&gt;" in text
    assert 'alt="a &#34;dot&#34; &amp; more"' in text and re.findall('src="(.*?)"', text) == ["dot.svg"]
    assert text.count('<tr class="best">') == 1 and "<script" not in text and "http" not in text


def test_a_figure_has_its_size_and_goes_dark_with_the_page():
    import matplotlib.pyplot as plt

    from acenode.report.plots import INK, THEME

    figure, axis = plt.subplots(figsize=(4, 2))
    axis.plot([0, 1], [0, 1], color=INK)
    made = page.picture("line", figure, "a line")
    assert made.svg.startswith("<svg") and 0.3 < made.size[1] / made.size[0] < 0.7
    after = made.svg.split("</style>")[-1]
    assert INK not in after and "var(--colour0)" in after and f"--colour0:{THEME[INK]};" in made.svg
    assert not plt.fignum_exists(figure.number)


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def written(folder, *names, copies=None):
    """A page with files of these names, and copies."""
    made = {**{name: name.encode() for name in names}, **(copies or {})}
    page.write_page(folder, "page.html.j2", made, title="A", lead="lead", sections=[])


def test_a_rewritten_page_keeps_what_is_its_own_and_what_never_was(tmp_path):
    source, out = tmp_path / "run.json", tmp_path / "out"
    source.write_text("{}")
    written(out, "stays", "goes", "changed", copies={"results/a/<&>.json": source, "results/b/stays.json": source})
    own = ("mine.svg", "results/c/mine.json", "changed")
    for name in own:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("a user's")
    written(out, "stays", "new", copies={"results/b/stays.json": source})
    assert files(out) == {"index.html", "stays", "new", "results/b/stays.json", *own}
    assert not (out / "results/a").exists()
    assert all((out / name).read_text() == "a user's" for name in own)


def test_a_page_over_one_of_a_users_own_removes_nothing(tmp_path):
    for name in ("index.html", "results/a/run.json", "picture.svg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    written(tmp_path, "dot")
    assert files(tmp_path) == {"index.html", "results/a/run.json", "picture.svg", "dot"}


def test_files_that_a_page_was_made_from_are_never_its_own(tmp_path):
    elsewhere, here = tmp_path / "elsewhere.json", tmp_path / "out/results/a.json"
    elsewhere.write_text("{}")
    written(here.parents[1], copies={"results/a.json": elsewhere})
    written(here.parents[1], copies={"results/a.json": here})
    written(here.parents[1])
    assert here.read_text() == "{}"


def test_nothing_outside_the_folder_is_removed(tmp_path):
    source, outside = tmp_path / "run.json", tmp_path / "outside.json"
    source.write_text("{}")
    written(tmp_path / "out", copies={"../outside.json": source})
    written(tmp_path / "out")
    assert outside.read_text() == "{}"
