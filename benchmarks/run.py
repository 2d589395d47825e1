"""All benchmarks, one after another, each in a process of its own."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HEADINGS = {
    "pairwise": "Speed of a training step, side by side with baselines",
    "memory": "Memory of the backward pass against solver steps",
    "scaling": "Cost against batch, dimension and output times",
    "image": "ACE-ODE-Net: training steps of an image classifier",
    "climate": "GRU-ODE-Bayes beside an eager loop",
    "error_norm": "Steps and error of the solver by its error norm",
    "precision": "Error of reduced precision against double precision",
    "patients": "Latent-ODE and ACE-Latent-ODE, one model and many",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and small measurements: does it run at all?")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where torch runs (default: the kind JAX runs on)")
    parser.add_argument("--tag", default="", help="appended to the names of the result files, e.g. the machine's name")
    given = parser.parse_args()
    failed = [name for name in HEADINGS if run(name, given) != 0]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def run(name: str, given: argparse.Namespace) -> int:
    print(f"\n=== {HEADINGS[name]} ({name}.py) ===\n", flush=True)
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py"))]
    command += ["--out", f"{name}-{given.tag}" if given.tag else name]
    command += ["--quick"] if given.quick else []
    command += ["--device", given.device] if given.device and name == "pairwise" else []
    began = time.perf_counter()
    code = subprocess.run(command).returncode
    print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    return code


if __name__ == "__main__":
    main()
