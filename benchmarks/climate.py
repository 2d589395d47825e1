"""GRU-ODE-Bayes: a training step of ours beside an eager PyTorch loop of the same equations and step size; and of many
models at once.

Series like those of USHCN: 200 units of time, some 300 rows on a grid of 0.1, five variables.
"""

import functools as ft
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measure import interleaved
from record import arguments, save, show

from acenode.models import gru_ode_bayes
from acenode.ode import GRUField, NeuralODE, Solver
from acenode.paper.bayes import attentive
from acenode.precision import products_in
from acenode.series import Query, series, stack
from acenode.tasks import Forecast, Headed

VARIABLES, SIZE, STEP = 5, 50, 0.1


def generated(count: int, rows: int, span: float) -> Query:
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        places = np.sort(random.choice(np.arange(1, round(span / STEP)), rows, replace=False))
        values = random.normal(size=(rows, VARIABLES))
        values[random.random(values.shape) < 0.75] = np.nan
        values[np.arange(rows), random.integers(0, VARIABLES, rows)] = random.normal(size=rows)
        many.append(series(places * STEP, values))
    whole = stack(many)
    return Query(whole, whole.times, whole.values, whole.observed, whole.observed)


ODES = {
    "GRU-ODE-Bayes": lambda key: NeuralODE(GRUField(SIZE, key=key)),
    "ACE-GRU-ODE-Bayes": attentive(SIZE, self_decay=True),
}


def built(name: str, span: float, key):
    one, two = jax.random.split(key)
    solver = Solver("euler", step=STEP, max_steps=round(span / STEP) + 2)
    return gru_ode_bayes(VARIABLES, replace(ODES[name](one), solver=solver), SIZE, dropout=0.0, mixing=0.0, key=two)


def training_step(name: str, span: float, data: Query, models: int | None = None):
    """A function that computes loss and gradient: of one model, or of so many at once."""
    build = ft.partial(built, name, span)
    keys = jax.random.split(jax.random.key(0), models or 1)
    model = build(keys[0])
    moving, still = eqx.partition(model, eqx.is_inexact_array)

    def loss(moving):
        headed = Headed(eqx.combine(moving, still), None)
        return Forecast().loss(headed, data, jax.random.key(0), jnp.asarray(0))[0]

    program = jax.value_and_grad(loss)
    if models is not None:
        moving = eqx.filter(eqx.filter_vmap(build)(keys), eqx.is_inexact_array)
        program = jax.vmap(program)
    program = jax.jit(products_in()(program))
    return model, lambda: jax.block_until_ready(program(moving))


def beside_torch(query: Query, span: float, rounds: int) -> dict:
    """Our step and the eager loop's, and the losses of both."""
    import baseline_torch_bayes

    model, ours = training_step("GRU-ODE-Bayes", span, jax.tree.map(jnp.asarray, query))
    candidate = baseline_torch_bayes.Step(model, query.context, STEP)
    losses = {"acenode": float(ours()[0]), "torch": candidate() + 0.5 * float(np.log(2 * np.pi))}
    timings = interleaved({"acenode": ours, "PyTorch, eager loop": candidate}, rounds)
    ratio = timings["PyTorch, eager loop"].median_ms / timings["acenode"].median_ms
    show(["training step", "ms"], [[name, f"{timing.median_ms:.0f}"] for name, timing in timings.items()])
    print(f"loss {losses['acenode']:.5f} against {losses['torch']:.5f}; the eager loop takes {ratio:.1f} times as long")
    step = {name: timing.as_dict() for name, timing in timings.items()}
    return {"training_step": step, "ratio": round(ratio, 2), "losses": losses}


def at_once(query: Query, span: float, sizes: list[int], rounds: int) -> dict:
    """Milliseconds of a training step of ensembles of these sizes."""
    data = jax.tree.map(jnp.asarray, query)
    taken = {}
    for name in ODES:
        steps = {str(models): training_step(name, span, data, models)[1] for models in sizes}
        taken[name] = {models: round(t.median_ms, 2) for models, t in interleaved(steps, rounds).items()}
    show(["training step, ms", *map(str, sizes)], [[n, *(f"{ms:.0f}" for ms in t.values())] for n, t in taken.items()])
    return {"ensembles_ms": taken}


def main() -> None:
    parser = arguments(__doc__ or "", "climate")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--models", type=int, nargs="+", default=[], help="sizes of ensembles (default: none)")
    parser.add_argument("--no-baseline", action="store_true", help="leave PyTorch out")
    given = parser.parse_args()
    if given.no_baseline and not given.models:
        parser.error("--no-baseline without --models leaves nothing to measure.")
    span, rows = (20.0, 30) if given.quick else (200.0, 300)
    rounds = 2 if given.quick else 3
    query = generated(given.batch, rows, span)
    measured = {} if given.no_baseline else beside_torch(query, span, rounds)
    if given.models:
        measured |= at_once(query, span, given.models, rounds)
    path = save(given.out, "climate", given.quick, batch=given.batch, rows=rows, span=span, step=STEP, **measured)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
