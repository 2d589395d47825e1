"""Tasks small enough to train in a test: a regression, one that tells which samples it saw, one that only descends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from acenode.datasets.split import Split
from acenode.ode import CoEvolvingODE, Constant, Identity, Pairwise, Solver, Stats
from acenode.tasks import Report
from acenode.train import Fit, Recipe, fit

SIZE = 2
TIMES = jnp.asarray([0.0, 1.0])
NOTHING = Report(jnp.zeros((), int), jnp.zeros(()), jnp.zeros(()))


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def same(a, b) -> bool:
    """Whether two models agree in every bit."""
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def split(train: int = 16, validation: int = 8) -> Split:
    return Split(np.arange(train), np.arange(train, train + validation), np.arange(0))


# --- a regression with all groups of parameters ---------------------------------------------------------------


class Pairs(NamedTuple):
    """What goes in and what should come out."""

    x: jax.Array | np.ndarray
    y: jax.Array | np.ndarray


def pairs(count: int = 24, seed: int = 0) -> Pairs:
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, SIZE))
    return Pairs(x, np.sin(x[:, 0]) * x[:, 1] + 0.1 * random.normal(size=count))


class Field(eqx.Module):
    """A vector field of a user's own."""

    w: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    bend: Callable = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, t, h):
        return self.bend(self.w @ h).reshape(self.shape)


class First(eqx.Module):
    """A first attention of a user's own."""

    w: jax.Array

    def __call__(self, h0):
        return (h0 @ self.w).reshape(-1, SIZE, SIZE)


class Toy(eqx.Module):
    """A co-evolving ODE, a linear head, and a shift that is measured and not trained.

    Without `solved` it takes one Euler step by hand, which compiles in no time; what training does to the groups of
    parameters does not depend on the solver.
    """

    ode: CoEvolvingODE
    head: jax.Array
    shift: Constant
    solved: bool = eqx.field(static=True, default=False)

    def __call__(self, x):
        h, stats = self.solve(x) if self.solved else self.step(x)
        return h @ self.head + self.shift.value, stats

    def solve(self, x):
        path = self.ode(x, TIMES, attention=False)
        return path.finite[:, -1], path.stats

    def step(self, x):
        def one(h, a):
            attended = self.ode.attention(h, a)
            return self.ode.attention(h + self.ode.f(0.0, attended), a + self.ode.g(0.0, attended))

        return jax.vmap(one)(x, self.ode.initial(x)), Stats.none(x.shape[0])


def build(key, solver: Solver = Solver(), solved: bool = False) -> Toy:  # noqa: B008
    # Numbers that look random and compile quickly, other ones for every seed.
    seed = jax.random.key_data(key)[-1].astype(float)
    f, g, q, head = jnp.sin((seed + 2) * jnp.arange(1.0, 33.0)).reshape(4, SIZE * SIZE, SIZE)
    ode = CoEvolvingODE(Field(f[:SIZE], (SIZE,)), Field(g, (SIZE, SIZE)), Pairwise(), First(q.T), solver)
    return Toy(ode, head[0], Constant(jnp.asarray(0.25)), solved)


@dataclass(frozen=True)
class Regression:
    """Least squares; samples whose solve failed do not count."""

    monitor: str = "mse"
    better: str = "lower"

    def loss(self, model, batch, key, epoch):
        prediction, stats = model(batch.x)
        good = ~stats.failed
        value = jnp.sum(jnp.where(good, jnp.square(prediction - batch.y), 0.0)) / jnp.maximum(jnp.sum(good), 1)
        return value, Report.of(stats)

    def first_states(self, model, batch, key):
        return batch.x, TIMES

    def outputs(self, model, batch, key):
        return model(batch.x)[0]

    def metrics(self, outputs, batch, weight):
        error = outputs - batch.y
        return {
            "mse": jnp.sum(weight * error**2) / jnp.sum(weight),
            "worst": jnp.max(weight * jnp.abs(error)),
            "closeness": -jnp.sum(weight * error**2),
        }


# --- which samples are seen when ------------------------------------------------------------------------------


class Diary(eqx.Module):
    """One number for every sample."""

    w: jax.Array

    def __call__(self, t, h):
        return h


@dataclass(frozen=True)
class Visits:
    """Every visit of a sample in iteration i adds 2^i to its number: binary digits that tell when it was seen."""

    monitor: str = "written"
    better: str = "higher"

    def loss(self, model, batch, key, epoch):
        return -jnp.sum(model.f.w[batch] + model.g.w[batch]), NOTHING

    def first_states(self, model, batch, key):
        return None

    def outputs(self, model, batch, key):
        return jnp.broadcast_to(jnp.sum(model.f.w), batch.shape)

    def metrics(self, outputs, batch, weight):
        return {"written": outputs[0]}


def visits(recipe: Recipe, samples: int, splits, members) -> tuple[np.ndarray, np.ndarray]:
    """When training with `recipe` sees each sample in its main and in its attention steps.

    Two arrays (members, iterations, samples) of truth values, over all epochs.
    """
    recipe = Recipe(recipe.epochs, recipe.batch_size, "sgd", schedule=lambda i: jnp.ldexp(1.0, i), unit=recipe.unit)

    def build(key):
        w = jnp.zeros(samples)
        return CoEvolvingODE(Diary(w), Diary(w), Pairwise(), Identity())

    done: Fit = fit(build, Visits(), np.arange(samples), splits, recipe, members)
    assert done.best_epoch.tolist() == [recipe.epochs - 1] * len(members)
    digits = [np.asarray(w).astype(np.int64) for w in (done.models.f.w, done.models.g.w)]
    steps = max(int(d.max()).bit_length() for d in digits)
    main, attention = ((d[:, None, :] >> np.arange(steps)[:, None]) & 1 == 1 for d in digits)
    return main, attention


# --- a descent ---------------------------------------------------------------------------------------------------


class Place(eqx.Module):
    """One number, 0 at first."""

    at: jax.Array


def place(key) -> Place:
    return Place(jnp.zeros(()))


@dataclass(frozen=True)
class Descent:
    """Every step of `sgd` adds the learning rate; the validation score is the distance from `goal`."""

    goal: float = 3.0
    monitor: str = "distance"
    better: str = "lower"

    def loss(self, model, batch, key, epoch):
        return -model.at, NOTHING

    def first_states(self, model, batch, key):
        return None

    def outputs(self, model, batch, key):
        return jnp.broadcast_to(model.at, batch.shape)

    def metrics(self, outputs, batch, weight):
        distance = jnp.sum(weight * jnp.abs(outputs - self.goal)) / jnp.sum(weight)
        return {"distance": distance, "nearness": -distance}
