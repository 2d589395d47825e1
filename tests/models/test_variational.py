"""`SequentialVAE` and `RNNVAE` against their equations in plain loops, and the encoder with and without mask."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sines import KEY, answer, assert_learns, assert_stands_alone, batch_of, gru, perceptron, quick, rows

from acenode.models import RNNVAE, Filter, GRUEncoder, SequentialVAE
from acenode.train import parameter_count

VARIABLES, LATENT, HIDDEN, WIDTH = 2, 3, 4, 5
QUERIES = np.asarray([[0.0, 0.25, 1.0, 1.75, 5.0]])


def sequential(inference: bool = False, including: bool = False) -> Filter:
    cell = quick(lambda key: SequentialVAE(VARIABLES, LATENT, HIDDEN, WIDTH, key=key))
    return eqx.nn.inference_mode(Filter(cell, including), inference)


def rnn_vae(samples: int = 2) -> RNNVAE:
    return quick(lambda key: RNNVAE(VARIABLES, LATENT, HIDDEN, WIDTH, samples, key=key))


def positive(x):
    return np.log1p(np.exp(x)) + 1e-3


# --- the sequential one ---------------------------------------------------------------------------------------


def sequential_by_hand(cell, times, values, observed, query, noise):
    """[mean, sd] of the prior at `query`, and the sum of the divergences so far."""

    def prior(z, gap):
        out = perceptron(cell.prior, np.append(z, gap))
        return z + (1 - np.exp(-gap)) * (out[:LATENT] - z), positive(out[LATENT:])

    z, r, since, total = np.zeros(LATENT), np.zeros(HIDDEN), times[0], 0.0
    for i, (time, x, m) in enumerate(zip(times, values, observed, strict=True)):
        if time >= query or not m.any():
            continue
        mean, sd = prior(z, time - since)
        r = gru(cell.unit, np.concatenate([np.where(m, x, 0), m, [time - since]]), r)
        out = perceptron(cell.posterior, np.concatenate([mean, r]))
        post_mean, post_sd = mean + out[:LATENT], positive(out[LATENT:])
        total += np.sum(np.log(sd / post_sd) + (post_sd**2 + (post_mean - mean) ** 2) / (2 * sd**2) - 0.5)
        z, since = post_mean + post_sd * noise[i], time
    return np.concatenate(prior(z, max(query - since, 0))), total


@pytest.mark.parametrize("inference", [True, False])
def test_the_sequential_one_equals_its_equations(inference):
    model, one = sequential(inference), rows()[0]
    trace = answer(model, batch_of([one]), QUERIES)
    place = jax.random.fold_in(KEY, 0)
    noise = [np.asarray(jax.random.normal(jax.random.fold_in(place, i), (LATENT,))) for i in range(len(one[0]))]
    noise = np.zeros((len(one[0]), LATENT)) if inference else noise
    expected = [sequential_by_hand(model.cell, *one, q, noise)[0] for q in QUERIES[0]]
    np.testing.assert_allclose(trace.states[0, 0], expected, rtol=1e-6)
    end, divergence = sequential_by_hand(model.cell, *one, np.nextafter(one[0][-1], 9), noise)
    np.testing.assert_allclose(trace.summary[0, 0], end, rtol=1e-6)
    np.testing.assert_allclose(trace.penalty[0], divergence / one[2].sum(), rtol=1e-6)
    assert divergence > 0


@pytest.mark.slow
def test_the_divergence_agrees_with_an_integral():
    one = tuple(x[:1] for x in rows()[0])
    model = sequential(True)
    cell = model.cell
    prior = perceptron(cell.prior, np.zeros(LATENT + 1))
    state = cell.update(cell.start(), jnp.asarray(one[1][0] * one[2][0], float), jnp.asarray(one[2][0]), KEY)
    out = perceptron(cell.posterior, np.concatenate([np.zeros(LATENT), state.rows]))
    x = np.linspace(-30, 30, 200_001)

    def log_density(mean, sd):
        return -0.5 * ((x - mean[:, None]) / sd[:, None]) ** 2 - np.log(sd[:, None] * np.sqrt(2 * np.pi))

    log_q = log_density(out[:LATENT], positive(out[LATENT:]))
    log_p = log_density(np.zeros(LATENT), positive(prior[LATENT:]))
    by_integral = np.sum(np.exp(log_q) * (log_q - log_p)) * (x[1] - x[0])
    penalty = answer(model, batch_of([one]), QUERIES).penalty[0]
    np.testing.assert_allclose(penalty * one[2].sum(), by_integral, rtol=1e-6)


def test_where_no_time_passes_the_latent_state_stays():
    model, one = sequential(True, including=True), rows(counts=(1,))[0]
    state = model.cell.update(
        model.cell.start(), jnp.asarray(one[1][0], float) * one[2][0], jnp.asarray(one[2][0]), KEY
    )
    queried = answer(model, batch_of([one]), one[0][None]).states[0, 0, 0]
    np.testing.assert_allclose(queried[:LATENT], state.latent, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("inference", [True, False])
def test_the_sequential_one_stands_alone_and_is_chance_only_in_training(inference):
    slopes = assert_stands_alone(sequential(inference), random=not inference)
    assert all(np.asarray(x).any() for x in jax.tree.leaves(slopes))


@pytest.mark.parametrize("including", [False, True])
def test_the_sequential_one_sees_nothing_before_its_time(including):
    model = sequential(including=including)
    times, values, observed = rows()[0]
    queries = np.asarray([[times[1], times[3], times[3] + 0.01]])
    base = answer(model, batch_of([(times, values, observed)]), queries).states[0, 0]
    for row, expected in ((3, [False, including, True]), (4, [False, False, False])):
        other = values.copy()
        other[row:] += 1
        found = answer(model, batch_of([(times, other, observed)]), queries).states[0, 0]
        assert [not np.array_equal(f, b) for f, b in zip(found, base, strict=True)] == expected


# --- one latent state a series --------------------------------------------------------------------------------


def encoded_by_hand(encoder, times, values, observed):
    h = np.zeros(encoder.size)
    for i in reversed(range(len(times))):
        if not observed[i].any():
            continue
        gap = times[i + 1] - times[i] if i + 1 < len(times) else 0.0
        row = [[gap], np.where(observed[i], values[i], 0), *([observed[i]] if encoder.masked else [])]
        h = gru(encoder.cell, np.concatenate(row), h)
    return h


def told_by_hand(model, z0, queries):
    h, before, states = z0, 0.0, {}
    for time in sorted(set(queries)):
        if time != before:
            said = perceptron(model.decode, h)
            h = gru(model.unit, np.concatenate([said, np.ones(VARIABLES), [time - before]]), h)
        states[time], before = h, time
    return np.stack([states[q] for q in queries])


@pytest.mark.parametrize("samples", [0, 2])
def test_the_rnn_vae_equals_its_equations(samples):
    model, many = rnn_vae(samples), rows()
    queries = np.asarray([[0.5, 0.0, 1.5, 0.5], [0.25, 0.5, 0.75, 3.0], [2.0, 1.0, 1.5, 2.0]])
    trace = answer(model, batch_of(many), queries)
    both = np.stack([perceptron(model.to_latent, encoded_by_hand(model.encoder, *one)) for one in many])
    mean, sd = both[:, :LATENT], np.abs(both[:, LATENT:]) + 1e-6
    # the label is read from the mean: of this very series, read backwards in time
    np.testing.assert_allclose(trace.summary, np.stack([mean] * max(samples, 1)), rtol=1e-6)
    if samples:
        noise = [np.asarray(jax.random.normal(jax.random.fold_in(KEY, b), (samples, LATENT))) for b in range(3)]
        penalty = np.mean(-np.log(sd) + (sd**2 + mean**2) / 2 - 0.5, axis=1)
    else:
        noise, penalty = np.zeros((3, 1, LATENT)), np.zeros(3)
    z0 = mean[:, None] + sd[:, None] * noise
    expected = [[told_by_hand(model, z, q) for z in each] for each, q in zip(z0, queries, strict=True)]
    np.testing.assert_allclose(trace.states, np.swapaxes(expected, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(trace.penalty, penalty, rtol=1e-6)
    assert (trace.summary.shape, trace.stats.failed.shape) == ((max(samples, 1), 3, LATENT), (3 * max(samples, 1),))


@pytest.mark.slow
@pytest.mark.parametrize("samples", [0, 2])
def test_the_rnn_vae_stands_alone(samples):
    slopes = assert_stands_alone(rnn_vae(samples), random=samples > 0)
    assert all(np.asarray(x).any() for x in jax.tree.leaves(slopes))


@pytest.mark.slow
def test_asked_at_its_start_it_answers_with_z0():
    model = rnn_vae(0)
    trace = answer(model, batch_of(rows()), np.zeros((3, 1)))
    np.testing.assert_array_equal(trace.states[:, :, 0], trace.summary)
    later = eqx.tree_at(lambda m: m.unit.bias, RNNVAE(VARIABLES, LATENT, HIDDEN, WIDTH, 0, 1.5, key=KEY), jnp.ones(9))
    trace = answer(later, batch_of(rows()), np.full((3, 1), 1.5))
    np.testing.assert_array_equal(trace.states[:, :, 0], trace.summary)


# --- counts, the encoder, learning ----------------------------------------------------------------------------


def gated(inputs, size):
    return 3 * size * (inputs + size + 1) + size


def dense(inputs, width, outputs):
    return width * (inputs + 1) + outputs * (width + 1)


@pytest.mark.parametrize("d, l, r, w", [(2, 3, 4, 5), (41, 20, 40, 50)])
def test_parameter_counts(d, l, r, w):
    vae = quick(lambda key: RNNVAE(d, l, r, w, key=key))
    encoder = gated(2 * d + 1, r)
    assert parameter_count(vae) == encoder + dense(r, w, 2 * l) + gated(2 * d + 1, l) + dense(l, w, d)
    cell = quick(lambda key: SequentialVAE(d, l, r, w, key=key))
    assert parameter_count(cell) == encoder + dense(l + 1, w, 2 * l) + dense(l + r, w, 2 * l)
    assert cell.size == 2 * l
    assert parameter_count(quick(lambda key: GRUEncoder(d, r, key=key))) == encoder
    assert parameter_count(quick(lambda key: GRUEncoder(d, r, masked=False, key=key))) == gated(d + 1, r)


@pytest.mark.parametrize("masked", [True, False])
def test_an_encoder_sees_the_mask_or_does_not(masked):
    encoder = quick(lambda key: GRUEncoder(VARIABLES, HIDDEN, masked=masked, key=key))
    times, values, observed = rows()[0]
    run = eqx.filter_jit(encoder)
    found = run(batch_of([(times, values, observed)]))[0]
    np.testing.assert_allclose(found, encoded_by_hand(encoder, times, values, observed), rtol=1e-6)
    # an observed zero differs from a missing value in the mask alone
    zeros = np.where(observed, values, 0)
    full = run(batch_of([(times, zeros, observed | observed.any(axis=1, keepdims=True))]))[0]
    assert np.allclose(found, full) != masked


@pytest.mark.slow
def test_the_sequential_one_learns():
    assert_learns(lambda key: Filter(SequentialVAE(2, 6, 12, 16, key=key)), 12, penalty=0.1)


@pytest.mark.slow
def test_the_rnn_vae_learns():
    assert_learns(lambda key: RNNVAE(2, 12, 12, 16, samples=1, key=key), 12, penalty=0.01)
