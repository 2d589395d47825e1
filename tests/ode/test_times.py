"""Times: one row for all or one a sample, repeated, single, of no length, negative, late on the clock."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import coevolving, decay, solve, still

from acenode.ode import AugmentedODE, Elementwise, NeuralODE, Pairwise, ResidualStack, Solver

both = pytest.mark.parametrize(
    "solver", [Solver(rtol=1e-8, atol=1e-9), Solver("rk4", step=0.01)], ids=["adaptive", "fixed step"]
)


@both
def test_every_sample_has_its_own_times(solver):
    # The rows hold: repeats at the end (padding), repeats at the start and inside, no length at all, a late start.
    times = jnp.array(
        [
            [0.0, 0.25, 1.0, 1.0, 1.0],
            [0.0, 0.0, 0.5, 0.5, 0.75],
            [0.3, 0.3, 0.3, 0.3, 0.3],
            [2.0, 2.001, 2.5, 3.0, 3.125],
        ]
    )
    h0 = jnp.array([[1.0], [2.0], [3.0], [4.0]])
    path = solve(NeuralODE(decay, solver), h0, times)
    np.testing.assert_allclose(path.h[..., 0], h0 * jnp.exp(times[:, :1] - times), rtol=1e-7)
    np.testing.assert_array_equal(path.h[:, 0], h0)
    np.testing.assert_array_equal(path.h[0, 2], path.h[0, 4])
    assert not path.stats.failed.any()
    np.testing.assert_array_equal(path.stats.accepted > 0, [True, True, False, True])
    assert path.stats.rejected[2] == 0
    if not solver.adaptive:
        np.testing.assert_array_equal(path.stats.accepted, [100, 75, 0, 113])


def test_one_time_is_the_first_state():
    h0 = jnp.array([[1.0, -1.0]])
    ode = coevolving(Pairwise(), 2, Solver())
    path = ode(h0, jnp.array([0.7]))
    np.testing.assert_array_equal(path.h, h0[:, None])
    np.testing.assert_array_equal(path.a, ode.initial(h0)[:, None])
    for base in (NeuralODE(decay), ResidualStack([lambda h: h])):
        path = base(h0, jnp.array([[0.7]]))
        np.testing.assert_array_equal(path.h, h0[:, None])
    assert AugmentedODE(decay, 3)(h0, jnp.array([0.7])).h.shape == (1, 1, 5)
    assert path.stats.evaluations == 0 and not path.stats.failed


def test_one_time_has_a_gradient():
    ode = coevolving(Pairwise(), 2, Solver())
    g = jax.grad(lambda h0: ode(h0, jnp.array([0.7])).h.sum())(jnp.ones((1, 2)))
    np.testing.assert_array_equal(g, 1.0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("solver", [Solver(), Solver("rk4", step=0.1)], ids=["adaptive", "fixed step"])
def test_no_time_is_read_by_no_step_or_by_two(solver, dtype):
    # t + (end - t) need not be end, and does fall short of it around zero. A state that stays 1 shows what is lost.
    times = np.sort(np.random.default_rng(0).uniform(-1, 1, (2000, 6)), axis=1)
    times[0] = [-0.3, -0.2, -0.1, 0.0, 0.1, 1.7]
    path = solve(NeuralODE(still, solver), jnp.ones((2000, 1), dtype), jnp.asarray(times, dtype))
    np.testing.assert_allclose(path.h, 1.0, atol=1e-5)


@pytest.mark.parametrize("start", [0.0, 2880.0, 1e5])
def test_a_late_clock_in_single_precision(start):
    # The first step is 1e-4 for a state of zero, which does not move a clock at 2880 in single precision.
    h0, times = jnp.zeros((1, 2), jnp.float32), jnp.asarray([start, start + 1, start + 2], jnp.float32)
    path = solve(NeuralODE(lambda t, h: 1 - h), h0, times)
    np.testing.assert_allclose(path.h[0, :, 0], 1 - np.exp(-np.arange(3.0)), atol=2e-4)
    assert not path.stats.failed and path.stats.accepted < 20


def test_a_first_try_outside_the_field_is_taken_back():
    # log(1 - h) is not a number where the first guess of a step size looks, 100 times too far ahead.
    path = solve(NeuralODE(lambda t, h: 1e3 + jnp.log(1.0001 - h)), jnp.ones((1, 1)), jnp.array([0.0, 1e-9, 1e-8]))
    assert not path.stats.failed
    np.testing.assert_allclose(path.h[0, :, 0], 1 + (1e3 + np.log(1e-4)) * np.array([0, 1e-9, 1e-8]), rtol=1e-6)


def test_integer_times_and_maps():
    h0 = jnp.ones((2, 4, 4, 3))
    path = solve(NeuralODE(decay), h0, jnp.arange(3))
    assert path.h.shape == (2, 3, 4, 4, 3) and path.times.dtype == h0.dtype
    np.testing.assert_allclose(path.h[1, :, 1, 3, 2], np.exp(-np.arange(3.0)), rtol=1e-3)
    zoomed = coevolving(Elementwise(), 3, Solver())
    assert solve(zoomed, jnp.ones((2, 3)), jnp.arange(3)).a.shape == (2, 3, 3)


def test_times_keep_their_digits_where_states_come_in_half_precision():
    times, h0 = jnp.array([0.0, 0.2, 0.6]), jnp.ones((1, 1), jnp.bfloat16)
    path = solve(NeuralODE(lambda t, h: -h.astype(jnp.float32), Solver("rk4", step=0.05)), h0, times)
    np.testing.assert_allclose(path.h[0, :, 0], jnp.exp(-times), rtol=1e-5)
    np.testing.assert_allclose(path.times[0], times, rtol=1e-6)
    half = solve(NeuralODE(lambda t, h: -h + 0 * t, Solver("rk4", step=0.05)), h0, times)
    assert half.h.dtype == jnp.bfloat16  # where all else is in it too


# --- as many steps as a known span takes ----------------------------------------------------------------------


def test_max_steps_grow_with_a_known_span():
    few = Solver("euler", step=0.125, max_steps=8)
    times = jnp.array([0.0, 1.0, 4.0])
    ode = NeuralODE(lambda t, h: -h, few)
    expected = (1 - 0.125) ** (8 * times)

    def answer(h0):
        return ode(h0, times)

    for call in (answer, jax.jit(answer)):  # in both the times are not traced
        path = call(jnp.ones((1, 1)))
        assert not path.stats.failed.any()
        np.testing.assert_allclose(path.h[0, :, 0], expected, rtol=1e-6)
    unknown = jax.jit(ode)(jnp.ones((1, 1)), times)
    assert unknown.stats.message(0).startswith("the solver used up its max_steps")


@pytest.mark.parametrize("times, expected", [([0.0, 1.0], 8), ([0.0, 1.01], 16), ([[0.0, 0.5], [3.0, 9.0]], 64)])
def test_no_more_steps_than_needed(times, expected):
    assert Solver("euler", step=0.125, max_steps=8).with_enough_steps(np.asarray(times)).max_steps == expected
    assert Solver(max_steps=8).with_enough_steps(np.asarray(times)).max_steps == 8  # not known of an adaptive one
