"""A ensemble: every member learns as it would alone, and together they answer with their mean."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.datasets.split import Split
from acenode.models import GRUEncoder, LatentODE
from acenode.ode import CoEvolvingODE, Correlation, MLPField, Pairwise, Solver, pairwise_field
from acenode.series import reconstruct, series, stack
from acenode.tasks import (
    BinaryClassification,
    ClassificationHead,
    Ensemble,
    EnsembleTask,
    Forecast,
    Headed,
    LabelledQuery,
)
from acenode.train import Member, Quiet, Recipe, fit
from acenode.train.groups import attention_norm, fit_reference_statistics, parameter_count

SIZE = 3
TASK = BinaryClassification(noise=0.5)


def build(key) -> Headed:
    one, two, three = jax.random.split(key, 3)
    f, g = MLPField(3, 4, 1, key=one), pairwise_field("linear_h2", 3, 4, 1, key=two)
    ode = CoEvolvingODE(f, g, Pairwise(), Correlation(3), Solver("rk4", step=0.5, max_steps=4, checkpoints=4))
    model = LatentODE(GRUEncoder(2, 4, key=two), eqx.nn.Linear(4, 6, key=one), ode, (3,), samples=2)
    return Headed(model, ClassificationHead(eqx.nn.Linear(3, 2, key=three), 3, width=4, key=three))


@pytest.fixture(scope="module")
def batch() -> LabelledQuery:
    random = np.random.default_rng(1)
    records = [
        series(np.sort(random.random(3)), random.normal(size=(3, 2)), random.random((3, 2)) > 0.3) for _ in range(12)
    ]
    label = (random.random(12) > 0.5).astype(np.float32)
    return jax.tree.map(jnp.asarray, LabelledQuery(reconstruct(stack(records)), label))


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return eqx.filter_jit(Ensemble.of(SIZE, build))(jax.random.key(0))


@eqx.filter_jit
def outputs(task, model, batch, key):
    return task.outputs(model, batch, key)


def test_members_differ_and_all_are_counted(ensemble):
    assert parameter_count(ensemble) == SIZE * parameter_count(ensemble[0])
    assert (ensemble[0].head.decoder.weight != ensemble[1].head.decoder.weight).all()


@pytest.mark.slow
def test_every_member_has_the_gradient_it_would_have_alone(ensemble, batch):
    key, epoch = jax.random.key(3), jnp.asarray(0)

    @eqx.filter_jit
    def gradient(task, model, key):
        return eqx.filter_value_and_grad(lambda m: task.loss(m, batch, key, epoch)[0])(model)

    total, together = gradient(EnsembleTask(TASK), ensemble, key)
    alone = [gradient(TASK, ensemble[k], one) for k, one in enumerate(jax.random.split(key, SIZE))]
    np.testing.assert_allclose(total, sum(value for value, _ in alone), rtol=1e-5)
    for k, (_, expected) in enumerate(alone):
        found = jax.tree.leaves(eqx.filter(Ensemble(together.models)[k], eqx.is_array))
        for one, other in zip(found, jax.tree.leaves(eqx.filter(expected, eqx.is_array)), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)


@pytest.mark.slow
def test_the_answer_is_the_mean(ensemble, batch):
    key = jax.random.key(3)
    told = outputs(EnsembleTask(TASK), ensemble, batch, key)
    each = [outputs(TASK, ensemble[k], batch, one) for k, one in enumerate(jax.random.split(key, SIZE))]
    np.testing.assert_allclose(told, np.mean(each, axis=0), rtol=1e-5)
    weight = jnp.ones(12)
    assert EnsembleTask(TASK).metrics(told, batch, weight) == TASK.metrics(told, batch, weight)


class Unmapped(BinaryClassification):
    """Its outputs cannot be mapped over members."""

    def outputs(self, model, batch, key):
        told = BinaryClassification.outputs(self, model, batch, key)
        return jax.pure_callback(np.asarray, told, told)


@pytest.mark.slow
def test_members_answer_one_after_the_other(ensemble, batch):
    key = jax.random.key(3)
    told = outputs(EnsembleTask(Unmapped()), ensemble, batch, key)
    np.testing.assert_allclose(told, outputs(EnsembleTask(TASK), ensemble, batch, key), rtol=1e-5)
    with pytest.raises(NotImplementedError, match="vmap"):
        eqx.filter_vmap(lambda model: Unmapped().outputs(model, batch, key))(ensemble.models)


@pytest.mark.slow
def test_the_penalty_is_that_of_each_member(ensemble):
    for kind in ("l1", "l2"):
        alone = sum(attention_norm(ensemble[k], kind) for k in range(SIZE))
        np.testing.assert_allclose(attention_norm(ensemble, kind), alone, rtol=1e-6)


def test_members_are_counted_and_found(ensemble):
    assert len(ensemble) == SIZE and len(list(ensemble)) == SIZE
    with pytest.raises(IndexError, match="of 3 has no member 3"):
        ensemble[SIZE]
    with pytest.raises(ValueError, match="size=0"):
        Ensemble.of(0, build)


def test_what_has_no_mean_is_refused():
    with pytest.raises(TypeError, match=r"task=Forecast.*no probabilities"):
        EnsembleTask(Forecast())


@pytest.mark.slow
def test_every_member_has_its_own_statistics(ensemble, batch):
    h0, times = EnsembleTask(TASK).first_states(ensemble, batch, jax.random.key(3))
    together = fit_reference_statistics(ensemble, h0, times)
    for k in range(SIZE):
        alone = fit_reference_statistics(ensemble[k], h0[k], times[k])
        found, expected = (eqx.filter(m.model.ode.initial, eqx.is_array) for m in (together[k], alone))
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.slow
def test_an_ensemble_is_trained_like_any_model(batch):
    split = Split(np.arange(8), np.arange(8, 12), np.zeros(0, int))
    outcome = fit(
        Ensemble.of(SIZE, build),
        EnsembleTask(TASK),
        batch,
        split,
        Recipe(epochs=3, batch_size=4),
        [Member(seed, learning_rate=1e-2) for seed in range(2)],
        progress=Quiet(),
    )
    assert outcome.history["loss"].shape == (3, 2) and (np.diff(outcome.history["loss"], axis=0) < 0).all()
    assert outcome.model(1)[0].head.decoder.weight.shape == (2, 3)
