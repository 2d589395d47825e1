"""Slope matching: its likelihood against plain numpy, what counts as a slope, and that it finds the equations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.compiled import compiled
from acenode.datasets import kuramoto
from acenode.models.slope_matching import Slopes, match_slopes, negative_log_likelihood, slopes
from acenode.models.unit_filter import influence, unit_filter
from acenode.ode import Solver
from acenode.series import Series
from acenode.tasks.metrics import edge_auc

UNITS, CHANNELS = 3, 2
RANDOM = np.random.default_rng(0)
SOLVER = Solver("midpoint", step=0.25, max_steps=144)


def gaussian(y, covariance) -> float:
    """-log N(y; 0, covariance), without the constant."""
    return 0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1])


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["least squares", "additive"])
@pytest.mark.parametrize("own_motion", [False, True])
def test_the_likelihood_is_that_of_a_gaussian(weights, own_motion):
    ode = unit_filter(UNITS, CHANNELS, weights, width=4, solver=SOLVER, key=jax.random.key(0)).ode
    windows, rows = 2, 5
    given = Slopes(
        RANDOM.normal(size=(windows, rows, UNITS, CHANNELS)),
        RANDOM.normal(size=(windows, rows, UNITS, CHANNELS)),
        np.array([[0.1, 0.2, 0.0, 0.3, 0.1], [0.2, 0.2, 0.1, 0.1, 0.0]]),
    )
    log_sigma = jnp.asarray([-0.5, 0.3])
    expected = 0.0
    for w in range(windows):
        for i in range(UNITS):
            y, x, noise = [], [], []
            for k in range(rows):
                h, dt = given.middle[w, k], given.weight[w, k]
                if dt == 0:
                    continue
                message = np.asarray(ode.attention.signed.messages(jnp.asarray(h)))
                others = [j for j in range(UNITS) if j != i]
                alone = np.asarray(ode.f(jnp.zeros(()), jnp.zeros((UNITS, CHANNELS)), jnp.asarray(h)))[i]
                if weights == "additive":
                    alone = alone + message[i, others].sum(axis=0)
                for c in range(CHANNELS):
                    y.append(given.slope[w, k, i, c] - alone[c])
                    row = [1.0 if weights == "additive" else message[i, j, c] for j in others]
                    if own_motion:
                        row += [h[i, m] if d == c else 0.0 for d in range(CHANNELS) for m in range(CHANNELS)]
                    x.append(row)
                    noise.append(2 * np.exp(2 * log_sigma[c]) / dt**2)
            y, x = np.asarray(y), np.asarray(x)
            # Constants that do not depend on the model are left out: the gaps.
            gaps = 0.5 * sum(np.log(v / (2 * np.exp(2 * log_sigma[n % CHANNELS]))) for n, v in enumerate(noise))
            expected += gaussian(y, x @ x.T + np.diag(noise)) - gaps - 0.5 * len(y) * np.log(2)
    found = negative_log_likelihood(ode, log_sigma, jax.tree.map(jnp.asarray, given), own_motion=own_motion)
    np.testing.assert_allclose(float(found) * 8 * UNITS * CHANNELS, expected, rtol=1e-8)


@pytest.mark.slow
def test_units_alone_do_not_depend_on_the_messages():
    one, two = (unit_filter(UNITS, CHANNELS, width=4, solver=SOLVER, key=jax.random.key(k)).ode for k in (0, 1))
    two = eqx.tree_at(lambda o: o.f, two, one.f)
    given = Slopes(*(jnp.asarray(RANDOM.normal(size=(1, 4, UNITS, CHANNELS))) for _ in range(2)), jnp.ones((1, 4)))
    sigma = jnp.zeros(CHANNELS)
    alone = [float(negative_log_likelihood(ode, sigma, given, influence=0.0)) for ode in (one, two)]
    together = [float(negative_log_likelihood(ode, sigma, given)) for ode in (one, two)]
    assert alone[0] == alone[1] and together[0] != together[1]


def test_slopes_are_between_complete_rows_that_are_near():
    times = np.array([[0.0, 0.1, 0.3, 1.0, 1.0, 1.1]])
    values = RANDOM.normal(size=(1, 6, 4))
    observed = np.ones((1, 6, 4), bool)
    observed[0, 5, 2] = False
    found = slopes(Series(times, values, observed, np.array([6])), channels=2, longest=0.5)
    np.testing.assert_allclose(found.weight, [[0.1, 0.2, 0, 0, 0]])  # far, the same moment, incomplete
    np.testing.assert_allclose(np.ravel(found.slope[0, 1]), (values[0, 2] - values[0, 1]) / 0.2)
    np.testing.assert_allclose(np.ravel(found.middle[0, 1]), (values[0, 2] + values[0, 1]) / 2)
    assert found.middle.shape == (1, 5, 2, 2)


def test_a_single_row_has_no_slope():
    model = unit_filter(2, 1, solver=SOLVER, key=jax.random.key(0))
    series = Series(np.zeros((3, 1)), np.zeros((3, 1, 2)), np.ones((3, 1, 2), bool), np.ones(3, int))
    with pytest.raises(ValueError, match="a slope needs two"):
        match_slopes(model, series, key=jax.random.key(1))


@pytest.mark.slow
def test_it_finds_who_influences_whom():
    data = kuramoto.generate(samples=120, oscillators=4, seed=1)
    series = jax.tree.map(jnp.asarray, data.panel.series)
    training = jax.tree.map(lambda x: x[:100], series)

    @compiled
    def matched(key):
        model = unit_filter(4, 2, solver=SOLVER, key=key)
        return match_slopes(model, training, longest=0.25, key=jax.random.fold_in(key, 1))

    model = matched(jax.random.key(0))
    ahead = data.moments > data.after
    context = data.query().context[100:]
    times = jnp.broadcast_to(jnp.asarray(data.moments[ahead]), (20, int(ahead.sum())))
    found = np.asarray(influence(model, jax.tree.map(jnp.asarray, context), times))
    truth = data.influence[100:][:, ahead]
    assert edge_auc(found, truth) > 0.9
    # A positive weight draws a row towards the other, as the truth's.
    assert np.corrcoef(found.ravel(), truth.ravel())[0, 1] > 0.7
    np.testing.assert_allclose(np.exp(0.5 * model.emission.log_noise), 0.02, rtol=0.5)
