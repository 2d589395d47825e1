"""A forecast trained for real, small: single precision data, a co-evolving ODE, a statistic for evaluation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets import regions
from acenode.datasets.split import random_split
from acenode.models import LatentODE
from acenode.ode import CoEvolvingODE, Correlation, Pairwise, Solver, correlation
from acenode.series import forecast
from acenode.tasks import Forecast, Headed
from acenode.train import Fit, Member, Recipe, evaluate, fit, groups

pytestmark = pytest.mark.slow  # what all tests share is trained first

REGIONS, LATENT = 3, 3
DATA = forecast(regions.generate(samples=16, regions=REGIONS, until=1.0, rows=6).series, 0.6)
SPLIT = random_split(16, (0.5, 0.25, 0.25), seed=0)
TASK = Forecast()


class Map(eqx.Module):
    """A layer that is quick to make and to compile."""

    w: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True, default=(-1,))

    def __call__(self, *args):
        return jnp.tanh(self.w @ args[-1]).reshape(self.shape)


class Average(eqx.Module):
    def __call__(self, series):
        return series.values.sum(axis=1) / jnp.maximum(series.observed.sum(axis=1), 1)


class Head(eqx.Module):
    w: jax.Array
    bias: jax.Array

    def __call__(self, state):
        return self.w @ state + self.bias, -1.0 + 0.1 * self.w @ state


def build(key) -> Headed:
    seed = jax.random.key_data(key)[-1].astype(float)
    numbers = jnp.sin((seed + 2) * jnp.arange(1.0, 100.0))
    f, g, z, w = (numbers[i : i + 3 * n].reshape(n, 3) for i, n in ((0, 3), (9, 9), (36, 6), (54, 3)))
    solver = Solver("euler", step=0.5, max_steps=4, checkpoints=4)
    ode = CoEvolvingODE(Map(f), Map(g, (LATENT, LATENT)), Pairwise(), Correlation(LATENT), solver)
    return Headed(LatentODE(Average(), Map(z), ode, (LATENT,), samples=0), Head(w, jnp.zeros(3)))


@pytest.fixture(scope="module")
def done() -> Fit:
    recipe = Recipe(epochs=8, batch_size=4, eval_batch=3)
    return fit(build, TASK, DATA, SPLIT, recipe, [Member(0, learning_rate=0.02), Member(1, learning_rate=0.02)])


@pytest.mark.slow
def test_training_helps(done):
    score = done.history["validation_negll"]
    assert score.shape == (8, 2) and np.isfinite(score).all()
    assert (done.best_score < score[0]).all() and (done.history["loss"][-1] < done.history["loss"][0]).all()
    assert (done.history["attention_loss"] != 0).all() and done.notes == ()
    assert (done.history["nfe"] > 0).all() and not done.history["failed"].any()


def test_the_best_models_have_the_best_scores(done):
    found = evaluate(done.models, TASK, DATA, SPLIT.validation)
    np.testing.assert_allclose(found["negll"], done.best_score, rtol=1e-6)
    assert done.models.model.ode.inference  # in the mode in which a prediction stands alone


@pytest.mark.slow
def test_the_reference_of_the_attention_is_measured_on_training_samples(done):
    model = done.model(1)
    known = jax.tree.map(lambda x: jnp.asarray(x[SPLIT.train]), DATA.context)
    h0, _ = model.model.posterior(known)
    reference = model.model.ode.initial.reference
    np.testing.assert_allclose(reference.value, correlation(h0), atol=1e-6)
    assert not np.allclose(reference.value, np.eye(LATENT)) and groups(reference).array == "constant"
