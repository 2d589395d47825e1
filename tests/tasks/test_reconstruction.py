"""Values with a fixed noise: both squared errors and the evidence lower bound against plain loops."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.models import Trace
from acenode.ode import Stats, Status
from acenode.ode.solver import status_where
from acenode.series import Query, series, stack
from acenode.tasks import Reconstruction, ValueHead
from acenode.tasks.reconstruction import negative_elbo


def test_metrics_equal_plain_loops():
    random = np.random.default_rng(0)
    shape = (3, 4, 2)
    values, scored = random.normal(size=shape), random.random(shape) < 0.5
    scored[0, :, 1] = False  # a variable that a record does not have counts as an error of 0
    known = stack([series([0.0], [[1.0, 2.0]])] * 3)
    query = Query(known, np.zeros((3, 4), np.float32), values, scored, scored)
    samples = random.normal(size=(5, *shape))
    got = Reconstruction().metrics(
        (jnp.asarray(samples.mean(0)), jnp.asarray(samples.var(0))), query, jnp.asarray([1.0, 1.0, 0.0])
    )
    by_record = []
    for b in range(2):
        terms = []
        for v in range(2):
            seen = scored[b, :, v]
            terms.append(np.mean((samples[:, b, seen, v] - values[b, seen, v]) ** 2) if seen.any() else 0.0)
        by_record.append(np.mean(terms))
    np.testing.assert_allclose(got["mse"], np.mean(by_record), rtol=1e-6)
    error = (samples.mean(0) - values)[:2] ** 2
    np.testing.assert_allclose(got["mse_per_value"], error[scored[:2]].mean(), rtol=1e-6)


# --- the bound ------------------------------------------------------------------------------------------------

SAMPLES, RECORDS, QUERIES, VARIABLES, STATE = 3, 4, 5, 2, 3
NOISE, KL_FROM = 0.7, 3


def case(lost=()):
    """A decoder, a query and the output of a model, whose solves at `lost` failed."""
    random = np.random.default_rng(1)
    shape = (RECORDS, QUERIES, VARIABLES)
    values, observed = random.normal(size=shape), random.random(shape) < 0.6
    observed[0, :, 1] = False
    known = stack([series([0.0], [[1.0, 2.0]])] * RECORDS)
    query = Query(known, np.zeros(shape[:2]), values, observed, observed)
    failed = np.zeros((SAMPLES, RECORDS), np.int32)
    for place in lost:
        failed[place] = 1
    status = status_where(jnp.asarray(failed.ravel() > 0), Status.not_finite, Status.solved)
    stats = replace(Stats.none(failed.size), status=status)
    states = jnp.asarray(random.normal(size=(SAMPLES, RECORDS, QUERIES, STATE)))
    penalty = jnp.asarray(random.random(RECORDS))
    trace = Trace(states, states[:, :, 0], penalty, None, stats, None, None)
    linear = eqx.nn.Linear(STATE, VARIABLES, key=jax.random.key(0))
    return ValueHead(linear), jax.tree.map(jnp.asarray, query), trace


def log_likelihoods(head, query, trace, lost=()):
    """R_k of every sample of the model."""
    decoded = np.asarray(trace.states) @ np.asarray(head.decoder.weight).T + np.asarray(head.decoder.bias)
    each = []
    for k in range(SAMPLES):
        records = []
        for b in range(RECORDS):
            if (k, b) in lost:
                continue
            variables = []
            for v in range(VARIABLES):
                seen = np.asarray(query.observed)[b, :, v]
                error = (np.asarray(query.values)[b, :, v] - decoded[k, b, :, v])[seen]
                points = -np.log(NOISE * np.sqrt(2 * np.pi)) - error**2 / (2 * NOISE**2)
                variables.append(points.mean() if seen.any() else 0.0)
            records.append(np.mean(variables))
        each.append(np.mean(records))
    return np.asarray(each)


@pytest.mark.slow
@pytest.mark.parametrize("epoch, c", [(0, 0), (KL_FROM - 1, 0), (KL_FROM, 0), (KL_FROM + 1, 0.01), (10, 1 - 0.99**7)])
def test_the_bound_equals_plain_loops(epoch, c):
    head, query, trace = case()
    found = negative_elbo(head, query, trace, jnp.asarray(epoch), NOISE, KL_FROM)
    each = log_likelihoods(head, query, trace)
    np.testing.assert_allclose(found, -np.log(np.sum(np.exp(each - c * np.mean(trace.penalty)))), rtol=1e-10)


@pytest.mark.slow
def test_a_failed_solve_is_left_out_of_the_bound():
    lost = [(0, 1), (2, 0), (2, 3)]
    head, query, trace = case(lost)
    places = tuple(np.asarray(lost).T)

    @jax.value_and_grad
    def bound(states):
        there = eqx.tree_at(lambda t: t.states, trace, states)
        return negative_elbo(head, query, there, jnp.asarray(0), NOISE, KL_FROM)

    found, slope = bound(trace.states.at[places].set(1e3))
    np.testing.assert_allclose(found, -np.log(np.sum(np.exp(log_likelihoods(head, query, trace, lost)))), rtol=1e-10)
    reached = np.abs(np.asarray(slope)).max(axis=(2, 3)) > 0
    assert not reached[places].any() and reached.sum() == SAMPLES * RECORDS - len(lost)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, SAMPLES])
def test_samples_without_any_solve_say_nothing(samples):
    """One of them, and all: then there is nothing to learn from, and nothing that is not a number."""
    lost = [(k, b) for k in range(samples) for b in range(RECORDS)]
    head, query, trace = case(lost)

    @jax.value_and_grad
    def bound(states):
        there = eqx.tree_at(lambda t: t.states, trace, states)
        return negative_elbo(head, query, there, jnp.asarray(0), NOISE, KL_FROM)

    found, slope = bound(trace.states)
    reached = np.abs(np.asarray(slope)).max(axis=(2, 3)) > 0
    assert np.isfinite(np.asarray(slope)).all() and not reached[:samples].any()
    if samples < SAMPLES:
        each = log_likelihoods(head, query, trace)[samples:]
        np.testing.assert_allclose(found, -np.log(np.sum(np.exp(each))), rtol=1e-10)
        assert reached[samples:].all()
