"""Large products for a batch of maps on a CPU, against the plain field of one sample."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conv_problems import (
    BOTH_WAYS,
    EULER,
    FSAL,
    KUTTA,
    OF_ITS_GRADIENT,
    alone,
    assert_near,
    assert_same,
    assert_same_after_rejections,
    attentive,
    deep_f,
    evolved,
    frozen,
    gradient,
    gradient_at,
    lifted,
    of_batch_mates,
    own_program,
    perturbed,
    stack,
    step,
    with_and_without,
    with_rejections,
    without,
)
from problems import noise

from acenode.ode import ConvField, ConvInitial, Elementwise, NeuralODE, Solver
from acenode.ode.coevolve import CoEvolvingODE, _Coupled
from acenode.ode.conv.batch import OnMaps
from acenode.ode.conv.gradient import KERNELS
from acenode.ode.conv.layers import Conv, GroupNorm
from acenode.ode.conv.products import PRODUCTS
from acenode.ode.conv.steps import Columns
from acenode.ode.evolve import _Alone
from acenode.ode.solver import of_batch
from acenode.ode.solver.runge_kutta import METHODS

EXACT = 1e-9  # in double precision, but for the order of sums


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")


def double(problem):
    """A problem in double precision, of convolutions that do not round."""
    return jax.tree.map(lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, problem)


def field(channels: int, convs: int, precision=None, seed: int = 0):
    return perturbed(ConvField(channels, convs, precision=precision, key=jax.random.key(seed)))


def wide():
    """23 groups of three channels."""
    return _Alone(field(69, 2)), noise(2, 2, 3, 69), None


def a_row():
    return _Alone(field(48, 1)), noise(2, 1, 5, 48), None


def a_column():
    return _Alone(field(48, 3)), noise(2, 5, 1, 48), None


compiled_step, compiled_gradient = map(own_program, (step, gradient))


@pytest.mark.parametrize("problem, method", [(evolved, "dopri5"), (frozen, "rk4_38"), (wide, "heun")])
def test_a_step_by_products_ends_as_the_plain_one(problem, method):
    given, tableau = double(problem()), METHODS[method]
    (*ours, error), (*plain, known) = (compiled_step(*given, tableau, way) for way in BOTH_WAYS)
    assert_near(ours, plain, EXACT)
    assert (error is None) == (known is None) == (not tableau.adaptive)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=EXACT), error, known)


@pytest.mark.parametrize(
    "problem, tableau",
    [(evolved, FSAL), (frozen, KUTTA), (lifted, FSAL), (deep_f, KUTTA), (wide, FSAL), (a_row, FSAL), (a_column, KUTTA)],
)
def test_a_step_by_products_has_the_gradient_of_the_plain_one(problem, tableau):
    given = double(problem())
    (ours, new), (plain, known) = (compiled_gradient(*given, tableau, way) for way in BOTH_WAYS)
    assert_near(new, known, EXACT)
    assert_near(ours, plain, EXACT)


@pytest.mark.parametrize("problem", [alone, evolved])
def test_products_round_to_half_precision_where_convolutions_do(problem):
    with jax.enable_x64(False):
        given = problem()
        (ours, new), (plain, known) = (compiled_gradient(*given, FSAL, way) for way in BOTH_WAYS)
        exact = compiled_gradient(*jax.tree.map(_unrounded, given, is_leaf=_is_field), FSAL, True)[1]
    assert_near(new, known, 1e-5)
    assert_near(ours, plain, 1e-3)
    with pytest.raises(AssertionError, match="away"):
        assert_near(exact, known, 1e-5)


def _is_field(node) -> bool:
    return isinstance(node, ConvField)


def _unrounded(node):
    if not _is_field(node):
        return node
    plain = ConvField(node.norms[0].affine.shape[1], len(node.convs), key=jax.random.key(0))
    leaves = jax.tree.leaves(node)
    return jax.tree.unflatten(jax.tree.structure(plain), leaves)


# --- inside an ODE --------------------------------------------------------------------------------------------


def test_an_ode_takes_the_same_steps_to_the_same_states_by_products(monkeypatch):
    def last(ode, h0):
        path = ode(h0, jnp.array([0.0, 1.0]))
        return path.h[:, -1], path.stats

    solver = Solver("dopri5", rtol=1e-3, atol=1e-3, max_steps=64, checkpoints=64)
    given = NeuralODE(field(64, 1), solver), noise(3, 4, 3, 64)
    (ours, stats), (plain, known) = with_and_without(monkeypatch, {"step"}, last, *given)
    assert_near(ours, plain, EXACT)
    np.testing.assert_array_equal(stats.accepted, known.accepted)
    assert not known.failed.any() and np.asarray(known.accepted).min() > 1


def test_f_and_g_of_an_ode_go_together_by_products(monkeypatch):
    """Whether or not their plain form would be stacked."""
    ode = double(attentive(EULER))
    for stacked in ("auto", True):
        each = CoEvolvingODE(ode.f, ode.g, ode.attention, ode.initial, EULER, stacked=stacked)
        with monkeypatch.context() as patch:
            assert_same(patch, OF_ITS_GRADIENT, gradient_at(0.5, 1.5), each, noise(3, 3, 4, 32), parts=(EXACT, EXACT))


def test_an_attention_that_is_held_has_none():
    both = field(8, 1), field(8, 1, seed=1)
    y = tuple(noise(2, 2, 3, 4, 8))
    assert of_batch(_Coupled(*both, Elementwise(), False, True), y).way == PRODUCTS
    ode = attentive(EULER)
    assert of_batch(eqx.tree_at(lambda o: o.hold_attention, ode, True)._right_hand_side(), y) is None


def test_an_ensemble_has_the_same_states_and_gradients_by_products(monkeypatch):
    both = double(stack([attentive(EULER), attentive(EULER, seed=3)])), noise(2, 3, 3, 4, 32)
    function = eqx.filter_vmap(gradient_at(0.5, 1.5))
    assert_same(monkeypatch, OF_ITS_GRADIENT, function, *both, parts=(EXACT, EXACT))


@pytest.mark.parametrize("kept_steps, called", [(5, OF_ITS_GRADIENT), (2, {*OF_ITS_GRADIENT, "evaluate_again"})])
def test_an_ode_that_takes_steps_again_has_the_same_gradient_by_products(kept_steps, called, monkeypatch):
    solver = Solver("euler", step=0.2, max_steps=5, checkpoints=2, kept_steps=kept_steps)
    ode = double(attentive(solver, evolution="frozen"))
    assert_same(monkeypatch, called, gradient_at(0.0, 1.0), ode, noise(3, 3, 4, 32), parts=(EXACT, EXACT))


@pytest.mark.parametrize("kept_steps", [0, 3, 64])
def test_steps_tried_in_vain_leave_no_trace_in_the_gradient(kept_steps, monkeypatch):
    """A step after one that was rejected begins where the one before that ended."""
    given, gradient = with_rejections(monkeypatch, kept_steps)
    called = OF_ITS_GRADIENT | ({"evaluate_again"} if kept_steps < 64 else set())
    assert_same_after_rejections(with_and_without(monkeypatch, called, gradient, *double(given)), EXACT)


def test_a_step_is_evaluated_again_only_where_it_was_not_kept(monkeypatch):
    """A compiler may do what a loop does not change before the loop, even where there is no pass."""
    solver = Solver("euler", step=0.25, max_steps=4, checkpoints=4, kept_steps=3)
    ode, h0, evaluated = NeuralODE(field(8, 1), solver), noise(2, 3, 3, 8), []
    evaluate = PRODUCTS.evaluate

    def counted(plan, fields, t, *rest, **told):
        jax.debug.callback(lambda t: evaluated.append(float(t)), t[0])
        return evaluate(plan, fields, t, *rest, **told)

    monkeypatch.setattr("acenode.ode.conv.fields.PRODUCTS", PRODUCTS._replace(evaluate=counted))
    loss = eqx.filter_jit(eqx.filter_grad(lambda ode: ode(h0, jnp.array([0.0, 1.0])).h[:, -1].sum()))
    jax.block_until_ready(loss(ode))
    jax.effects_barrier()
    assert sorted(evaluated) == [0.0, 0.0, 0.25, 0.5, 0.75, 0.75]


def test_a_sample_without_numbers_leaves_the_gradient_of_its_batch_mates_as_it_is(monkeypatch):
    """As zero times what was kept of it would be no number."""
    called = {*OF_ITS_GRADIENT, "evaluate_again"}
    assert_same(monkeypatch, called, of_batch_mates, field(32, 1), parts=(1e-4, 1e-3))


def test_a_gradient_by_products_can_be_differentiated_again():
    """Forwards over backwards."""
    solver, h0 = Solver("heun", step=0.5, max_steps=2, checkpoints=2, kept_steps=1), noise(2, 2, 2, 48)
    value = lambda field: NeuralODE(field, solver)(h0, jnp.array([0.0, 1.0])).h[:, -1].var()  # noqa: E731
    gradient, at = jax.jit(jax.grad(value)), field(48, 1)
    along = jax.tree.map(lambda x: noise(*x.shape, seed=x.size), at)
    moved = lambda by: gradient(jax.tree.map(lambda x, v: x + by * v, at, along))  # noqa: E731
    differences = jax.tree.map(lambda more, less: (more - less) / 2e-6, moved(1e-6), moved(-1e-6))
    assert_near(jax.jvp(gradient, (at,), (along,))[1], differences, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kept_steps", [1, 32])
def test_samples_that_go_on_alone_have_the_same_gradient_by_products(kept_steps, monkeypatch):
    """Those that take the most steps, in a small batch."""
    limits = {"max_steps": 32, "checkpoints": 32, "kept_steps": kept_steps}
    ode = NeuralODE(field(32, 1), Solver("dopri5", rtol=1e-2, atol=1e-2, compact=True, **limits))
    ends = jnp.stack([jnp.zeros(16), jnp.full(16, 0.2).at[5].set(6.0).at[11].set(9.0)], axis=1)

    def value(queried):
        ode, h0 = queried
        path = ode(h0, ends)
        return jnp.vdot(noise(*h0.shape, seed=9), path.h[:, -1]), path.stats

    gradient = lambda ode, h0: eqx.filter_grad(value, has_aux=True)((ode, h0))  # noqa: E731
    called = OF_ITS_GRADIENT | ({"evaluate_again"} if kept_steps == 1 else set())
    (ours, stats), (plain, known) = with_and_without(monkeypatch, called, gradient, ode, noise(16, 2, 3, 32))
    assert sorted(known.accepted)[-2] > 2 * sorted(known.accepted)[-3]
    np.testing.assert_array_equal(stats.accepted, known.accepted)
    assert_near(ours, plain, EXACT)


@pytest.mark.parametrize("precision", ["float16", None])
def test_states_wider_than_the_weights_are_not_rounded(precision, monkeypatch):
    """In a convolution that rounds what is in single precision."""
    narrow = jax.tree.map(lambda x: x.astype(jnp.float32), field(8, 1, precision))
    solve = lambda h0: NeuralODE(narrow, EULER)(h0, jnp.array([0.0, 1.0])).h[:, -1]  # noqa: E731
    ours, plain = with_and_without(monkeypatch, {"step"}, solve, noise(2, 3, 4, 8))
    assert ours.dtype == jnp.float64
    np.testing.assert_allclose(ours, plain, rtol=1e-10, atol=1e-12)


def test_the_guide_says_what_is_kept_of_a_sample():
    guide = (Path(__file__).parents[2] / "docs" / "solver.md").read_text()
    both = tuple(ConvField(64, 2, precision="float16", key=jax.random.key(k)) for k in (0, 1))
    state = (jax.ShapeDtypeStruct((1, 8, 8, 64), jnp.float32),) * 2
    both = jax.tree.map(lambda x: x.astype(jnp.float32), both)

    def size(way, evaluations: int) -> int:
        space = lambda y: OnMaps(both, way, Columns.of(32, 2), Elementwise()).space(y, None, evaluations)  # noqa: E731
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(space, state)))

    one, eight, none = ([size(way, n) for way in (KERNELS, PRODUCTS)] for n in (1, 1 + 9 * 6, 1 + 6))
    assert f"| one evaluation | {one[0] / 1e3:.0f} kB | {one[1] / 1e3:.0f} kB |" in guide
    assert f"| `kept_steps=8`, the default | {eight[0] / 1e6:.1f} MB | {eight[1] / 1e6:.1f} MB |" in guide
    assert f"| `kept_steps=0` | {none[0] / 1e6:.1f} MB | {none[1] / 1e6:.1f} MB |" in guide


def test_what_is_read_between_steps_has_the_plain_slopes(monkeypatch):
    ode = double(attentive(EULER))
    assert_same(monkeypatch, set(), gradient_at(0.5, 0.8, 1.5), ode, noise(3, 3, 4, 32), parts=(EXACT, EXACT))


# --- where there are none -------------------------------------------------------------------------------------


def test_fields_of_two_precisions_have_none():
    h, one = noise(2, 3, 4, 8), field(8, 1)
    assert of_batch(one, h).way == PRODUCTS
    mixed = eqx.tree_at(lambda f: f.convs, field(8, 2), (one.convs[0], field(8, 1, "bfloat16").convs[0]))
    assert of_batch(mixed, h) is None


class Doubled(Conv):
    """One that answers otherwise."""

    def __call__(self, x, t=None):
        return 2 * super().__call__(x, t)


def other(make=Conv, **changes):
    return make(8, **({"outputs": 8, "timed": True} | changes), key=jax.random.key(2))


def in_groups(count: int) -> GroupNorm:
    norm = GroupNorm(8)
    object.__setattr__(norm, "groups", count)
    return norm


@pytest.mark.parametrize(
    "where, layers",
    [
        (lambda f: f.convs[0], lambda: other(Doubled)),
        (lambda f: f.convs[0], lambda: other(kernel=5, padding=2)),
        (lambda f: f.convs[0], lambda: other(timed=False)),
        (lambda f: f.convs[0], lambda: other(bias=False)),
        (lambda f: (f.convs[0], f.norms[1]), lambda: (other(outputs=16), GroupNorm(16))),
        (lambda f: f.norms[1], eqx.nn.Identity),
        (lambda f: f.norms[1], lambda: GroupNorm(1)),
        (lambda f: f.norms, lambda: (*field(8, 1).norms, GroupNorm(8))),
        (lambda f: f.norms[1], lambda: in_groups(2)),
    ],
)
def test_fields_with_other_layers_have_none(where, layers):
    assert of_batch(eqx.tree_at(where, field(8, 1), layers()), noise(2, 3, 4, 8)) is None


def test_a_layer_of_a_users_own_is_solved_on_its_own():
    class Halved(eqx.Module):
        def __call__(self, x, t):
            return 0.5 * t * x

    other = eqx.tree_at(lambda f: f.convs[0], field(8, 1), Halved())
    assert other.beside(field(8, 1)) is None and field(8, 1).beside(other) is None
    ode = CoEvolvingODE(field(8, 1), other, Elementwise(), ConvInitial(8, 1, key=jax.random.key(3)), EULER)
    assert np.isfinite(ode(noise(2, 3, 4, 8), jnp.array([0.0, 1.0])).h).all()


def test_other_machines_have_none(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert of_batch(field(8, 1), noise(2, 3, 4, 8)) is None


def test_a_cpu_can_be_told_to_have_none(monkeypatch):
    assert of_batch(field(8, 1), noise(2, 3, 4, 8)) is not None
    without(monkeypatch)
    assert of_batch(field(8, 1), noise(2, 3, 4, 8)) is None
