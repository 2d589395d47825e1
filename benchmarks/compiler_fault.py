"""Is the compiler's fault present here? Stacked models against each model alone, for several sizes of batches.

Seen with XLA of jax 0.11.2 on an H200: five Latent-ODE models, mapped by `jax.vmap` over a loop of parts of the data,
scored an MSE of 3.237e-3 in parts of 400 records and 3.170e-3 in parts of 320, 640 or 50, alone, or on a CPU; all but
the last model were wrong. Another model was wrong in parts of 250 (accuracy 0.51 stacked, 0.80 alone). Nothing fails:
only the numbers are wrong. The library evaluates models one by one since, and checks programs on their first use
(`acenode.train.self_check`).

Runs on any kind of machine; exits with 1 where a stacked program differs from the same models alone.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from patients import SIZES, records
from record import arguments, save, show

from acenode.paper.latent import kinds
from acenode.paper.physionet import HALF, scaled, value_model
from acenode.precision import products_in
from acenode.series import extrapolate
from acenode.tasks import Reconstruction
from acenode.train.evaluate import metrics_of, take

ROW, MEMBERS = "Latent-ODE (ODE Enc.)", 5
TOLERANCE = 2e-3  # relative; the fault seen was ten times as large


def scores(models, data, size: int, stacked: bool) -> np.ndarray:
    """The MSE of every model on all records, so many at a time: of all models in one program, or one by one."""
    arrays, static = eqx.partition(models, eqx.is_array)
    count = len(data)

    def one(arrays, data):
        weight = jnp.ones(count)
        model = eqx.combine(arrays, static)
        return metrics_of(model, Reconstruction(), size, jnp.arange(count), weight, data, jax.random.key(0))["mse"]

    if stacked:
        return np.asarray(jax.jit(products_in()(jax.vmap(one, in_axes=(0, None))))(arrays, data))
    alone = jax.jit(products_in()(one))
    return np.asarray([alone(take(arrays, k), data) for k in range(MEMBERS)])


def main() -> None:
    given = arguments((__doc__ or "").splitlines()[0], "compiler-fault").parse_args()
    count, longest, sizes = (40, 12, (20, 10)) if given.quick else (800, 203, (50, 250, 320, 400, 500, 640))
    panel = records(count, longest)
    data = jax.tree.map(jnp.asarray, extrapolate(scaled(panel, np.arange(count)), after=HALF))
    build = value_model(kinds(SIZES)[ROW])
    models = eqx.nn.inference_mode(eqx.filter_vmap(build)(jax.random.split(jax.random.key(0), MEMBERS)))
    rows = []
    for size in sizes:
        together, alone = (scores(models, data, size, stacked) for stacked in (True, False))
        apart = np.abs(together - alone) / np.abs(alone)
        wrong = [k for k in range(MEMBERS) if not apart[k] <= TOLERANCE]
        rows.append({"size": size, "largest_difference": float(apart.max()), "wrong_members": wrong})
    show(
        ["records at a time", "largest difference", "wrong members"],
        [[r["size"], f"{r['largest_difference']:.1e}", str(r["wrong_members"] or "none")] for r in rows],
    )
    present = any(row["wrong_members"] for row in rows)
    print("\nThe fault is present." if present else "\nThe fault is not present here.")
    print(f"written: {save(given.out, 'compiler fault', given.quick, members=MEMBERS, rows=rows, present=present)}")
    if present:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
