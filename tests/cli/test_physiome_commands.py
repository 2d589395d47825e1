"""Physiome-ODE at the terminal: make sets, look at them, train rows on any of them."""

import json
from functools import partial

import jax
import pandas as pd
import pytest
from physiome_sets import DECAY, checkout, clean, pack
from typer.testing import CliRunner

from acenode.cli.main import app
from acenode.datasets import files, physiome as data, physiome_raw
from acenode.models import GRUD, Filter
from acenode.paper import physiome, results
from acenode.tasks import GaussianHead, Headed


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    for module in (files, data):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    monkeypatch.setattr(physiome_raw, "make", partial(physiome_raw.make, series=12))


def acenode(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def refused(*arguments) -> str:
    answer = acenode(*arguments)
    assert answer.exit_code == 1 and "acenode: " in answer.stderr and "Traceback" not in answer.stderr
    return answer.stderr


# --- data ------------------------------------------------------------------------------------------------------------


def test_a_set_is_made_once_and_then_known(tmp_path):
    place, folder = checkout(tmp_path / "checkout"), tmp_path / "data"
    get = ("data", "get", "physiome", "--from", place, "--set", "DUP01", "--jobs", 1, "--data-dir", folder)
    answer = acenode(*get)
    assert answer.exit_code == 0 and answer.stdout == f"DUP01 of physiome in {folder / 'physiome'}\n", answer.output
    path = folder / "physiome" / "DUP01.npz"
    made = path.stat()
    assert acenode(*get).exit_code == 0 and path.stat().st_mtime_ns == made.st_mtime_ns
    listed = json.loads(acenode("data", "list", "--data-dir", folder, "--json").stdout)
    assert {one["name"]: one["found"] for one in listed}["physiome"] == str(folder / "physiome")


def test_sets_go_to_the_cache_and_are_found_there(tmp_path):
    place = checkout(tmp_path / "checkout")
    assert acenode("data", "get", "physiome", "--from", place, "--set", "DUP01", "--jobs", 1).exit_code == 0
    assert data.find("DUP01") == tmp_path / "cache" / "physiome" / "DUP01.npz"
    assert acenode("data", "info", "physiome", "--set", "DUP01").exit_code == 0


def test_bad_calls_of_get_are_told(tmp_path):
    place, folder = checkout(tmp_path / "checkout"), tmp_path / "data"
    get = ("data", "get", "physiome", "--data-dir", folder)
    assert "name a checkout of the benchmark with --from" in refused(*get)
    assert f"{tmp_path} is not a checkout" in refused(*get, "--from", tmp_path)
    assert "no set 'FOO' in the benchmark" in refused(*get, "--from", place, "--set", "DUP01", "--set", "FOO")
    assert "does not list" in refused(*get, "--from", place)  # all 50, of which it has one
    assert not folder.exists()  # nothing is made before all is checked
    broken = checkout(tmp_path / "broken", DECAY.replace("-constants[0]", "1 / 0"))
    told = refused(*get, "--from", broken, "--set", "DUP01", "--jobs", 1)
    assert "model.py: series 0 could not be solved" in told and not folder.exists()
    assert "leave out --from, --set and --jobs" in refused("data", "get", "mnist", "--set", "DUP01")


def test_the_help_says_that_the_checkout_is_executed():
    assert "runs the checkout's code" in " ".join(acenode("data", "get", "--help").stdout.split())


def test_info_and_export_of_a_set(tmp_path):
    pack(tmp_path / "physiome")
    found = json.loads(acenode("data", "info", "physiome", "--set", "TOY", "--data-dir", tmp_path, "--json").stdout)
    assert (found["name"], found["set"], found["samples"], found["rows"], found["until"]) == (
        "physiome",
        "TOY",
        40,
        800,
        15,
    )
    assert found["counts"] == {"targets": [0, 2], "left_out": 0} and len(found["variables"]) == 3
    out = tmp_path / "toy.csv"
    answer = acenode("data", "export", "physiome", "--set", "TOY", "--data-dir", tmp_path, "--out", out)
    assert answer.exit_code == 0, answer.output
    table = pd.read_csv(out)
    assert list(table.columns) == ["series", "time", "channel_0", "channel_1", "channel_2"] and len(table) == 800
    assert abs(table["channel_1"][21] - clean().values[1, 1, 1]) < 1e-2


def test_a_set_has_to_be_named(tmp_path):
    pack(tmp_path / "physiome")
    for command in (("info",), ("export", "--out", tmp_path / "x.csv")):
        told = refused("data", command[0], "physiome", *command[1:], "--data-dir", tmp_path)
        assert "name one with --set. Here are: TOY." in told
        told = refused("data", command[0], "physiome", *command[1:], "--set", "LI01", "--data-dir", tmp_path)
        assert "no packed set 'LI01'" in told and "acenode data get physiome --from CHECKOUT --set LI01" in told
    assert "ou is one data set: leave out --set" in refused("data", "info", "ou", "--set", "TOY")
    assert "data get physiome --from CHECKOUT" in refused("data", "info", "physiome", "--set", "LI01")


# --- reproduce -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """GRU-D of four units."""

    def build(key, variables, moments):
        one, two = jax.random.split(key)
        return Headed(Filter(GRUD(variables, 4, key=one)), GaussianHead(4, variables, 4, key=two))

    monkeypatch.setitem(physiome.MODELS, "GRU-D", physiome.MODELS["GRU-D"]._replace(build=build))


@pytest.mark.slow
def test_rows_are_trained_on_any_packed_set(small, tmp_path):
    pack(tmp_path / "data" / "physiome")
    pack(tmp_path / "data" / "physiome", "LI01")
    places = ("--data-dir", tmp_path / "data", "--results", tmp_path / "results", "--runs", tmp_path / "runs")
    call = ("reproduce", "physiome", "--set", "TOY", "--row", "GRU-D", "--epochs", 2, "--seeds", 2, *places)
    answer = acenode(*call)
    assert answer.exit_code == 0 and answer.stdout.startswith("TOY, GRU-D: mse "), answer.output
    made = results.load(tmp_path / "results")
    assert [(one.dataset, one.row, one.seed) for one in made] == [("TOY", "GRU-D", 0), ("TOY", "GRU-D", 1)]
    assert (tmp_path / "results" / "physiome" / "toy-gru-d-seed1.json").exists()
    assert acenode(*call).stdout.startswith("TOY, GRU-D: done before")
    answer = acenode("reproduce", "physiome", "--row", "LOCF", "--seeds", 2, *places)  # on all that are there
    assert [line.split(":")[0] for line in answer.stdout.splitlines()] == ["LI01, LOCF", "TOY, LOCF"]
    assert len(results.load(tmp_path / "results")) == 6


def test_bad_calls_of_reproduce_are_told(tmp_path):
    places = ("--data-dir", tmp_path, "--results", tmp_path / "results", "--runs", tmp_path / "runs")
    assert "no packed set in" in refused("reproduce", "physiome", *places)
    pack(tmp_path / "physiome")
    assert "no packed set 'FOO'" in refused("reproduce", "physiome", "--set", "TOY", "--set", "FOO", *places)
    assert "has no row 'GRU-E'" in refused("reproduce", "physiome", "--set", "TOY", "--row", "GRU-E", *places)
    assert "only physiome has" in refused("reproduce", "mnist", "--set", "TOY", *places)
    path = pack(tmp_path / "physiome", x=clean().values * float("nan"))
    assert f"{path}: x holds NaN" in refused("reproduce", "physiome", "--row", "LOCF", *places)
