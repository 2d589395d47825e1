"""What every benchmark leaves behind: a table on screen, and a JSON file that says on which machine."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import jax

RESULTS = Path(__file__).parent / "results"

PACKAGES = ("acenode", "jax", "jaxlib", "equinox", "diffrax", "numpy", "torch", "torchdiffeq")


def arguments(description: str, name: str) -> argparse.ArgumentParser:
    """The options that all benchmarks share; `name` is the result file's unless `--out` says otherwise."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--out", default=name, help="name of the JSON file under benchmarks/results/ (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="few and small measurements: does it run at all?")
    return parser


def machine() -> dict:
    """The facts that timings depend on."""
    device = jax.devices()[0]
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": _usable(),
        "python": platform.python_version(),
        "jax_backend": jax.default_backend(),
        "device_kind": device.device_kind,
        "device_count": jax.device_count(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str | None:
    """The installed version, `None` where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _usable() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor()


def save(out: str, benchmark: str, quick: bool, **content) -> Path:
    """Write a result; `out` is a name under `benchmarks/results/`, or a path of its own where it is absolute."""
    path = (RESULTS / out).with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    result = {"benchmark": benchmark, "when": when, "quick": quick, "machine": machine(), **content}
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def show(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: the first column flush left, the others right."""
    lines = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for i, (first, *rest) in enumerate(lines):
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        if i == 0:
            print("  ".join("-" * width for width in widths))
