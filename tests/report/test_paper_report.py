"""`acenode report`: the page on all tables, its links and files, and the explanations of the tables."""

import html
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from runs import accuracies, everything, result, saved
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.paper.results import frame, load
from acenode.paper.tables import TABLES, names
from acenode.report import paper_plots
from acenode.report.page import Picture
from acenode.report.paper import explanation
from acenode.report.scores import scores
from acenode.report.verdicts import comparisons

pytestmark = pytest.mark.slow  # what all tests share is made first

ROOT = Path(__file__).parents[2]


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def not_rendered(monkeypatch):
    """Figures are made but not turned into SVG, which takes most of the time."""

    def picture(name, figure, alt, caption=""):
        plt.close(figure)
        return Picture(name, "<svg/>", alt, caption)

    monkeypatch.setattr(paper_plots, "picture", picture)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    answer = report("--results", saved(folder / "results", everything()), "--out", folder / "page")
    assert answer.exit_code == 0, answer.output
    return folder / "page"


@pytest.fixture(scope="module")
def text(made):
    return (made / "index.html").read_text()


def check_links(folder: Path) -> str:
    """Every link and picture of a page is there, and no other host is named; its text."""
    text = (folder / "index.html").read_text()
    anchors = set(re.findall(r'\bid="(.*?)"', text))
    for link in re.findall(r'(?:href|src)="(.*?)"', text):
        link = html.unescape(link)
        assert link == "data:," or (link[1:] in anchors if link.startswith("#") else (folder / link).is_file()), link
    assert "<script" not in text and "://" not in text and 'src="//' not in text
    return text


@pytest.mark.slow
def test_links_and_pictures_are_there_and_nothing_comes_from_elsewhere(made):
    text = check_links(made)
    assert html.escape("<script>alert('row')</script>").replace("&#x27;", "&#39;") in text
    for path in made.glob("*.svg"):
        assert "://" not in re.sub(r'xmlns(:\w+)?="[^"]*"|"-//[^>]*>', "", path.read_text())


OURS = ("double-ou", "attention-settings", "known-truth")  # tables without published rows, shown once they were run


def test_every_table_is_there_run_or_not(text):
    titles = [explanation(table)["title"] for table in names() if table not in OURS]
    assert set(titles) | {"Summary", "a table of our own"} == {
        html.unescape(t) for t in re.findall("<h2>(.*?)</h2>", text)
    }


def test_every_run_is_linked_and_lies_beside_the_page(made, text):
    links = set(re.findall('href="(results/.*?)"', text))
    assert links == {p.relative_to(made).as_posix() for p in made.glob("results/*/*.json")}
    assert len(links) == len(everything())


def test_all_comparisons_and_scores_are_beside_the_page(made):
    runs = frame(everything())
    summary, table = (pd.read_csv(made / f"{name}.csv", keep_default_na=False) for name in ("summary", "scores"))
    expected = comparisons(runs)
    assert list(summary.columns) == list(expected.columns) and list(summary.verdict) == list(expected.verdict)
    assert len(table) == len(scores(runs)) and set(table.row) == {run.row for run in everything()}


@pytest.mark.slow
def test_the_page_of_our_results_shows_the_numbers_of_the_files(tmp_path, not_rendered):
    answer = report("--results", ROOT / "results", "--out", tmp_path)
    assert answer.exit_code == 0, answer.output
    text = check_links(tmp_path)
    for own in scores(frame(load(ROOT / "results"))).itertuples():
        if own.metric in ("accuracy", "auc") and own.table != "activity":
            assert f"{own.mean:.4f} ± {own.sd:.4f}" in text


@pytest.mark.slow
def test_a_folder_without_results_gives_the_published_numbers(tmp_path):
    answer = report("--results", tmp_path / "none", "--out", tmp_path / "page")
    assert answer.exit_code == 0 and "No result files" in answer.stderr
    text = check_links(tmp_path / "page")
    assert "0.9968 ± 0.0003" in text
    assert "DUP01" in text and not [*(tmp_path / "page").glob("*.svg")]  # nothing of ours to rank or draw


@pytest.mark.slow
def test_a_table_with_several_data_sets_has_a_matrix_and_ranks(tmp_path, monkeypatch):
    rows = [row for row in TABLES["double-ou"] if row.name in ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes")]
    sets = [f"S{k}" for k in range(6)]
    many = tuple(replace(row, table="many", dataset=name, controls=(), reported=()) for name in sets for row in rows)
    monkeypatch.setitem(TABLES, "many", many)
    runs = [
        result(
            "many",
            row.name,
            seed,
            {"negll": float(row.dataset[1]) + 0.5 * bool(row.base) + 0.1 * seed},
            dataset=row.dataset,
        )
        for row in many
        for seed in range(2)
    ]
    answer = report("--results", saved(tmp_path / "results", runs), "--out", tmp_path / "page")
    assert answer.exit_code == 0, answer.output
    text = check_links(tmp_path / "page")
    section = text[text.index('<section id="many">') :]
    ranks = re.findall(r"<tr.*?><td>(.*?)</td><td>(.*?)</td><td>(\d+)</td>", section)
    assert ranks == [("GRU-ODE-Bayes", "1.00", "6"), ("ACE-GRU-ODE-Bayes", "2.00", "0")]
    assert all(f">{name}</th>" in section for name in sets) and (tmp_path / "page/many-negll-ranks.svg").exists()


@pytest.mark.slow
def test_a_rewritten_report_holds_no_runs_and_no_figures_that_are_gone(tmp_path, not_rendered):
    runs, out = tmp_path / "results", tmp_path / "out"
    saved(runs, [*accuracies("mnist", "ODE-Net", 0.9, 0.91), *accuracies("svhn", "ODE-Net", 0.9)])
    assert report("--results", runs, "--out", out).exit_code == 0
    shutil.rmtree(runs / "svhn")
    (runs / "mnist/ode-net-seed1.json").unlink()
    assert report("--results", runs, "--out", out).exit_code == 0
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    written = {"index.html", "summary.csv", "scores.csv"}
    assert names == {*written, "mnist-training.svg", "results/mnist/ode-net-seed0.json"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda folder: next(folder.glob("results/mnist/*")).write_text("{"), "is not a result file: Expecting"),
        (lambda folder: next(folder.glob("results/mnist/*")).write_text("{}"), "is not a result file: 'notes'"),
        (lambda folder: (folder / "results/mnist").rename(folder / "results/moved"), "row and seed name the file"),
        (lambda folder: (folder / "out").write_text("a file"), "cannot use"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path, spoil, said, not_rendered):
    saved(tmp_path / "results", accuracies("mnist", "ODE-Net", 0.9))
    spoil(tmp_path)
    answer = report("--results", tmp_path / "results", "--out", tmp_path / "out")
    assert answer.exit_code == 1 and said in answer.stderr and len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "out/index.html").exists()


# --- explanations -----------------------------------------------------------------------------------------------


def test_every_table_has_an_explanation_whose_variables_are_filled_in():
    written = {path.name.removesuffix(".md") for path in files("acenode.report").joinpath("explanations").iterdir()}
    assert written == {*names(), "summary"}
    for table in written:
        told = explanation(table)
        assert told["title"] and told["about"] and "<li>" in told["html"] and "{" not in told["html"]


def test_numbers_in_an_explanation_are_those_of_the_rows(monkeypatch):
    row = TABLES["mnist"][0]
    changed = tuple(replace(each, config=each.config | {"tolerance": 0.125}) for each in TABLES["mnist"])
    assert f"tolerance of {row.config['tolerance']:g}" in explanation("mnist")["html"]
    monkeypatch.setitem(TABLES, "mnist", changed)
    assert "tolerance of 0.125" in explanation("mnist")["html"]


def test_a_table_without_an_explanation_is_called_by_its_name():
    assert explanation("new") == {"title": "new", "about": "", "html": ""}


# --- in a browser -----------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium and no google-chrome on this machine")
def test_every_table_opens_in_a_browser_without_a_complaint(made, text, tmp_path):
    (made / "click.html").write_text(CLICK)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--enable-logging=stderr"]
    flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path}", "--window-size=500,900", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [BROWSER, *flags, (made / "click.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    (made / "click.html").unlink()
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
