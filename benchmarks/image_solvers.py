"""Whether an image classifier trained in two steps of RK4 is an ODE: validation accuracy by other solvers.

    python benchmarks/image_solvers.py --data-dir FOLDER --table svhn --checkpoint runs/svhn/ace-ode-net-longer-...

A model that leans on its steps loses accuracy where they are others. Test images are not looked at.
"""

import equinox as eqx
import jax
import numpy as np
from record import arguments, save, show

from acenode.ode import Solver
from acenode.paper import images
from acenode.train import Member, Run, evaluate

SOLVERS = {
    "rk4_38, step 1": Solver("rk4_38", step=1.0, max_steps=1, checkpoints=2),
    "rk4_38, step 0.5 (trained)": images.TWO_STEPS,
    "rk4_38, step 0.25": Solver("rk4_38", step=0.25, max_steps=4, checkpoints=4),
    "dopri5, tolerance 1e-3": images.USUAL,
    "dopri5, tolerance 1e-5": images.adaptive(1e-5),
}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "image-solvers")
    parser.add_argument("--data-dir", help="folder with the images, if not the usual one")
    parser.add_argument("--table", default="svhn", choices=tuple(images.SETTINGS), help="(default: %(default)s)")
    parser.add_argument("--row", default=images.ACE, choices=images.LONGER_ROWS, help="(default: %(default)s)")
    parser.add_argument("--checkpoint", required=True, help="of its longer training (`acenode reproduce`)")
    parser.add_argument("--seeds", type=int, default=5, help="in the checkpoint (default: %(default)s)")
    given = parser.parse_args()

    row, seeds = images.longer(given.table, given.row), range(given.seeds)
    prepared = images.prepared(given.table, given.data_dir, seeds)
    recipe = row.recipe(row.epochs)
    members = [Member(seed, seed, row.learning_rate, row.penalty) for seed in seeds]
    run = Run(row.build, row.task, prepared.data, prepared.splits, recipe, members, checkpoint=given.checkpoint)
    if not run.finished:
        parser.error(f"{given.checkpoint} has {run.epochs} of {recipe.epochs} epochs")
    models = run.result().models
    held = [split.validation[:500] if given.quick else split.validation for split in prepared.splits]

    rows = {}
    for name, solver in SOLVERS.items():
        build = images.models(given.table, solver)[given.row].build
        other = eqx.nn.inference_mode(eqx.filter_vmap(build)(jax.random.split(jax.random.key(0), given.seeds)))
        trained = jax.tree.unflatten(jax.tree.structure(other), jax.tree.leaves(models))
        found = evaluate(
            trained, row.task, prepared.data, held, eval_batch=recipe.eval_batch, precision=recipe.precision
        )
        rows[name] = {each: [round(float(x), 4) for x in found[each]] for each in ("accuracy", "nfe")}
        print(name, rows[name], flush=True)
    means = [(name, *(f"{np.mean(found[each]):.4f}" for each in ("accuracy", "nfe"))) for name, found in rows.items()]
    show(("solver", "validation accuracy", "evaluations"), means)
    print(save(given.out, "image-solvers", given.quick, table=given.table, row=row.name, solvers=rows))


if __name__ == "__main__":
    main()
