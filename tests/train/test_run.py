"""A training taken epoch by epoch, and batches of similar length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_task import Regression, build, pairs, same, split

from acenode.train import Recipe, Run, fit
from acenode.train.program import _bucketed

RECIPE = Recipe(epochs=3, batch_size=4)


@pytest.mark.slow
def test_epoch_by_epoch_is_what_fit_does():
    whole = fit(build, Regression(), pairs(), split(), RECIPE)
    run = Run(build, Regression(), pairs(), split(), RECIPE)
    while not run.finished:
        run.epoch()
    assert run.epochs == 3 and same(run.result().models, whole.models)
    np.testing.assert_array_equal(run.result().history["loss"], whole.history["loss"])


@pytest.mark.slow
def test_an_epoch_may_be_cut_short():
    run, other = (Run(build, Regression(), pairs(), split(), RECIPE) for _ in range(2))
    run.epoch(1)
    other.epoch()
    assert run.steps == 4 and run.epochs == other.epochs == 1
    assert int(run._state.iteration[0]) == 1 and int(other._state.iteration[0]) == 4


def test_batches_of_similar_length_hold_the_same_samples():
    rng = np.random.default_rng(0)
    lengths = jnp.asarray(rng.integers(1, 100, 64))
    batches = jnp.asarray(rng.permutation(64).reshape(8, 8))
    made = np.asarray(_bucketed(batches, lengths, 7, jax.random.key(0)))
    before = np.asarray(batches)[:7].ravel()
    assert sorted(made[:7].ravel()) == sorted(before)  # a last batch that does not count stays where it is
    assert sorted(made[7]) == sorted(np.asarray(batches)[7])
    spread = [np.ptp(np.asarray(lengths)[row]) for row in made[:7]]
    assert max(spread) < 40 < np.mean([np.ptp(np.asarray(lengths)[row]) for row in np.asarray(batches)[:7]])
    assert not np.all(np.diff([np.asarray(lengths)[row].mean() for row in made[:7]]) > 0)  # in random order
