"""Forms of attention on top of GRU-ODE-Bayes, on validation data of Physiome-ODE: what was tried.

    python benchmarks/forms.py --data-dir FOLDER --sets LI01 --forms plain signed --out forms-h200

Two folds, 60 of 100 epochs, the settings of the table's GRU-ODE-Bayes; the best validation MSE of each fold. All but
"plain", "as many weights" and "frozen covariance" have an attention that evolves and that observations write into.
Those called joint train all parameters by one gradient, the others by Algorithm 1. Test data are not looked at.
"""

import functools as ft
import time
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from record import arguments, save, show

from acenode.layers import Linear
from acenode.ode import (
    Attention,
    CoEvolvingODE,
    ConditionedGRUField,
    DeltaRule,
    DeltaRuleUpdate,
    FastWeights,
    GRUField,
    Solver,
    VectorField,
    Zeros,
)
from acenode.paper import physiome
from acenode.train import Member, Recipe, Run, parameter_count

HIDDEN = physiome.HIDDEN
ROWS, CHANNELS = 16, HIDDEN // 16  # of h, where it is cut into rows


class Faded(FastWeights):
    """Fast weights that f hears by a learned amount, nothing at first."""

    amount: Array

    def __init__(self, size: int, heads: int, width: int, *, key: Array):
        super().__init__(size, heads, width, key=key)
        self.amount = jnp.zeros(())

    def __call__(self, h, a):
        return self.amount * super().__call__(h, a)


def fast_weights(key: Array, solver: Solver, variables: int, heads: int = 4, width: int = 16, form: type = FastWeights):
    one, two, three, four = jax.random.split(key, 4)
    return CoEvolvingODE(
        ConditionedGRUField(HIDDEN, attended=heads * width, key=one),
        DeltaRule(HIDDEN, heads, width, key=two),
        form(HIDDEN, heads, width, key=three),
        Zeros((heads, width, width)),
        solver,
        update=DeltaRuleUpdate(HIDDEN, heads, width, key=four),
    )


class Blocks(Attention):
    """h cut into rows that attend to each other: `h + gamma (w h - h)` with a softmax, `h + gamma a h` without."""

    gamma: Array
    softmax: bool = eqx.field(static=True)

    def __init__(self, softmax: bool):
        self.gamma, self.softmax = jnp.zeros(()), softmax

    def weights(self, a):
        return jax.nn.softmax(a, axis=-1) if self.softmax else a

    def __call__(self, h, a):
        mixed = (self.weights(a) @ h.reshape(ROWS, CHANNELS)).ravel()
        return h + self.gamma * (mixed - h if self.softmax else mixed)

    def shape(self, h_shape):
        return (ROWS, ROWS)


class Scores(VectorField):
    """g of `Blocks`: `da/dt = q(h) k(h)^T / sqrt(c) - a`."""

    query: Linear
    key: Linear
    takes = ("state", "attention")

    def __init__(self, *, key: Array):
        one, two = jax.random.split(key)
        self.query, self.key = Linear(CHANNELS, CHANNELS, key=one), Linear(CHANNELS, CHANNELS, key=two)

    def __call__(self, t, h, a):
        return scores(self.query, self.key, h, h) / jnp.sqrt(CHANNELS) - a


class ScoresUpdate(eqx.Module):
    """What an observation adds to a: scores between the rows and their change."""

    query: Linear
    key: Linear

    def __init__(self, *, key: Array):
        one, two = jax.random.split(key)
        self.query, self.key = Linear(CHANNELS, CHANNELS, key=one), Linear(CHANNELS, CHANNELS, key=two)

    def __call__(self, a, before, after):
        return a + scores(self.query, self.key, after, after - before)


def scores(query, key, x, y):
    one, two = (jax.vmap(part)(z.reshape(ROWS, CHANNELS)) for part, z in ((query, x), (key, y)))
    return one @ two.T


def blocks(key: Array, solver: Solver, variables: int, softmax: bool):
    one, two, three = jax.random.split(key, 3)
    f, g = GRUField(HIDDEN, True, key=one), Scores(key=two)
    return CoEvolvingODE(f, g, Blocks(softmax), Zeros((ROWS, ROWS)), solver, update=ScoresUpdate(key=three))


class Pace(Attention):
    """A pace of each dimension, which f applies to its slope."""

    def weights(self, a):
        return jnp.exp(2 * jnp.tanh(a / 2))

    def __call__(self, h, a):
        return jnp.concatenate([h, self.weights(a)])

    def shape(self, h_shape):
        return h_shape


class PacedGRU(VectorField):
    gru: GRUField
    takes = ("attended",)

    def __init__(self, *, key: Array):
        self.gru = GRUField(HIDDEN, key=key)

    def __call__(self, t, attended):
        h, pace = jnp.split(attended, 2)
        return pace * self.gru(t, h)


class Drift(VectorField):
    """g of `Pace`: linear in h, and a decay of each dimension."""

    net: Linear
    log_decay: Array
    takes = ("state", "attention")

    def __init__(self, *, key: Array):
        self.net, self.log_decay = small(Linear(HIDDEN, HIDDEN, key=key)), jnp.full(HIDDEN, -2.0)

    def __call__(self, t, h, a):
        return self.net(h) - jnp.exp(self.log_decay) * a


class Written(eqx.Module):
    """What an observation adds to a: linear in h and its change."""

    net: Linear

    def __init__(self, *, key: Array):
        self.net = small(Linear(2 * HIDDEN, HIDDEN, key=key))

    def __call__(self, a, before, after):
        return a + self.net(jnp.concatenate([after - before, after]))


def small(linear: Linear) -> Linear:
    return eqx.tree_at(lambda each: each.weight, linear, 0.1 * linear.weight)


def pace(key: Array, solver: Solver, variables: int):
    one, two, three = jax.random.split(key, 3)
    f, g, update = PacedGRU(key=one), Drift(key=two), Written(key=three)
    return CoEvolvingODE(f, g, Pace(), Zeros((HIDDEN,)), solver, update=update)


def by_one_gradient(epochs: int) -> Recipe:
    return replace(physiome.recipe(epochs), algorithm="joint")


FORMS: dict[str, tuple[Callable, int, Callable[[int], Recipe]]] = {  # the ODE, the size of h, and how it is trained
    "plain": (physiome.plain(), HIDDEN, physiome.recipe),
    "as many weights": (physiome.plain(physiome.AS_MANY), physiome.AS_MANY, physiome.recipe),
    "fast weights": (fast_weights, HIDDEN, physiome.recipe),
    "fast weights, joint": (fast_weights, HIDDEN, by_one_gradient),
    "fast weights, faded in, joint": (ft.partial(fast_weights, form=Faded), HIDDEN, by_one_gradient),
    "fast weights, 8 heads, joint": (ft.partial(fast_weights, heads=8), HIDDEN, by_one_gradient),
    "rows of h, signed, joint": (ft.partial(blocks, softmax=False), HIDDEN, by_one_gradient),
    "rows of h, softmax, joint": (ft.partial(blocks, softmax=True), HIDDEN, by_one_gradient),
    "pace of each dimension, joint": (pace, HIDDEN, by_one_gradient),
    "covariance, joint": (physiome.covariance(), HIDDEN, physiome.joint),
    "frozen covariance, joint": (physiome.covariance(evolves=False), HIDDEN, physiome.joint),
}


def validated(dataset: str, name: str, epochs: int, data_dir: str | None) -> dict:
    began = time.perf_counter()
    row, folds = physiome.row(physiome.PLAIN, dataset), [0, 1]
    prepared = row.data(data_dir, folds)
    ode, size, recipe = FORMS[name]
    build = ft.partial(physiome._bayes(ode, size), **prepared.given)
    members = [Member(fold, fold, row.learning_rate, 0.0) for fold in folds]
    run = Run(build, row.task, prepared.data, prepared.splits, recipe(epochs), members)
    while not run.finished:
        run.epoch()
    done = run.result()
    return {
        "dataset": dataset,
        "form": name,
        "validation_mse": [float(score) for score in done.best_score],
        "parameters": parameter_count(done.model(0)),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "forms")
    parser.add_argument("--data-dir", help="folder with packed sets, if not the usual one")
    parser.add_argument("--sets", nargs="+", default=["LI01", "KAR02", "HOD01"], help="which (default: %(default)s)")
    parser.add_argument("--forms", nargs="+", choices=tuple(FORMS), default=list(FORMS), help="which (default: all)")
    given = parser.parse_args()
    epochs = 1 if given.quick else 60
    rows = []
    for dataset in given.sets:
        for name in given.forms:
            rows.append(validated(dataset, name, epochs, given.data_dir))
            print(rows[-1], flush=True)
    shown = [(r["dataset"], r["form"], f"{np.mean(r['validation_mse']):.4f}", r["parameters"]) for r in rows]
    show(("set", "form", "validation MSE", "parameters"), shown)
    print(save(given.out, "forms", given.quick, epochs=epochs, rows=rows))


if __name__ == "__main__":
    main()
