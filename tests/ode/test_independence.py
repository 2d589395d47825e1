"""In inference mode a sample's path does not know its batch mates; while training a correlation does."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems import coevolving, leaves_equal, noise, solve

from acenode.ode import CoEvolvingODE, Correlation, NeuralODE, Pairwise, Solver

SIZE = 3
adaptive, stepped = Solver(), Solver("midpoint", step=0.1)
TIMES = jnp.array([[0.0, 0.2, 0.55, 1.0], [0.0, 0.1, 0.1, 0.4], [0.0, 0.5, 0.5, 0.5]])
H0 = noise(3, SIZE)
# The same first sample among others, which start and end elsewhere.
OTHER_TIMES = TIMES.at[1:].set(jnp.array([[0.0, 0.9, 1.5, 2.0], [0.3, 0.3, 0.4, 0.5]]))
OTHERS = H0.at[1:].set(5 * noise(2, SIZE, seed=7))

fit_reference_statistics = eqx.filter_jit(lambda ode, h0, times: ode.fit_reference_statistics(h0, times))


def attentive(evolution: str, solver: Solver) -> CoEvolvingODE:
    ode = coevolving(Pairwise(), SIZE, solver, initial=Correlation(SIZE), evolution=evolution)
    return fit_reference_statistics(ode, noise(6, SIZE, seed=3), jnp.linspace(0.0, 2.0, 5))


CASES = {
    "plain, adaptive": lambda: NeuralODE(coevolving(Pairwise(), SIZE, adaptive).f, adaptive),
    "evolved, adaptive": lambda: attentive("evolved", adaptive),
    "evolved, fixed step": lambda: attentive("evolved", stepped),
    "frozen, adaptive": lambda: attentive("frozen", adaptive),
    "fixed, fixed step": lambda: attentive("fixed", stepped),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_batch_mates_do_not_matter_in_inference(case):
    ode = eqx.nn.inference_mode(CASES[case]())
    path, changed = solve(ode, H0, TIMES), solve(ode, OTHERS, OTHER_TIMES)
    assert not np.asarray(path.stats.failed).any() and not np.asarray(changed.stats.failed).any()

    def first(path):
        return path.h[0], None if path.a is None else path.a[0], path.stats.accepted[0], path.stats.evaluations[0]

    assert leaves_equal(first(path), first(changed))
    assert not np.allclose(path.h[1:, 1:], changed.h[1:, 1:], equal_nan=True)


@pytest.mark.slow
def test_a_sample_alone():
    ode = eqx.nn.inference_mode(attentive("evolved", adaptive))
    together, alone = solve(ode, H0, TIMES), solve(ode, H0[:1], TIMES[:1])
    np.testing.assert_allclose(alone.h[0], together.h[0], rtol=1e-12)
    np.testing.assert_allclose(alone.a[0], together.a[0], rtol=1e-12, atol=1e-14)
    assert int(alone.stats.accepted[0]) == int(together.stats.accepted[0])


def test_batch_mates_do_matter_to_a_correlation_while_training():
    ode = attentive("evolved", stepped)
    assert not ode.inference and not ode.initial.inference
    path, changed = solve(ode, H0, TIMES), solve(ode, OTHERS, TIMES)
    assert np.abs(np.asarray(path.h[0, 1:] - changed.h[0, 1:])).min(axis=0).max() > 1e-3
    assert np.abs(np.asarray(path.a[0] - changed.a[0])).max() > 1e-2


def test_samples_in_another_order():
    ode = eqx.nn.inference_mode(attentive("evolved", adaptive))
    order = np.array([2, 0, 1])
    path, turned = solve(ode, H0, TIMES), solve(ode, H0[order], TIMES[order])
    np.testing.assert_allclose(turned.h, np.asarray(path.h)[order], rtol=1e-12)
    np.testing.assert_array_equal(turned.stats.accepted, np.asarray(path.stats.accepted)[order])
