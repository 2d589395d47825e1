"""The rows of the USHCN table: how many parameters each has; Neural-ODE-VAE against a loop in numpy, and learning."""

import jax.numpy as jnp
import numpy as np
import pytest
from sines import answer, assert_learns, batch_of, gru, perceptron, quick, rows

from acenode.layers import mlp
from acenode.models import GRUEncoder, LatentODE
from acenode.ode import MLPField, NeuralODE, Solver
from acenode.paper import climate
from acenode.paper.baselines import Baseline
from acenode.train import parameter_count

D, H, L, P, W = 5, 50, 20, 10, 25  # variables, hidden, latent, prepared numbers a variable, width of an emission


def gated(inputs, size):
    return 3 * size * (inputs + size + 1) + size


def dense(inputs, width, outputs):
    return width * (inputs + 1) + outputs * (width + 1)


def bayes(size, field):
    """GRU-ODE-Bayes around a vector field: first state, emission, what variables say, jump."""
    return 2 * H + H * (H + 1) + dense(size, W, 2 * D) + 5 * D * P + gated(D * P, size) + field


def by_rows(field, channels=12, rank=4):
    """The same with a row for each variable."""
    jump, emission = D * rank + gated(4 + rank, channels), D * rank + dense(channels + rank, W, 2)
    return D * channels + jump + emission + field


F, G = 3 * H**2, 3 * H**2 + H * H**2  # a GRU without biases; the same and a linear map to H x H
ROW_F = D * 4 + (2 * 12 + 12) * (12 + 4 + 1)
ROW_G = D * 8 + 2 * dense(8 + 12, 32, 8) + 1
VAE = dense(H, H, 2 * L) + dense(L, H, L) + dense(L, W, 2 * D)
COUNTS = {
    "Neural-ODE-VAE": gated(D + 1, H) + VAE,
    "Neural-ODE-VAE-Mask": gated(2 * D + 1, H) + VAE,
    "Sequential VAE": gated(2 * D + 1, H) + dense(L + 1, H, 2 * L) + dense(L + H, H, 2 * L) + dense(2 * L, W, 2 * D),
    "GRU-Simple": gated(3 * D, H) + dense(H, W, 2 * D),
    "GRU-D": gated(2 * D, H) + H * (D + 1) + 2 * D + dense(H, W, 2 * D),
    "T-LSTM": 4 * H * (2 * D + H + 1) + H * (H + 1) + dense(H, W, 2 * D),
    "GRU-ODE-Bayes": bayes(H, F),
    "Augmented-GRU-ODE-Bayes": bayes(H + 5, 3 * (H + 5) ** 2),
    "ACE-GRU-ODE-Bayes": bayes(H, F + G),
    "ACE-GRU-ODE-Bayes, renewed": bayes(H, F + G),
    "ACE-GRU-ODE-Bayes, self-decay": bayes(H, F + G),
    "ACE-GRU-ODE-Bayes, self-decay, temperature 0.1": bayes(H, F + G),
    "ACE-GRU-ODE-Bayes, conditioned": bayes(H, F + 3 * H**2 + G),
    "GRU-ODE-Bayes, channel-independent": by_rows(ROW_F),
    "GRU-ODE-Bayes, uniform attention": by_rows(ROW_F),
    "ACE-GRU-ODE-Bayes, between variables": by_rows(ROW_F + ROW_G),
    "FC-ACE-GRU-ODE-Bayes": bayes(H, F + G + H * H**2),
}


@pytest.mark.slow
def test_parameter_counts_of_the_table():
    trained = [row for row in climate.ROWS if not isinstance(row, Baseline)]
    assert {row.name: parameter_count(quick(row.build)) for row in trained} == COUNTS


# --- Neural-ODE-VAE -------------------------------------------------------------------------------------------

STEP = 0.25


def neural_ode_vae(masked, samples, latent=4, hidden=5):
    """As `climate.latent` has it, small."""

    def make(key):
        ode = NeuralODE(MLPField(latent, 6, 1, key=key), Solver("rk4", step=STEP, max_steps=64))
        encoder = GRUEncoder(2, hidden, masked=masked, key=key)
        return LatentODE(encoder, mlp(hidden, 2 * latent, 6, 1, key=key), ode, (latent,), samples)

    return make


def told_by_hand(model, times, values, observed, queries):
    """Encode from the last row to the first, take the mean, then Runge-Kutta's classical steps."""
    h = np.zeros(model.encoder.size)
    for i in reversed(range(len(times))):
        if observed[i].any():
            gap = times[i + 1] - times[i] if i + 1 < len(times) else 0.0
            seen = [observed[i]] if model.encoder.masked else []
            h = gru(model.encoder.cell, np.concatenate([[gap], np.where(observed[i], values[i], 0), *seen]), h)
    z, told = perceptron(model.to_latent, h)[: model.shape[0]], []
    slope = lambda z: perceptron(model.ode.f.net, z)  # noqa: E731
    for k in range(round(max(queries) / STEP) + 1):
        if k * STEP in queries:
            told.append(z)
        k1 = slope(z)
        k2 = slope(z + STEP / 2 * k1)
        k3 = slope(z + STEP / 2 * k2)
        z = z + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + slope(z + STEP * k3))
    return told


@pytest.mark.parametrize("masked", [False, True])
def test_neural_ode_vae_equals_its_equations(masked):
    model, one, queries = quick(neural_ode_vae(masked, samples=0)), rows()[0], [0.5, 1.0, 2.0]
    trace = answer(model, batch_of([one]), jnp.asarray([queries]))
    np.testing.assert_allclose(trace.states[0, 0], told_by_hand(model, *one, queries), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_neural_ode_vae_learns(masked):
    assert_learns(neural_ode_vae(masked, samples=1, latent=6, hidden=12), 6, penalty=0.01)
