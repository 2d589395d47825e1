"""mTAN against loops over rows and reference points, and what a prediction may see."""

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
from sines import KEY, answer, assert_stands_alone, batch_of, gru, linear, quick, rows

from acenode.models import MTAN
from acenode.models.mtan import interpolate
from acenode.train import parameter_count

VARIABLES, DIM, POINTS, HEADS, WIDTH = 2, 4, 3, 2, 5
SCALE = 2.0


def model() -> MTAN:
    return quick(lambda key: MTAN(VARIABLES, DIM, POINTS, HEADS, width=WIDTH, time_scale=SCALE, key=key))


# --- the equations --------------------------------------------------------------------------------------------


def embedded(embedding, t):
    angle = np.asarray(embedding.weight) * t + np.asarray(embedding.bias)
    return np.append(angle[0], np.sin(angle[1:]))


def weights(attention, head, t, many):
    """Of time t for the times `many`."""
    part = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
    query = linear(attention.query, embedded(attention.embedding, t))[part]
    keys = [(np.asarray(attention.key.weight) @ embedded(attention.embedding, s))[part] for s in many]
    each = np.exp([query @ key / np.sqrt(DIM / HEADS) for key in keys])
    return each / each.sum()


def by_hand(m, times, values, observed, query):
    times, points = times / SCALE, np.linspace(0, 1, POINTS)
    mixed = []
    for point in points:
        read = [
            weights(m.encoder, head, point, times[observed[:, v]]) @ values[observed[:, v], v]
            if observed[:, v].any()
            else 0.0
            for head in range(HEADS)
            for v in range(VARIABLES)
        ]
        mixed.append(linear(m.mix, np.concatenate([read, observed.any(axis=0)])))
    ways = []
    for k, inputs in enumerate((mixed, mixed[::-1])):
        unit, h, states = jax.tree.map(lambda x, k=k: x[k], m.units), np.zeros(DIM), []
        for x in inputs:
            h = gru(unit, x, h)
            states.append(h)
        ways.append(states)
    memory = np.concatenate([ways[0], ways[1][::-1]], axis=1)
    got = [weights(m.decoder, head, query / SCALE, points) @ memory for head in range(HEADS)]
    return linear(m.out, np.concatenate(got)), np.concatenate([ways[0][-1], ways[1][-1]])


@pytest.mark.slow
@pytest.mark.parametrize("never", [False, True], ids=["", "a variable that was never observed"])
def test_predictions_equal_loops(never):
    made, (times, values, observed) = model(), rows()[0]
    assert not observed.all()
    observed = observed & [True, not never]
    queries = np.asarray([0.3, 2.5])
    trace = answer(made, batch_of([(times, values, observed)]), queries[None])
    for k, query in enumerate(queries):
        state, summary = by_hand(made, times, values, observed, query)
        np.testing.assert_allclose(trace.states[0, 0, k], state, rtol=1e-6)
        np.testing.assert_allclose(trace.summary[0, 0], summary, rtol=1e-6)
        hidden = np.maximum(linear(made.emission.first, state), 0)
        both = np.concatenate(made.emission(trace.states[0, 0, k]))
        np.testing.assert_allclose(both, linear(made.emission.last, hidden), rtol=1e-6)


def test_a_sharp_attention_reads_the_value_of_the_nearest_row():
    logits = jnp.asarray([[[0.0, 5000.0, 0.0], [100.0, 0.0, -100.0]]], jnp.float32)
    values = jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], jnp.float32)
    observed = jnp.asarray([[True, False], [True, False], [True, False]])
    np.testing.assert_allclose(interpolate(logits, values, observed), [[[3.0, 0.0], [1.0, 0.0]]], atol=1e-6)
    # a variable is read where it was observed, however little the row counts for the others
    observed = jnp.asarray([[True, False], [True, False], [True, True]])
    np.testing.assert_allclose(interpolate(logits, values, observed), [[[3.0, 6.0], [1.0, 6.0]]], atol=1e-6)


@pytest.mark.slow
def test_new_embeddings_tell_neighbouring_points_apart():
    made = MTAN(2, 16, 32, key=KEY).encoder.embedding(jnp.linspace(0.0, 1.0, 32))
    distance = np.linalg.norm(made[:, None] - made[None], axis=-1) + 9 * np.eye(32)
    assert distance.min() > 0.5


# --- sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v, d, p, h, w", [(2, 4, 3, 2, 5), (5, 64, 32, 1, 50)])
def test_parameter_count(v, d, p, h, w):
    attention = 2 * d + 2 * d * d + d
    recurrent = 2 * (3 * d * (2 * d + 1) + d)
    mixing = ((h + 1) * v + 1) * d + (2 * h * d + 1) * d
    made = quick(lambda key: MTAN(v, d, p, h, width=w, key=key))
    assert parameter_count(made) == 2 * attention + recurrent + mixing + w * (d + 1) + 2 * v * (w + 1)
    assert made.size == d


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="a multiple of heads"):
        MTAN(2, 5, heads=2, key=KEY)
    with pytest.raises(ValueError, match="references=1"):
        MTAN(2, references=1, key=KEY)
    with pytest.raises(ValueError, match="time_scale=0"):
        MTAN(2, time_scale=0.0, key=KEY)


# --- what matters and what does not ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_prediction_stands_alone():
    slopes = assert_stands_alone(model())
    for path, x in jax.tree_util.tree_leaves_with_path(slopes):
        name = jax.tree_util.keystr(path)
        assert np.asarray(x).any() == (not name.startswith(".emission")), name


def test_queries_do_not_interact():
    assert_queries_do_not_interact(model())


def test_it_sees_all_of_the_context():
    assert not MTAN.causal
    assert seen(model()) == [True] * 5


@pytest.mark.slow
def test_an_ensemble_in_single_precision():
    assert_ensemble_in_single_precision(model())


@pytest.mark.slow
def test_it_learns():
    assert_learns(lambda key: MTAN(2, 16, 8, 1, time_scale=1.5, key=key))
