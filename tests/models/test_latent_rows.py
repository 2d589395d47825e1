"""The rows of the tables that differ in the generative ODE alone: each against its equations in numpy, and learning."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sines import KEY, batch_of, quick, rows

from acenode.datasets.split import Split
from acenode.ode import Solver
from acenode.paper import latent
from acenode.paper.latent import Sizes, odes
from acenode.series import extrapolate, series, stack
from acenode.tasks import Headed, Reconstruction, ValueHead
from acenode.train import Member, Recipe, fit

SIZES = Sizes(variables=2, latent=3, recognition=4, width=6, encoder_layers=1, layers=2, gate_width=5, samples=2)
NAMES = list(odes(SIZES))
BATCH = batch_of(rows())
# All end together: a correlation over the batch at every moment needs all of the batch to be there.
TIMES = np.asarray([[0.0, 0.25, 0.75, 1.5], [0.5, 0.5, 0.625, 1.5], [0.125, 1.0, 1.375, 1.5]])
FINE = 1 / 64


def row(name):
    """The model of a row, with first latent states of about 1."""
    model = quick(lambda key: odes(SIZES)[name].build(key, None))
    return eqx.tree_at(lambda m: m.to_latent.layers[-1].weight, model, replace_fn=lambda weight: 0.2 * weight)


def answer(model):
    return _answer(model, jax.tree.map(jnp.asarray, BATCH), jnp.asarray(TIMES))


@eqx.filter_jit
def _answer(model, batch, times):
    return model(batch, times, KEY, attention=True)


# --- the equations --------------------------------------------------------------------------------------------


def through(net, x):
    """A perceptron with tanh, for a batch."""
    for layer in net.layers[:-1]:
        x = np.tanh(x @ np.asarray(layer.weight).T + np.asarray(layer.bias))
    return x @ np.asarray(net.layers[-1].weight).T + np.asarray(net.layers[-1].bias)


def attended(h, a):
    """h' = softmax(a) h, every row of the attention adding up to one."""
    weights = np.exp(a) / np.exp(a).sum(axis=2, keepdims=True)
    return np.einsum("bij,bj->bi", weights, h)


def correlation(h):
    return np.tile(np.corrcoef(h.T), (len(h), 1, 1))


def alone(ode, h0):
    return (h0,), lambda h: (through(ode.f.net, h),)


def augmented(ode, h0):
    return alone(ode, np.pad(h0, ((0, 0), (0, 5))))


def together(ode, h0, a0):
    def slope(h, a):
        seen = attended(h, a)
        return through(ode.f.net, seen), through(ode.g.net, seen).reshape(a.shape)

    return (h0, a0), slope


def from_correlation(ode, h0):
    return together(ode, h0, correlation(h0))


def from_layer(ode, h0):
    size = h0.shape[1]
    return together(ode, h0, (h0 @ np.asarray(ode.initial.linear.weight).T).reshape(-1, size, size))


def recomputed(ode, h0):
    return (h0,), lambda h: (through(ode.f.net, attended(h, correlation(h))),)


EQUATIONS = {
    "Latent-ODE (ODE Enc.)": alone,
    "Augmented-Latent-ODE (ODE Enc.)": augmented,
    "ACE-Latent-ODE (ODE Enc.)": from_correlation,
    "FC-ACE-Latent-ODE": from_layer,
    "Fixed-ACE-Latent-ODE": recomputed,
}


def integrated(state, slope, until):
    """Runge-Kutta's classical steps: every part of the state after each of them."""
    path = [state]
    for _ in range(round(until / FINE)):
        k1 = slope(*state)
        k2 = slope(*moved(state, k1, FINE / 2))
        k3 = slope(*moved(state, k2, FINE / 2))
        k4 = slope(*moved(state, k3, FINE))
        mean = tuple((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        state = moved(state, mean, FINE)
        path.append(state)
    return [np.stack(part) for part in zip(*path, strict=True)]


def moved(state, slopes, by):
    return tuple(y + by * dy for y, dy in zip(state, slopes, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_states_equal_the_equations(name, monkeypatch):
    monkeypatch.setattr(latent, "SOLVER", replace(latent.SOLVER, rtol=1e-8, atol=1e-9))
    model = row(name)
    trace = answer(model)
    start, slope = EQUATIONS[name](model.ode, np.asarray(trace.h0))
    path = integrated(start, slope, TIMES.max())
    at = np.tile(np.round(TIMES / FINE).astype(int), (SIZES.samples, 1))
    for part, found in zip(path, (trace.states, trace.attention), strict=False):
        expected = part[at, np.arange(len(at))[:, None]]
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_the_first_state_is_what_the_encoder_says_and_noise():
    model = row(NAMES[0])
    where = lambda m: (m.to_latent.layers[-1].weight, m.to_latent.layers[-1].bias)  # noqa: E731
    mean_0_sd_1 = (jnp.zeros_like(where(model)[0]), jnp.repeat(jnp.asarray([0.0, 1.0]), SIZES.latent))
    standard = eqx.tree_at(where, model, mean_0_sd_1)
    noise = np.asarray(answer(standard).summary)
    assert noise.shape == (2, 3, 3) and np.unique(noise.round(6)).size == noise.size
    encoded = eqx.filter_jit(model.encoder)(jax.tree.map(jnp.asarray, BATCH))
    mean, sd = np.split(through(model.to_latent, np.asarray(encoded)), 2, axis=1)
    assert (sd < 0).any() and (sd > 0).any()
    trace = answer(model)
    np.testing.assert_allclose(trace.summary, mean + np.abs(sd) * noise, atol=1e-5)
    np.testing.assert_array_equal(trace.h0, np.concatenate(trace.summary))


# --- learning -------------------------------------------------------------------------------------------------

LEARNING = Sizes(variables=2, latent=4, recognition=8, width=16, encoder_layers=1, layers=1, gate_width=16, samples=1)
# The encoder is the same in all rows and takes longer than all the rest, so only one learns with it.
WITH_ENCODER = "Latent-ODE (ODE Enc.)"


class FirstRow(eqx.Module):
    """An encoder that says the first known row, from which the phase can be told."""

    def __call__(self, series):
        return jnp.tile(series.values[:, 0], (1, LEARNING.recognition))


def sines(count: int = 96):
    """Noisy sine and cosine of period 2 at random phases, known at four times up to 1, queried at four up to 2."""
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        early, late = (np.sort(random.choice(np.arange(1, 32), 3, replace=False)) / 32 for _ in range(2))
        times = np.concatenate([[0], early, 1 + late, [2]])
        angle = np.pi * (times + 2 * random.random())
        values = np.stack([np.sin(angle), np.cos(angle)], axis=1)
        many.append(series(times, values + 0.05 * random.normal(size=values.shape)))
    return extrapolate(stack(many), 1.0)


def distance(one, other):
    """The largest change of a parameter."""
    both = (eqx.filter(part, eqx.is_array) for part in (one, other))
    return max(jax.tree.leaves(jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), *both)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_row_learns(name, monkeypatch):
    """Better by far than a latent state that is constant can be: than the best constant for every series."""
    quickly = Solver("euler", step=0.125, max_steps=16, checkpoints=16)
    monkeypatch.setattr(latent, "SOLVER", quickly)
    monkeypatch.setattr(latent, "STEADY", quickly)
    kind = odes(LEARNING)[name]

    def make(key):
        model = kind.build(key, None)
        if name != WITH_ENCODER:
            model = eqx.tree_at(lambda m: m.encoder, model, FirstRow())
        return Headed(model, ValueHead(eqx.nn.Linear(kind.state, LEARNING.variables, key=key)))

    begin, data = quick(make, 0.2), sines()
    split = Split(np.arange(64), np.arange(64, 96), np.arange(0))
    # One step on all parameters, because two would be compiled in twice the time; without a penalty, so that g moves
    # by the gradient of the loss or not at all.
    recipe = Recipe(epochs=30, batch_size=8, algorithm="joint", average=0.9)
    done = fit(lambda key: begin, Reconstruction(noise=0.1), data, split, recipe, [Member(learning_rate=0.01)])
    queried = np.asarray(data.values)[split.validation]
    assert done.best_score[0] < 0.6 * queried.var(axis=1).mean(), done.history["validation_mse"]
    first, last = begin.model.ode, done.model().model.ode
    assert distance(first.f, last.f) > 0.05
    if name in ("ACE-Latent-ODE (ODE Enc.)", "FC-ACE-Latent-ODE"):
        assert distance(first.g, last.g) > 0.05
    if name == "FC-ACE-Latent-ODE":
        assert distance(first.initial, last.initial) > 0.05
