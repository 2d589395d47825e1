"""Every model by name serves every task."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
from frames import machines

from acenode.estimators import MODELS, Classifier, Forecaster, Imputer, Regressor
from acenode.estimators.inference import with_enough_steps, without_sampling
from acenode.estimators.registry import Entry, entry, name_of
from acenode.estimators.training import choose_settings, read_training, sizes


def unfitted(kind, model: str):
    """An estimator with settings and columns, but without parameters, and its series."""
    table, _ = read_training(Forecaster("machine", "hour"), machines(5))
    estimator = kind(id="machine", time="hour", model=model, hidden=6)
    estimator.settings_ = choose_settings(table, model, estimator.get_params(), kind.ahead)
    estimator.columns_, estimator.entry_, estimator.classes_ = table.columns, entry(model), ["x", "y", "z"]
    return estimator, table.panel(estimator.settings_.unit)


def some_weights(estimator):
    """The model with small weights of some kind: initialising takes as long to compile as answering."""
    rng = np.random.default_rng(0)
    made = eqx.filter_eval_shape(estimator._build, jax.random.key(0))
    is_shape = lambda x: isinstance(x, jax.ShapeDtypeStruct)  # noqa: E731
    return jax.tree.map(lambda x: rng.normal(0, 0.1, x.shape) if is_shape(x) else x, made)


@pytest.mark.parametrize("model", ["mtan", MODELS["mtan"], replace(MODELS["mtan"], causal=True), "gru-d"])
def test_a_model_that_sees_its_whole_context_learns_from_what_is_not_in_it(model):
    """Of one's own too."""
    forecaster = Forecaster("machine", "hour", model=model, hidden=6)
    task, data, split, _ = forecaster._prepare(machines(8))
    work = forecaster._work(task, data, split)
    learned = work.training_data(name_of(model)).observed
    assert (learned == (data.observed if entry(model).causal else data.scored)).all()
    assert (data.observed != data.scored).any()


@pytest.mark.parametrize("kind", [Forecaster, Classifier, Imputer, Regressor])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_built_for_every_task(model, kind):
    estimator, _ = unfitted(kind, model)
    made = eqx.filter_eval_shape(estimator._build, jax.random.key(0))
    assert (made.head is None) == (kind in (Forecaster, Imputer) and MODELS[model].state is None)
    assert len(jax.tree.leaves(made)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_model_answers_with_the_right_shapes(model):
    estimator, panel = unfitted(Forecaster, model)
    kind = MODELS[model]
    queried = np.asarray(panel.series.times)[:, :3]

    @eqx.filter_jit
    def answer(made, series, queried):
        trace = made.model(series, queried, jax.random.key(0), attention=kind.attends is not None)
        head = made.model.emission if made.head is None else made.head
        return trace, jax.vmap(jax.vmap(head))(trace.states[0])

    made = without_sampling(eqx.nn.inference_mode(some_weights(estimator)))
    trace, (mean, log_variance) = answer(made, panel.series, queried)
    assert mean.shape == log_variance.shape == (5, 3, 2)
    assert np.isfinite(mean).all() and np.isfinite(log_variance).all()
    assert trace.summary.shape == (1, 5, kind.summary(sizes(estimator.settings_, 2)))
    assert not trace.stats.failed.any()
    if kind.attends is not None:
        size = 2 if kind.attends == "variables" else 6
        assert made.model.ode.attention.weights(trace.attention).shape == (1, 5, 3, size, size)


def test_names_are_known_or_refused():
    own = Entry(lambda s, key: None, lambda s: 1, None, "mine")
    assert entry("gru-d") is MODELS["gru-d"] and entry(own) is own
    assert name_of(own) == "own" and name_of("gru-d") == "gru-d"
    with pytest.raises(
        ValueError, match="there is no model of this name; choose from auto, ace-variables, .* or give an"
    ):
        entry("gru")


@pytest.mark.parametrize("model", ["ace-latent-ode", "rnn-vae"])
def test_a_model_without_sampling_draws_nothing(model):
    estimator, _ = unfitted(Forecaster, model)
    made = eqx.filter_eval_shape(estimator._build, jax.random.key(0))
    assert made.model.samples == 1 and without_sampling(made).model.samples == 0
    assert made.model.samples == 1  # a copy


def test_steps_grow_with_the_queries_and_only_then():
    estimator, panel = unfitted(Forecaster, "ace-variables")
    made = eqx.filter_eval_shape(estimator._build, jax.random.key(0))
    few, many = np.zeros((5, 3)), np.full((5, 300), 40.0)
    assert with_enough_steps(made, panel, few) is made
    assert with_enough_steps(made, panel, many).model.ode.solver.max_steps == 512
    latent, _ = unfitted(Forecaster, "latent-ode")
    made = eqx.filter_eval_shape(latent._build, jax.random.key(0))
    far = with_enough_steps(made, panel, np.full((5, 1), 3 * latent.settings_.span))
    assert with_enough_steps(made, panel, many[:, :3] / 10) is made
    assert far.model.ode.solver.max_steps == 128 and made.model.ode.solver.max_steps == 64
