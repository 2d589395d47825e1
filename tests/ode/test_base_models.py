"""The models without attention, and attention that is no attention."""

import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Wave, decay, leaves_equal, noise, solve

from acenode.ode import AugmentedODE, CoEvolvingODE, Elementwise, Identity, NeuralODE, Pairwise, ResidualStack, Solver

TIMES = jnp.array([[0.0, 0.3, 0.45, 1.0], [0.0, 0.2, 0.8, 0.8]])
H0 = noise(2, 3)
# Bits are the same where the compiler fuses both programs the same way, as for users; not without its fusions.
QUICK_COMPILER = "xla_cpu_use_fusion_emitters=false" in os.environ.get("XLA_FLAGS", "")
usual_compiler = pytest.mark.skipif(QUICK_COMPILER, reason="run in a process of its own, with the usual compiler")
solvers = pytest.mark.parametrize("solver", [Solver(), Solver("heun", step=0.1)], ids=["adaptive", "fixed step"])


@pytest.mark.slow
@pytest.mark.skipif(not QUICK_COMPILER, reason="this is the usual compiler")
def test_bits_with_the_usual_compiler():
    usual = {**os.environ, "XLA_FLAGS": "", "ACENODE_TESTS_TRIED_FLAGS": "yes"}
    command = [sys.executable, "-m", "pytest", __file__, "-k", "bit_for_bit", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=usual, capture_output=True, text=True)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout


@usual_compiler
@solvers
def test_identity_attention_is_the_base_model_bit_for_bit(solver):
    f = Wave(3, (3,))
    base = solve(NeuralODE(f, solver), H0, TIMES)
    attentive = solve(CoEvolvingODE(f, None, Pairwise(), Identity(), solver, "frozen"), H0, TIMES)
    assert leaves_equal((base.h, base.stats), (attentive.h, attentive.stats))
    np.testing.assert_array_equal(attentive.a, np.broadcast_to(1e3 * np.eye(3), (2, 4, 3, 3)))


@usual_compiler
def test_open_gates_are_the_base_model_bit_for_bit():
    f, solver = Wave(3, (3,)), Solver()
    base = solve(NeuralODE(f, solver), H0, TIMES)
    attentive = solve(CoEvolvingODE(f, None, Elementwise(), lambda h: 1e3 + 0 * h, solver, "frozen"), H0, TIMES)
    assert leaves_equal((base.h, base.stats), (attentive.h, attentive.stats))


def test_identity_attention_has_the_base_models_gradient():
    f, solver = Wave(3, (3,)), Solver("heun", step=0.1, max_steps=16)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda ode: jnp.sum(ode(H0, TIMES).h ** 2)))
    base = gradient(NeuralODE(f, solver)).f
    attentive = gradient(CoEvolvingODE(f, None, Pairwise(), Identity(), solver, "frozen")).f
    for one, two in zip(jax.tree.leaves(base), jax.tree.leaves(attentive), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)


def test_a_uniform_attention_is_not_the_base_model():
    f, solver = Wave(3, (3,)), Solver("heun", step=0.1)
    base = solve(NeuralODE(f, solver), H0, TIMES)
    attentive = solve(CoEvolvingODE(f, None, Pairwise(), Identity(0.0), solver, "frozen"), H0, TIMES)
    assert np.abs(np.asarray(base.h - attentive.h)).max() > 0.1


@pytest.mark.parametrize("attention", [True, False])
def test_whoever_asks_for_attention_may_ask_any_ode(attention):
    solver = Solver("euler", step=1.0, max_steps=1)
    for ode in (NeuralODE(decay, solver), AugmentedODE(decay, 2, solver), ResidualStack([lambda h: -h])):
        path = ode(H0, jnp.array([0.0, 1.0]), attention=attention)
        assert path.a is None
        np.testing.assert_array_equal(path.h[:, -1], 0.0)  # one step of the decay takes all away


@pytest.mark.parametrize("shape", [(2, 3), (2, 4, 5, 3)], ids=["vector", "map"])
def test_augmented_appends_zeros_to_the_last_axis(shape):
    h0 = noise(*shape)

    def f(t, h):  # the new dimensions are filled from the old ones, and push them
        first, second = jnp.split(h, 2, axis=-1)
        return jnp.concatenate([second, 1 - 0 * first], axis=-1)

    path = solve(AugmentedODE(f, 3, Solver("rk4", step=0.1)), h0, jnp.array([0.0, 0.5, 1.0]))
    assert path.h.shape == (2, 3, *shape[1:-1], 6)
    old, new = path.h[..., :3], path.h[..., 3:]
    np.testing.assert_array_equal(old[:, 0], h0)
    np.testing.assert_array_equal(new[:, 0], 0.0)
    t = np.array([0.0, 0.5, 1.0]).reshape(3, *(1,) * (h0.ndim - 1))
    np.testing.assert_allclose(new, np.broadcast_to(t, new.shape), rtol=1e-12)
    np.testing.assert_allclose(old, np.asarray(h0)[:, None] + t**2 / 2, rtol=1e-12)
    assert AugmentedODE(f).extra == 5


def test_residual_stack_is_a_loop(key):
    blocks = [eqx.nn.Linear(3, 3, key=k) for k in jax.random.split(key, 4)]
    states = [np.asarray(H0)]
    for block in blocks:
        states.append(states[-1] + states[-1] @ np.asarray(block.weight).T + np.asarray(block.bias))
    # Four blocks share the time: one is over after each quarter, exactly at it too.
    times = jnp.array([[0.0, 0.25, 0.3, 0.75, 0.99, 1.0], [2.0, 3.0, 3.9, 4.0, 5.0, 6.0]])
    path = solve(ResidualStack(blocks), H0, times)
    for k, after in enumerate([[0, 1, 1, 3, 3, 4], [0, 1, 1, 2, 3, 4]]):
        np.testing.assert_allclose(path.h[k], [states[n][k] for n in after], rtol=1e-12)
    assert path.a is None and not np.asarray(path.stats.failed).any()


def test_residual_stack_ends_where_its_last_block_ends():
    # Six blocks over a time that sixths do not divide evenly in floating point.
    times = jnp.asarray(np.linspace(0.1, 0.8, 7))
    path = solve(ResidualStack([lambda h: jnp.ones_like(h)] * 6), jnp.zeros((1, 2)), times)
    np.testing.assert_array_equal(path.h[0, :, 0], np.arange(7))
