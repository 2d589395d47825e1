"""The command line: quick help, clear refusals, the demo from end to end in a small budget."""

import functools as ft
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from acenode import demo
from acenode.cli.main import app

runner = CliRunner()


def test_help_imports_nothing_heavy():
    code = (
        "import sys, acenode.cli.main; heavy = ('jax', 'numpy', 'polars', 'sklearn', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version():
    assert runner.invoke(app, ["--version"]).output.startswith("acenode 0.")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["reproduce", "nonsense"], "no table 'nonsense'"),
        (["reproduce", "silhouette", "--row", "nobody"], "no row 'nobody'"),
        (["reproduce", "double-ou", "--grid"], "--grid: the paper has none for 'GRU-ODE-Bayes'"),
        (["reproduce", "physionet-classification", "--row", "nobody"], "no row 'nobody'"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(arguments, words):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert words in result.output


def test_missing_data_says_what_to_do(tmp_path, monkeypatch):
    from acenode.datasets import files

    def unavailable(*_, **__):
        raise files.DataNotFound("physionet2012: set-a.tar.gz was not found; copy it there.")

    monkeypatch.setattr("acenode.datasets.physionet.load", unavailable)
    result = runner.invoke(
        app, ["reproduce", "physionet-classification", "--results", str(tmp_path), "--data-dir", "x"]
    )
    assert result.exit_code == 1
    assert "was not found" in result.output


@pytest.mark.slow
def test_demo_writes_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr("acenode.demo.SEEDS", 2)
    monkeypatch.setattr("acenode.demo.match_slopes", ft.partial(demo.match_slopes, steps=(10, 10, 10), starts=1))
    page = demo.run(tmp_path / "d", epochs=1, size=(20, 4, 4))
    names = {p.name for p in (tmp_path / "d").iterdir()}
    assert names == {"index.html", *(f"{n}.svg" for n in ("forecasts", "influence", "edges", "error"))}
    words = page.read_text()
    assert all(
        name in words for name in (*names - {"index.html"}, demo.ATTENTIVE, demo.CONSTANT, demo.NONE, demo.LARGE)
    )
    assert "http" not in words.replace("http://www.w3.org", "")


def test_demo_refuses_a_folder_it_cannot_write(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert result.exit_code == 1
    assert "Choose another folder" in result.output
