"""The tools of the documentation: every public name is described, and faults of a built site are found."""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module", autouse=True)
def tools():
    sys.path.insert(0, str(DOCS))
    yield
    sys.path.remove(str(DOCS))


def test_every_public_name_has_a_docstring():
    from tools import api

    assert api.undocumented() == []


def test_every_public_name_is_in_the_reference(tmp_path):
    from tools import api

    api.write(tmp_path)
    pages = {path.stem: path.read_text() for path in (tmp_path / "api").glob("*.md")}
    top = api.public(importlib.import_module("acenode"))
    assert all(f"`acenode.{name}`" in pages["index"] for name in top if name not in api.PACKAGES)
    for package in api.packages():
        names = api.public(importlib.import_module(package))
        assert [
            name for name in names if f"## {name}\n" not in pages[package] and f"`{name}`" not in pages[package]
        ] == []


def test_every_command_is_in_the_reference(tmp_path):
    from tools import commands

    from acenode.cli.main import app

    commands.write(tmp_path)
    text = (tmp_path / "api" / "commands.md").read_text()
    for each in app.registered_commands:
        assert f"## acenode {each.name or each.callback.__name__}\n" in text


SITE = {
    "index.html": '<a href="page.html#here">1</a><a href="https://doi.org/x">2</a><img src="dot.svg">',
    "page.html": '<h1 id="here">1</h1><link rel="stylesheet" href="a.css">',
    "dot.svg": "<svg/>",
    "a.css": "body { background: url(dot.svg) }",
}


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("index.html", '<a href="other.html">1</a>', "leads nowhere"),
        ("index.html", '<a href="page.html#there">1</a>', "there is no place page.html#there"),
        ("index.html", '<script src="https://cdn.example/x.js"></script>', "from another host"),
        ("index.html", '<link rel="stylesheet" href="//fonts.example/x.css">', "from another host"),
        ("index.html", "<style>@import 'https://fonts.example/x.css';</style>", "from another host"),
        ("index.html", '<img src="other.png">', "which is not there"),
        ("a.css", "@font-face { src: url('https://fonts.example/x.woff') }", "from another host"),
    ],
)
def test_faults_of_a_site_are_found(tmp_path, name, content, words):
    from tools.check_site import faults

    for file, text in SITE.items():
        (tmp_path / file).write_text(text)
    assert faults(tmp_path) == []
    (tmp_path / name).write_text(content)
    found = faults(tmp_path)
    assert len(found) == 1 and words in found[0] and found[0].startswith(name)


def test_the_models_named_in_the_guide_exist():
    """`choosing.md` recommends models by name."""
    import re

    from acenode.estimators.registry import MODELS

    table = (DOCS / "choosing.md").read_text().split("## A model for a reason")[1].split("##")[0]
    cells = re.findall(r"^\|[^|]*\|([^|]*)\|", table, re.M)
    named = {each for cell in cells for each in re.findall(r"`([\w-]+)`", cell)}
    assert named and named <= MODELS.keys()
