"""The ODE-RNN as a model: its answers against a plain loop, what they may know, and that it learns."""

import numpy as np
import pytest
from sines import answer, assert_learns, assert_stands_alone, batch_of, quick, rows
from test_ode_rnn import by_hand

from acenode.models import ForwardODERNN

SIZE = 3


def model(including: bool = False, scale: float = 0.5) -> ForwardODERNN:
    make = lambda key: ForwardODERNN(2, SIZE, 5, 1, gate_width=4, including=including, key=key)  # noqa: E731
    return quick(make, scale)


def field(made, m):
    first, last = made.unit.field.net.layers
    return np.asarray(last.weight) @ np.tanh(np.asarray(first.weight) @ m + np.asarray(first.bias)) + np.asarray(
        last.bias
    )


@pytest.mark.slow
@pytest.mark.parametrize("including", [True, False])
def test_an_answer_is_the_last_mean_moved_on(including):
    made, (times, values, observed) = model(including), rows()[0]
    values = np.where(observed, values, 0)
    queried = np.asarray([times[3], times[3] + 0.25, times[-1] + 0.5])
    states = answer(made, batch_of([(times, values, observed)]), queried[None].astype(np.float32)).states[0, 0]
    counts = [4 if including else 3, 4, 5]
    for state, at, count in zip(states, queried, counts, strict=True):
        # Up to here the record is cut as the whole record is, so the whole must be stepped through.
        mean = stepped(made, times, values, observed)[count - 1]
        for _ in range(10):
            mean = mean + (at - times[count - 1]) / 10 * field(made, mean)
        np.testing.assert_allclose(state, mean, rtol=2e-5, atol=1e-6)


def stepped(made, times, values, observed):
    """The mean after each row."""
    means = []
    for count in range(1, len(times) + 1):
        # Rows that are not there yet change nothing before them: nothing is observed in them.
        seen = observed.copy()
        seen[count:] = False
        both = by_hand(made.unit, times.astype(float), values.astype(float), seen, stop=count)
        means.append(both[:SIZE])
    return means


@pytest.mark.slow
def test_it_stands_alone():
    assert_stands_alone(model(scale=0.02), rtol=1e-4)  # the times are in single precision


def test_an_answer_knows_nothing_of_its_future():
    made, (times, values, observed) = model(), rows()[0]
    changed = values.copy()
    changed[3:] += 5
    queried = np.asarray([[times[3], times[1]]], np.float32)
    first = answer(made, batch_of([(times, values, observed)]), queried).states
    second = answer(made, batch_of([(times, changed, observed)]), queried).states
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_it_learns():
    assert_learns(lambda key: ForwardODERNN(2, 8, 16, 1, gate_width=16, key=key), 8)
