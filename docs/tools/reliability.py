"""The figures of the reliability page, from `benchmarks/results/reliability-*.json`."""

import json
from pathlib import Path
from typing import Any

from . import ROOT, plain, put, table

PARTS = {
    "kills": "SIGKILLs at random moments",
    "fuzz": "damaged files read",
    "requests": "requests sent to the service",
    "ensemble": "ensembles with a poisoned member",
    "faults": "faults of the machine",
    "tamper": "tampered files and modules",
    "service": "calls of a long service, and checks",
    "solver": "hard initial value problems",
}
NOT_MEASURED = "not measured"


def write(docs: Path) -> None:
    """Write the tables that the page includes."""
    found = {part: _read(part) for part in PARTS}
    put(docs / "_parts" / "reliability-summary.md", "\n".join(_summary(found)))
    for part, file in found.items():
        put(docs / "_parts" / f"reliability-{part}.md", "\n".join(_kinds(part, file)))
    put(docs / "_parts" / "reliability-versions.md", "\n".join(_versions()))


def _read(part: str) -> dict[str, Any] | None:
    path = ROOT / "benchmarks" / "results" / f"reliability-{part}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _summary(found: dict[str, dict[str, Any] | None]) -> list[str]:
    rows = []
    for part, file in found.items():
        if file is None:
            rows.append([part, PARTS[part], *[NOT_MEASURED] * 2, "", ""])
            continue
        count, platform = file["machine"]["cpus_usable"], file["machine"]["platform"].removeprefix("Linux ")
        machine = f"{count} {platform} core{'s' * (count > 1)}"
        measured = f"{file['when'][:10]}, {file['seconds'] / 60:.1f} min, {machine}"
        rows.append([part, PARTS[part], f"{file['tried']:,}", f"{file['losses']:,}", f"{file['scale']:g}", measured])
    return table(["part", "what was tried", "tried", "losses", "scale", "measured"], rows)


def _kinds(part: str, file: dict[str, Any] | None) -> list[str]:
    """A row for each kind of what was tried, a column for each way it ended."""
    if file is None:
        return [f"{NOT_MEASURED.capitalize()}.", ""]
    kinds = file["kinds"]
    outcomes = list(dict.fromkeys(name for kind in kinds.values() for name in kind if name not in ("tried", "losses")))
    rows = [
        [plain(name), f"{kind['tried']:,}", f"{kind['losses']:,}", *(f"{kind.get(o, 0):,}" for o in outcomes)]
        for name, kind in kinds.items()
    ]
    lines = table([part, "tried", "losses", *map(plain, outcomes)], rows)
    return [*lines, *_more(part, file)]


def _more(part: str, file: dict[str, Any]) -> list[str]:
    if part == "service":
        first, last = (list(file["memory_mib"].items())[k] for k in (0, -1))
        rows = [
            ["calls, on ids", f"{file['calls']:,}, on {file['ids']:,}"],
            ["calls a second", f"{file['calls_a_second']:,}"],
            [f"memory after {int(first[0]):,} calls", f"{first[1]:,.1f} MiB"],
            [f"memory after {int(last[0]):,} calls", f"{last[1]:,.1f} MiB"],
            ["largest growth in between", f"{100 * file['memory_growth']:.2f} %"],
            ["largest difference of an answer", f"{file['largest_difference_in_standard_deviations']:.1e} deviations"],
        ]
        return table(["", ""], rows)
    if part == "solver":
        kinds = file["kinds"].items()
        jumps = sum(kind["tried"] for name, kind in kinds if name.startswith("discontinuous"))
        double = sum(k["tried"] for n, k in kinds if n.startswith("discontinuous") and "float32" not in n)
        return [
            f"Missed jumps: {file['missed_jumps']:,} of {jumps:,} fields with jumps; scipy's RK45 at the same "
            f"tolerances {file['scipy_rk45_missed_jumps']:,} of {double:,} (double precision). Of all others, it "
            f"answers {file['scipy_rk45_wrong_without_a_word']:,} outside of the tolerance without a word.",
            "",
        ]
    return []


def _versions() -> list[str]:
    rows = []
    for part in ("lowest", "newest"):
        file = _read(part)
        if file is None:
            rows.append([f"{part} versions", NOT_MEASURED, "", ""])
            continue
        named = ", ".join(f"{name} {file['versions'][name]}" for name in ("jax", "equinox", "diffrax", "numpy"))
        rows.append(
            [f"{part} versions", f"{file['passed']} passed, {file['failed']} failed", f"Python {file['python']}", named]
        )
    return table(["", "result", "of", "with"], rows)
