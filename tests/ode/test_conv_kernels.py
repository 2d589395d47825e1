"""Kernels for a batch of maps against the plain field of one sample. On a CPU they are interpreted, for these tests."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import noise

from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, NeuralODE, Solver, conv_kernels

GPU, EVERYWHERE = ("gpu",), ("cpu", "gpu")  # where kernels are used


@pytest.fixture(autouse=True)
def single_precision():
    """There are no kernels for another."""
    with jax.enable_x64(False):
        yield


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setattr(conv_kernels, "BACKENDS", EVERYWHERE)


def single(*shape: int, seed: int = 0):
    return noise(*shape, seed=seed).astype(jnp.float32)


def half(channels: int, convs: int = 2, seed: int = 0) -> ConvField:
    return ConvField(channels, convs, precision="float16", key=jax.random.key(seed))


def perturbed(model):
    """The same with all parameters drawn, scales and shifts of norms too."""
    leaves, structure = jax.tree.flatten(model)
    return jax.tree.unflatten(structure, [x + 0.1 * single(*x.shape, seed=i) for i, x in enumerate(leaves)])


def stack(models):
    """An ensemble."""
    return jax.tree.map(lambda *each: jnp.stack(each) if eqx.is_array(each[0]) else each[0], *models)


def assert_near(ours, plain, part: float) -> None:
    """Every array to within a part of its largest number."""
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert one.dtype == other.dtype == jnp.float32 and one.shape == other.shape
        largest = np.abs(other).max()
        assert largest > 0.1
        np.testing.assert_allclose(one, other, rtol=0, atol=part * largest)


# --- values and gradients -------------------------------------------------------------------------------------


def times(h):
    return jnp.linspace(0.1, 0.9, len(h))


@eqx.filter_jit
def answers_and_gradient(field, h, by_kernels: bool):
    """What a field, or two beside each other, answer, and the gradient of a weighted sum in parameters and maps."""

    def value(queried):
        field, h = queried
        answers = field.on_batch(times(h), h) if by_kernels else jax.vmap(field)(times(h), h)
        return sum(jnp.vdot(single(*h.shape, seed=9 + k), a) for k, a in enumerate(jax.tree.leaves(answers))), answers

    gradient, answers = eqx.filter_grad(value, has_aux=True)((field, h))
    return answers, gradient


@eqx.filter_jit
def nearest_kink(fields, h):
    """The smallest size of an input of a ReLU."""

    def along(t, h, field):
        nearest = jnp.inf
        for norm, conv in zip(field.norms[:-1], field.convs, strict=True):
            z = norm(h)
            nearest, h = jnp.minimum(nearest, jnp.abs(z).min()), conv(jax.nn.relu(z), t)
        return nearest

    return jnp.stack([jax.vmap(along, (0, 0, None))(times(h), h, field).min() for field in fields]).min()


def maps(fields, *shape: int):
    """Maps for which no ReLU is so near its kink that rounding would choose the side, and so the gradient."""
    drawn = (single(*shape, seed=seed) for seed in range(100))
    return next(h for h in drawn if nearest_kink(fields, h) > 3e-5)


def assert_kernels_are_the_plain_field(ask, field, h) -> None:
    (answers, gradient), (plain, slope) = (ask(field, h, by_kernels) for by_kernels in (True, False))
    assert_near(answers, plain, 1e-3)  # inputs of convolutions have half precision, either way
    assert_near(gradient, slope, 1e-2)  # gradients are rounded to bfloat16, in the kernels alone


# With 64 channels a group of a norm has two of them: groups matter, and a bias has a slope.
@pytest.mark.parametrize("convs, channels, size", [(2, 64, (8, 8)), (1, 128, (6, 6)), (1, 64, (5, 7))])
def test_a_field_by_kernels_has_the_answer_and_the_gradient_of_the_plain_one(convs, channels, size, kernels):
    field = perturbed(half(channels, convs))
    assert_kernels_are_the_plain_field(answers_and_gradient, field, maps([field], 3, *size, channels))


@pytest.mark.parametrize("f, g, size", [(2, 2, 6), (1, 2, 8), (2, 1, 6)])
def test_two_fields_by_kernels_have_the_answers_and_the_gradients_of_the_plain_ones(f, g, size, kernels):
    one, other = perturbed((half(64, f), half(64, g, seed=1)))
    h = maps((one, other), 4, size, size, 64)
    assert_kernels_are_the_plain_field(answers_and_gradient, one.beside(other), h)


@pytest.mark.slow
def test_an_ensemble_of_fields_by_kernels_has_the_gradients_of_its_members(kernels):
    members = [perturbed((half(64, 1, seed), half(64, 2, seed + 1))) for seed in (0, 2)]
    h = jnp.stack([maps(member, 2, 6, 6, 64) for member in members])
    both = stack([f.beside(g) for f, g in members])
    ask = lambda both, h, way: eqx.filter_vmap(lambda both, h: answers_and_gradient(both, h, way))(both, h)  # noqa: E731
    assert_kernels_are_the_plain_field(ask, both, h)


# --- inside an ODE --------------------------------------------------------------------------------------------


def with_and_without(monkeypatch, function, *inputs):
    """What a function of models and maps gives by kernels, and without them."""
    answers, evaluate = [], conv_kernels.evaluate
    for backends in (EVERYWHERE, GPU):
        calls = []
        spy = lambda *given, calls=calls: calls.append(given) or evaluate(*given)  # noqa: E731
        monkeypatch.setattr(conv_kernels, "BACKENDS", backends)
        monkeypatch.setattr(conv_kernels, "evaluate", spy)
        answers.append(eqx.filter_jit(lambda *inputs: function(*inputs))(*inputs))  # new, so that it is traced again
        assert bool(calls) == (backends is EVERYWHERE)
    return answers


def last(ode, h0):
    path = ode(h0, jnp.array([0.0, 1.0]))
    return path.h[:, -1], path.stats


def attentive(seed: int) -> CoEvolvingODE:
    initial = ConvInitial(32, 1, precision="float16", key=jax.random.key(seed))
    solver = Solver("dopri5", rtol=1e-3, atol=1e-3, max_steps=64, checkpoints=64)
    f, g, initial = perturbed((half(32, 1, seed + 1), half(32, 1, seed + 2), initial))
    return CoEvolvingODE(f, g, Elementwise(), initial, solver, stacked=True)


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_an_attentive_ode_takes_the_same_steps_to_the_same_state_by_kernels(members, monkeypatch):
    ode, h0 = attentive(0), single(2, 6, 6, 32)
    solve = last
    if members > 1:
        ode, h0 = stack([ode, attentive(3)]), jnp.stack([h0, single(2, 6, 6, 32, seed=1)])
        solve = eqx.filter_vmap(last)
    (ours, stats), (plain, known) = with_and_without(monkeypatch, solve, ode, h0)
    assert_near(ours, plain, 1e-3)
    np.testing.assert_array_equal(stats.accepted, known.accepted)
    np.testing.assert_array_equal(stats.rejected, known.rejected)
    assert not known.failed.any() and np.asarray(known.accepted).min() > 1


def test_a_gradient_through_the_solver_is_the_same_by_kernels(monkeypatch):
    field = perturbed(half(64, 1))
    solver = Solver("euler", step=0.5, max_steps=1, checkpoints=2)

    def value(queried):
        field, h0 = queried
        h = NeuralODE(field, solver)(h0, jnp.array([0.5, 1.0])).h[:, -1]
        return jnp.vdot(single(*h.shape, seed=9), h)

    ours, plain = with_and_without(monkeypatch, eqx.filter_grad(value), (field, maps([field], 2, 6, 6, 64)))
    assert_near(ours, plain, 1e-2)


def test_a_field_of_a_users_own_is_not_passed_over_for_the_kernels_it_inherits(kernels):
    class Slower(ConvField):
        def __call__(self, t, h):
            return 0.1 * super().__call__(t, h)

    slower, h0 = perturbed(Slower(32, 1, precision="float16", key=jax.random.key(0))), single(2, 6, 6, 32)
    h, _ = eqx.filter_jit(last)(NeuralODE(slower, Solver("euler", step=1.0, max_steps=1, checkpoints=2)), h0)
    np.testing.assert_allclose(h, h0 + jax.vmap(slower)(jnp.zeros(2), h0), atol=1e-5)


def test_a_frozen_attention_has_kernels_too(kernels, monkeypatch):
    f, q = half(32, 1), ConvInitial(32, 1, precision="float16", key=jax.random.key(1))
    ode = CoEvolvingODE(f, None, Elementwise(), q, Solver("rk4", step=0.5), "frozen")
    h0, asked = single(2, 4, 4, 32), []
    evaluate = conv_kernels.evaluate
    monkeypatch.setattr(conv_kernels, "evaluate", lambda *given: asked.append(1) or evaluate(*given))
    ours = ode(h0, jnp.array([0.0, 1.0])).h
    assert asked
    monkeypatch.setattr(conv_kernels, "BACKENDS", GPU)
    plain = dataclasses.replace(ode, solver=Solver("rk4", step=0.5, max_steps=8))  # another program
    np.testing.assert_allclose(ours, plain(h0, jnp.array([0.0, 1.0])).h, atol=2e-3)


# --- where there are none -------------------------------------------------------------------------------------


def answer(h, channels: int = 32, precision="float16"):
    """Shapes of what a field and two of them answer to a batch."""
    fields = [ConvField(channels, precision=precision, key=jax.random.key(0)) for _ in range(2)]
    ask = lambda field, h: field.on_batch(jnp.zeros(len(h)), h)  # noqa: E731
    return [eqx.filter_eval_shape(ask, field, h) for field in (fields[0], fields[0].beside(fields[1]))]


def test_there_are_kernels_on_a_gpu_alone(monkeypatch):
    h = single(2, 8, 8, 32)
    assert answer(h) == [None, None]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    one, two = answer(h)
    assert one.shape == h.shape and [each.shape for each in two] == [h.shape, h.shape]


def test_there_are_none_where_a_cpu_is_set_as_the_default_device(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    h = single(2, 8, 8, 32)
    assert conv_kernels.usable(h)
    with jax.default_device(jax.devices("cpu")[0]):
        assert not conv_kernels.usable(h)


@pytest.mark.parametrize("capability, there", [("9.0", True), ("8.0", True), ("7.5", False), ("gfx942", False)])
def test_there_are_kernels_where_bfloat16_is_known(capability, there, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])
    assert conv_kernels.usable(single(2, 8, 8, 32)) == there


@pytest.mark.parametrize(
    "size, channels, precision",
    [
        ((8, 8), 48, "float16"),  # no power of two
        ((8, 8), 69, "float16"),  # Augmented-ODE-Net
        ((8, 9), 32, "float16"),
        ((8, 8), 32, None),
        ((8, 8), 32, "tf32"),
        ((8, 8), 32, "bfloat16"),
    ],
)
def test_other_widths_maps_and_precisions_have_no_kernels(size, channels, precision, kernels):
    assert answer(single(2, *size, channels), channels, precision) == [None, None]


def test_double_precision_has_no_kernels(kernels):
    with jax.enable_x64(True):
        assert answer(noise(2, 8, 8, 32)) == [None, None]


# --- on a GPU -------------------------------------------------------------------------------------------------


def for_cuda(function, *inputs) -> str:
    """The program that a GPU would get, as far as it is made without one."""
    return jax.jit(function).trace(*inputs).lower(lowering_platforms=("cuda",)).as_text()


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def copy(x, out):
        out[...] = x[...]

    try:
        for_cuda(conv_kernels._call(copy, jax.ShapeDtypeStruct((16,), jnp.float32), (1,)), jnp.zeros(16))
    except (ImportError, NotImplementedError) as reason:
        pytest.skip(f"JAX makes no kernels for CUDA here: {reason}")


@pytest.mark.parametrize("size, channels", [(6, 64), (8, 128)])
def test_the_compiler_for_cuda_takes_the_kernels_of_an_ensemble(size, channels, compiler):
    both = stack([half(channels, 1, seed).beside(half(channels, 2, seed)) for seed in range(2)])
    ask = lambda both, h: eqx.filter_vmap(lambda both, h: answers_and_gradient(both, h, True))(both, h)  # noqa: E731
    assert "triton" in for_cuda(ask, both, single(2, 3, size, size, channels))
