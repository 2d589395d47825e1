"""The quick tests with other versions than the usual: the lowest that pyproject.toml allows, or the newest there are.

    python benchmarks/lowest.py .venv-lowest             # lowest
    python3.13 benchmarks/lowest.py .venv-newest --newest

Makes a virtual environment in that folder with the Python that runs this, and writes which versions were tested and
what came of it to `benchmarks/results/reliability-lowest.json` (or `-newest`).
"""

import argparse
import datetime
import json
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("pyright", "ruff", "acenode")  # which no test needs
EXTRAS = ("report", "data", "export", "serve", "mlflow", "dev")
# The solver, the reader of tables, checkpoints, saved models, programs, the service and the command line.
TESTS = (
    *("tests/series", "tests/train/test_checkpoint.py", "tests/estimators/test_saved.py", "tests/ode/test_analytic.py"),
    *("tests/estimators/test_onnx.py", "tests/serve/test_service.py", "tests/cli/test_read.py"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the virtual environment")
    parser.add_argument("--newest", action="store_true", help="the newest versions instead of the lowest")
    given = parser.parse_args()
    python = given.folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(given.folder)], check=True)
    wanted = requirements()
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "uv"], check=True)  # pip has no lowest versions
    resolution = "highest" if given.newest else "lowest-direct"
    install = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*install, "--upgrade", "--resolution", resolution, *wanted], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(ROOT)], check=True)
    # The lowest jaxtyping has no checks of types at run time as the tests' options ask for, and old packages warn of
    # each other.
    options = [] if given.newest else ["-o", "addopts=-q", "-o", "filterwarnings=default"]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-p", "no:xdist", "-m", "not slow", "-rf", *options, *TESTS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout[-6000:])
    name = "newest" if given.newest else "lowest"
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True, text=True)
    installed = {each["name"].lower(): each["version"] for each in json.loads(listed.stdout)}
    result = {
        "part": name,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "passed": count(done.stdout, "passed"),
        "failed": count(done.stdout, "failed") + count(done.stdout, "error"),
        "versions": {each: installed.get(each.lower()) for each in sorted({name_of(one) for one in wanted})},
    }
    path = ROOT / "benchmarks" / "results" / f"reliability-{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    raise SystemExit(done.returncode)


def requirements() -> list[str]:
    """All requirements of the package and of what its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    return sorted({one for one in every if name_of(one) not in TOOLS})


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0]


def count(output: str, word: str) -> int:
    found = re.findall(rf"(\d+) {word}", output)
    return int(found[-1]) if found else 0


if __name__ == "__main__":
    main()
