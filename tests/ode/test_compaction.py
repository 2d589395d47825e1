"""A large batch whose unfinished samples are compacted answers as each sample does on its own."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.ode import BatchCoupled, Solver, Status
from acenode.ode.solver import SAMPLES, integrate
from acenode.ode.solver.step_size import Control

BATCH = 40  # compacted to an eighth, five samples
SOLVER = Solver("dopri5", rtol=1e-4, atol=1e-6, max_steps=256, checkpoints=16, compact=True)


def field(t, y, speed):
    """Rotation at a speed of its own, damped by a nonlinear term."""
    h, a = y
    return speed * a - 0.1 * h**3, -speed * h - 0.1 * a**3


class Scaled(eqx.Module):
    scale: jax.Array

    def __call__(self, t, y, speed):
        return jax.tree.map(lambda slope: self.scale * slope, field(t, y, speed))


def speeds_with(slow: int) -> jax.Array:
    """Speeds of which `slow`, spread over the batch, are far higher than the others and so take more steps."""
    speeds = np.full(BATCH, 1.0)
    speeds[np.linspace(0, BATCH - 1, slow).astype(int)] = np.linspace(15.0, 25.0, slow)
    return jnp.asarray(speeds)


@eqx.filter_jit
def solved(scale, y0, times, speeds, solver=SOLVER):
    def loss(moving):
        scale, y0, speeds = moving
        out, stats = solver.solve(Scaled(scale), y0, times, speeds)
        return sum(jnp.sum(jnp.nan_to_num(leaf) ** 2 * (1 + jnp.arange(leaf.shape[1]))) for leaf in out), (out, stats)

    (_, answer), grads = eqx.filter_value_and_grad(loss, has_aux=True)((scale, y0, speeds))
    return answer, grads


def states(key=0):
    one, two = jax.random.split(jax.random.key(key))
    return jax.random.normal(one, (BATCH,)), jax.random.normal(two, (BATCH,))


def in_small_batches(scale, y0, times, speeds, size=20):
    """The same in batches that are not compacted; the gradient of what they share is added up."""
    parts = []
    for start in range(0, BATCH, size):
        part = lambda tree, s=start: jax.tree.map(lambda x: x[s : s + size], tree)  # noqa: E731
        parts.append(solved(scale, part(y0), part(times), part(speeds), replace(SOLVER, compact=False)))
    (answers, grads) = zip(*parts, strict=True)
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *answers)
    own = jax.tree.map(lambda *x: jnp.concatenate(x), *[g[1:] for g in grads])
    return joined, (sum(g[0] for g in grads), *own)


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_large_adaptive_batches_are_compacted_on_a_cpu(monkeypatch):
    def size(y, step=None, compact="auto"):
        return integrate._compact_size(field, y, Control(1e-4, 1e-6, step, "per_part", 256, 16, 8, compact))

    monkeypatch.setattr(integrate, "_LEAST_NUMBERS", 2 * BATCH)
    for backend, expected in (("cpu", BATCH // 8), ("gpu", 0)):
        monkeypatch.setattr(jax, "default_backend", lambda name=backend: name)
        assert size(states()) == expected
        assert size(states(), compact=True) == BATCH // 8 and size(states(), compact=False) == 0
        assert size(states(), step=0.1, compact=True) == 0
    monkeypatch.undo()
    assert size(states()) == 0  # too few numbers


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 7])
@pytest.mark.parametrize("slow", [0, 1, 5, 6, BATCH])
def test_answers_and_gradients_are_those_of_each_sample(slow, count):
    with jax.enable_x64():
        y0 = jax.tree.map(lambda y: y.astype(jnp.float64), states())
        ends = jnp.linspace(0.5, 2.0, BATCH)[:, None]
        times = ends * jnp.linspace(0.0, 1.0, count)
        queried = jnp.asarray(0.9), y0, times, speeds_with(slow).astype(jnp.float64)
        together, apart = solved(*queried), in_small_batches(*queried)
    (_, stats), _ = together
    assert not stats.failed.any()
    if 0 < slow < BATCH:
        assert stats.accepted.max() > 2 * np.median(stats.accepted)  # so that there was something to compact
    same(together, apart)


@pytest.mark.slow
def test_those_that_fail_say_so_and_leave_the_others_alone():
    with jax.enable_x64():
        y0 = jax.tree.map(lambda y: y.astype(jnp.float64), states())
        times = jnp.tile(jnp.linspace(0.0, 1.0, 4), (BATCH, 1))
        speeds = speeds_with(0).astype(jnp.float64).at[7].set(3e3)
        broken = y0[0].at[11].set(jnp.nan), y0[1]
        (out, stats), grads = solved(jnp.asarray(0.9), broken, times, speeds)
        (well, _), _ = solved(jnp.asarray(0.9), y0, times, speeds_with(0).astype(jnp.float64))
    assert (stats.status == Status.max_steps_reached)[7] and stats.accepted[7] + stats.rejected[7] == SOLVER.max_steps
    assert (stats.status == Status.not_finite)[11]
    assert np.isnan(out[0][7, -1]) and np.isnan(out[0][11, 1:]).all()
    fine = np.delete(np.arange(BATCH), [7, 11])
    assert not stats.failed[fine].any()
    same(jax.tree.map(lambda x: x[fine], out), jax.tree.map(lambda x: x[fine], well))
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def test_an_unfinished_sample_may_blow_up():
    def explodes(t, y, rate):
        return rate * y**2

    rates = jnp.full(BATCH, 0.1).at[3].set(2.0)  # 1 / (1 - 2 t) has no value at 0.5
    solver = Solver("dopri5", rtol=1e-4, atol=1e-6, max_steps=2000, compact=True)
    out, stats = solver.solve(explodes, jnp.ones(BATCH), jnp.tile(jnp.array([0.0, 0.25, 1.0]), (BATCH, 1)), rates)
    np.testing.assert_array_equal(stats.failed, np.arange(BATCH) == 3)
    assert np.isnan(out[3, 2]) and abs(out[3, 1] - 2.0) < 1e-3
    np.testing.assert_allclose(np.delete(out[:, 2], 3), 1 / 0.9, rtol=1e-4)


@pytest.mark.slow
def test_members_of_an_ensemble_are_compacted_on_their_own():
    with jax.enable_x64():
        y0 = jax.tree.map(lambda y: y.astype(jnp.float64), states())
        times = jnp.tile(jnp.array([0.0, 1.0]), (BATCH, 1))
        speeds = jnp.stack([speeds_with(slow).astype(jnp.float64) for slow in (1, 5, 20)])
        scales = jnp.array([0.9, 1.0, 1.1])
        together = jax.vmap(lambda scale, speed: solved(scale, y0, times, speed))(scales, speeds)
        for k in range(3):
            same(jax.tree.map(lambda x, k=k: x[k], together), solved(scales[k], y0, times, speeds[k]))


@pytest.mark.slow
@pytest.mark.parametrize("step", [None, 0.1])
def test_second_derivatives_are_those_of_the_steps_taken(step):
    solver = replace(SOLVER, rtol=1e-8, atol=1e-9, step=step)
    with jax.enable_x64():
        y0 = jax.tree.map(lambda y: y.astype(jnp.float64), states())
        times = jnp.tile(jnp.array([0.0, 1.0]), (BATCH, 1))
        speeds = speeds_with(2).astype(jnp.float64)

        def loss(scale):
            out, _ = solver.solve(Scaled(scale), y0, times, speeds)
            return sum(jnp.sum(jnp.square(y[:, -1])) for y in out)

        gradient = jax.jit(jax.grad(loss))
        _, second = jax.jvp(gradient, (jnp.asarray(0.9),), (jnp.asarray(1.0),))
        above, below = (gradient(jnp.asarray(0.9 + d)) for d in (1e-4, -1e-4))
    np.testing.assert_allclose(second, (above - below) / 2e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "max_steps"), [(4, 12), (BATCH, 30)], ids=["one loop", "two loops"])
def test_an_unfinished_sample_spoils_no_gradient(batch, max_steps):
    class Root(eqx.Module):
        w: jax.Array

        def __call__(self, t, y, speed):
            return self.w * jnp.sqrt(y) + 1e3 * speed * speed * jnp.cos(speed * t)

    solver = Solver("dopri5", max_steps=max_steps, checkpoints=8, compact=True)

    def loss(w):
        out, stats = solver.solve(Root(w), y0, times, speeds)
        return jnp.sum(jnp.where(stats.failed, 0.0, out[:, -1])), stats

    with jax.enable_x64():
        # At a state of zero the root has a slope that is not finite.
        y0, speeds = jnp.linspace(1.0, 2.0, batch).at[2].set(0.0), jnp.zeros(batch).at[2].set(1e6)
        times = jnp.tile(jnp.array([0.0, 1.0]), (batch, 1))
        (_, stats), grad = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(0.5))
    np.testing.assert_array_equal(stats.failed, np.arange(batch) == 2)
    assert (stats.status == Status.max_steps_reached)[2]
    assert np.isfinite(grad) and grad > 0


class ToTheMean(BatchCoupled):
    def __call__(self, t, y, speed):
        return speed * (jax.lax.pmean(y, SAMPLES) - y)


def test_a_coupled_batch_stays_together():
    times = jnp.tile(jnp.array([0.0, 1.0]), (BATCH, 1))
    y0 = jnp.linspace(0.0, 1.0, BATCH)
    out, stats = SOLVER.solve(ToTheMean(), y0, times, speeds_with(1))
    assert stats.accepted.max() > 2 * np.median(stats.accepted)
    alone, _ = replace(SOLVER, compact=False).solve(ToTheMean(), y0, times, speeds_with(1))
    np.testing.assert_array_equal(out, alone)


@pytest.mark.slow
def test_what_a_sample_is_told_may_be_any_array():
    def told(t, y, args):
        speed, which, noise = args
        return speed * (1 + which % 2) * jnp.cos(t) + 1e-3 * jax.random.normal(noise, y.shape)

    whole = np.full(BATCH, 2**30 + 1)  # a float of single precision has no such number
    args = np.asarray(speeds_with(3)), whole, jax.random.split(jax.random.key(0), BATCH)
    times = np.tile([0.0, 0.5, 1.0], (BATCH, 1)).astype(np.float32)

    def last(y0):
        return jnp.sum(SOLVER.solve(told, y0, jnp.asarray(times), args)[0][:, -1])

    np.testing.assert_allclose(jax.grad(last)(jnp.zeros(BATCH)), 1.0)
    out, _ = SOLVER.solve(told, jnp.zeros(BATCH), jnp.asarray(times), args)
    np.testing.assert_allclose(out[:, -1], args[0] * 2 * np.sin(1.0), rtol=5e-3, atol=5e-3)
