"""The members of an ensemble: each the same as alone, and none the worse for another."""

import jax
import numpy as np
import pytest
from toy_task import Regression, build, leaves, pairs, same

from acenode.datasets.split import Split
from acenode.train import Fit, Member, Recipe, fit, members as grid

DATA = pairs(35)
FOLDS = [
    Split(np.arange(16), np.arange(16, 24), np.arange(0)),  # three batches of five an epoch
    Split(np.arange(24, 35), np.asarray([13, 17, 19]), np.arange(0)),  # two
]
RECIPE = Recipe(epochs=4, batch_size=5, optimiser="sgd", schedule=lambda i: 0.95**i)
MEMBERS = (
    Member(0, 0, learning_rate=0.03),
    Member(1, 1, learning_rate=0.1, penalty=0.5),
    Member(2, 0, learning_rate=0.01, penalty=1.0),
)


def together(members=MEMBERS, data=DATA) -> Fit:
    return fit(build, Regression(), data, FOLDS, RECIPE, members)


@pytest.fixture(scope="module")
def healthy() -> Fit:
    return together()


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(MEMBERS)))
def test_a_member_is_the_same_as_the_run_alone(healthy, k):
    alone = fit(build, Regression(), DATA, FOLDS, RECIPE, MEMBERS[k : k + 1])
    assert alone.best_epoch[0] == healthy.best_epoch[k]
    for a, b in zip(leaves(alone.model()), leaves(healthy.model(k)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    for name, values in alone.history.items():
        np.testing.assert_allclose(values[:, 0], healthy.history[name][:, k], rtol=1e-12, err_msg=name)


def test_members_differ(healthy):
    heads = {leaf.tobytes() for leaf in np.asarray(healthy.models.head)}
    assert len(heads) == 3


def test_a_member_that_diverges_changes_no_other_and_is_told_of(healthy):
    done = together((MEMBERS[0], Member(1, 1, learning_rate=1e30), MEMBERS[2]))
    unchanged(healthy, done)
    skipped = done.history["skipped"]
    assert not skipped[:, [0, 2]].any() and skipped[-1, 1] == 4  # two main and two attention steps an epoch
    (note,) = done.notes
    assert f"{skipped[:, 1].sum()} updates were skipped" in note and "learning_rate=1e+30" in note


def test_a_poisoned_fold_changes_no_other_and_moves_nothing(healthy):
    bad = DATA._replace(y=np.where(np.arange(35) >= 24, 1e200, DATA.y))  # too large to square
    done = together(data=bad)
    unchanged(healthy, done)
    assert done.history["skipped"][:, 1].tolist() == [4, 4, 4, 4] and len(done.notes) == 1
    assert not done.history["loss"][:, 1].any()
    for a, b in zip(leaves(done.model(1)), leaves(build(jax.random.key(1))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def unchanged(before: Fit, after: Fit):
    """The first and the last member agree in every bit."""
    for k in (0, 2):
        assert same(before.model(k), after.model(k))
        for name, values in after.history.items():
            np.testing.assert_array_equal(values[:, k], before.history[name][:, k])


def test_members_are_every_combination():
    made = grid(seeds=(1, 2), learning_rates=(0.1, 0.2), penalties=(0.0, 0.5), folds=range(3))
    assert len(made) == len({*made}) == 24
    assert made[0] == Member(1, 0, 0.1, 0.0) and made[-1] == Member(2, 2, 0.2, 0.5)
    assert str(made[-1]) == "seed=2, fold=2, learning_rate=0.2, penalty=0.5"
