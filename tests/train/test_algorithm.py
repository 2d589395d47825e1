"""`fit` against Algorithm 1 written out as a plain loop, with the same batches in the same order."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy_task import Regression, build, pairs, visits

from acenode.datasets.split import Split
from acenode.train import Member, Recipe, fit

OWN = optax.sgd(0.03, momentum=0.8)  # a user's own, taken as it is
OPTIMISERS = {"adam": optax.adam, "sgd": optax.sgd, OWN: lambda rate: OWN}
DATA, SAMPLES = pairs(24), 24
SPLIT = Split(np.setdiff1d(np.arange(20), [3, 9, 10, 16]), np.asarray([3, 9, 10, 20, 21]), np.asarray([16, 22, 23]))
SEEDS = (3, 4)
MEMBER = Member(seed=SEEDS[0], learning_rate=0.03, penalty=0.3)


@lru_cache
def seen_by(epochs: int, batch_size: int, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Which samples the main and the attention steps see: (seeds, epochs, steps, samples) each."""
    recipe = Recipe(epochs, batch_size, unit=unit)
    both = visits(recipe, SAMPLES, SPLIT, [Member(seed, learning_rate=1.0) for seed in SEEDS])
    main, attention = (seen.reshape(len(SEEDS), epochs, -1, SAMPLES) for seen in both)
    return main, attention


def prediction(p, x):
    """The toy without the package: one Euler step of Equation 3 with pairwise attention."""
    attended = lambda h, a: jnp.einsum("bij,bj->bi", jax.nn.softmax(a, axis=-1), h)  # noqa: E731
    a = (x @ p["q"]).reshape(-1, 2, 2)
    seen = attended(x, a)
    h, a = x + jnp.tanh(seen @ p["f"].T), a + jnp.tanh(seen @ p["g"].T).reshape(-1, 2, 2)
    return attended(h, a) @ p["head"] + 0.25


def task_loss(p, x, y):
    return jnp.mean((prediction(p, x) - y) ** 2)


jitted_loss = jax.jit(task_loss)


def attention_loss(p, x, y, penalty, order):
    g = p["g"].ravel()
    return task_loss(p, x, y) + penalty * (jnp.sum(jnp.abs(g)) if order == 1 else jnp.sqrt(g @ g))


class Loop:
    """Algorithm 1 in plain Python."""

    def __init__(self, recipe: Recipe, member: Member):
        self.recipe, self.member = recipe, member
        model = build(jax.random.key(member.seed))
        self.p = {"f": model.ode.f.w, "g": model.ode.g.w, "q": model.ode.initial.w, "head": model.head}
        self.p = {n: np.asarray(value) for n, value in self.p.items()}
        joint = recipe.algorithm == "joint"
        self.names = (["f", "q", "head", "g"], []) if joint else (["f", "q", "head"], ["g"])
        rate = lambda i: member.learning_rate * (recipe.schedule(i) if recipe.schedule else 1.0)  # noqa: E731
        self.optimiser = OPTIMISERS[recipe.optimiser](rate)
        self.update = jax.jit(self.optimiser.update)
        self.states = [self.optimiser.init({n: self.p[n] for n in names}) for names in self.names]
        order = 1 if recipe.norm == "l1" else 2
        penalised = lambda p, x, y: attention_loss(p, x, y, member.penalty, order)  # noqa: E731
        self.losses = [jax.jit(jax.value_and_grad(f)) for f in (penalised if joint else task_loss, penalised)]

    def step(self, second: bool, rows) -> float:
        names, recipe = self.names[second], self.recipe
        value, slopes = self.losses[second](self.p, DATA.x[rows], DATA.y[rows])
        slopes = {n: np.asarray(slopes[n]) for n in names}
        main = [n for n in names if n in ("f", "head")]
        if recipe.clip is not None and main:
            length = np.sqrt(sum(float((slopes[n] ** 2).sum()) for n in main))
            slopes |= {n: slopes[n] * min(1.0, recipe.clip / length) for n in main}
        if recipe.clip is not None and recipe.algorithm == "joint":
            for n in ("g", "q"):
                slopes[n] = slopes[n] * min(1.0, recipe.clip / np.linalg.norm(slopes[n]))
        slopes |= {n: slopes[n] + recipe.weight_decay * self.p[n] for n in main}
        update, self.states[second] = self.update(slopes, self.states[second])
        self.p |= {n: self.p[n] + np.asarray(update[n]) for n in names}
        return float(value)

    def run(self, main: np.ndarray, attention: np.ndarray):
        """`main` and `attention`: which samples each step sees, (epochs, steps, samples)."""
        recipe, best, told = self.recipe, (np.inf, -1, None), {"loss": [], "attention_loss": [], "mse": []}
        for epoch in range(recipe.epochs):
            first, second = [], []
            if recipe.algorithm == "joint":
                first = [self.step(False, rows) for rows in main[epoch]]
            elif recipe.unit == "batch":
                for rows in main[epoch]:
                    first.append(self.step(False, rows))
                    second.append(self.step(True, rows))
            else:
                first = [self.step(False, rows) for rows in main[epoch]]
                second = [self.step(True, rows) for rows in attention[epoch]]
            score = float(jitted_loss(self.p, DATA.x[SPLIT.validation], DATA.y[SPLIT.validation]))
            if score < best[0]:
                best = (score, epoch, dict(self.p))
            told["loss"].append(np.mean(first))
            told["attention_loss"].append(np.mean(second) if second else 0.0)
            told["mse"].append(score)
        return best, told


CASES = {
    "by batch, with all options": Recipe(
        epochs=3,
        batch_size=5,
        optimiser="adam",
        schedule=optax.cosine_decay_schedule(1.0, 11),
        weight_decay=0.01,
        clip=0.5,
    ),
    "by epoch": Recipe(epochs=3, batch_size=5, optimiser="sgd", unit="epoch", norm="l1", schedule=lambda i: 0.9**i),
    "joint": Recipe(epochs=3, batch_size=5, optimiser=OWN, algorithm="joint", norm="l1"),
    "joint, clipped": Recipe(epochs=3, batch_size=5, optimiser="adam", algorithm="joint", clip=0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_fit_is_algorithm_1(case):
    recipe = CASES[case]
    main, attention = seen_by(recipe.epochs, recipe.batch_size, recipe.unit)
    (score, epoch, p), told = Loop(recipe, MEMBER).run(main[0], attention[0])
    done = fit(build, Regression(), DATA, SPLIT, recipe, [MEMBER])
    model = done.model()
    assert done.best_epoch.tolist() == [epoch]
    np.testing.assert_allclose(done.best_score, [score], rtol=1e-10)
    ours = {"f": model.ode.f.w, "g": model.ode.g.w, "q": model.ode.initial.w, "head": model.head}
    for name, value in p.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(done.history["validation_mse"][:, 0], told["mse"], rtol=1e-10)
    if recipe.algorithm == "joint":  # the history tells L_h, without the penalty
        assert not done.history["attention_loss"].any()
    else:
        np.testing.assert_allclose(done.history["loss"][:, 0], told["loss"], rtol=1e-10)
        np.testing.assert_allclose(done.history["attention_loss"][:, 0], told["attention_loss"], rtol=1e-10)
    assert done.notes == ()


# --- which samples are seen -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["batch", "epoch"])
def test_an_epoch_sees_each_training_sample_once_in_a_new_order(unit):
    main, attention = seen_by(3, 5, unit)
    for seen in (main, attention):
        assert seen.shape == (2, 3, 3, 24) and (seen.sum(axis=3) == 5).all()
        assert (seen.sum(axis=2) <= 1).all()  # no sample twice; one of sixteen is left over
        assert not np.delete(seen, SPLIT.train, axis=3).any()
        assert len({x.tobytes() for x in seen.reshape(6, -1)}) == 6  # other orders in other epochs and members
        assert (seen.sum(axis=(0, 1, 2))[SPLIT.train] > 0).all()
    assert np.array_equal(main, attention) == (unit == "batch")
