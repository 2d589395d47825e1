"""Past one device: four devices against one, many trials as one program against separate fits, streamed data.

    python benchmarks/scale.py --out scale-cpu
    python benchmarks/scale.py --large 1000000 --out scale-large
    python benchmarks/scale.py --tuning 64 --series 2000 --rows 50 --out scale-tuning-h200

All are ratios of times from this one process, in which a CPU is made to look like four devices. They share its cores:
four cannot be quicker than one, and what is measured is what spreading costs. `--large` is apart from it: an epoch over
so many series that stay in host memory, its time and how much memory it takes beside them. So is `--tuning`: so many
trials alone.
"""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4".strip()

import resource
import statistics
import time
import warnings

import jax
import narwhals as nw
import numpy as np
from measure import interleaved
from record import arguments, save, show

import acenode as ace
from acenode.datasets import regions
from acenode.datasets.split import Split
from acenode.models import GRUD, Filter
from acenode.series import Query, Series, forecast
from acenode.series.frames import default_backend
from acenode.tasks import GaussianHead, Headed
from acenode.train import Member, Recipe, Run

HIDDEN = 16
BATCH = 32


def build(key):
    one, two = jax.random.split(key)
    return Headed(Filter(GRUD(6, HIDDEN, key=one)), GaussianHead(HIDDEN, 6, key=two))


def problem(samples: int):
    data = regions.generate(samples=samples, until=4.0, rows=12, seed=0)
    rows = np.arange(samples)
    cut = samples - 64
    return forecast(data.series, after=2.0), Split(rows[:cut], rows[cut:], rows[:0])


def run_of(data, split, members: int, **given) -> Run:
    recipe = Recipe(epochs=10_000, batch_size=BATCH, algorithm="joint", validate_every=10_000)
    return Run(build, ace.Forecast(), data, split, recipe, [Member(k) for k in range(members)], **given)


def devices(samples: int, members: int, rounds: int) -> list[dict]:
    """An epoch of the same ensemble on one, two and four devices."""
    data, split = problem(samples)
    runs = {n: run_of(data, split, members, devices=n) for n in (1, 2, 4)}
    times = interleaved({str(n): run.epoch for n, run in runs.items()}, rounds, 1.0)
    alone = times["1"].median_ms
    return [
        {
            "devices": n,
            "members": members,
            **times[str(n)].as_dict(),
            "ratio": round(times[str(n)].median_ms / alone, 3),
        }
        for n in runs
    ]


def streaming(samples: int, rounds: int) -> list[dict]:
    """An epoch with the data on the device, and with so many mini-batches there at a time."""
    data, split = problem(samples)
    runs = {"on the device": run_of(data, split, 1, devices=1)}
    runs |= {f"{k} mini-batches": run_of(data, split, 1, devices=1, stream=k) for k in (4, 16)}
    times = interleaved({name: run.epoch for name, run in runs.items()}, rounds, 1.0)
    alone = times["on the device"].median_ms
    return [{"data": n, **times[n].as_dict(), "ratio": round(times[n].median_ms / alone, 3)} for n in runs]


def large(samples: int, rows: int = 100, variables: int = 10) -> dict:
    """An epoch over many series in host memory: how much more memory it takes than they do, and how long."""
    random = np.random.default_rng(0)
    observed = np.empty((samples, rows, variables), bool)
    values = np.empty(observed.shape, np.float32)
    for start in range(0, samples, 10_000):  # random walks, half of whose values are seen
        part = slice(start, start + 10_000)
        observed[part] = random.integers(0, 2, observed[part].shape, np.uint8)
        steps = random.standard_normal(observed[part].shape, np.float32)
        values[part] = np.cumsum(steps, axis=1) / 10 * observed[part]
    times = np.broadcast_to(np.arange(rows, dtype=np.float32), (samples, rows))
    known = rows // 2
    context = Series(times[:, :known], values[:, :known], observed[:, :known], np.full(samples, known, np.int32))
    seen = observed[:, known:]
    data = Query(context, times[:, known:], values[:, known:], seen, seen)
    ids, held = np.arange(samples), min(1000, samples // 4)
    split = Split(ids[held:], ids[:held], ids[:0])
    recipe = Recipe(epochs=2, batch_size=min(1024, samples // 4), algorithm="joint")

    def build(key):
        one, two = jax.random.split(key)
        return Headed(Filter(GRUD(variables, HIDDEN, key=one)), GaussianHead(HIDDEN, variables, key=two))

    before = _peak_gib()
    run = Run(build, ace.Forecast(), data, split, recipe, [Member(0)], devices=1, stream=4)
    seconds, peaks = [], []
    for _ in range(recipe.epochs):
        began = time.perf_counter()
        record = run.epoch()
        seconds.append(time.perf_counter() - began)
        peaks.append(round(_peak_gib() - before, 3))
    return {
        "series": samples,
        "rows": rows,
        "variables": variables,
        "data_gib": round((values.nbytes + observed.nbytes) / 2**30, 3),
        "more_memory_gib": peaks,  # at most, after each epoch
        "epoch_s": [round(each, 1) for each in seconds],
        "series_per_second": round(samples / seconds[-1]),
        "validation_mse": float(np.asarray(record["validation_mse"])[0]),
    }


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def tuning(trials: int, fits: int, epochs: int, series: int, rows: int = 10) -> dict:
    """`tune` against separate fits of as many epochs, a few of which are measured; compilation counts in both."""
    random = np.random.default_rng(0)
    ids, hours = np.repeat(np.arange(series), rows), np.tile(np.arange(float(rows)), series)
    values = np.sin(hours / 2 + ids) + 0.1 * random.normal(size=len(ids))
    columns = {"id": ids, "time": hours, "a": values, "b": np.cos(hours / 2 + ids)}
    frame = nw.from_dict(columns, backend=default_backend()).to_native()
    given = {"model": "gru-d", "hidden": 8, "epochs": epochs, "patience": epochs}
    separate = []
    for k in range(fits):
        began = time.perf_counter()
        ace.Forecaster(**given, minutes=60, seed=k, learning_rate=1e-3 * (k + 1)).fit(frame)
        separate.append(time.perf_counter() - began)
    began = time.perf_counter()
    found = ace.tune(ace.Forecaster(**given), frame, trials=trials, minutes=60, hidden=(8,), devices=1)
    together = time.perf_counter() - began
    told = [t for t in found.study.trials if t.state.name in ("COMPLETE", "PRUNED")]
    later = statistics.median(separate[1:])
    expected = separate[0] + (trials - 1) * later
    return {
        "trials": len(told),
        "dropped_early": len([t for t in told if t.state.name == "PRUNED"]),
        "epochs_of_all_trials": sum(t.user_attrs["epochs"] for t in told),
        "epochs_of_a_fit": epochs,
        "series": series,
        "rows": rows,
        "tune_s": round(together, 2),
        "fits_measured_s": [round(s, 2) for s in separate],
        "separate_fits_s_extrapolated": round(expected, 1),
        "times_faster": round(expected / together, 2),
    }


def main() -> None:
    parser = arguments(__doc__, "scale")
    parser.add_argument("--large", type=int, help="this alone: an epoch over so many series, streamed")
    parser.add_argument("--tuning", type=int, help="this alone: so many trials against separate fits")
    parser.add_argument("--series", type=int, default=400, help="of the table for --tuning (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=10, help="of each of them (default: %(default)s)")
    quick = (given := parser.parse_args()).quick
    warnings.simplefilter("ignore", UserWarning)
    if given.large:
        found = large(given.large)
        show(("what", "value"), [[name, value] for name, value in found.items()])
        print(f"\nwritten to {save(given.out, 'scale', quick, large=found)}")
        return
    if given.tuning:
        found = tuning(given.tuning, 3, 2 if quick else 32, 40 if quick else given.series, given.rows)
        show(("what", "value"), [[name, value] for name, value in found.items()])
        print(f"\nwritten to {save(given.out, 'scale', quick, tuning=found)}")
        return
    rounds = 1 if quick else 5
    print("an epoch of one ensemble, spread over devices that share the cores")
    spread = devices(128 if quick else 320, 8 if quick else 16, rounds)
    show(
        ("devices", "members", "median ms", "ratio"),
        [[r["devices"], r["members"], r["median_ms"], r["ratio"]] for r in spread],
    )
    print("\nan epoch with the data on the device, and streamed")
    streamed = streaming(256 if quick else 4096, rounds)
    columns = ("data", "median_ms", "ratio")
    show(columns, [[row[name] for name in columns] for row in streamed])
    print("\ntrials as one program, and separate fits")
    tuned = tuning(4 if quick else 64, 2 if quick else 3, 2 if quick else 16, 40)
    show(("what", "value"), [[name, value] for name, value in tuned.items()])
    h200 = "not measured"
    print(
        f"\nwritten to {save(given.out, 'scale', quick, devices=spread, streaming=streamed, tuning=tuned, h200=h200)}"
    )


if __name__ == "__main__":
    main()
