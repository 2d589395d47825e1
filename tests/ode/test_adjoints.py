"""All forms of the gradient with adaptive steps, against central differences and each other; and of an ensemble."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import H0, TIMES, assert_matches_differences, compiled, gradient, value_and_gradient
from problems import coevolving

from acenode.ode import Pairwise, Solver

FINE = {"rtol": 1e-10, "atol": 1e-11}


@pytest.mark.slow
def test_every_form_with_adaptive_steps():
    def queried(**options):
        return coevolving(Pairwise(), 2, Solver(**FINE, **options)), H0

    assert_matches_differences(queried(checkpoints=4), 1e-4, 1e-6)
    few = gradient(queried(checkpoints=4))
    many = gradient(queried(max_steps=256, checkpoints=256))
    direct = gradient(queried(adjoint="direct", max_steps=64))
    back = gradient(queried(adjoint="backsolve"))
    scale = np.abs(few).max()
    np.testing.assert_allclose(many, few, atol=1e-13 * scale)
    np.testing.assert_allclose(direct, few, atol=1e-7 * scale)
    np.testing.assert_allclose(back, few, atol=1e-7 * scale)


@pytest.mark.slow
def test_an_ensemble_member_has_the_gradient_it_has_alone():
    # Members of different stiffness take different numbers of steps; the tape is thinned for all together.
    solver = Solver(**FINE, checkpoints=4)
    members = [coevolving(Pairwise(), 2, solver, seed) for seed in range(3)]
    members[1] = eqx.tree_at(lambda m: m.f.weight, members[1], replace_fn=lambda w: 5 * w)
    stacked = jax.tree.map(lambda *w: jnp.stack(w) if eqx.is_array(w[0]) else w[0], *members)
    each = eqx.filter_vmap(lambda ode: value_and_gradient((ode, H0), TIMES))
    (values, steps), grads = eqx.filter_jit(each)(stacked)
    assert len({int(s.max()) for s in np.asarray(steps)}) == 3
    for k, member in enumerate(members):
        (value, alone), grad = compiled((member, H0), TIMES)
        np.testing.assert_array_equal(steps[k], alone)
        np.testing.assert_allclose(values[k], value, rtol=1e-12)
        for together, single in zip(jax.tree.leaves(grads), jax.tree.leaves(grad), strict=True):
            np.testing.assert_allclose(together[k], single, rtol=1e-9, atol=1e-12)
