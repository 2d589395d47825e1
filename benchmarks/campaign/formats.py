"""The files that acenode reads: a small valid one of each kind, how it is read, and a value changed inside of it."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import narwhals as nw
import numpy as np
import polars as pl
from safetensors.numpy import load as load_safetensors, save as save_safetensors
from scipy.io import savemat

from acenode.cli.read import read_table
from acenode.datasets import activity_raw, cifar10, mnist, physiome, physionet, svhn, ushcn, ushcn_raw
from acenode.estimators import Forecaster, load as load_model
from acenode.estimators.saved import ARRAYS, HEAD, _digest, read_head
from acenode.paper import results
from acenode.series.table import Columns, read
from acenode.train.checkpoint import load_arrays, load_head, save_arrays

from .samples import SMALL, machines, physiome_series, untrained

Files = dict[str, bytes]
Random = np.random.Generator


class Format(NamedTuple):
    """A kind of file: valid contents by name, how the folder that holds them is read, and other valid contents.

    `change` gives the contents with one value changed inside of the format; the result must change or be refused.
    `signed` makes the checksums of a folder right again, as whoever means harm would.
    """

    name: str
    files: Files
    read: Callable[[Path], Any]
    change: Callable[[Random], Files]
    text: bool = False
    signed: Callable[[Files], Files] = lambda files: files


def formats(folder: Path) -> Iterator[Format]:
    """All of them; `folder` is for what is made on the way."""
    yield from _tables()
    yield from _models(folder)
    yield _checkpoint(folder)
    yield _idx()
    yield _mat()
    yield _cifar()
    yield _physionet()
    yield from _ushcn()
    yield _activity()
    yield _physiome()
    yield _result()


def digest(found: Any) -> str:
    """A checksum of all that was read."""
    total = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, dict):
            for name in part:
                total.update(str(name).encode("utf-8", "replace"))
                add(part[name])
        elif isinstance(part, list | tuple):
            for each in part:
                add(each)
        elif isinstance(part, np.ndarray) and part.dtype != object:
            total.update(f"{part.dtype}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).tobytes())
        elif isinstance(part, np.ndarray):
            add(part.tolist())
        else:
            total.update(repr(part).encode("utf-8", "replace"))

    add(found)
    return total.hexdigest()


def _number(random: Random) -> float:
    return float(np.round(random.normal() * 10.0 ** random.integers(-3, 4), 6)) + 1e-6


# --- tables -----------------------------------------------------------------------------------------------------


def _tables() -> Iterator[Format]:
    frame = pl.from_pandas(machines(4))

    def rows(path: Path) -> Any:
        columns = Columns("machine", "hour", ("heat", "flow"))
        table = read(read_table(path, id="machine"), columns, what=str(path))
        return table.ids, table.codes, table.times, table.values

    def changed(random: Random) -> pl.DataFrame:
        row, name = int(random.integers(len(frame))), str(random.choice(["heat", "flow", "machine"]))
        new = "another" if name == "machine" else _number(random)
        cells = frame[name].to_list()
        return frame.with_columns(pl.Series(name, [*cells[:row], new, *cells[row + 1 :]]))

    def csv(table: pl.DataFrame) -> bytes:
        return table.write_csv().encode()

    def parquet(table: pl.DataFrame) -> bytes:
        file = io.BytesIO()
        table.write_parquet(file)
        return file.getvalue()

    for name, file, made, text in (
        ("CSV", "t.csv", csv, True),
        ("CSV, compressed", "t.csv.gz", lambda table: gzip.compress(csv(table), mtime=0), False),
        ("Parquet", "t.parquet", parquet, False),
    ):
        yield Format(
            name,
            {file: made(frame)},
            lambda folder, file=file: rows(folder / file),
            lambda random, file=file, made=made: {file: made(changed(random))},
            text,
        )


# --- models and checkpoints -------------------------------------------------------------------------------------


def signed(files: Files) -> Files:
    """The folder of a model with checksums that fit; as it is where its head is no longer one."""
    try:
        head = json.loads(files[HEAD])
        head.pop("check", None)
        head["sha256"] = hashlib.sha256(files[ARRAYS]).hexdigest()
        return {**files, HEAD: json.dumps({**head, "check": _digest(head)}).encode()}
    except (ValueError, TypeError, AttributeError):
        return files


def leaves(tree: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """All numbers, words and blanks of a JSON value, with their places."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if items is None:
        yield path, tree
        return
    for name, each in items:
        yield from leaves(each, (*path, name))


def put(tree: Any, path: tuple, value: Any) -> None:
    for name in path[:-1]:
        tree = tree[name]
    tree[path[-1]] = value


def other(value: Any, random: Random) -> Any:
    """Another value, mostly of the same type."""
    if random.random() < 0.3:
        return [None, True, 0, -1, 10**9, 1e308, "", "x", [], {}, [[]], {"a": 1}][int(random.integers(12))]
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return int(random.choice([0, -1, value + 1, 2 * value + 1, 10**6, 2**63]))
    if isinstance(value, float):
        return float(random.choice([0.0, -value, value + 1, 1e-300, 1e300, np.nan, np.inf]))
    return str(random.choice(["", value + "x", value[::-1] + "_", "é\x00", "9" * 30]))


def _models(folder: Path) -> Iterator[Format]:
    saved = untrained(Forecaster(**SMALL, model="gru-d"), machines(6)).save(folder / "model")
    files = {name: (saved / name).read_bytes() for name in (HEAD, ARRAYS)}

    def loaded(folder: Path) -> Any:
        made = load_model(folder)
        weights = [np.asarray(x) for x in jax.tree.leaves(made.members_.models) if hasattr(x, "shape")]
        fitted = {name: part for name, part in vars(made).items() if name not in ("model_", "members_", "entry_")}
        scaler = [np.asarray(made.scaler_.shift), np.asarray(made.scaler_.spread), made.scaler_.kind]
        board = nw.from_native(fitted.pop("leaderboard_"), eager_only=True).rows()
        about = [read_head(folder)[name] for name in ("versions", "precision", "estimator")]
        return weights, {**fitted, "scaler_": scaler}, board, made.members_.names, made.members_.weights, about

    def other_head(random: Random) -> Files:
        head = json.loads(files[HEAD])
        places = [path for path, _ in leaves(head) if path[0] not in ("check", "sha256", "format")]
        path = places[int(random.integers(len(places)))]
        value = dict(leaves(head))[path]
        put(head, path, next(new for _ in range(100) if (new := other(value, random)) != value))  # True is 1
        return signed({**files, HEAD: json.dumps(head).encode()})

    def other_weight(random: Random) -> Files:
        arrays = load_safetensors(files[ARRAYS])
        name = sorted(name for name in arrays if arrays[name].size)[int(random.integers(len(arrays)))]
        arrays = {n: a.copy() for n, a in arrays.items()}
        arrays[name].flat[int(random.integers(arrays[name].size))] += 0.5
        return signed({**files, ARRAYS: save_safetensors(arrays, {"head": "{}"})})

    yield Format("model.json", files, loaded, other_head, True, signed)
    yield Format("safetensors", files, loaded, other_weight, False, signed)


def _checkpoint(folder: Path) -> Format:
    tree = {"w": np.arange(12.0, dtype=np.float32).reshape(3, 4), "b": np.ones(3, np.int32)}
    head = {"fingerprint": "0" * 64, "epochs": 3, "seconds": 1.5, "history": {"loss": [[1.0], [0.5], [0.2]]}}

    def saved(tree, head) -> Files:
        save_arrays(folder / "checkpoint", tree, head)
        return {"c.safetensors": (folder / "checkpoint").read_bytes()}

    def change(random: Random) -> Files:
        if random.random() < 0.5:
            return saved(tree, {**head, "epochs": int(random.integers(4, 100))})
        weight = tree["w"].copy()
        weight.flat[int(random.integers(12))] += 1
        return saved({**tree, "w": weight}, head)

    def resumed(folder: Path) -> Any:
        path = folder / "c.safetensors"
        arrays = load_arrays(path, tree)
        return load_head(path), {name: np.asarray(arrays[name]) for name in tree}

    return Format("checkpoint", saved(tree, head), resumed, change)


# --- images -----------------------------------------------------------------------------------------------------


def _images(found: Any) -> Any:
    return found.pixels, found.labels, found.training


def _idx() -> Format:
    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 256, (4, 28, 28), np.uint8), np.arange(4, dtype=np.uint8)

    def idx(array: np.ndarray) -> bytes:
        return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()

    def files(pixels, labels) -> Files:
        made = {}
        for part, rows in (("train", slice(0, 2)), ("t10k", slice(2, 4))):
            made[f"{part}-images-idx3-ubyte"] = idx(pixels[rows])
            made[f"{part}-labels-idx1-ubyte"] = idx(labels[rows])
        return made

    def change(random: Random) -> Files:
        return files(*_other_image(random, pixels, labels))

    return Format("IDX", files(pixels, labels), lambda folder: _images(mnist.load(folder)), change)


def _other_image(random: Random, pixels: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Another pixel or another label."""
    pixels, labels = pixels.copy(), labels.copy()
    if random.random() < 0.5:
        pixels.flat[int(random.integers(pixels.size))] ^= np.uint8(random.integers(1, 256))
    else:
        labels.flat[int(random.integers(labels.size))] += np.uint8(random.integers(1, 200))
    return pixels, labels


def _mat() -> Format:
    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 256, (4, 32, 32, 3), np.uint8), np.arange(1, 5, dtype=np.uint8)

    def files(pixels, labels) -> Files:
        made = {}
        for name, rows in (("train_32x32.mat", slice(0, 2)), ("test_32x32.mat", slice(2, 4))):
            file = io.BytesIO()
            savemat(file, {"X": pixels[rows].transpose(1, 2, 3, 0), "y": labels[rows, None]}, do_compression=True)
            made[name] = file.getvalue()
        return made

    def change(random: Random) -> Files:
        return files(*_other_image(random, pixels, labels))

    return Format(".mat", files(pixels, labels), lambda folder: _images(svhn.load(folder)), change)


def _cifar() -> Format:
    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 256, (6, 3, 32, 32), np.uint8), np.arange(6, dtype=np.uint8)

    def files(pixels, labels) -> Files:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as tar:
            for k, name in enumerate((*cifar10.TRAINING, cifar10.TEST)):
                content = labels[k : k + 1].tobytes() + pixels[k].tobytes()
                info = tarfile.TarInfo(f"{cifar10.FOLDER}/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return {cifar10.ARCHIVE: file.getvalue()}

    def change(random: Random) -> Files:
        return files(*_other_image(random, pixels, labels))

    return Format("CIFAR", files(pixels, labels), lambda folder: _images(cifar10.load(folder)), change)


# --- texts ------------------------------------------------------------------------------------------------------


def _physionet() -> Format:
    rows = ["00:00,Age,54", "00:00,Gender,0", "00:00,Height,170", "00:00,ICUType,4", "00:00,Weight,80"]
    rows += ["00:07,HR,73", "00:07,GCS,15", "02:30,HR,77", "48:00,Urine,900"]

    def files(rows: list[str]) -> Files:
        text = "\n".join(["Time,Parameter,Value", "00:00,RecordID,7", *rows]) + "\n"
        return {"set-a/7.txt": text.encode(), "Outcomes-a.txt": b"RecordID,In-hospital_death\n7,1\n"}

    def change(random: Random) -> Files:
        k = int(random.integers(len(rows)))
        time, name, value = rows[k].split(",")
        if random.random() < 0.5:
            value = str(round(float(value) + random.uniform(0.5, 1000), 2))
        else:
            time = f"{int(random.integers(3, 48)):02d}:{int(random.integers(1, 60)):02d}"
        return files([*rows[:k], f"{time},{name},{value}", *rows[k + 1 :]])

    def loaded(folder: Path) -> Any:
        found = physionet.load(("a",), data_dir=folder)
        series = found.panel.series
        arrays = (series.times, series.values, series.observed, series.length)
        return found.panel.ids, [np.asarray(a) for a in arrays], found.died, str(found.report)

    return Format("PhysioNet text", files(rows), loaded, change, True)


def _ushcn() -> Iterator[Format]:
    random = np.random.default_rng(0)
    days = random.integers(-30, 110, (3, 31))

    def lines(days: np.ndarray) -> bytes:
        text = ""
        for month, values in enumerate(days, 1):
            text += f"1701001996{month:02d}TMAX" + "".join(f"{value:5d}   " for value in values) + "\n"
        return text.encode()

    def raw(path: Path) -> Any:
        table, reading = ushcn_raw.read(path)
        return table.stations, table.station, table.element, table.day, table.value, table.flag, reading.malformed

    def other_day(random: Random) -> bytes:
        changed = days.copy()
        changed[int(random.integers(3)), int(random.integers(28))] += int(random.integers(1, 500))
        return lines(changed)

    yield Format(
        "USHCN text",
        {"state.txt": lines(days)},
        lambda folder: raw(folder / "state.txt"),
        lambda random: {"state.txt": other_day(random)},
        True,
    )
    values = random.normal(size=(6, 5)).round(4)

    def table(values: np.ndarray) -> bytes:
        rows = [",".join(ushcn.COLUMNS)]
        for k, row in enumerate(values):
            rows.append(",".join(map(str, [k // 3, 0.1 * (k % 3), *row, 1, 1, 1, 1, 1])))
        return ("\n".join(rows) + "\n").encode()

    def other_value(random: Random) -> Files:
        changed = values.copy()
        changed.flat[int(random.integers(values.size))] = _number(random)
        return {"national.csv": table(changed)}

    def national(folder: Path) -> Any:
        numbers, rows = ushcn.read_national(folder / "national.csv")
        return numbers, list(rows)

    yield Format("USHCN, published table", {"national.csv": table(values)}, national, other_value, True)


def _activity() -> Format:
    tags, start = list(activity_raw.SENSORS), 633_790_226_051_280_329
    positions = np.random.default_rng(0).normal(size=(12, 3)).round(4)

    def files(positions: np.ndarray) -> Files:
        rows = [
            f"A01,{tags[k % 4]},{start + 300_000 * k},27.05.2009 14:03:25:127,{x},{y},{z},walking"
            for k, (x, y, z) in enumerate(positions.tolist())
        ]
        return {"activity.txt": ("\n".join(rows) + "\n").encode()}

    def change(random: Random) -> Files:
        changed = positions.copy()
        changed.flat[int(random.integers(positions.size))] = _number(random)
        return files(changed)

    def loaded(folder: Path) -> Any:
        table, reading = activity_raw.read_text(folder / "activity.txt")
        return [np.asarray(part) for part in vars(table).values()], str(reading)

    return Format("Human Activity text", files(positions), loaded, change, True)


# --- packed sets and results ------------------------------------------------------------------------------------


def _physiome() -> Format:
    made = physiome_series(series=4, moments=6)

    def files(values: np.ndarray, span: float) -> Files:
        file = io.BytesIO()
        np.savez_compressed(file, x=values, targets=made.targets, span=np.float64(span))
        return {"TOY.npz": file.getvalue()}

    def change(random: Random) -> Files:
        if random.random() < 0.3:
            return files(made.values, float(random.uniform(16, 99)))
        values = made.values.copy()
        values.flat[int(random.integers(values.size))] += 0.5
        return files(values, made.span)

    return Format(
        "packed Physiome set",
        files(made.values, made.span),
        lambda folder: tuple(physiome.read(folder / "TOY.npz")),
        change,
    )


def _result() -> Format:
    made = results.Result(
        *("double-ou", "a row", 0, {"mse": 0.5}, {"validation_mse": 0.6}, "as published", {"epochs": 3}, 3, 2, 10),
        *({"sha256": "0" * 64}, results.versions(), "cpu", 1.0, {"loss": [1.0, 0.5, 0.2]}),
    )
    content = json.dumps(vars(made))

    def change(random: Random) -> Files:
        found = json.loads(content)
        places = [path for path, _ in leaves(found)]
        path = places[int(random.integers(len(places)))]
        put(found, path, other(dict(leaves(found))[path], random))
        if digest(found) == digest(json.loads(content)):
            put(found, ("seed",), 1)
        return {"r.json": json.dumps(found).encode()}

    return Format(
        "result file",
        {"r.json": content.encode()},
        lambda folder: vars(results.read(folder / "r.json")),
        change,
        True,
    )
