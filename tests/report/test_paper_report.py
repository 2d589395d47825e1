"""The report on the paper's tables and the part of README made from result files."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from runs import accuracies, everything, saved
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.paper.published import published
from acenode.paper.results import load
from acenode.report import readme
from acenode.report.overview import title_of

ROOT = Path(__file__).parents[2]
MARKED = f"before\n{readme.BEGIN}\nwhat was there\n{readme.END}\nafter\n"


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    answer = report("--results", saved(folder / "results", everything()), "--out", folder / "page")
    assert answer.exit_code == 0, answer.output
    return folder / "page"


@pytest.fixture(scope="module")
def text(made):
    return (made / "index.html").read_text()


def test_every_table_of_the_paper_is_there_run_or_not(text):
    titles = re.findall("<h2>(.*?)</h2>", text)
    assert titles[1:11] == [title_of(table) for table in dict.fromkeys(p.table for p in published())]
    assert titles[11:] == ["a table of our own"]
    assert text.count("Not run yet: the published numbers alone.") == 5
    anchors = re.findall('href="#(.*?)"', text)
    assert set(anchors) <= set(re.findall('id="(.*?)"', text))


def test_every_run_is_named_and_lies_beside_the_page(made, text):
    links = set(re.findall('href="(results/.*?)"', text))
    assert links == {p.relative_to(made).as_posix() for p in made.glob("results/*/*.json")}
    assert len(links) == len(everything())


def test_nothing_is_fetched_and_nothing_slips_in(text):
    assert "<script" not in text and "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text
    assert html.escape("<script>alert('row')</script>") in text


def test_figures_of_every_kind_are_drawn_once(made):
    names = [p.stem for p in made.glob("*.png")]
    for kind in ("mnist-learning", "ushcn-error", "ushcn-entropy", "attention-size-cifar10"):
        assert kind in names
    for kind in ("attention", "attention-maps", "embedding"):
        assert f"mnist-{kind}-ace-ode-net" in names and f"mnist-{kind}-ode-net" not in names


def test_small_budgets_and_other_settings_are_marked(text):
    assert "one seed: no interval, quick run after 16 of 160 epochs" in text
    assert "not comparable: another setting" in text and "protocol: one state" in text


# --- the command ------------------------------------------------------------------------------------------------


def test_readme_is_what_the_command_makes_of_the_results():
    written = (ROOT / "README.md").read_text()
    assert written == readme.with_results(written, load(ROOT / "results")), (
        "README.md is stale: run acenode report --readme README.md"
    )


def test_readme_is_rewritten_between_its_markers(tmp_path):
    file = tmp_path / "README.md"
    file.write_text(MARKED)
    quick = accuracies("svhn", "ODE-Net", 0.9, config={"epochs": 16, "quick": True})
    runs = saved(tmp_path / "results", [*accuracies("mnist", "ODE-Net", 0.995, 0.996, 0.997), *quick])
    answer = report("--results", runs, "--out", tmp_path / "out", "--readme", file)
    assert answer.exit_code == 0 and answer.stdout.splitlines() == [str(tmp_path / "out/index.html"), str(file)]
    text = file.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "what was there" not in text
    assert "| ODE-Net | 0.9961 ± 0.0005 | 0.9960 ± 0.0010 | 3 x 160 |" in text and "1 x 16 of 160, quick" in text


def test_a_rewritten_report_holds_no_runs_and_no_figures_that_are_gone(tmp_path):
    runs, out = tmp_path / "results", tmp_path / "out"
    saved(runs, [*accuracies("mnist", "ODE-Net", 0.9, 0.91), *accuracies("svhn", "ODE-Net", 0.9)])
    assert report("--results", runs, "--out", out).exit_code == 0
    shutil.rmtree(runs / "svhn")
    (runs / "mnist/ode-net-seed1.json").unlink()
    assert report("--results", runs, "--out", out).exit_code == 0
    names = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    assert names == {"index.html", "mnist-learning.png", "results", "results/mnist", "results/mnist/ode-net-seed0.json"}


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda folder: shutil.rmtree(folder / "results"), "no result files in"),
        (lambda folder: next(folder.glob("results/mnist/*")).write_text("{"), "is not a result file: Expecting"),
        (lambda folder: next(folder.glob("results/mnist/*")).write_text("{}"), "is not a result file: 'notes'"),
        (
            lambda folder: (folder / "results/mnist").rename(folder / "results/moved"),
            "row and seed name the file",
        ),
        (lambda folder: (folder / "out").write_text("a file"), "cannot use"),
        (lambda folder: (folder / "README.md").write_text("no markers"), "README.md needs the lines <!-- results"),
        (lambda folder: (folder / "README.md").unlink(), "No such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path, spoil, said):
    saved(tmp_path / "results", accuracies("mnist", "ODE-Net", 0.9))
    file = tmp_path / "README.md"
    file.write_text(MARKED)
    spoil(tmp_path)
    before = file.read_text() if file.exists() else None
    answer = report("--results", tmp_path / "results", "--out", tmp_path / "out", "--readme", file)
    assert answer.exit_code == 1 and said in answer.stderr and len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "out/index.html").exists()
    assert before == (file.read_text() if file.exists() else None)


# --- in a browser -----------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no chromium and no google-chrome on this machine")
def test_every_table_opens_in_a_browser_without_a_complaint(made, text, tmp_path):
    (made / "click.html").write_text(CLICK)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--enable-logging=stderr"]
    flags += [f"--user-data-dir={tmp_path}", "--window-size=500,900", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [BROWSER, *flags, (made / "click.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    found = dict(re.findall(r"<li>(.*?): (.*?)</li>", done.stdout))
    anchors = re.findall("<nav.*?</nav>", text, flags=re.S)[0].count("href")
    assert found == {"sections": str(anchors), "in sight": str(anchors), "opened": found["opened"], "too wide": "0"}
    assert int(found["opened"]) > 10


# A page that holds the report at a phone's width, follows every link of its contents, and opens whatever opens.
CLICK = """<!doctype html><iframe src="index.html" style="width:390px;height:800px"></iframe><ul></ul><script>
onload = () => {
  const { document: page, innerHeight: height } = frames[0];
  const links = [...page.querySelectorAll("nav a")];
  let sight = 0;
  for (const link of links) {
    link.click();
    const top = page.querySelector(link.getAttribute("href")).getBoundingClientRect().top;
    const end = page.documentElement.scrollHeight - page.documentElement.scrollTop <= height + 1;
    sight += (top >= 0 && top < height / 2) || (end && top < height);
  }
  const details = [...page.querySelectorAll("details")];
  details.forEach(each => each.querySelector("summary").click());
  const opened = details.filter(each => each.open).length;
  const wide = page.documentElement.scrollWidth > 390 ? 1 : 0;
  const says = { sections: links.length, "in sight": sight, opened, "too wide": wide };
  for (const [name, value] of Object.entries(says)) {
    const item = document.createElement("li");
    item.textContent = `${name}: ${value}`;
    document.querySelector("ul").append(item);
  }
};
</script>"""
