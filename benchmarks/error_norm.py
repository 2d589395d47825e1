"""The error norm of an adaptive solver: what `per_part` and `joint` cost and give on the ODEs of the tables.

`joint` takes the root mean square over h and a together, so that the H x H logits of a pairwise attention dilute the
error of the H numbers of h. The error is that of h at the end, relative, against steps a thousand times as fine. The
weights are untrained, three times as large as at the start of training.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import system
from record import arguments, save, show

from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, Solver
from acenode.paper import images, latent

NORMS = ("per_part", "joint")


def pairwise() -> tuple[CoEvolvingODE, jax.Array, Solver]:
    """The latent ODE of ACE-Latent-ODE: 20 dimensions and 400 logits."""
    ode, h0, _ = system.problem(system.Size(h=20, batch=16, times=2), gain=3.0)
    return ode, h0, latent.SOLVER


def elementwise() -> tuple[CoEvolvingODE, jax.Array, Solver]:
    """ACE-ODE-Net on maps: as many logits as numbers of h."""
    one, two, three, four = jax.random.split(jax.random.key(0), 4)
    fields = ConvField(16, 1, key=one), ConvField(16, 2, key=two)
    ode = CoEvolvingODE(*fields, Elementwise(), ConvInitial(16, 1, key=three), stacked=False)
    return ode, jax.random.normal(four, (4, 6, 6, 16)), images.adaptive(images.TOLERANCE)


def measured(ode: CoEvolvingODE, h0, solver: Solver) -> dict[str, dict[str, float]]:
    times = jnp.asarray([0.0, 1.0])
    fine = replace(ode, solver=replace(solver, rtol=1e-3 * solver.rtol, atol=1e-3 * solver.atol, max_steps=4096))
    exact = np.asarray(eqx.filter_jit(fine)(h0, times).h[:, -1])
    rows = {}
    for norm in NORMS:
        path = eqx.filter_jit(replace(ode, solver=replace(solver, norm=norm)))(h0, times)
        error = np.linalg.norm(np.asarray(path.h[:, -1]) - exact) / np.linalg.norm(exact)
        rows[norm] = {"evaluations": float(np.mean(path.stats.evaluations)), "error": float(error)}
    return rows


def main() -> None:
    given = arguments((__doc__ or "").splitlines()[0], "error-norm").parse_args()
    made = {"pairwise, 20 dimensions": pairwise(), "elementwise, maps": elementwise()}
    table = {name: measured(*each) for name, each in made.items()}
    lines = [
        [name, norm, f"{row['evaluations']:.1f}", f"{row['error']:.1e}"]
        for name, by in table.items()
        for norm, row in by.items()
    ]
    show(["attention", "norm", "evaluations", "error of h"], lines)
    solvers = {name: {"rtol": each[2].rtol, "atol": each[2].atol} for name, each in made.items()}
    print(f"\nwritten: {save(given.out, 'error norm', given.quick, rows=table, solvers=solvers)}")


if __name__ == "__main__":
    main()
