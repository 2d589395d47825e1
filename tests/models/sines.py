"""What the tests of the recurrent models share: small series, quick weights, the GRU in numpy, sines to learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from acenode.datasets.split import Split
from acenode.series import forecast, series, stack
from acenode.tasks import Forecast, GaussianHead, Headed
from acenode.train import Member, Recipe, fit

KEY = jax.random.key(7)


def quick(make, scale: float = 0.5):
    """The model that `make(key)` gives, with weights from numpy: nothing has to be compiled."""
    random = np.random.default_rng(1)
    shapes = eqx.filter_eval_shape(make, KEY)
    fill = lambda s: jnp.asarray(scale * random.normal(size=s.shape))  # noqa: E731
    return jax.tree.map(lambda s: fill(s) if isinstance(s, jax.ShapeDtypeStruct) else s, shapes)


def answer(model, batch, times, key=KEY):
    return _answer(model, jax.tree.map(jnp.asarray, batch), jnp.asarray(times), key)


@eqx.filter_jit
def _answer(model, batch, times, key):
    return model(batch, times, key)


def rows(seed: int = 0, counts=(5, 3, 1), variables: int = 2):
    """Irregular series as (times, values, observed); the first has an empty row in the middle."""
    random = np.random.default_rng(seed)
    many = []
    for n in counts:
        times = np.sort(random.choice(np.arange(1, 32), n, replace=False)) / 16  # exact in single precision
        observed = random.random((n, variables)) < 0.6
        observed[:, 0] |= ~observed.any(axis=1)
        many.append((times, random.normal(size=(n, variables)).astype(np.float32), observed))
    if counts[0] > 2:
        many[0][2][2] = False
    return many


def batch_of(many, padded: int | None = None):
    return stack([series(*one) for one in many], padded)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(layer, x):
    return np.asarray(layer.weight) @ x + np.asarray(layer.bias)


def perceptron(net, x):
    """One hidden tanh layer."""
    return linear(net.layers[1], np.tanh(linear(net.layers[0], x)))


def gru(unit, x, h):
    """r, z = sigmoid(W [x, h] + b), n = tanh(W x + b + r (U h + b_n)), h' = (1 - z) n + z h."""
    inner = (np.asarray(unit.weight_ih) @ x + np.asarray(unit.bias)).reshape(3, -1)
    outer = (np.asarray(unit.weight_hh) @ h).reshape(3, -1)
    r, z = sigmoid(inner[0] + outer[0]), sigmoid(inner[1] + outer[1])
    n = np.tanh(inner[2] + r * (outer[2] + np.asarray(unit.bias_n)))
    return (1 - z) * n + z * h


def assert_stands_alone(model, random: bool = False, rtol: float = 1e-10):
    """What must not matter to any model: padding, batch mates, the order of the queries. Gives the slopes, all finite.

    Among the series are one without rows and one with nothing observed; a query lies far in the future.
    """
    many = rows()
    times = np.asarray([[2.0, 0.5, 0.5, 1.0], [0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 2.0, 1e4]], np.float32)
    base = answer(model, batch_of(many), times)
    assert base.states.shape[1:3] == (3, 4) and np.isfinite(base.states).all()
    assert base.attention is None and base.h0 is None and base.times is None
    assert base.stats.failed.shape == (base.states.shape[0] * 3,) and not np.asarray(base.stats.failed).any()
    np.testing.assert_array_equal(base.states[:, 0, 1], base.states[:, 0, 2])

    padded = answer(model, batch_of(many, 8), times)
    for name in ("states", "summary", "penalty"):
        np.testing.assert_allclose(getattr(padded, name), getattr(base, name), rtol=rtol, atol=1e-12)

    other = [many[0], *[(t, v + 3, o) for t, v, o in many[1:]]]
    mates = answer(model, batch_of(other), times)
    np.testing.assert_array_equal(mates.states[:, 0], base.states[:, 0])
    assert not np.allclose(mates.states[:, 1, 3], base.states[:, 1, 3])

    order = np.asarray([3, 1, 0, 2])
    turned = answer(model, batch_of(many), times[:, order])
    np.testing.assert_allclose(turned.states, base.states[:, :, order], rtol=rtol, atol=1e-12)

    again, chance = answer(model, batch_of(many), times), answer(model, batch_of(many), times, jax.random.key(8))
    np.testing.assert_array_equal(again.states, base.states)
    assert np.array_equal(chance.states, base.states) != random

    odd = [
        many[0],
        (np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2), bool)),
        (many[1][0], many[1][1], many[1][2] & False),
    ]
    slopes = _slopes(model, jax.tree.map(jnp.asarray, batch_of(odd)), jnp.asarray(times))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))
    return slopes


@eqx.filter_jit
@eqx.filter_grad
def _slopes(model, batch, times):
    trace = model(batch, times, KEY)
    return jnp.sum(trace.states**2) + jnp.sum(trace.summary) + jnp.sum(trace.penalty)


def sines(count: int = 96):
    """Noisy sine and cosine of period 2 at random phases, a third missing, at times from 0 to 1.5; known to 1."""
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        times = np.sort(random.choice(np.arange(1, 96), 10, replace=False)) / 64
        angle = np.pi * (times + 2 * random.random())
        values = np.stack([np.sin(angle), np.cos(angle)], axis=1) + 0.1 * random.normal(size=(10, 2))
        many.append(series(times, values, random.random((10, 2)) < 0.67))
    return forecast(stack(many), 1.0)


def assert_learns(make, size: int, below: float = 0.5, penalty: float = 1.0):
    """Some epochs bring the error of the forecasts under a part of that of the best constant."""
    data = sines()
    split = Split(np.arange(64), np.arange(64, 96), np.arange(0))

    def build(key):
        one, two = jax.random.split(key)
        return Headed(make(one), GaussianHead(size, 2, 16, key=two))

    recipe = Recipe(epochs=40, batch_size=8)  # compiling takes all the time, not training
    done = fit(build, Forecast(penalty, monitor="mse"), data, split, recipe, [Member(learning_rate=0.02)])
    spread = data.values[split.validation][data.scored[split.validation]].var()
    assert done.best_score[0] < below * spread, (done.history["validation_mse"], spread)
