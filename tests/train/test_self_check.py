"""A program that is wrong for one size of batch is found, and computed by parts; a right one is left alone."""

import re
import warnings
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_task import Regression, build, leaves, pairs, split

from acenode.train import Member, Recipe, evaluate, fit, self_check
from acenode.train.self_check import Parts, WrongProgram, agreed_parts, check_self_check

DATA, SPLIT, WRONG = pairs(), split(), 8


@pytest.fixture(autouse=True)
def _forget():
    for known in (self_check._parts, self_check._stacked):
        known.clear()


@dataclass(frozen=True)
class Miscompiled(Regression):
    """As a wrong compiler would: for batches of eight the answers are others."""

    wrong: int = WRONG

    def outputs(self, model, batch, key):
        answers = model(batch.x)[0]
        return answers + 0.5 * (len(batch.x) == self.wrong)


def stacked(count: int = 2):
    models = [build(jax.random.key(seed)) for seed in range(count)]
    return jax.tree.map(lambda *x: jnp.stack(x) if eqx.is_array(x[0]) else x[0], *models)


def test_a_wrong_size_is_found_and_smaller_parts_are_used():
    rows = np.arange(24)
    right = evaluate(stacked(), Regression(), DATA, rows, eval_batch=4, self_check="never")
    with pytest.warns(WrongProgram) as told:
        found = evaluate(stacked(), Miscompiled(), DATA, rows, eval_batch=WRONG, self_check="always")
    first, second = (str(each.message) for each in told)
    assert re.match("evaluated 8 samples of 2 members at a time, .* is .*; 4 samples at a time, it is", first)
    assert re.match("evaluated 8 samples at a time, .* is .*; 4 samples at a time, it is", second)
    np.testing.assert_allclose(found["mse"], right["mse"], rtol=1e-12)
    with warnings.catch_warnings():  # known from the first use
        warnings.simplefilter("error")
        again = evaluate(stacked(), Miscompiled(), DATA, rows, eval_batch=WRONG, self_check="always")
    np.testing.assert_array_equal(again["mse"], found["mse"])
    unchecked = evaluate(stacked(), Miscompiled(), DATA, rows, eval_batch=WRONG, self_check="never")
    assert np.abs(unchecked["mse"] - right["mse"]).min() > 0.01


def test_on_a_cpu_nothing_is_checked_by_default():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(stacked(), Miscompiled(), DATA, np.arange(24), eval_batch=WRONG)
    assert not self_check._parts


@dataclass(frozen=True)
class Sampled(Regression):
    """Draws for each place in a batch, as a variational model does."""

    def outputs(self, model, batch, key):
        keys = jax.vmap(lambda place: jax.random.fold_in(key, place))(jnp.arange(len(batch.x)))
        return model(batch.x)[0] + 0.3 * jax.vmap(jax.random.normal)(keys)


@pytest.mark.parametrize("size", [8, 7, 24])
def test_random_numbers_are_no_fault(size):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(stacked(), Sampled(), DATA, np.arange(24), eval_batch=size, self_check="always")
    assert list(self_check._parts.values()) == [Parts(2, size)]


def test_the_largest_size_that_agrees_with_its_half_is_taken():
    weight = jnp.ones((1, 32))
    wrong = {32: 1.1, 16: 1.2, 8: 1.0, 4: 1.0, 2: 5.0, 1: 1.0}
    with pytest.warns(WrongProgram):
        found = agreed_parts(lambda p, _: {"mse": np.asarray([wrong[p.samples]])}, "a program", Parts(1, 32), weight)
    assert found == Parts(1, 8)


def test_members_are_evaluated_one_by_one_where_stacking_them_is_wrong():
    def metrics(parts, _):
        return {"mse": np.asarray([1.0 if parts.members == 1 else 1.3])}

    with pytest.warns(WrongProgram, match="evaluated 32 samples of 4 members at a time, mse is 1.3; 16 samples at a"):
        found = agreed_parts(metrics, "a stack", Parts(4, 32), jnp.ones((4, 32)))
    assert found == Parts(1, 32)


def test_nan_agrees_with_nan():
    found = agreed_parts(lambda parts, _: {"auc": np.asarray([np.nan])}, "another", Parts(1, 4), jnp.ones((1, 8)))
    assert found == Parts(1, 4)


# --- training -------------------------------------------------------------------------------------------------


@jax.custom_batching.custom_vmap
def miscompiled(x):
    """As a wrong compiler would: 1 alone, and 3 where members are stacked."""
    return jnp.ones_like(x)


@miscompiled.def_vmap
def _stacked_wrongly(axis_size, in_batched, x):
    return 3 * jnp.ones_like(x), in_batched[0]


@dataclass(frozen=True)
class WrongWhereStacked(Regression):
    def loss(self, model, batch, key, epoch):
        value, report = super().loss(model, batch, key, epoch)
        return value * miscompiled(jax.random.key_data(key)[0].astype(float)), report


RECIPE = Recipe(epochs=2, batch_size=4, optimiser="sgd")
MEMBERS = [Member(0, learning_rate=0.1), Member(1, learning_rate=0.1)]


@pytest.mark.slow
def test_members_are_trained_one_by_one_where_stacking_them_is_wrong():
    checked = replace(RECIPE, self_check="always")
    with pytest.warns(WrongProgram, match="the training loss of member 0 is .* among the others and .* alone"):
        found = fit(build, WrongWhereStacked(), DATA, SPLIT, checked, MEMBERS)
    wrong = fit(build, WrongWhereStacked(), DATA, SPLIT, RECIPE, MEMBERS)
    for k, member in enumerate(MEMBERS):
        alone = fit(build, WrongWhereStacked(), DATA, SPLIT, RECIPE, [member])
        for a, b in zip(leaves(found.model(k)), leaves(alone.model()), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert np.abs(wrong.history["loss"][0, k] - alone.history["loss"][0, 0]) > 0.01


@pytest.mark.slow
def test_right_programs_train_as_without_the_check():
    checked = replace(RECIPE, self_check="always")
    with warnings.catch_warnings():
        warnings.simplefilter("error", WrongProgram)
        found = fit(build, Regression(), DATA, SPLIT, checked, MEMBERS)
    plain = fit(build, Regression(), DATA, SPLIT, RECIPE, MEMBERS)
    for a, b in zip(leaves(found.models), leaves(plain.models), strict=True):
        np.testing.assert_array_equal(a, b)
    assert list(self_check._stacked.values()) == [""]


@jax.custom_batching.custom_vmap
def rounded(x):
    """As it may be without any fault: other last digits where members are stacked."""
    return x


@rounded.def_vmap
def _rounded_otherwise(axis_size, in_batched, x):
    return x * (1 + 2.0**-24), in_batched[0]


@jax.custom_batching.custom_vmap
def reversed_(x):
    """A fault that is far larger than rounding."""
    return x


@reversed_.def_vmap
def _stacked_reversed(axis_size, in_batched, x):
    return 1 - x, in_batched[0]


@pytest.mark.parametrize(
    "other, wild, fault",
    [(rounded, 1.0, False), (rounded, 1e7, False), (reversed_, 1.0, True)],
    ids=["rounded", "rounded where that moves the gradient", "wrong"],
)
def test_a_gradient_may_differ_as_much_as_rounding_moves_it(other, wild, fault):
    members = jnp.asarray([[0.3, 0.7, 0.2], [0.4, 0.1, 0.9]])
    step = lambda x, data: (data.sum(), jnp.sin(wild * other(x)))  # noqa: E731
    assert bool(self_check._compare_stacked(step, members, jnp.ones(2))) == fault


def test_gradients_that_are_not_finite_are_near_in_the_same_places_alone():
    one, other, nowhere = np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), np.array([np.nan, np.inf])
    assert self_check._near(one, other) and self_check._near(one, other, other)
    assert not self_check._near(np.array([0.0, 1.0]), other)
    assert not self_check._near(np.array([np.nan, -7.0]), other, nowhere)


def test_a_wrong_choice_is_refused():
    with pytest.raises(ValueError, match=r"Recipe\(self_check='sometimes'\): choose from auto, always, never"):
        check_self_check("Recipe", "sometimes")
