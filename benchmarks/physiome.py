"""What a training step costs for every model of the Physiome-ODE table: time, compilation, memory, parameters.

    python benchmarks/physiome.py --data-dir FOLDER --set LI01 --folds 5 --out physiome-cpu

A step is the gradient of the loss on a mini-batch of each fold, all folds as one program. Memory is what the compiled
program asks for beside its inputs and outputs. An attentive model takes two such steps a mini-batch (Algorithm 1).
"""

import gc
import time

import equinox as eqx
import jax
import jax.numpy as jnp
from measure import interleaved
from record import arguments, save, show

from acenode.paper import physiome
from acenode.precision import products_in
from acenode.train import parameter_count
from acenode.train.evaluate import take_rows


def measured(name: str, dataset: str, folds: int, data_dir: str | None, rounds: int) -> dict:
    """One model on one data set."""
    row = physiome.row(name, dataset)
    prepared = row.data(data_dir, list(range(folds)))
    data = jax.tree.map(jnp.asarray, prepared.data)
    samples = jnp.stack([jnp.asarray(split.train[: physiome.BATCH]) for split in prepared.splits])
    keys = jax.random.split(jax.random.key(0), folds)
    models = eqx.filter_vmap(lambda key: row.build(key, **prepared.given))(keys)
    moving, still = eqx.partition(models, eqx.is_inexact_array)

    def step(moving, samples, key, data):
        def loss(moving):
            batch = take_rows(data, samples)
            return row.task.loss(eqx.combine(moving, still), batch, key, jnp.asarray(0))[0]

        return jax.grad(loss)(moving)

    began = time.perf_counter()
    with products_in("float32"):
        program = jax.jit(jax.vmap(step, in_axes=(0, 0, 0, None))).lower(moving, samples, keys, data).compile()
    compiled = time.perf_counter() - began
    call = lambda: jax.block_until_ready(program(moving, samples, keys, data))  # noqa: E731
    taken = interleaved({name: call}, rounds)[name]
    one = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, models)
    return {
        "parameters": parameter_count(one),
        "compile_s": round(compiled, 1),
        **taken.as_dict(),
        "memory_mib": round(program.memory_analysis().temp_size_in_bytes / 2**20),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "physiome")
    parser.add_argument("--data-dir", help="folder with packed sets, if not the usual one")
    parser.add_argument("--set", default="LI01", help="which (default: %(default)s)")
    parser.add_argument("--folds", type=int, default=5, help="trained as one program (default: %(default)s)")
    parser.add_argument("--models", nargs="*", help="rows of the table (default: all)")
    given = parser.parse_args()
    rounds = 1 if given.quick else 3
    found = {}
    for name in given.models or physiome.MODELS:
        found[name] = measured(name, given.set, given.folds, given.data_dir, rounds)
        print(name, found[name], flush=True)
        gc.collect()
    columns = ("parameters", "compile_s", "median_ms", "memory_mib")
    show(("model", *columns), [[name, *(row[each] for each in columns)] for name, row in found.items()])
    told = {"dataset": given.set, "folds": given.folds, "batch": physiome.BATCH}
    print(save(given.out, "physiome", given.quick, **told, training_step=found))


if __name__ == "__main__":
    main()
