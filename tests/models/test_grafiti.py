"""GraFITi against loops over the edges of its graph, and what a prediction may see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from baselines import (
    assert_ensemble_in_single_precision,
    assert_learns,
    assert_queries_do_not_interact,
    seen,
)
from sines import KEY, answer, assert_stands_alone, batch_of, linear, quick, rows

from acenode.models import GraFITi
from acenode.train import parameter_count

VARIABLES, DIM, HEADS, LAYERS = 2, 4, 2, 2
SCALE = 2.0


def model() -> GraFITi:
    return quick(lambda key: GraFITi(VARIABLES, DIM, HEADS, LAYERS, time_scale=SCALE, key=key))


# --- the equations --------------------------------------------------------------------------------------------


def attended(attention, node, neighbours):
    """The new node from its neighbours, a list of [other node, edge]."""
    query = linear(attention.query, node)
    out = query.copy()
    for head in range(HEADS):
        part = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
        logits = [query[part] @ (np.asarray(attention.key.weight) @ pair)[part] / np.sqrt(DIM) for pair in neighbours]
        total = sum(np.exp(logit) for logit in logits)
        for logit, pair in zip(logits, neighbours, strict=True):
            out[part] += np.exp(logit) / total * linear(attention.value, pair)[part]
    return out + np.maximum(linear(attention.out, out), 0)


def by_hand(m, times, values, observed, query):
    """[edge, time, channel] of every channel at `query`, from a graph with one query, as a list of edges."""
    moments = np.append(times, query)
    is_query = len(times)
    edges = {(i, c): (values[i, c], 0.0) for i in range(len(times)) for c in range(VARIABLES) if observed[i, c]}
    edges |= {(is_query, c): (0.0, 1.0) for c in range(VARIABLES)}
    edge = {at: np.maximum(linear(m.edge, np.asarray(feature)), 0) for at, feature in edges.items()}
    time = [np.sin(linear(m.time, np.asarray([t / SCALE]))) for t in moments]
    channel = [np.maximum(linear(m.channel, one), 0) for one in np.eye(VARIABLES)]
    for k in range(LAYERS):
        layer = jax.tree.map(lambda x, k=k: x[k], m.layers)
        new_channel = [
            attended(
                layer.channels,
                channel[c],
                [np.concatenate([time[i], edge[i, c]]) for i, d in edges if d == c and i != is_query],
            )
            for c in range(VARIABLES)
        ]
        new_time = [
            attended(layer.times, time[i], [np.concatenate([channel[c], edge[i, c]]) for j, c in edges if j == i])
            for i in range(len(moments))
        ]
        edge = {
            (i, c): np.maximum(e + linear(layer.edges, np.concatenate([e, time[i], channel[c]])), 0)
            for (i, c), e in edge.items()
        }
        time, channel = new_time, new_channel
    states = np.stack([np.concatenate([edge[is_query, c], time[-1], channel[c]]) for c in range(VARIABLES)])
    return states, np.mean(channel, axis=0)


def test_predictions_equal_a_loop_over_the_edges():
    made, one = model(), rows()[0]
    assert not one[2].all()
    queries = np.asarray([0.3, 2.5])
    trace = answer(made, batch_of([one]), queries[None])
    assert trace.states.shape == (1, 1, 2, VARIABLES, made.size)
    for k, query in enumerate(queries):
        states, summary = by_hand(made, *one, query)
        np.testing.assert_allclose(trace.states[0, 0, k], states, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(trace.summary[0, 0], summary, rtol=1e-6, atol=1e-9)
        both = np.stack([linear(made.out, s) for s in states], axis=1)
        np.testing.assert_allclose(np.stack(made.emission(trace.states[0, 0, k])), both, rtol=1e-6)


@pytest.mark.slow
def test_a_node_without_edges_keeps_its_query():
    layer = jax.tree.map(lambda x: x[0], model().layers).channels
    nodes = jnp.asarray(np.random.default_rng(0).normal(size=(3, DIM)))
    nothing = layer(nodes, nodes[:2], jnp.ones((3, 2, DIM)), jnp.zeros((3, 2), bool))
    np.testing.assert_allclose(nothing, [attended(layer, np.asarray(n), []) for n in nodes], rtol=1e-10)


# --- sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v, d, h, n", [(2, 4, 2, 2), (5, 64, 2, 2), (3, 8, 1, 3)])
def test_parameter_count(v, d, h, n):
    attention = 2 * (d * d + d) + 2 * d * d + (2 * d * d + d)
    layer = 2 * attention + 3 * d * d + d
    made = quick(lambda key: GraFITi(v, d, h, n, key=key))
    assert parameter_count(made) == 3 * d + 2 * d + (v + 1) * d + n * layer + 2 * (3 * d + 1)
    assert made.size == 3 * d


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="a multiple of heads"):
        GraFITi(2, 5, 2, key=KEY)
    with pytest.raises(ValueError, match="layers=0"):
        GraFITi(2, layers=0, key=KEY)
    with pytest.raises(ValueError, match="time_scale=0"):
        GraFITi(2, time_scale=0.0, key=KEY)


# --- what matters and what does not ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_prediction_stands_alone():
    slopes = assert_stands_alone(model())
    for path, x in jax.tree_util.tree_leaves_with_path(slopes):
        name = jax.tree_util.keystr(path)
        assert np.asarray(x).any() == (not name.startswith(".out")), name  # the emission alone reads it


def test_padding_that_is_marked_as_observed_does_not_count():
    batch, times = batch_of(rows()[2:], 4), np.asarray([[0.5, 3.0]])
    marked = eqx.tree_at(
        lambda s: (s.values, s.observed),
        batch,
        (np.where(batch.real[..., None], batch.values, 7).astype(np.float32), batch.observed | ~batch.real[..., None]),
    )
    np.testing.assert_array_equal(answer(model(), marked, times).states, answer(model(), batch, times).states)


def test_queries_do_not_interact():
    assert_queries_do_not_interact(model())


def test_it_sees_all_of_the_context():
    assert not GraFITi.causal
    assert seen(model()) == [True] * 5


@pytest.mark.slow
def test_an_ensemble_in_single_precision():
    assert_ensemble_in_single_precision(model())


@pytest.mark.slow
def test_it_learns():
    assert_learns(lambda key: GraFITi(2, 16, 2, 2, time_scale=1.5, key=key))
