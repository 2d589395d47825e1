"""First attentions from the history of a series: against plain loops, and by finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sines import batch_of, gru, linear, quick, rows

from acenode.models import OwnCorrelation, PairEncoder, gru_ode_bayes
from acenode.ode import CoEvolvingODE, GRUField, GRULinear, Identity, Pairwise, Solver
from acenode.series import series, stack

RANDOM = np.random.default_rng(0)


def histories(lengths=(12, 5), variables=4):
    """Series with blanks, the last variable constant."""
    made = []
    for length in lengths:
        values = RANDOM.normal(1e3, 1.0, (length, variables))
        values[:, 1] += 2 * (values[:, 0] - 1e3)
        values[:, -1] = 7.0
        values[RANDOM.random(values.shape) < 0.3] = np.nan
        made.append(series(np.arange(1.0, length + 1), values))
    return stack(made)


def test_own_correlation_is_that_of_the_rows_which_two_variables_share():
    batch = histories()
    found = np.asarray(OwnCorrelation(2.0)(batch))
    values, observed = np.asarray(batch.values), np.asarray(batch.observed)
    for k, length in enumerate(np.asarray(batch.length)):
        for i in range(4):
            for j in range(4):
                both = observed[k, :length, i] & observed[k, :length, j]
                x, y = values[k, :length, i][both], values[k, :length, j][both]
                varies = both.sum() >= 3 and x.std() > 0 and y.std() > 0
                expected = 1.0 if i == j else np.corrcoef(x, y)[0, 1] if varies else 0.0
                np.testing.assert_allclose(found[k, i, j], 2 * expected, atol=1e-6)
    assert np.abs(found[0] - found[1]).max() > 0.1 and found[0, 0, 1] > 1


def test_padding_and_the_rest_of_the_batch_change_nothing():
    batch = histories()
    alone = jax.tree.map(lambda x: x[1:], batch)
    np.testing.assert_array_equal(OwnCorrelation()(batch)[1], OwnCorrelation()(alone)[0])


def test_it_is_the_first_attention_of_a_model():
    size = 4
    keys = jax.random.split(jax.random.key(0), 3)
    g, solver = GRULinear(size, key=keys[1]), Solver("euler", step=0.5, max_steps=40)
    ode = CoEvolvingODE(GRUField(size, True, key=keys[0]), g, Pairwise(), Identity(), solver)
    model = gru_ode_bayes(4, ode, size, dropout=0.0, key=keys[2])
    model = type(model)(**{**vars(model), "history": OwnCorrelation()})
    batch = histories()
    trace = model(batch, jnp.zeros((2, 1)), jax.random.key(0), attention=True)
    np.testing.assert_allclose(trace.attention[0, :, 0], OwnCorrelation()(batch), atol=1e-6)


# --- an encoder of pairs ------------------------------------------------------------------------------------------

UNITS, CHANNELS, SIZE = 3, 2, 4
ROWS = rows(counts=(2, 5, 3), variables=UNITS * CHANNELS)  # something is observed in each


def encoder() -> PairEncoder:
    return quick(lambda key: PairEncoder(CHANNELS, SIZE, key=key))


def test_a_weight_of_the_pair_encoder_is_read_from_the_rows_of_its_two_units():
    made = encoder()
    found = np.asarray(made(batch_of(ROWS, padded=6)))
    assert found.shape == (len(ROWS), UNITS, UNITS)
    for k, (times, values, observed) in enumerate(ROWS):
        for i in range(UNITS):
            for j in range(UNITS):
                state, before = np.zeros(SIZE), 0.0
                for time, row, seen in zip(times, values, observed, strict=True):
                    own, other = (slice(CHANNELS * u, CHANNELS * (u + 1)) for u in (i, j))
                    told = [part[which] for which in (own, other) for part in (row * seen, seen)]
                    state = gru(made.cell, np.concatenate([*told, [time - before]]), state)
                    before = time
                np.testing.assert_allclose(found[k, i, j], linear(made.readout, state)[0], rtol=1e-10)
    assert np.abs(found - found.swapaxes(1, 2)).max() > 1e-2  # who influences whom


def test_the_gradient_of_the_pair_encoder_by_finite_differences():
    moving, still = eqx.partition(encoder(), eqx.is_inexact_array)
    batch, random = batch_of(ROWS, padded=6), np.random.default_rng(2)
    weights = random.normal(size=(len(ROWS), UNITS, UNITS))
    loss = jax.jit(jax.value_and_grad(lambda m: jnp.sum(weights * jnp.sin(eqx.combine(m, still)(batch)))))
    leaves, structure = jax.tree.flatten(moving)
    for k, gradient in enumerate(jax.tree.leaves(loss(moving)[1])):
        direction = random.normal(size=gradient.shape)
        near = ([*leaves[:k], leaves[k] + s * direction, *leaves[k + 1 :]] for s in (1e-5, -1e-5))
        ahead, behind = (float(loss(structure.unflatten(each))[0]) for each in near)
        assert np.sum(gradient * direction) == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
        assert abs(ahead - behind) > 1e-8
