"""The Runge-Kutta methods: their order, their coefficients, their tolerance and their bookkeeping."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import solve

from acenode.ode import NeuralODE, Solver, Stats
from acenode.ode.solver.runge_kutta import METHODS

every_method = pytest.mark.parametrize("method", METHODS)


def stretched(t, h, pace):
    """Two nonlinear equations, one timed, on a clock `t = s / pace`.

    `dx/ds = x^2 cos(s)`, so x = 1 / (2 - sin(s)) from 1/2; `dy/ds = -y^3 / 2`, so y = 1 / sqrt(1 + s) from 1.
    """
    return pace * jnp.stack([h[0] ** 2 * jnp.cos(pace * t), -(h[1] ** 3) / 2])


@every_method
def test_order_at_the_steps_and_between_them(method):
    # With a step of 1 on the solver's clock, a sample that is to take n steps runs to time n at its own pace: all
    # step sizes are samples of one compiled program.
    order = METHODS[method].order
    counts = np.array([8, 16, 32, 64]) * (4 if order < 4 else 1)
    pace = 3.0 / counts
    on_steps = np.linspace(0, 1, 9)
    between = np.setdiff1d(np.linspace(0, 1, 128), on_steps)
    every = np.union1d(on_steps, between)
    solver = Solver(method, step=1.0)
    times, h0 = jnp.asarray(every * counts[:, None]), jnp.tile(jnp.array([0.5, 1.0]), (4, 1))
    h, stats = jax.jit(lambda times: solver.solve(stretched, h0, times, args=jnp.asarray(pace)))(times)
    np.testing.assert_array_equal(stats.accepted, counts)
    s = 3.0 * every
    error = np.abs(np.asarray(h) - np.stack([1 / (2 - np.sin(s)), 1 / np.sqrt(1 + s)], axis=-1)).max(axis=-1)
    for places in (on_steps, between):
        errors = error[:, np.isin(every, places)].max(axis=1)
        slope = -np.polyfit(np.log2(counts), np.log2(errors), 1)[0]
        # The error constants of the fifth-order pairs are so small that coarse steps look one order better.
        assert slope > order - 0.25 and (slope < order + 0.3 or order == 5), (errors, slope)


def test_orders_are_the_textbook_ones():
    orders = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, "rk4_38": 4, "dopri5": 5, "tsit5": 5}
    assert {name: tableau.order for name, tableau in METHODS.items()} == orders
    assert {name for name, tableau in METHODS.items() if tableau.adaptive} == {"dopri5", "tsit5"}


@pytest.mark.parametrize("name, peer", [("dopri5", diffrax.Dopri5), ("tsit5", diffrax.Tsit5)])
def test_the_middle_of_a_step_is_that_of_diffrax(name, peer):
    # Every stage has a slope in a dimension of its own, so that the state in the middle is the weights.
    step = peer.interpolation_cls(t0=0.0, t1=1.0, y0=jnp.zeros(7), y1=jnp.asarray(METHODS[name].b), k=jnp.eye(7))
    np.testing.assert_allclose(METHODS[name].b_middle, step.evaluate(0.5), rtol=1e-13, atol=1e-15)


@every_method
def test_coefficients_are_consistent(method):
    tableau = METHODS[method]
    for row, c in zip(tableau.a, tableau.c, strict=True):
        assert sum(row) == pytest.approx(c, abs=1e-14)
    assert sum(tableau.b) == pytest.approx(1, abs=1e-14)
    if tableau.b_error is not None:
        assert sum(tableau.b_error) == pytest.approx(0, abs=1e-14)
    if tableau.b_middle is not None:
        assert sum(tableau.b_middle) == pytest.approx(0.5, abs=1e-14)
    if tableau.fsal:
        assert tableau.a[-1] == tableau.b[:-1] and tableau.b[-1] == 0 and tableau.c[-1] == 1


def test_classical_and_three_eighths_weights():
    assert METHODS["rk4"].b == (1 / 6, 1 / 3, 1 / 3, 1 / 6) and METHODS["rk4"].c == (0.5, 0.5, 1.0)
    assert METHODS["rk4_38"].b == (1 / 8, 3 / 8, 3 / 8, 1 / 8) and METHODS["rk4_38"].c == (1 / 3, 2 / 3, 1.0)


def swing(t, h):
    return jnp.stack([h[1], -4 * h[0]])


@pytest.mark.parametrize("method", ["dopri5", "tsit5"])
def test_a_tighter_tolerance_gives_a_smaller_error(method):
    times = jnp.linspace(0, 5, 23)
    known = jnp.stack([jnp.cos(2 * times), -2 * jnp.sin(2 * times)], axis=-1)
    errors, steps = [], []
    for tolerance in (1e-4, 1e-7):
        solver = Solver(method, rtol=tolerance, atol=tolerance)
        path = solve(NeuralODE(swing, solver), jnp.array([[1.0, 0.0]]), times)
        errors.append(float(jnp.abs(path.h[0] - known).max()))
        steps.append(int(path.stats.accepted[0]))
        assert errors[-1] < 50 * tolerance
    assert errors[1] < errors[0] / 200
    assert steps[0] < steps[1] < 200


def test_each_sample_chooses_its_own_steps():
    # The faster sample takes more steps; the slower one takes as many as among its like.
    def paced(t, h):
        return jnp.stack([h[2] * h[1], -h[2] * h[0], 0.0])

    times = jnp.array([0.0, 3.0])
    h0 = jnp.array([[1.0, 0.0, 1.0], [1.0, 0.0, 8.0]])
    ode = NeuralODE(paced)
    mixed, slow = (np.asarray(solve(ode, h, times).stats.accepted) for h in (h0, h0[jnp.array([0, 0])]))
    assert mixed[1] > 3 * mixed[0]
    assert mixed[0] == slow[0] == slow[1]


def wavy(t, h):
    return h**2 * jnp.cos(9 * t)


def count_calls(field, solver: Solver, end: float) -> tuple[int, Stats]:
    """Calls of the field by a solve from 0 to `end`, counted by itself, and what the solver says of it."""
    calls = 0

    def counted(t, h):
        nonlocal calls
        calls += 1
        return field(t, h)

    with jax.disable_jit():
        stats = NeuralODE(counted, solver)(jnp.full((1, 1), 0.5), jnp.array([0.0, end])).stats
    return calls, jax.tree.map(lambda count: int(count[0]), stats)


@pytest.mark.slow
@every_method
def test_evaluations_are_the_calls_that_were_made(method):
    solver = Solver(method, step=0.3)  # four steps to 1, the last one cut short
    # A solve of no length shows what comes before the first step, calls that only look at shapes included.
    start, nothing = count_calls(wavy, solver, 0.0)
    calls, stats = count_calls(wavy, solver, 1.0)
    stages = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, "rk4_38": 4, "dopri5": 6, "tsit5": 6}[method]
    assert (nothing.accepted, nothing.evaluations) == (0, 1)
    assert (stats.accepted, stats.rejected) == (4, 0)
    assert calls - start == stats.evaluations - nothing.evaluations == 4 * stages


@pytest.mark.slow
def test_rejected_steps_are_counted_too():
    def jump(t, h):  # into which the first try runs
        return -h * jnp.where(t < 0.5, 1.0, 30.0)

    start, nothing = count_calls(jump, Solver(), 0.0)
    calls, stats = count_calls(jump, Solver(), 1.0)
    assert nothing.evaluations == 2  # the first slope, and one to choose the first step
    assert stats.rejected > 0
    assert calls - start == stats.evaluations - 2 == 6 * (stats.accepted + stats.rejected)


def test_a_whole_number_of_steps_has_no_tiny_last_step():
    # 0.1 added thirty times does not give 3 exactly; no 31st step may come of it.
    times = jnp.array([[0.0, 3.0], [0.0, 2.95], [-0.7, 0.2]])
    path = solve(NeuralODE(swing, Solver("rk4", step=0.1)), jnp.ones((3, 2)), times)
    np.testing.assert_array_equal(path.stats.accepted, [30, 30, 9])
    np.testing.assert_array_equal(path.stats.evaluations, 1 + 4 * np.array([30, 30, 9]))
