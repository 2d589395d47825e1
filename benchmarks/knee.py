"""How many models a device trains at once until more of them cost as much again: step time, throughput and memory.

    python benchmarks/knee.py --out knee-h200

A step is the gradient of the loss on a mini-batch for each member of an ensemble, each with a batch of its own. The
knee is the smallest ensemble that reaches nine tenths of the highest throughput measured. Memory is what the compiled
program asks for beside its inputs. Then three trainings by `fit` are foretold from these times and measured, without
validation.
"""

import contextlib
import fcntl
import gc
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from climate import generated as climate_series
from measure import interleaved
from patients import ROWS, records
from record import arguments, save, show

from acenode.datasets import physiome as physiome_data
from acenode.datasets.split import Split
from acenode.paper import bayes, images, physiome
from acenode.paper.latent import kinds
from acenode.paper.physionet import SIZES, mortality_data, mortality_model
from acenode.precision import products_in
from acenode.tasks import BinaryClassification, Forecast, ImageClassification, LabelledImages
from acenode.train import Member, Recipe, Run
from acenode.train.evaluate import take_rows

BATCH = {"patients": 50, "climate": 50, "images": 128, "Physiome-ODE": 64}
MEMBERS = (1, 2, 4, 8, 16, 32, 64, 128)
STEPS = 40  # of a training that is foretold


def patients(quick: bool):
    count, longest = (60, 20) if quick else (100, 203)
    panel = records(count, longest)
    data = mortality_data(panel, (np.arange(count) % 7 == 0).astype(np.float32), np.arange(count))
    return mortality_model(kinds(SIZES)[ROWS["ACE-Latent-ODE"]]), BinaryClassification(noise=0.2), data


def ushcn(quick: bool):
    span, rows = (20.0, 30) if quick else (200.0, 300)
    build = bayes.bayes(bayes.attentive(50, self_decay=True), 5, 50, 0.1, span)
    return build, Forecast(), climate_series(60, rows, span)


def pictures(quick: bool):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (256, 28, 28, 1), np.uint8)
    data = LabelledImages(pixels, random.integers(0, 10, 256).astype(np.int32))
    return images.models("mnist")["ACE-ODE-Net"].build, ImageClassification(), data


def systems(quick: bool):
    random = np.random.default_rng(0)
    moments = 20 if quick else 100
    walks = np.cumsum(random.standard_normal((200, moments, 5), np.float32), axis=1) / 10
    fold = physiome_data.fold(physiome_data.PhysiomeSet("walks", walks, np.arange(5), 1.0), 0, causal=True)
    row = physiome.row(physiome.PLAIN, "walks")
    return lambda key: row.build(key, variables=5, moments=moments), row.task, physiome._scaled(fold.query)


TASKS = {"patients": patients, "climate": ushcn, "images": pictures, "Physiome-ODE": systems}


def program_of(build, task, data, batch: int, members: int):
    """The compiled step of an ensemble, bound to its inputs; and the memory it needs."""
    keys = jax.random.split(jax.random.key(0), members)
    random = np.random.default_rng(0)
    count = len(jax.tree.leaves(data)[0])
    rows = jnp.asarray(np.stack([random.permutation(count)[:batch] for _ in range(members)]))
    moving, still = eqx.partition(eqx.filter_vmap(build)(keys), eqx.is_inexact_array)
    arrays = jax.tree.map(jnp.asarray, data)

    def step(moving, rows, key, data):
        def loss(moving):
            return task.loss(eqx.combine(moving, still), take_rows(data, rows), key, jnp.asarray(0))[0]

        return jax.grad(loss)(moving)

    with products_in("float32"):
        program = jax.jit(jax.vmap(step, in_axes=(0, 0, 0, None))).lower(moving, rows, keys, arrays).compile()
    call = lambda: jax.block_until_ready(program(moving, rows, keys, arrays))  # noqa: E731
    return call, program.memory_analysis().temp_size_in_bytes


@contextlib.contextmanager
def alone(path: str | None):
    """Processes that compile beside each other take turns to measure."""
    if path is None:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def measured(name: str, members, quick: bool, lock: str | None) -> dict:
    """Ensembles of all sizes on one task, until the memory or the patience is at an end."""
    build, task, data = TASKS[name](quick)
    batch = min(BATCH[name], 8) if quick else BATCH[name]
    rows, times = [], {}
    for count in members:
        began = time.perf_counter()
        call, memory = program_of(build, task, data, batch, count)
        compiled = time.perf_counter() - began
        with alone(lock):
            taken = interleaved({"step": call}, 1 if quick else 2, 0.5)["step"]
        times[count] = taken.median_ms
        rows.append(
            {
                "members": count,
                "step_ms": round(taken.median_ms, 2),
                "members_per_s": round(1e3 * count / taken.median_ms, 1),
                "memory_mib": round(memory / 2**20, 1),
                "memory_mib_a_member": round(memory / 2**20 / count, 1),
                "compile_s": round(compiled, 1),
            }
        )
        print(name, rows[-1], flush=True)
        del call
        gc.collect()
    most = max(row["members_per_s"] for row in rows)
    knee = next(row["members"] for row in rows if row["members_per_s"] >= 0.9 * most)
    return {"batch": batch, "knee": knee, "rows": rows}


def foretold(name: str, found: dict, quick: bool, lock: str | None) -> list[dict]:
    """What `fit` takes for some mini-batches, beside so many times the step that was measured."""
    build, task, data = TASKS[name](quick)
    count, batch = len(jax.tree.leaves(data)[0]), found["batch"]
    split = Split(np.tile(np.arange(count - 2), 4), np.arange(count - 2, count), np.arange(0))
    known = {row["members"]: row["step_ms"] for row in found["rows"]}
    lines = []
    for members in list(known)[:1] if quick else [n for n in (1, 8, 32) if n in known]:
        recipe = Recipe(epochs=100, batch_size=batch, algorithm="joint", validate_every=100)
        run = Run(build, task, data, split, recipe, [Member(k) for k in range(members)], devices=1)
        run.epoch()
        epochs = 1 if quick else max(STEPS // run.steps, 1)
        with alone(lock):
            began = time.perf_counter()
            for _ in range(epochs):
                run.epoch()
            taken = time.perf_counter() - began
        steps = epochs * run.steps
        told = steps * known[members] / 1e3
        lines.append({"members": members, "steps": steps, "foretold_s": round(told, 2), "measured_s": round(taken, 2)})
        print(name, lines[-1], flush=True)
    return lines


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "knee")
    parser.add_argument("--tasks", nargs="*", choices=tuple(TASKS), help="which (default: all)")
    parser.add_argument("--members", nargs="*", type=int, help="sizes of ensembles (default: 1 to 128)")
    parser.add_argument("--lock", help="a file; processes that share it measure one after the other")
    parser.add_argument("--foretell", action="store_true", help="measure trainings too, and foretell them")
    given = parser.parse_args()
    members = tuple(given.members or ((1, 2) if given.quick else MEMBERS))
    found = {}
    for name in given.tasks or TASKS:
        found[name] = measured(name, members, given.quick, given.lock)
        if given.foretell:
            found[name]["foretold"] = foretold(name, found[name], given.quick, given.lock)
        save(given.out, "knee", given.quick, tasks=found)
        columns = ("members", "step_ms", "members_per_s", "memory_mib_a_member")
        print(f"\n{name}: the knee is at {found[name]['knee']}")
        show(columns, [[row[each] for each in columns] for row in found[name]["rows"]])
    print(save(given.out, "knee", given.quick, tasks=found))


if __name__ == "__main__":
    main()
