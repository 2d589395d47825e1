"""One step of Algorithm 1: who moves, by which gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy_task import Field, Pairs, Regression, Toy, build, leaves, pairs, same

from acenode.ode import CoEvolvingODE, Constant, Correlation, Pairwise
from acenode.train import Recipe, groups
from acenode.train.algorithm import Clock, Rates, Tally, attention_step, main_step, optimisers_of
from acenode.train.groups import belongs

RATE = 0.125
PENALTY = 0.5
BATCH = jax.tree.map(jnp.asarray, pairs(8))


def take(step, recipe, model, batch: Pairs = BATCH, penalty=PENALTY, rate=RATE, task=None):
    # Not compiled as a whole: the small parts are shared by all tests here.
    rates = Rates(jnp.asarray(rate), jnp.asarray(penalty))
    clock = Clock(jnp.asarray(0), jnp.asarray(0))
    task, key = task or Regression(), jax.random.key(0)
    return step(recipe, task, model, optimisers_of(recipe, model), batch, key, rates, clock, Tally.zero())


def stepped(step, recipe, model, *args, **kwargs):
    model, _, tally = take(step, recipe, model, *args, **kwargs)
    return model, tally


def moved(before, after) -> set[str]:
    """The groups of which every array changed; a group that changed in parts only is an error."""
    labels = jax.tree.leaves(eqx.filter(groups(before), jax.tree.map(eqx.is_array, before)))
    changes: dict[str, set[bool]] = {}
    for label, a, b in zip(labels, leaves(before), leaves(after), strict=True):
        changes.setdefault(label, set()).add(not np.array_equal(a, b))
    assert all(len(seen) == 1 for seen in changes.values()), changes
    return {label for label, seen in changes.items() if seen == {True}}


def gradient(model, penalty=0.0, order=2, batch: Pairs = BATCH):
    """The plain gradient of L + penalty ||theta_g|| in all parameters, written out without the package's groups."""

    def loss(moving):
        whole = eqx.combine(moving, model)
        g = jnp.ravel(whole.ode.g.w)
        size = jnp.sum(jnp.abs(g)) if order == 1 else jnp.sqrt(jnp.sum(g * g))
        return jnp.mean((whole(batch.x)[0] - batch.y) ** 2) + penalty * size

    return eqx.filter_value_and_grad(loss)(eqx.filter(model, eqx.is_inexact_array))


SGD = Recipe(optimiser="sgd")


@pytest.mark.slow
def test_each_step_moves_its_own_parameters_and_no_others():
    model = build(jax.random.key(0))
    assert moved(model, stepped(main_step, SGD, model)[0]) == {"main", "initial"}
    assert moved(model, stepped(attention_step, SGD, model)[0]) == {"attention"}


@pytest.mark.slow
def test_initial_with_attention_moves_theta_q_in_the_second_step():
    model, recipe = build(jax.random.key(0)), Recipe(optimiser="sgd", initial_with="attention")
    assert moved(model, stepped(main_step, recipe, model)[0]) == {"main"}
    assert moved(model, stepped(attention_step, recipe, model)[0]) == {"attention", "initial"}


def test_a_joint_step_moves_all_but_constants_even_under_weight_decay():
    model, recipe = build(jax.random.key(0)), Recipe(optimiser="sgd", algorithm="joint", weight_decay=0.5)
    after, _ = stepped(main_step, recipe, model)
    assert moved(model, after) == {"main", "initial", "attention"}
    assert float(after.shift.array) == 0.25


def test_the_main_step_follows_the_gradient_of_the_task_without_the_penalty():
    model = build(jax.random.key(1))
    value, slope = gradient(model)
    after, tally = stepped(main_step, SGD, model)
    for at in (lambda m: m.ode.f.w, lambda m: m.ode.initial.w, lambda m: m.head):
        np.testing.assert_allclose(at(after), at(model) - RATE * at(slope), rtol=1e-12)
    np.testing.assert_allclose(tally.loss, value, rtol=1e-12)
    assert (tally.counted, tally.skipped, tally.failed, tally.attention_loss) == (1, 0, 0, 0)


@pytest.mark.parametrize("norm, order", [("l1", 1), ("l2", 2)])
def test_the_attention_step_adds_lambda_times_the_plain_norm_of_theta_g(norm, order):
    model = build(jax.random.key(1))
    after, tally = stepped(attention_step, Recipe(optimiser="sgd", norm=norm), model)
    task, slope = gradient(model)
    g = np.asarray(model.ode.g.w)
    by_numpy = np.sign(g) if order == 1 else g / np.linalg.norm(g)
    expected = g - RATE * (np.asarray(slope.ode.g.w) + PENALTY * by_numpy)
    np.testing.assert_allclose(after.ode.g.w, expected, rtol=1e-12)
    np.testing.assert_allclose(tally.attention_loss, task + PENALTY * np.linalg.norm(g.ravel(), order), rtol=1e-12)


def test_a_joint_step_follows_task_and_penalty_together():
    model = build(jax.random.key(1))
    after, tally = stepped(main_step, Recipe(optimiser="sgd", algorithm="joint", norm="l1"), model)
    _, slope = gradient(model, PENALTY, 1)
    for at in (lambda m: m.ode.f.w, lambda m: m.ode.g.w, lambda m: m.ode.initial.w, lambda m: m.head):
        np.testing.assert_allclose(at(after), at(model) - RATE * at(slope), rtol=1e-12)
    np.testing.assert_allclose(tally.loss, gradient(model)[0], rtol=1e-12)


def test_a_large_lambda_shrinks_theta_g():
    model = build(jax.random.key(2))
    size = lambda m: float(jnp.linalg.norm(m.ode.g.w))  # noqa: E731
    small, large = model, model
    for _ in range(9):
        small, _ = stepped(attention_step, SGD, small, penalty=0.0, rate=0.02)
        large, _ = stepped(attention_step, SGD, large, penalty=10.0, rate=0.02)
    assert size(large) < 0.25 * size(model) and size(small) > 0.5 * size(model)


@pytest.mark.parametrize("algorithm", ["alternating", "joint"])
@pytest.mark.parametrize("field, group", [("weight_decay", "main"), ("initial_decay", "initial")])
def test_weight_decay_is_added_to_the_gradient_of_its_own_group(algorithm, field, group):
    model, decay = build(jax.random.key(1)), 0.25
    recipe = Recipe(optimiser="sgd", algorithm=algorithm, **{field: decay})
    plain, _ = stepped(main_step, Recipe(optimiser="sgd", algorithm=algorithm), model)
    decayed, _ = stepped(main_step, recipe, model)
    for label, x, a, b in zip(*map(jax.tree.leaves, (groups(model), model, plain, decayed)), strict=True):
        pulled = label == group
        if eqx.is_inexact_array(x):
            np.testing.assert_allclose(b, a - RATE * decay * x * pulled, rtol=1e-12, atol=1e-15)


def test_clip_bounds_the_gradient_of_the_main_parameters_and_of_no_others():
    model, clip = build(jax.random.key(1)), 1e-3
    recipe = Recipe(optimiser="sgd", clip=clip)

    def change(recipe, step, at):
        after = at(stepped(step, recipe, model)[0])
        return np.concatenate([np.ravel(new - old) for new, old in zip(after, at(model), strict=True)])

    main = lambda m: (m.ode.f.w, m.head)  # noqa: E731
    clipped, free = (change(r, main_step, main) for r in (recipe, SGD))
    assert np.linalg.norm(clipped) == pytest.approx(RATE * clip, rel=1e-9)
    np.testing.assert_allclose(clipped / np.linalg.norm(clipped), free / np.linalg.norm(free), atol=1e-9)
    for step, others in ((main_step, lambda m: (m.ode.initial.w,)), (attention_step, lambda m: (m.ode.g.w,))):
        np.testing.assert_array_equal(change(recipe, step, others), change(SGD, step, others))


def test_theta_g_and_theta_q_have_rates_decay_and_optimisers_of_their_own():
    model = build(jax.random.key(1))
    _, slope = gradient(model)
    recipe = Recipe(optimiser="sgd", attention_rate=8.0, initial_rate=0.5, attention_decay=0.1)
    after, _ = stepped(attention_step, recipe, model, penalty=0.0)
    np.testing.assert_allclose(
        after.ode.g.w, model.ode.g.w - 8 * RATE * (slope.ode.g.w + 0.1 * model.ode.g.w), rtol=1e-12
    )
    after, _ = stepped(main_step, recipe, model)
    np.testing.assert_allclose(after.ode.initial.w, model.ode.initial.w - 0.5 * RATE * slope.ode.initial.w, rtol=1e-12)
    own = Recipe(optimiser="sgd", attention_optimiser=optax.sgd(0.01))  # taken as it is
    after, _ = stepped(attention_step, own, model, penalty=0.0)
    np.testing.assert_allclose(after.ode.g.w, model.ode.g.w - 0.01 * slope.ode.g.w, rtol=1e-12)


@pytest.mark.parametrize("own", ["adam", optax.sgd(0.01)], ids=["by name", "of one's own"])
@pytest.mark.parametrize(
    "step, options",
    [(main_step, {}), (main_step, {"algorithm": "joint"}), (attention_step, {"initial_with": "attention"})],
    ids=["alternating", "joint", "with the attention"],
)
def test_an_optimiser_of_theta_q_moves_theta_q_alone(step, options, own):
    model = build(jax.random.key(1))
    _, slope = gradient(model)
    slope = slope.ode.initial.w
    usual, _ = stepped(step, Recipe(optimiser="sgd", **options), model)
    recipe = Recipe(optimiser="sgd", initial_optimiser=own, initial_rate=0.5, **options)
    after, _ = stepped(step, recipe, model)
    # Adam's first step is that of the signs, but for its epsilon; an optax optimiser is taken as it is.
    change = 0.5 * RATE * slope / (np.abs(slope) + 1e-8) if own == "adam" else 0.01 * slope
    np.testing.assert_allclose(after.ode.initial.w, model.ode.initial.w - change, rtol=1e-9)
    assert moved(usual, after) == {"initial"}


def test_a_decay_of_theta_g_pulls_theta_g_alone_in_a_joint_step():
    model, decay = build(jax.random.key(1)), 0.25
    usual, after = (
        stepped(main_step, Recipe(optimiser="sgd", algorithm="joint", attention_decay=d), model)[0]
        for d in (0.0, decay)
    )
    np.testing.assert_allclose(after.ode.g.w, usual.ode.g.w - RATE * decay * model.ode.g.w, rtol=1e-12)
    assert moved(usual, after) == {"attention"}


def test_the_tally_takes_the_gradient_on_theta_g_apart():
    model = build(jax.random.key(1))
    _, slope = gradient(model)
    for recipe, step in ((SGD, attention_step), (Recipe(optimiser="sgd", algorithm="joint"), main_step)):
        _, tally = stepped(step, recipe, model)
        np.testing.assert_allclose(tally.attention_gradient, jnp.linalg.norm(slope.ode.g.w), rtol=1e-12)
        np.testing.assert_allclose(tally.penalty_gradient, PENALTY, rtol=1e-12)  # the norm has a slope of length 1


def test_a_joint_step_clips_each_group():
    model, clip = build(jax.random.key(1)), 1e-3
    after, _ = stepped(main_step, Recipe(optimiser="sgd", algorithm="joint", clip=clip), model)
    for group in ("main", "attention", "initial"):
        own = belongs(model, group)
        pairs = zip(*(jax.tree.leaves(eqx.filter(each, own)) for each in (after, model)), strict=True)
        change = np.concatenate([np.ravel(new - old) for new, old in pairs])
        assert np.linalg.norm(change) == pytest.approx(RATE * clip, rel=1e-9)


def test_a_loose_clip_changes_nothing():
    model = build(jax.random.key(1))
    loose, _ = stepped(main_step, Recipe(optimiser="sgd", clip=1e6), model)
    assert same(loose, stepped(main_step, SGD, model)[0])


NAMED = {
    "adam": optax.adam,
    "adamax": optax.adamax,
    "sgd": optax.sgd,
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
}


@pytest.mark.parametrize("name", [*NAMED, "custom"])
def test_optimisers_by_name_and_of_ones_own(name):
    recipe = Recipe(optimiser=optax.rmsprop(RATE) if name == "custom" else name)
    transformation = recipe.transformation("main", RATE)
    expected = optax.rmsprop(RATE) if name == "custom" else NAMED[name](RATE)
    x = y = jnp.asarray([1.0, -2.0])
    state, reference = transformation.init(x), expected.init(y)
    for i in range(3):
        slope = jnp.asarray([0.3, -1.0]) * (i + 1)
        update, state = transformation.update(slope, state, x)
        x = x + update
        update, reference = expected.update(slope, reference, y)
        y = y + update
    np.testing.assert_allclose(x, y, rtol=1e-12)


def test_a_loss_that_is_not_finite_moves_nothing_and_is_counted():
    model = build(jax.random.key(0))
    bad = BATCH._replace(y=BATCH.y.at[3].set(1e200))
    for step in (main_step, attention_step):
        after, tally = stepped(step, Recipe(), model, bad)
        assert same(after, model)
        assert (tally.skipped, tally.counted, tally.loss, tally.attention_loss) == (1, 0, 0, 0)


def test_a_finite_loss_with_a_gradient_that_is_not_moves_nothing():
    model = build(jax.random.key(0))
    # sqrt has a finite value and no finite slope at zero
    model = eqx.tree_at(lambda m: m.ode.f, model, _Root(jnp.zeros(2)))
    after, tally = stepped(main_step, SGD, model)
    assert np.isfinite(Regression().loss(model, BATCH, None, 0)[0])
    assert same(after, model) and tally.skipped == 1


class _Root(eqx.Module):
    w: jax.Array

    def __call__(self, t, h):
        return jnp.sqrt(self.w) * h


def test_a_skipped_step_leaves_the_optimiser_alone():
    model, recipe = build(jax.random.key(0)), Recipe()
    bad = BATCH._replace(y=BATCH.y.at[3].set(1e200))
    begin = optimisers_of(recipe, model)
    _, after, _ = take(main_step, recipe, model, bad)
    assert same(begin, after)


class _Still(eqx.Module):
    """A field without parameters."""

    def __call__(self, t, h):
        return jnp.tanh(h)


def test_a_group_without_parameters_is_no_error():
    model = build(jax.random.key(0))
    w = model.ode.g.w
    ode = CoEvolvingODE(_Still(), Field(w, (2, 2)), Pairwise(), Correlation(2, reference=jnp.eye(2)))
    model = _Fixed(Toy(ode, Constant(model.head), model.shift))
    assert "main" not in jax.tree.leaves(groups(model)) and "initial" not in jax.tree.leaves(groups(model))
    assert same(stepped(main_step, Recipe(), model)[0], model)
    assert moved(model, stepped(attention_step, Recipe(), model)[0]) == {"attention"}


class _Fixed(eqx.Module):
    """A toy with a head that is not trained."""

    toy: Toy

    def __call__(self, x):
        return eqx.tree_at(lambda t: t.head, self.toy, self.toy.head.value)(x)


class _Spy(Regression):
    """Notes whether it is shown a model with its attention held."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "seen", [])

    def loss(self, model, batch, key, epoch):
        self.seen.append(model.ode.hold_attention)
        return super().loss(model, batch, key, epoch)


@pytest.mark.parametrize("form, held", [("paper", True), ("exact", False)])
def test_the_papers_gradient_holds_a_of_t_constant_in_the_main_step_only(form, held):
    model, recipe, task = build(jax.random.key(0)), Recipe(main_gradient=form), _Spy()
    after, _, _ = take(main_step, recipe, model, task=task)
    take(attention_step, recipe, model, task=task)
    assert task.seen == [held, False] and not after.ode.hold_attention


def test_the_papers_gradient_trains_theta_q_with_the_attention():
    # where a(t) is held, theta_q has no gradient in the main step: it would never be trained
    assert Recipe(main_gradient="paper").initial_with == "attention"
    model, recipe = build(jax.random.key(0)), Recipe(optimiser="sgd", main_gradient="paper")
    assert moved(model, take(main_step, recipe, model)[0]) == {"main"}
    assert moved(model, take(attention_step, recipe, model)[0]) == {"attention", "initial"}
