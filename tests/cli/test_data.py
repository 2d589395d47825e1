"""`acenode data`: the list is quick, files are fetched whole or not at all, and what is odd in them is shown."""

import gzip
import hashlib
import json
import struct
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from acenode import datasets
from acenode.cli.main import app
from acenode.datasets import activity, files, mnist, physionet, ushcn
from acenode.datasets.catalogue import CATALOGUE

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty cache, no folder of the user's, and no network."""
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ACENODE_DATA", raising=False)
    monkeypatch.setattr(mnist, "URL", NOWHERE)


def data(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def facts(*arguments) -> dict:
    answer = data("info", *arguments, "--json")
    assert answer.exit_code == 0, answer.stderr
    return json.loads(answer.stdout)


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def digits(tmp_path):
    """A folder with the four files of MNIST, of three and two images."""
    place = tmp_path / "digits"
    place.mkdir()
    for part, labels in (("train", [7, 7, 1]), ("t10k", [1, 0])):
        (place / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(np.full((len(labels), 28, 28), 51)))
        (place / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(np.asarray(labels)))
    return place


@pytest.fixture
def site(digits, monkeypatch):
    """A web server of these files, which are the official ones for once."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(digits)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(mnist, "URL", f"http://127.0.0.1:{server.server_address[1]}/")
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in digits.iterdir()}
    monkeypatch.setattr(mnist, "MD5", sums)
    yield digits
    server.shutdown()
    server.server_close()
    thread.join()


# --- list ------------------------------------------------------------------------------------------------------------


def test_every_data_set_is_listed(digits):
    answer = data("list", "--data-dir", digits)
    assert answer.exit_code == 0
    for name, each in CATALOGUE.items():
        assert name in answer.stdout and each.what in answer.stdout and each.licence in answer.stdout
    assert f"in {digits}" in answer.stdout
    assert "not here: acenode data get physionet" in answer.stdout
    rows = {row["name"]: row for row in json.loads(data("list", "--data-dir", digits, "--json").stdout)}
    assert rows["mnist"]["found"] == str(digits) and rows["svhn"]["found"] is None and rows["ou"]["generated"]
    assert {"mnist", "svhn", "cifar10", "physionet", "activity", "ushcn", "ushcn-maine", "ou"} <= set(rows)


def test_the_list_imports_nothing_heavy():
    code = (
        "import sys; from typer.testing import CliRunner; from acenode.cli.main import app\n"
        "assert CliRunner().invoke(app, ['data', 'list']).exit_code == 0\n"
        "print([m for m in ('jax', 'numpy', 'pooch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_half_a_data_set_is_not_found(digits):
    (digits / "t10k-labels-idx1-ubyte.gz").unlink()
    assert CATALOGUE["mnist"].found(digits) is None


def test_parsed_copies_are_not_the_data_set(tmp_path):
    place = tmp_path / "cache" / "physionet2012"
    place.mkdir(parents=True)
    (place / "set-a-v1-0123.npz").write_bytes(b"")
    assert CATALOGUE["physionet"].found() is None
    for name in ("set-a.tar.gz", "set-a-b.tar.xz", "set-a.tgz"):
        (place / name).write_bytes(b"")
        assert CATALOGUE["physionet"].found() == place
        (place / name).unlink()


@pytest.mark.parametrize("arguments", [["get", "imagenet"], ["info", "imagenet"]])
def test_unknown_names(arguments):
    answer = data(*arguments)
    assert answer.exit_code == 1 and "no data set 'imagenet'. There are: mnist, svhn" in answer.stderr


def test_a_folder_that_is_none(tmp_path):
    answer = data("list", "--data-dir", tmp_path / "nowhere")
    assert answer.exit_code == 1 and "is not a folder" in answer.stderr


# --- get -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", ["given", "environment", "cache"])
def test_get(tmp_path, monkeypatch, site, into):
    target = tmp_path / into / "mnist"
    arguments = ["--data-dir", tmp_path / into] if into == "given" else []
    if into == "environment":
        monkeypatch.setenv("ACENODE_DATA", str(tmp_path / into))
    answer = data("get", "mnist", *arguments)
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.strip() == f"mnist is in {target}"
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in site.iterdir()
    }
    monkeypatch.setattr(mnist, "URL", NOWHERE)
    assert data("get", "mnist", *arguments).stdout.strip() == f"mnist is in {target}"
    assert facts("mnist", *arguments)["samples"] == 5


def test_get_goes_on_with_what_is_missing(tmp_path, site):
    assert data("get", "mnist", "--data-dir", tmp_path / "given").exit_code == 0
    (tmp_path / "given" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert data("get", "mnist", "--data-dir", tmp_path / "given").exit_code == 0
    assert len(list((tmp_path / "given" / "mnist").iterdir())) == 4


def test_get_without_a_network_leaves_nothing(tmp_path):
    answer = data("get", "mnist", "--data-dir", tmp_path / "given")
    assert answer.exit_code == 1
    for part in ("could not be fetched", "The download from", "by hand", f"{NOWHERE}train-images-idx3-ubyte.gz"):
        assert part in answer.stderr
    assert not (tmp_path / "given").exists()


def test_a_wrong_file_is_not_kept(tmp_path, site):
    (site / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    answer = data("get", "mnist", "--data-dir", tmp_path / "given")
    assert answer.exit_code == 1 and "has md5" in answer.stderr and "Nothing was kept" in answer.stderr
    kept = {path.name for path in (tmp_path / "given").rglob("*.*")}  # whole files fetched before it may stay
    assert kept < {path.name for path in site.iterdir()} and "train-images-idx3-ubyte.gz" not in kept


def test_get_of_generated_data():
    assert "nothing to get" in data("get", "ou").stdout


@pytest.mark.parametrize("name", [name for name, each in CATALOGUE.items() if not (each.generated or each.make)])
def test_every_official_file_has_an_address_and_a_checksum(name):
    each = CATALOGUE[name]
    assert each.official is not None
    for remote in each.official():
        assert remote.url.startswith("http") and (remote.sha256 or remote.md5)
        assert remote.url in each.steps() and each.folder in each.steps()


# --- info ------------------------------------------------------------------------------------------------------------


def test_info_of_images(digits):
    found = facts("mnist", "--data-dir", digits)
    assert (found["samples"], found["classes"]) == (5, {"0": 1, "1": 2, "7": 2})
    assert found["counts"] == {"training": 3, "test": 2}
    (grey,) = found["variables"]
    assert (grey["name"], grey["low"], grey["high"], grey["mean"]) == ("grey", 51, 51, 51)
    text = data("info", "mnist", "--data-dir", digits).stdout
    assert "class 7: 2 (40.0%)" in text and "3 images to train on, 2 to test on" in text


def test_info_of_what_is_not_here(tmp_path):
    answer = data("info", "physionet", "--data-dir", tmp_path)
    assert answer.exit_code == 1
    for part in ("physionet is not here", str(tmp_path), "acenode data get physionet", physionet.URL):
        assert part in answer.stderr


@pytest.fixture
def stays(tmp_path):
    (tmp_path / "set-a").mkdir()
    (tmp_path / "set-b").mkdir()
    odd = "00:00,Height,-1\n00:00,Gender,-1\n01:00,Temp,-17.8\n02:00,pH,735\n03:00,HR,80\n04:00,Shoe,44\nnonsense\n"
    (tmp_path / "set-a" / "7.txt").write_text("Time,Parameter,Value\n" + odd)
    (tmp_path / "set-a" / "8.txt").write_text("Time,Parameter,Value\n00:00,Age,60\n")
    (tmp_path / "set-b" / "9.txt").write_text("Time,Parameter,Value\n00:00,Age,60\n05:00,HR,90\n")
    (tmp_path / "Outcomes-a.txt").write_text("RecordID,In-hospital_death\n7,1\n8,0\n")
    return tmp_path


def test_info_shows_every_oddity_of_physionet(stays):
    tmp_path = stays
    found = facts("physionet", "--data-dir", tmp_path)
    assert (found["samples"], found["classes"]) == (3, {"died": 1, "survived": 1, "unknown": 1})
    counts = found["counts"]
    assert counts["only_start"] == [8] and counts["records"] == {"a": 2, "b": 1}
    assert counts["sentinels"] == {"Gender": 1, "Height": 1} and counts["impossible"] == {"Temp": 1, "pH": 1}
    assert counts["unknown"] == {"Shoe": 1} and counts["malformed"] == 1
    heart = next(v for v in found["variables"] if v["name"] == "HR")
    assert (heart["low"], heart["high"], heart["unit"]) == (80, 90, "beats/min")
    assert heart["observed"] == pytest.approx(2 / 7)
    assert next(v for v in found["variables"] if v["name"] == "K")["low"] is None
    text = data("info", "physionet", "--data-dir", tmp_path).stdout
    for part in (
        "the records with nothing after t=0: 8",
        "Temp: 1 outside 20 to 45; all are from -17.8 to -17.8",
        "pH: 1 outside 6.3 to 8; all are from 735 to 735",
        "sentinels -1, kept as they are: Gender 1, Height 1",
        "lines of unknown parameters, skipped: Shoe 1",
        "malformed lines, skipped: 1",
        "7.txt line 8: 'nonsense'",
    ):
        assert part in text


def test_info_of_activity(tmp_path):
    lines = [
        f"A01,010-000-024-033,{10_000_000 + 300_000 * i},date,{i / 10},1.0,0.5,{'lying' if i % 2 else 'falling'}"
        for i in range(60)
    ]
    (tmp_path / activity.FILES["original"]).write_text("\n".join([*lines, "A01,nonsense"]))
    found = facts("activity", "--data-dir", tmp_path)
    assert (found["samples"], found["rows"], found["observed"]) == (1, 50, 0.25)
    assert found["classes"]["falling"] == found["classes"]["lying"] == 25
    assert found["counts"]["malformed"] == 1 and found["counts"]["variant"] == "Activity (part)"
    ankle = found["variables"][0]
    assert (ankle["name"], ankle["unit"], ankle["high"]) == ("left ankle x", "m", pytest.approx(4.9))
    text = data("info", "activity", "--data-dir", tmp_path).stdout
    assert "line 61: 'A01,nonsense': 2 fields, expected 8" in text
    assert f"sha256 of {activity.FILES['original']}: {found['counts']['sha256']}" in text


def test_info_of_climate(tmp_path):
    head = ",".join(("ID", "Time", *(f"{what}_{i}" for what in ("Value", "Mask") for i in range(5))))
    rows = [f"1,{t},0.5,0,0,0,{t / 100},1,0,0,0,1" for t in (0, 1, 2, 151, 152, 153, 154)]
    (tmp_path / ushcn.NATIONAL).write_text("\n".join([head, *rows]))
    answer = data("info", "ushcn", "--data-dir", tmp_path)
    assert answer.exit_code == 0, answer.stderr
    assert "1 series of 1 stations" in answer.stdout
    assert "is not the published file" in answer.stderr
    found = facts("ushcn", "--data-dir", tmp_path)
    assert [v["observed"] for v in found["variables"]] == [1, 0, 0, 0, 1]
    assert found["observed"] == pytest.approx(0.4) and found["variables"][4]["high"] == pytest.approx(1.54)


def test_damaged_files_are_one_sentence(digits):
    (digits / "train-images-idx3-ubyte.gz").write_bytes(b"nonsense")
    answer = data("info", "mnist", "--data-dir", digits)
    assert answer.exit_code == 1 and "expected 00000803, the magic number" in answer.stderr
    assert "Traceback" not in answer.output


@pytest.mark.slow
def test_info_of_generated_data():
    found = facts("regions")
    assert found["samples"] == 400 and len(found["variables"]) == 6 and found["folder"] is None
    assert "no files needed" in data("info", "regions").stdout


def test_export_of_labelled_and_unlabelled_records(stays):
    answer = data("export", "physionet", "--labelled", "--out", stays / "known.csv", "--data-dir", stays)
    assert answer.exit_code == 0 and "--id record, --time hour, --label died" in answer.stdout
    known = pd.read_csv(stays / "known.csv")
    assert known[["record", "hour", "died"]].drop_duplicates("record").values.tolist() == [[7, 0, 1], [8, 0, 0]]
    assert known["HR"].dropna().tolist() == [80] and known[["Temp", "pH", "Height"]].isna().all(axis=None)
    answer = data("export", "physionet", "--unlabelled", "--out", stays / "unknown.parquet", "--data-dir", stays)
    unknown = pd.read_parquet(stays / "unknown.parquet")
    assert unknown["record"].tolist() == [9, 9] and "died" not in unknown and "--label" not in answer.stdout
    both = data("export", "physionet", "--out", stays / "all.csv", "--data-dir", stays)
    assert both.exit_code == 0 and pd.read_csv(stays / "all.csv")["died"].isna().sum() == 2


@pytest.mark.slow
def test_every_unlabelled_record_gets_a_probability(tmp_path):
    """Of labelled and unlabelled files, the commands of the README: export twice, train, predict."""
    random = np.random.default_rng(0)
    outcomes = ["RecordID,In-hospital_death"]
    for folder, numbers in (("set-a", range(12)), ("set-b", range(20, 25))):
        (tmp_path / folder).mkdir()
        for number in numbers:
            lines = ["Time,Parameter,Value", "00:00,Age,60"]
            lines += [f"{hour:02d}:30,HR,{random.integers(60, 120)}" for hour in range(1, 3 + number % 3)]
            (tmp_path / folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    outcomes += [f"{number},{number % 2}" for number in range(12)]
    (tmp_path / "Outcomes-a.txt").write_text("\n".join(outcomes) + "\n")
    for which in ("labelled", "unlabelled"):
        out = tmp_path / f"{which}.csv"
        assert data("export", "physionet", f"--{which}", "--out", out, "--data-dir", tmp_path).exit_code == 0
    columns = ["--id", "record", "--time", "hour", "--task", "classify", "--label", "died"]
    short = ["--value", "HR", "--model", "gru-d", "--epochs", "1", "--hidden", "3", "--no-report"]
    model, answer = tmp_path / "mortality", tmp_path / "risk.csv"
    trained = CliRunner().invoke(app, ["train", str(tmp_path / "labelled.csv"), *columns, *short, "--out", str(model)])
    assert trained.exit_code == 0, trained.output
    queried = CliRunner().invoke(app, ["predict", str(model), str(tmp_path / "unlabelled.csv"), "--out", str(answer)])
    assert queried.exit_code == 0, queried.output
    risk = pd.read_csv(answer)
    assert risk["record"].tolist() == list(range(20, 25)) and risk["p_1"].between(0, 1, inclusive="neither").all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["mnist", "--out", "x.csv"], "mnist is not written as a table of series; these are: physionet"),
        (["ou", "--out", "x.txt"], "expected a file that ends with .csv or .parquet"),
        (["ou", "--labelled", "--out", "x.csv"], "ou has no labels"),
        (["physionet", "--out", "x.csv"], "physionet is not here"),
    ],
)
def test_what_cannot_be_exported(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = data("export", *arguments)
    assert answer.exit_code == 1 and words in answer.stderr and not list(tmp_path.glob("x.*"))


@pytest.mark.parametrize(
    ("name", "module", "function", "variables"),
    [
        ("ou", "ou", "generate", 2),
        ("kuramoto", "kuramoto", "generate", 10),
        ("springs", "springs", "generate", 20),
        ("charged", "springs", "charged", 20),
        ("gene-regulation", "gene_regulation", "generate", 10),
        ("multi-region-sir", "multi_region_sir", "generate", 12),
    ],
)
def test_generated_sets_are_described_and_exported(name, module, function, variables, tmp_path, monkeypatch):
    made = getattr(datasets, module)
    monkeypatch.setattr(made, function, partial(getattr(made, function), samples=3))
    found = facts(name)
    assert found["samples"] == 3 and len(found["variables"]) == variables
    out = tmp_path / "series.csv"
    assert data("export", name, "--out", out).exit_code == 0
    assert pd.read_csv(out)["series"].nunique() == 3
