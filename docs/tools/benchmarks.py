"""The tables of the benchmark page, from `benchmarks/results`."""

import json
from pathlib import Path
from typing import Any

from . import ROOT, plain, put, table

Found = list[tuple[str, dict[str, Any]]]  # the machine in words, and the file


def write(docs: Path) -> None:
    """Write the tables that the page includes."""
    read = (json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")))
    files = [file for file in read if {"benchmark", "machine", "when", "quick"} <= file.keys()]
    for name, lines in (
        ("pairwise", _timed(_of(files, "pairwise"), "rows")),
        ("image", _timed(_of(files, "image"), "training_step")),
        ("climate", _timed(_of(files, "climate"), "training_step")),
        ("patients", _ensembles(_of(files, "patients"), "training_iteration_ms")),
        ("climate-ensembles", _ensembles(_of(files, "climate"), "ensembles_ms")),
        ("physiome", _physiome(_of(files, "physiome"))),
        ("own-table", _own_tables(_of(files, "own_table"))),
        ("memory", _memory(_of(files, "memory"))),
        ("precision", _precision(_of(files, "precision"))),
        ("norm", _norms(_of(files, "error norm"))),
        ("evaluations", _evaluations(_of(files, "precision"))),
        ("knee", _knee(_of(files, "knee"))),
        ("foretold", _foretold(_of(files, "knee"))),
        ("scaling", _scaling(_of(files, "scaling"))),
        ("serve", _serve(_of(files, "serve"))),
        ("interrupt", _interrupt(_of(files, "interrupt"))),
        ("machines", _machines(files)),
    ):
        put(docs / "_parts" / f"benchmark-{name}.md", "\n".join(lines))
    put(docs / "_parts" / "knee.svg", _knee_picture(_of(files, "knee")))


def _of(files: list[dict[str, Any]], benchmark: str) -> Found:
    return [(_machine(f), f) for f in files if f["benchmark"] == benchmark]


def _machine(file: dict[str, Any]) -> str:
    machine = file["machine"]
    if machine["jax_backend"] == "gpu":
        return machine["device_kind"]
    return f"{machine['cpus_usable']} {machine['platform'].removeprefix('Linux ')} cores"


def _timed(found: Found, part: str) -> list[str]:
    """Median milliseconds of each way, a column for each machine; in the order of the file that has most of them."""
    kept = [(machine, f[part]) for machine, f in found if part in f]
    ways = list(dict.fromkeys(way for _, rows in sorted(kept, key=lambda own: -len(own[1])) for way in rows))
    rows = [[plain(way), *(_milliseconds(own.get(way)) for _, own in kept)] for way in ways]
    return table(["median time", *(machine for machine, _ in kept)], rows)


def _physiome(found: Found) -> list[str]:
    """A line for each model and machine: what a training step costs."""
    rows = []
    for machine, file in found:
        for model, own in file["training_step"].items():
            costs = (_milliseconds(own), f"{own['memory_mib']:,} MiB", f"{own['compile_s']} s")
            where = f"{machine}, {file['dataset']}, {file['folds']} folds"
            rows.append([plain(model), where, f"{own['parameters']:,}", *costs])
    return table(["model", "where", "parameters", "step", "memory", "compilation"], rows)


def _own_tables(found: Found) -> list[str]:
    """A line for each model and table; of several runs that of the largest budget, the last; folds as their mean."""
    kept: dict[tuple[str, str], tuple[str, float | None, list[dict[str, Any]]]] = {}
    for machine, file in sorted(
        found, key=lambda each: (each[1].get("minutes", {}).get("named", 5.0), each[1]["when"])
    ):
        for name, measured in file["tables"].items():
            for model in dict.fromkeys(row["model"] for row in measured["rows"]):
                minutes = file.get("minutes", {}).get("auto" if model == "auto" else "named")
                kept[name, model] = machine, minutes, [row for row in measured["rows"] if row["model"] == model]
    rows = []
    for (name, model), (machine, minutes, own) in sorted(
        kept.items(), key=lambda each: (each[0][0], each[0][1] != "auto")
    ):
        metric = "auc" if "auc" in own[0] else "mse"
        mean = {each: sum(row[each] for row in own) / len(own) for each in ("seconds", metric)}
        score = f"{metric.upper()} {mean[metric]:.3f}" + f" ({len(own)} folds)" * (len(own) > 1)
        times = ("" if minutes is None else f"{minutes:g} min", f"{mean['seconds']:.0f} s")
        rows.append([plain(name), plain(model), machine, *times, score])
    return table(["table", "model", "machine", "budget", "training", "on unseen series"], rows)


def _milliseconds(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['median_ms']:,.1f} ms"


def _ensembles(found: Found, part: str) -> list[str]:
    """Milliseconds of one update of so many models."""
    rows = []
    for machine, file in found:
        for model, counts in file.get(part, {}).items():
            rows += [[plain(model), count, machine, f"{ms:,.0f} ms"] for count, ms in counts.items()]
    return table(["model", "models at once", "machine", "one update of all"], sorted(rows))


def _memory(found: Found) -> list[str]:
    rows = []
    for machine, file in found:
        for row in file["rows"]:
            sizes = (f"{row[f'{name}_bytes'] / 1e6:,.1f} MB" for name in ("checkpointed", "direct", "stored"))
            rows.append([machine, f"{row['steps']}", f"{row['checkpoints']}", *sizes])
    heads = ["machine", "solver steps", "checkpoints", "`checkpointed`", "`direct`", "every step stored"]
    return table(heads, rows)


def _precision(found: Found) -> list[str]:
    """Errors against double precision, of answers and of gradients."""
    rows = []
    for machine, file in found:
        for model, by in file["errors"].items():
            for precision, error in by.items():
                made = "emulated" if precision in file["emulated"] else "computed"
                numbers = (f"{error[part]:.0e}" for part in ("answers", "gradient"))
                rows.append([plain(model), f"`{precision}`", *numbers, f"{made}, {machine}"])
    return table(["model", "precision", "error of answers", "error of the gradient", "on"], rows)


def _norms(found: Found) -> list[str]:
    """What each error norm costs and gives."""
    rows = []
    for machine, file in found:
        for name, by in file["rows"].items():
            given = file["solvers"][name]
            for norm, row in by.items():
                numbers = f"{row['evaluations']:.1f}", f"{row['error']:.0e}"
                rows.append([plain(name), f"{given['rtol']:g}, {given['atol']:g}", f"`{norm}`", *numbers, machine])
    return table(["attention", "`rtol`, `atol`", "`norm`", "evaluations", "error of h", "on"], rows)


def _evaluations(found: Found) -> list[str]:
    """Evaluations that an adaptive solver takes in each precision."""
    rows = []
    for machine, file in found:
        for precision, taken in file["evaluations"].items():
            rows.append([f"`{precision}`", *(str(count) for count in taken.values()), machine])
    tolerances = list(dict.fromkeys(t for _, f in found for taken in f["evaluations"].values() for t in taken))
    return table(["precision", *(f"tolerance {t}" for t in tolerances), "on"], rows)


def _knee(found: Found) -> list[str]:
    """Of each task a few sizes of ensembles: one, the knee, and the largest."""
    rows = []
    for machine, file in found:
        for name, task in file["tasks"].items():
            sizes = {row["members"]: row for row in task["rows"]}
            for members in sorted({min(sizes), task["knee"], max(sizes)}):
                row, mark = sizes[members], " (knee)" * (members == task["knee"] < max(sizes))
                per = f"{row['memory_mib_a_member']:,.0f} MiB"
                rows.append(
                    [name, f"{members}{mark}", f"{row['step_ms']:,.0f} ms", f"{row['members_per_s']:,.0f}", per]
                )
                rows[-1].append(machine)
    return table(["task", "members at once", "a step of all", "steps a second", "memory a member", "on"], rows)


def _foretold(found: Found) -> list[str]:
    """Trainings beside what the step times had foretold."""
    rows = []
    for machine, file in found:
        for name, task in file["tasks"].items():
            for each in task.get("foretold", ()):
                seconds = (f"{each['foretold_s']:.2f} s", f"{each['measured_s']:.2f} s")
                rows.append([name, str(each["members"]), str(each["steps"]), *seconds, machine])
    return table(["task", "members", "mini-batches", "foretold", "measured", "on"], rows)


def _knee_picture(found: Found) -> str:
    """Steps of members a second against members at once."""
    import io

    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for machine, file in found:
        for name, task in file["tasks"].items():
            members, steps = ([row[key] for row in task["rows"]] for key in ("members", "members_per_s"))
            line = axes.plot(members, steps, marker=".", label=f"{name}, {machine}")[0]
            if task["knee"] < members[-1]:
                at = members.index(task["knee"])
                axes.plot(members[at], steps[at], marker="o", fillstyle="none", markersize=9, color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="members at once", ylabel="steps of members a second")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "acenode", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _scaling(found: Found) -> list[str]:
    rows = []
    for machine, file in found:
        for name, sweep in file["sweeps"].items():
            sizes = ", ".join(f"{row[name]}: {row['median_ms']:,.1f} ms" for row in sweep["rows"])
            rows.append([machine, name, sizes, f"{sweep['slope']:.2f}"])
    return table(["machine", "what grows", "size and median time", "exponent"], rows)


def _serve(found: Found) -> list[str]:
    """The service under load, with its heading; nothing where it was not measured."""
    shown = {
        "updates a second": "updates_per_second",
        "median wait (ms)": "p50_ms",
        "99 % wait less than (ms)": "p99_ms",
        "memory at the end (MiB)": "memory_at_the_end_mib",
        "times that it was killed": "kills",
        "series that lost an acknowledged update": "lost_series",
    }
    if not found:
        return []
    rows = [[words, *(str(f.get("results", f).get(name, "")) for _, f in found)] for words, name in shown.items()]
    head = ["## The service under load", "", "Updates of followed series, one at a time, sent to `acenode serve`.", ""]
    return [*head, *table(["", *(machine for machine, _ in found)], rows)]


def _interrupt(found: Found) -> list[str]:
    """How soon Ctrl-C is answered, with its heading; nothing where it was not measured."""
    if not found:
        return []
    rows = []
    for machine, file in found:
        for model in dict.fromkeys(row["model"] for row in file["trials"]):
            own = [row for row in file["trials"] if row["model"] == model and row["with_a_line"]]
            slowest = (f"{max(row[name] for row in own):.2f} s" for name in ("answered_s", "ended_s"))
            rows.append([plain(model), machine, str(len(own)), *slowest])
    head = ["## Ctrl-C", "", "`acenode train`, interrupted at moments all through a training; the slowest of them.", ""]
    return [*head, *table(["model", "machine", "times", "answered within", "the second one ends within"], rows)]


def _machines(files: list[dict[str, Any]]) -> list[str]:
    rows = {}
    for file in files:
        machine = file["machine"]
        versions = ", ".join(
            f"{k} {machine['versions'][k]}" for k in ("jax", "diffrax", "torch") if machine["versions"][k]
        )
        short = "quick" if file["quick"] else "full"
        rows[file["benchmark"], _machine(file), file["when"]] = [
            file["benchmark"],
            _machine(file),
            file["when"][:10],
            short,
            versions,
        ]
    return table(["benchmark", "machine", "measured", "run", "versions"], rows.values())
