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


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def written(folder, *names, copies=None):
    """A page with pictures of these names."""
    pictures = [page.Picture(name, name.encode(), name) for name in names]
    page.write(folder, "A", "lead", [page.Section("One", [], [page.Gallery(pictures)])], copies=copies or {})


def test_a_rewritten_page_keeps_what_is_its_own_and_what_never_was(tmp_path):
    source, out = tmp_path / "run.json", tmp_path / "out"
    source.write_text("{}")
    written(out, "stays", "goes", "changed", copies={"results/a/<&>.json": source, "results/b/stays.json": source})
    own = ("mine.png", "results/c/mine.json", "changed.png")
    for name in own:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("a user's")
    written(out, "stays", "new", copies={"results/b/stays.json": source})
    assert files(out) == {"index.html", "stays.png", "new.png", "results/b/stays.json", *own}
    assert not (out / "results/a").exists()
    assert all((out / name).read_text() == "a user's" for name in own)


def test_a_page_over_one_of_a_users_own_removes_nothing(tmp_path):
    for name in ("index.html", "results/a/run.json", "picture.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    written(tmp_path, "dot")
    assert files(tmp_path) == {"index.html", "results/a/run.json", "picture.png", "dot.png"}


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
