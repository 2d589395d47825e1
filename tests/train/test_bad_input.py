"""What `fit`, `Recipe` and `Member` refuse, before any training, and in which words."""

import functools as ft

import jax
import jaxtyping
import numpy as np
import pytest
from toy_task import Descent, Regression, pairs, place, split

from acenode.datasets.split import Split
from acenode.ode import NeuralODE
from acenode.train import Member, Recipe, fit

DATA, SPLIT = np.arange(6.0), split(4, 2)
NONE = np.arange(0)


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Without the type checks of the tests, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def rows(*numbers):
    return np.asarray(numbers)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"data": {"a": np.ones(6), "b": np.ones((5, 2))}}, r"fit\(data=...\).*\[5, 6\] samples.*same number"),
        ({"data": np.ones((0, 2))}, r"fit\(data=...\): there are no samples"),
        ({"data": {"a": np.ones(6), "b": np.asarray(1.0)}}, r"fit\(data=...\).*single number"),
        ({"data": np.asarray([1, 2, np.nan, 4, 5, 6])}, r"fit\(data=...\).*shape \(6,\).*NaN or infinite.*mask"),
        ({"data": {"a": np.ones(6), "b": np.full((6, 2), np.inf)}}, r"fit\(data=...\).*shape \(6, 2\).*NaN or inf"),
        ({"members": ()}, r"fit\(members=...\): there is no member"),
        ({"members": [Member(fold=1)]}, r"fit\(members=...\).*asks for fold 1; splits has 1"),
        ({"members": [Member(fold=-1)]}, r"fit\(members=...\).*fold -1"),
        ({"splits": Split(NONE, rows(1), NONE)}, r"fit\(splits=...\): the train part of fold 0 is empty"),
        ({"splits": [SPLIT, Split(rows(1), NONE, NONE)]}, r"fit\(splits=...\): the validation part of fold 1 is empty"),
        ({"splits": Split(rows(0, 6), rows(1), NONE)}, r"fit\(splits=...\): the train part.*sample 6; there are 6"),
        ({"splits": Split(rows(0), rows(-2, 1), NONE)}, r"fit\(splits=...\): the validation part.*sample -2"),
        ({"splits": Split(rows(0, 1), rows(1, 2), NONE)}, r"fit\(splits=...\): fold 0 has samples in both train"),
        ({"splits": Split(np.ones(6, bool), rows(1), NONE)}, r"fit\(splits=...\): the train part.*dtype bool"),
        ({"splits": Split(rows([0, 1]), rows(2), NONE)}, r"fit\(splits=...\): the train part.*shape \(1, 2\)"),
        (
            {"splits": [SPLIT, Split(rows(0, 1), rows(2), NONE)], "members": [Member(), Member(fold=1)]},
            r"fit\(splits=...\): the members train on 2 to 4 samples.*batch of 50.*batch_size of at most 2",
        ),
        ({"build": place(None)}, r"fit\(build=...\): give a function from a key to a model"),
        ({"task": place}, r"fit\(task=...\): a function has no monitor; give a task"),
        ({"splits": (rows(0, 1), rows(2))}, r"fit\(splits=...\): give Split\(train, validation, test\)"),
        ({"members": Member()}, r"fit\(members=...\): give a list of members"),
        ({"task": Descent(monitor="wit")}, r"fit\(task=...\): monitor is 'wit'; choose from distance, nearness"),
        ({"task": Descent(better="faster")}, r"fit\(task=...\): better is 'faster'; choose from lower, higher"),
    ],
)
def test_fit_says_which_argument_is_wrong_and_how(given, message):
    given = {"build": place, "task": Descent(), "data": DATA, "splits": SPLIT, **given}
    with pytest.raises(ValueError, match=message):
        fit(**given)


def test_a_metric_that_is_not_there_is_missed_before_a_step_is_taken():
    class Untrained(Descent):
        def loss(self, model, batch, key, epoch):
            raise AssertionError("a step was taken")

    with pytest.raises(ValueError, match="monitor is 'wit'"):
        fit(place, Untrained(monitor="wit"), DATA, SPLIT)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"epochs": 0}, r"Recipe\(epochs=0\): must be at least 1"),
        ({"batch_size": -1}, r"Recipe\(batch_size=-1\): must be at least 1"),
        ({"eval_batch": 0}, r"Recipe\(eval_batch=0\)"),
        ({"reference": 0}, r"Recipe\(reference=0\)"),
        ({"patience": 0}, r"Recipe\(patience=0\): must be at least 1"),
        ({"clip": 0.0}, r"Recipe\(clip=0.0\): must be positive"),
        ({"weight_decay": -0.5}, r"Recipe\(weight_decay=-0.5\)"),
        ({"average": 1.0}, r"Recipe\(average=1.0\): from 0 to below 1"),
        ({"weight_decay": np.nan}, r"Recipe\(weight_decay=nan\)"),
        ({"optimiser": "adman"}, r"Recipe\(optimiser='adman'\): choose from adam, adamax, sgd, momentum"),
        ({"algorithm": "both"}, r"Recipe\(algorithm='both'\): choose from alternating, joint"),
        ({"unit": "step"}, r"Recipe\(unit='step'\): choose from batch, epoch"),
        ({"main_gradient": "true"}, r"Recipe\(main_gradient='true'\): choose from exact, paper"),
        ({"initial_with": "f"}, r"Recipe\(initial_with='f'\): choose from main, attention"),
        ({"norm": "l3"}, r"Recipe\(norm='l3'\): choose from l1, l2"),
    ],
)
def test_recipe_says_which_argument_is_wrong_and_what_there_is_to_choose_from(given, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**given)


@pytest.mark.parametrize(
    "given",
    [{"learning_rate": 0.0}, {"learning_rate": np.nan}, {"penalty": -1.0}, {"penalty": np.inf}, {"seed": 2**40}],
)
def test_member_says_which_argument_is_wrong(given):
    with pytest.raises(ValueError, match=rf"Member\({next(iter(given))}="):
        Member(**given)


def test_weights_that_a_function_closes_over_are_named():
    def build(key):
        weight = jax.random.normal(key, (2, 2))
        return NeuralODE(lambda t, h: weight @ h)

    def partial(key):
        return NeuralODE(ft.partial(lambda weight, t, h: weight @ h, jax.random.normal(key, (2, 2))))

    for hides in (build, partial):
        with pytest.raises(ValueError, match=r"fit\(build=...\): .*closes over arrays that build made.*equinox.Module"):
            fit(hides, Regression(), pairs(), split(), Recipe(epochs=1, batch_size=4))
