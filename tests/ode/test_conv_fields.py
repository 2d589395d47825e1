"""Vector fields and residual blocks on maps (y, x, channels): against numpy, two at once, and inside an ODE."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conv_problems import without
from problems import count, noise

from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, Pairwise, ResidualBlock, Solver
from acenode.ode.coevolve import _Coupled, _CoupledAsOne
from acenode.ode.solver import of_batch

now = jnp.asarray(0.3)
call = eqx.filter_jit(lambda field, *inputs: field(*inputs))


def norm(x: np.ndarray) -> np.ndarray:
    """Group norm as it starts, for up to 32 channels: each on its own to mean 0 and variance 1."""
    return (x - x.mean(axis=(0, 1))) / np.sqrt(x.var(axis=(0, 1)) + 1e-5)


def conv(layer, x: np.ndarray, t: float | None = None) -> np.ndarray:
    """A convolution with a border of zeros, the time as a channel before the others."""
    weight = np.asarray(layer.weight)
    if t is not None:
        x = np.concatenate([np.full((*x.shape[:2], 1), t), x], axis=-1)
        weight = np.concatenate([np.asarray(layer.clock)[..., None], weight], axis=-1)
    y, u, _ = x.shape
    x = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    out = np.zeros((y, u, len(weight)))
    for i in range(3):
        for j in range(3):
            out += x[i : i + y, j : j + u] @ weight[:, i, j].T
    return out if layer.bias is None else out + np.asarray(layer.bias)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


# --- ConvField ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "channels, convs, parameters",
    [(64, 2, 75_392), (64, 1, 37_760), (64, 4, 75_392 + 2 * 37_632), (128, 2, 298_240), (128, 1, 149_248)],
)
def test_field_parameter_counts(channels, convs, parameters, key):
    assert count(ConvField, channels, convs, key=key) == parameters


@pytest.mark.parametrize("convs", [1, 2, 3])
def test_field_against_numpy(convs, key):
    field = ConvField(2, convs, key=key)
    h = noise(4, 5, 2)
    x = np.asarray(h)
    for layer in field.convs:
        x = conv(layer, relu(norm(x)), 0.3)
    np.testing.assert_allclose(call(field, now, h), norm(x), rtol=1e-8, atol=1e-10)
    late = np.asarray(call(field, 5 * now, h))
    assert late.shape == h.shape and np.abs(late - norm(x)).max() > 1e-3  # it sees the time


def test_field_needs_a_layer(key):
    with pytest.raises(ValueError, match=r"ConvField\(convs=0\): at least 1"):
        ConvField(4, 0, key=key)


# --- two fields at once ---------------------------------------------------------------------------------------


def two_fields(f: int, g: int) -> tuple[ConvField, ConvField]:
    """Fields of so many layers each, all their parameters drawn, scales and shifts too."""
    fields = ConvField(4, f, key=jax.random.key(1)), ConvField(4, g, key=jax.random.key(2))
    leaves, structure = jax.tree.flatten(fields)
    return jax.tree.unflatten(structure, [leaf + 0.3 * noise(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)])


@eqx.filter_jit
def answers_and_gradient(fields, h, beside: bool):
    """What f and g answer, and the gradient of a weighted sum in the parameters of both and in h."""

    def value(queried):
        (f, g), h = queried
        answers = f.beside(g)(now, h) if beside else (f(now, h), g(now, h))
        return sum(jnp.sum(noise(*a.shape, seed=k) * a) for k, a in enumerate(answers)), answers

    gradient, answers = eqx.filter_grad(value, has_aux=True)((fields, h))
    return answers, gradient


@pytest.mark.slow
@pytest.mark.parametrize("f, g", [(1, 2), (2, 2), (3, 1)])
def test_two_fields_beside_each_other_answer_as_alone(f, g):
    fields, h = two_fields(f, g), noise(3, 5, 4)
    together, alone = (answers_and_gradient(fields, h, beside) for beside in (True, False))
    assert np.abs(np.asarray(alone[0][0] - alone[0][1])).max() > 0.1
    assert jax.tree.structure(together) == jax.tree.structure(alone)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        # A bias before a norm of its channel alone has no slope but rounding.
        assert np.abs(other).max() > 1e-3 or other.ndim == 1
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


H0 = noise(2, 3, 4, 4)
TIMES = jnp.array([[0.0, 0.6, 1.0], [0.0, 0.3, 0.8]])


def attentive(solver: Solver, stacked: bool | str) -> CoEvolvingODE:
    initial = ConvInitial(4, 1, key=jax.random.key(3))
    return CoEvolvingODE(*two_fields(1, 2), Elementwise(), initial, solver, stacked=stacked)


# Adaptive steps would be chosen by the last digit of an error now and then; fixed ones are the same either way.
@pytest.mark.slow
def test_an_ode_on_maps_is_the_same_where_its_fields_are_evaluated_together(monkeypatch):
    without(monkeypatch)

    def value(queried):
        ode, h0 = queried
        path = ode(h0, TIMES)
        return jnp.sum(noise(*path.h.shape) * path.h) + jnp.sum(noise(*path.a.shape, seed=1) * path.a), path

    answers, kinds = [], []
    for stacked in (False, True):
        ode = attentive(Solver("euler", step=0.5, max_steps=2, checkpoints=2), stacked)
        kinds.append(type(ode._right_hand_side()))
        answers.append(eqx.filter_jit(eqx.filter_grad(value, has_aux=True))((ode, H0)))
    assert kinds == [_Coupled, _CoupledAsOne]
    for one, other in zip(*map(jax.tree.leaves, answers), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    (gradient, grad_h0), path = answers[1]
    weights = [leaf for leaf in jax.tree.leaves((gradient.f, gradient.g, gradient.initial, grad_h0)) if leaf.ndim > 1]
    assert all(np.abs(leaf).max() > 1e-3 for leaf in weights)
    assert path.a.shape == path.h.shape == (2, 3, 3, 4, 4)


def test_fields_are_evaluated_together_only_where_that_is_the_same(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    ode = attentive(Solver("euler", step=0.5), "auto")
    kind = lambda ode: type(ode._right_hand_side())  # noqa: E731
    assert kind(ode) is _CoupledAsOne
    assert kind(eqx.tree_at(lambda o: o.hold_attention, ode, True)) is _Coupled
    assert kind(CoEvolvingODE(ode.f, lambda t, h: h, ode.attention, ode.initial, ode.solver)) is _Coupled
    assert kind(CoEvolvingODE(lambda t, h: h, lambda t, h: h, Pairwise(), ode.initial, ode.solver)) is _Coupled

    class Slower(ConvField):  # of a user's own: what it inherits to answer together is not what it answers alone
        def __call__(self, t, h):
            return 0.1 * super().__call__(t, h)

    halves = [ConvField(4, precision=p, key=jax.random.key(0)) for p in ("float16", None)]
    assert kind(CoEvolvingODE(*halves, ode.attention, ode.initial, ode.solver)) is _Coupled
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert kind(ode) is _Coupled and of_batch(ode._right_hand_side(), (H0, H0)) is not None
    apart = attentive(ode.solver, False)
    assert of_batch(apart._right_hand_side(), (H0, H0)) is None
    monkeypatch.undo()
    slower = [Slower(4, key=k) for k in jax.random.split(jax.random.key(0))]
    assert kind(CoEvolvingODE(*slower, ode.attention, ode.initial, ode.solver, stacked=True)) is _Coupled


# --- ResidualBlock --------------------------------------------------------------------------------------------


def test_block_parameter_counts(key):
    assert count(ResidualBlock, 64, key=key) == 73_984
    block = ResidualBlock(2, key=key)
    assert all(layer.bias is None and layer.clock is None for layer in block.convs)


def test_block_against_numpy(key):
    block = ResidualBlock(3, key=key)
    h = noise(4, 5, 3)
    x = np.asarray(h)
    for layer in block.convs:
        x = conv(layer, relu(norm(x)))
    np.testing.assert_allclose(call(block, h), x, rtol=1e-8, atol=1e-10)
    assert np.abs(x).max() > 0.1 and not np.allclose(block.convs[0].weight, block.convs[1].weight)
