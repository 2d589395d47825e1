"""Run parts of the campaign, each in a process of its own, and write what they found."""

import argparse
import importlib
import subprocess
import sys
import time
from pathlib import Path

from . import PARTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="which parts (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each part, e.g. 0.05 for a short form")
    given = parser.parse_args()
    if len(given.part) == 1:
        raise SystemExit(run(given.part[0], given.scale))
    failed = [part for part in given.part if _alone(part, given.scale)]
    if failed:
        raise SystemExit(f"losses in: {', '.join(failed)}")


def run(part: str, scale: float) -> int:
    """Run one part, write its file and say a line; 1 where something was lost."""
    from benchmarks import record

    began = time.perf_counter()
    result = importlib.import_module(f".{part}", __package__).run(scale)
    seconds = round(time.perf_counter() - began, 1)
    name = f"reliability-{part}"
    record.save(name, name, scale < 1, scale=scale, seconds=seconds, **result)
    print(f"{part}: {result['tried']:,} tried, {result['losses']:,} losses ({seconds:.0f} s)", flush=True)
    for example in result["examples"]:
        print(f"  {example}", flush=True)
    return int(result["losses"] > 0)


def _alone(part: str, scale: float) -> int:
    command = [sys.executable, "-m", "benchmarks.campaign", "--part", part, "--scale", str(scale)]
    return subprocess.run(command, cwd=Path(__file__).parents[2]).returncode
