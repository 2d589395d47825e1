"""Forms of g' for pairwise attention: shapes, formulas, sizes, bounds, names."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import count, noise, solve, still

from acenode.ode import (
    CoEvolvingODE,
    GRULinear,
    GRURows,
    Identity,
    MLPField,
    Pairwise,
    QueryKey,
    Solver,
    VectorField,
    pairwise_field,
)

call = eqx.filter_jit(lambda field, t, *inputs: field(t, *inputs))
now = jnp.asarray(0.3)
FORMS = {"linear_h2": MLPField, "gru_linear": GRULinear, "gru_rows": GRURows, "query_key": QueryKey}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("form", FORMS)
def test_every_name_gives_its_form(form, key):
    field = pairwise_field(form, 3, 4, 1, key=key)
    assert type(field) is FORMS[form]
    inputs = (noise(3), noise(3, 3)) if isinstance(field, VectorField) else (noise(3),)
    da = call(field, now, *inputs)
    assert da.shape == (3, 3) and np.isfinite(da).all()


def test_an_unknown_name(key):
    with pytest.raises(
        ValueError, match=r"pairwise_field\('linear'\): choose from linear_h2, gru_linear, gru_rows, query_key\."
    ):
        pairwise_field("linear", 3, key=key)


def test_sizes(key):
    size = 20
    assert count(pairwise_field, "linear_h2", size, 50, 3, key=key) == 21 * 50 + 2 * 51 * 50 + 51 * 400
    assert count(pairwise_field, "gru_linear", size, key=key) == 3 * 400 + 20 * 400
    assert count(pairwise_field, "gru_rows", size, key=key) == 6 * 400
    assert count(pairwise_field, "linear_h2", size, 50, 3, timed=True, key=key) == 21 * 50 + 2 * 51 * 50 + 51 * 400 + 50


def test_query_key_grows_with_h_alone(key):
    sizes = [count(QueryKey, size, rank=6, key=key) for size in (10, 20, 30)]
    assert sizes[1] - sizes[0] == sizes[2] - sizes[1] == 10 * 6


def test_linear_h2_is_row_major(key):
    field = pairwise_field("linear_h2", 3, 4, 1, key=key)
    h = noise(3)
    np.testing.assert_allclose(np.asarray(call(field, now, h)).ravel(), call(field.net, h), rtol=1e-12)


def test_gru_rows_against_a_loop(key):
    field, h, a = GRURows(3, key=key), np.asarray(noise(3)), np.asarray(noise(3, 3, seed=1))
    w, v, c = (np.asarray(layer.weight) for layer in (field.inputs, field.hidden, field.candidate))
    x = w @ h
    expected = np.empty((3, 3))
    for i, row in enumerate(a):
        y = v @ row
        r, z = sigmoid(x[:3] + y[:3]), sigmoid(x[3:6] + y[3:])
        expected[i] = (1 - z) * (np.tanh(x[6:] + c @ (r * row)) - row)
    np.testing.assert_allclose(call(field, now, jnp.asarray(h), jnp.asarray(a)), expected, rtol=1e-12)


@pytest.mark.slow
def test_gru_rows_keep_the_attention_within_one(key):
    field = jax.tree.map(lambda w: 10 * w, GRURows(3, key=key))
    ode = CoEvolvingODE(lambda t, h: 3 * jnp.cos(5 * t + h), field, Pairwise(), Identity(1.0), Solver(rtol=1e-6))
    path = solve(ode, 4 * noise(5, 3), jnp.linspace(0.0, 20.0, 30))
    assert not np.asarray(path.stats.failed).any()
    assert 0.5 < np.abs(path.a).max() <= 1 + 1e-5
    assert np.abs(path.a[:, -1] - path.a[:, 0]).max() > 0.1


def test_query_key_against_a_loop(key):
    field = QueryKey(3, rank=2, width=4, timed=True, key=key)
    h, a = noise(3), noise(3, 3, seed=1)
    net = eqx.filter_jit(lambda net, x: net(x))
    x = [jnp.concatenate([field.places[i], h[i : i + 1], now[None]]) for i in range(3)]
    q, k = ([np.asarray(net(n, each)) for each in x] for n in (field.queries, field.keys))
    decay = np.exp(field.log_decay)
    expected = [[q[i] @ k[j] / np.sqrt(2) - decay * a[i, j] for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(call(field, now, h, a), expected, rtol=1e-12)


def test_query_key_reads_rows_of_channels(key):
    field = QueryKey((3, 2), rank=2, width=4, key=key)
    assert call(field, now, noise(3, 2), noise(3, 3)).shape == (3, 3)


@pytest.mark.slow
def test_query_key_bounds_its_logits(key):
    field = QueryKey(3, rank=2, width=4, key=key)
    # tanh units are at most 1, so a network is at most |W| 1 + |b|; the decay does the rest, however large h is.
    last = [net.layers[-1] for net in (field.queries, field.keys)]
    top = [np.abs(np.asarray(n.weight)).sum(axis=1) + np.abs(np.asarray(n.bias)) for n in last]
    bound = top[0] @ top[1] / np.sqrt(2) / np.exp(float(field.log_decay))
    ode = CoEvolvingODE(still, field, Pairwise(), Identity(0.0), Solver())
    path = solve(ode, 1e3 * noise(6, 3), jnp.linspace(0.0, 200.0, 20))
    assert not np.asarray(path.stats.failed).any()
    assert 0.01 * bound < np.abs(path.a).max() <= bound * (1 + 1e-3)
    # It has come to rest.
    np.testing.assert_allclose(path.a[:, -1], path.a[:, -2], atol=1e-2 * bound)
