"""GRU-ODE-Bayes with a row for each variable, against a loop in numpy."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from sines import KEY, answer, batch_of, gru, linear, perceptron, quick, rows, sigmoid

from acenode.models.variable_bayes import RowGRUField, attention_between_variables, variable_bayes
from acenode.ode import NeuralODE, Solver

VARIABLES, CHANNELS, STEP = 2, 3, 0.25
EULER = Solver("euler", step=STEP, max_steps=40)
ODES = {
    "between variables": lambda key: attention_between_variables(VARIABLES, CHANNELS, key=key),
    "channel-independent": lambda key: NeuralODE(RowGRUField(VARIABLES, CHANNELS, key=key)),
}


def emitted(emission, h):
    """Mean and log variance of every variable, each from its own row: one hidden layer with relu."""
    first, last = emission.net.layers
    pairs = [
        linear(last, np.maximum(linear(first, np.append(row, place)), 0))
        for row, place in zip(h, np.asarray(emission.places), strict=True)
    ]
    return np.asarray(pairs).T


def jumped(m, h, x, observed):
    mean, log_variance = emitted(m.emission, h)
    error = (x - mean) * np.exp(-log_variance / 2)
    return np.stack(
        [
            gru(m.jump.cell, np.concatenate([[x[i], mean[i], log_variance[i], error[i]], m.jump.places[i]]), h[i])
            if observed[i]
            else h[i]
            for i in range(VARIABLES)
        ]
    )


def slope(ode, h, a):
    if a is None:
        attended, da = h, None
    else:
        weights = np.exp(a)
        attended = weights @ h / weights.sum(axis=1, keepdims=True)
        told = [np.append(place, row) for place, row in zip(np.asarray(ode.g.places), attended, strict=True)]
        queries, keys = (np.stack([perceptron(net, x) for x in told]) for net in (ode.g.queries, ode.g.keys))
        da = queries @ keys.T / np.sqrt(queries.shape[1]) - np.exp(ode.g.log_decay) * a
    dh = []
    for row, own, place in zip(attended, h, np.asarray(ode.f.places), strict=True):
        r, z = np.split(sigmoid(linear(ode.f.gates, np.append(row, place))), 2)
        dh.append((1 - z) * (np.tanh(linear(ode.f.candidate, np.append(r * row, place))) - own))
    return np.stack(dh), da


@pytest.mark.slow
@pytest.mark.parametrize("name", ODES)
def test_against_a_loop_in_numpy(name):
    m = quick(lambda key: variable_bayes(VARIABLES, replace(ODES[name](key), solver=EULER), CHANNELS, key=key))
    times, values, observed = rows()[0]
    queries = [0.5, 1.0, 1.75]
    trace = answer(m, batch_of([(times, values, observed)]), jnp.asarray([queries]), KEY)
    h = np.tanh(np.asarray(m.first.rows))
    a = 2.0 * np.eye(VARIABLES) if name.startswith("between") else None
    met, now, told = {t: (x, o) for t, x, o in zip(times, values, observed, strict=True) if o.any()}, 0.0, {}
    for moment in sorted({*met, *queries}):
        steps = int(np.ceil((moment - now) / STEP - 1e-3))
        for _ in range(steps):
            dt = (moment - now) / steps
            dh, da = slope(m.ode, h, a)
            h, a = h + dt * dh, a if a is None else a + dt * da
        now, told[moment] = moment, h
        if moment in met:
            h = jumped(m, h, *met[moment])
    np.testing.assert_allclose(trace.states[0, 0], [told[q] for q in queries], rtol=1e-5, atol=1e-6)
