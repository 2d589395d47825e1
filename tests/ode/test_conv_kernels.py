"""Kernels for a batch of maps against the plain field of one sample. On a CPU they are interpreted, for these tests."""

import sys
from types import SimpleNamespace
from typing import ClassVar

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
    half,
    lifted,
    of_batch_mates,
    own_program,
    perturbed,
    replay,
    single,
    size,
    slope,
    stack,
    steep,
    step,
    times,
    uneven,
    with_and_without,
    with_rejections,
)
from problems import noise

from acenode.ode import (
    ConvField,
    Elementwise,
    NeuralODE,
    Pairwise,
    Residual,
    Solver,
    VectorField,
)
from acenode.ode.coevolve import _Attended, _CoupledAsOne
from acenode.ode.conv import block, fields, gradient as of_kernels, layers
from acenode.ode.conv.products import PRODUCTS
from acenode.ode.evolve import _Alone
from acenode.ode.solver import of_batch
from acenode.ode.solver.runge_kutta import METHODS

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def single_precision():
    """There are no kernels for another."""
    with jax.enable_x64(False):
        yield


@pytest.fixture
def kernels(monkeypatch):
    """On the CPU, where the few rows of a test are enough for several parts of the gradient of a weight."""
    monkeypatch.setattr(fields, "KERNELS_ON", ("cpu", "gpu"))
    monkeypatch.setattr(fields, "PRODUCTS_ON", ())
    monkeypatch.setattr(of_kernels, "_ROWS", 16)
    monkeypatch.setattr(of_kernels, "_PARTS", 2)


compiled_slope, compiled_step, compiled_gradient = map(own_program, (slope, step, gradient))


@pytest.mark.parametrize("problem", [alone, frozen, lifted, deep_f, uneven])
def test_slopes_by_kernels_are_those_of_the_plain_field(problem, kernels):
    ours, plain = (compiled_slope(*problem(), way) for way in BOTH_WAYS)
    assert_near(ours, plain, 1e-3)  # inputs of convolutions have half precision, either way


@pytest.mark.parametrize("problem, method", [(evolved, "dopri5"), (frozen, "rk4_38")])
def test_a_step_by_kernels_ends_as_the_plain_one(problem, method, kernels):
    given, tableau = problem(), METHODS[method]
    (*ours, error), (*plain, known) = (compiled_step(*given, tableau, way) for way in BOTH_WAYS)
    assert_near(ours, plain, 1e-3)
    if not tableau.adaptive:
        assert error is None
        return
    for one, other, end in zip(error, known, plain[1], strict=True):
        whole = 0.5 * size(end)  # that of which the error is a small difference, whose terms are rounded
        assert size(one - other) < 1e-4 * whole < 0.3 * size(other)


@pytest.mark.parametrize("problem, tableau", [(evolved, FSAL), (frozen, KUTTA), (steep, FSAL)])
def test_a_step_by_kernels_has_the_gradient_of_the_plain_one(problem, tableau, kernels):
    given = problem()
    (ours, new), (plain, known) = (compiled_gradient(*given, tableau, way) for way in BOTH_WAYS)
    assert_near(new, known, 1e-3)
    assert_near(ours, plain, 2e-2)  # gradients are rounded to bfloat16, in the kernels alone


def test_one_of_two_slopes_by_kernels_has_a_gradient(kernels):
    """As where h is read between steps, and the attention is not."""
    field, y, args = evolved(32, 1, 1)
    value = lambda field, way: jnp.vdot(single(3, 4, 3, 32, seed=9), slope(field, y, args, way)[0])  # noqa: E731
    ours, plain = (eqx.filter_jit(eqx.filter_grad(value))(field, way).both.f for way in BOTH_WAYS)
    assert_near(ours, plain, 1e-3)  # the gradient is that of the plain field


@pytest.fixture
def rounded_norms(monkeypatch):
    """Plain fields whose norms are rounded before scale and shift, as in kernels: no ReLU is on its other side."""

    def normalise(groups, x, affine):
        neutral = jnp.stack([jnp.ones_like(affine[0]), jnp.zeros_like(affine[0])])
        out, kept = layers._group_norm_fwd(groups, x, neutral)
        return out.astype(jnp.float16).astype(jnp.float32) * affine[0] + affine[1], (*kept[:3], affine[0])

    plain = jax.custom_vjp(lambda *given: normalise(*given)[0], nondiff_argnums=(0,))
    plain.defvjp(normalise, layers._group_norm_bwd)
    monkeypatch.setattr(layers, "_group_norm", plain)


def test_nothing_goes_back_through_a_relu_at_its_kink(kernels, rounded_norms):
    """Where scale and shift are zero the forward pass has a ReLU of exactly zero."""
    (field, *rest), still = evolved(), slice(16)
    fields = lambda both: (both.both.f, both.both.g)  # noqa: E731
    affines = lambda both: [norm.affine for field in fields(both) for norm in field.norms[:-1]]  # noqa: E731
    field = eqx.tree_at(affines, field, replace_fn=lambda affine: affine.at[:, still].set(0.0))
    (ours, _), (plain, _) = (eqx.filter_jit(lambda *x: gradient(*x))(field, *rest, FSAL, way) for way in BOTH_WAYS)
    assert_near(ours, plain, 1e-2)
    for found, *_ in (ours, plain):
        assert not any(np.any(affine[:, still]) for affine in affines(found))
        assert not any(np.any(conv.weight[..., still]) for field in fields(found) for conv in field.convs)


def test_a_sample_without_numbers_leaves_its_batch_mates_as_they_are(kernels):
    field, h, a = frozen()
    expected = compiled_slope(field, h, a, True)
    found = compiled_slope(field, h.at[1].set(jnp.inf), a, True)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[::2], expected[::2])


# --- inside an ODE --------------------------------------------------------------------------------------------


def test_an_ode_takes_the_same_steps_to_the_same_states_by_kernels(kernels, monkeypatch):
    def last(ode, h0):
        path = ode(h0, jnp.array([0.0, 1.0]))
        return path.h[:, -1], path.stats

    solver = Solver("dopri5", rtol=1e-3, atol=1e-3, max_steps=64, checkpoints=64)
    given = NeuralODE(perturbed(half(64, 1)), solver), single(3, 4, 3, 64)
    (ours, stats), (plain, known) = with_and_without(monkeypatch, {"slopes", "step"}, last, *given)
    assert_near(ours, plain, 1e-3)
    np.testing.assert_array_equal(stats.accepted, known.accepted)
    np.testing.assert_array_equal(stats.rejected, known.rejected)
    assert not known.failed.any() and np.asarray(known.accepted).min() > 1


@pytest.mark.slow
def test_an_ensemble_has_the_same_states_and_gradients_by_kernels(kernels, monkeypatch):
    both = stack([attentive(EULER), attentive(EULER, seed=3)]), single(2, 3, 3, 4, 32)
    assert_same(monkeypatch, OF_ITS_GRADIENT, eqx.filter_vmap(gradient_at(0.5, 1.5)), *both)


@pytest.mark.parametrize("kept_steps, called", [(5, OF_ITS_GRADIENT), (2, {*OF_ITS_GRADIENT, "evaluate_again"})])
def test_an_ode_that_takes_steps_again_has_the_same_gradient_by_kernels(kept_steps, called, kernels, monkeypatch):
    solver = Solver("euler", step=0.2, max_steps=5, checkpoints=2, kept_steps=kept_steps)
    ode = attentive(solver, evolution="frozen")
    assert_same(monkeypatch, called, gradient_at(0.0, 1.0), ode, single(3, 3, 4, 32))


@pytest.mark.parametrize("kept_steps", [0, 3, 64])
def test_steps_tried_in_vain_leave_no_trace_in_the_gradient(kept_steps, kernels, monkeypatch):
    """A step after one that was rejected begins where the one before that ended."""
    given, gradient = with_rejections(monkeypatch, kept_steps)
    called = OF_ITS_GRADIENT | ({"evaluate_again"} if kept_steps < 64 else set())
    assert_same_after_rejections(with_and_without(monkeypatch, called, gradient, *given), 2e-2)


def test_an_ode_that_is_read_between_steps_has_kernels_for_slopes_alone(kernels, monkeypatch):
    assert_same(monkeypatch, {"slopes"}, gradient_at(0.5, 0.8, 1.5), attentive(EULER), single(3, 3, 4, 32))


def test_a_sample_without_numbers_leaves_the_gradient_of_its_batch_mates_as_it_is(kernels, monkeypatch):
    """As zero times what was kept of it would be no number."""
    assert_same(monkeypatch, {*OF_ITS_GRADIENT, "evaluate_again"}, of_batch_mates, perturbed(half(32, 1)))


# --- where there are none -------------------------------------------------------------------------------------


def found(y, channels: int = 32, precision="float16"):
    """What a field and two of them have for a batch."""
    one, other = (ConvField(channels, precision=precision, key=jax.random.key(k)) for k in range(2))
    return [of_batch(field, y) for field in (one, one.beside(other))]


def test_there_are_kernels_on_a_gpu_alone(monkeypatch):
    h = single(2, 8, 8, 32)
    assert [each.way for each in found(h)] == [PRODUCTS, PRODUCTS]
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert found(h) == [None, None]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    one, two = found(h)
    assert one.way == two.way == of_kernels.KERNELS
    one, two = (eqx.filter_eval_shape(each.slope, jnp.zeros(2), y, None) for each, y in ((one, h), (two, (h, h))))
    assert one.shape == h.shape and [each.shape for each in two] == [h.shape, h.shape]


def test_there_are_none_where_a_cpu_is_set_as_the_default_device(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    h = single(2, 8, 8, 32)
    assert [each.way for each in found(h)] == [of_kernels.KERNELS] * 2
    with jax.default_device(jax.devices("cpu")[0]):
        assert [each.way for each in found(h)] == [PRODUCTS] * 2


def test_there_are_none_where_jax_has_no_triton_any_more(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setitem(sys.modules, "acenode.ode.conv.block", None)
    assert found(single(2, 8, 8, 32)) == [None, None]


@pytest.mark.parametrize("capability, there", [("9.0", True), ("8.0", True), ("7.5", False), ("gfx942", False)])
def test_there_are_kernels_where_bfloat16_is_known(capability, there, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])
    assert (block.columns(single(2, 8, 8, 32), 32) is not None) == there


@pytest.mark.parametrize("size, channels", [((8, 8), 32), ((5, 7), 64), ((2, 32), 128), ((8, 8), 48), ((8, 8), 69)])
def test_there_are_kernels_for_small_maps_that_fit_into_a_block(size, channels, kernels):
    assert None not in found(single(2, *size, channels), channels)


@pytest.mark.parametrize(
    "size, channels, precision",
    [
        ((8, 8), 16, "float16"),
        ((8, 8), 160, "float16"),  # 32 groups of 5, each of which would have 8 columns
        ((8, 8), 256, "float16"),
        ((8, 9), 32, "float16"),
        ((8, 8), 32, None),
        ((8, 8), 32, "tf32"),
        ((8, 8), 32, "bfloat16"),
    ],
)
def test_other_widths_maps_and_precisions_have_no_kernels(size, channels, precision, kernels):
    assert found(single(2, *size, channels), channels, precision) == [None, None]


def test_single_precision_has_kernels_where_doubles_are_known(kernels, monkeypatch):
    field, y, args = alone()
    known = times(y)  # in single precision, as solvers have it
    monkeypatch.setattr("conv_problems.times", lambda y: known)
    with jax.enable_x64(True):
        moved = jax.eval_shape(jax.grad(lambda y: replay(field, y, args, FSAL, True).sum()), y)
    assert moved.dtype == jnp.float32


def test_double_precision_has_no_kernels(kernels):
    with jax.enable_x64(True):
        assert found(noise(2, 8, 8, 32)) == [None, None]


class Shuffled(Elementwise):
    """One that does not say that it works element by element, and does not."""

    def __call__(self, h, a):
        return super().__call__(h, a[::-1])


class Scaled(Elementwise):
    """One with a weight of its own, which kernels would have to be given."""

    elementwise: ClassVar[bool] = True
    scale: jax.Array

    def __call__(self, h, a):
        return super().__call__(h, self.scale * a)


@pytest.mark.parametrize("attention", [Shuffled(), Scaled(jnp.ones(())), Residual(Elementwise()), Pairwise()])
def test_other_attentions_have_no_kernels(attention, kernels):
    f, g, h = half(32), half(32, seed=1), single(2, 3, 4, 32)
    assert of_batch(_Attended(f, Elementwise()), h) and of_batch(_CoupledAsOne(f.beside(g), Elementwise()), (h, h))
    assert of_batch(_Attended(f, attention), h) is None
    assert of_batch(_CoupledAsOne(f.beside(g), attention), (h, h)) is None


def test_a_field_that_sees_more_than_the_attended_state_has_no_kernels(kernels):
    class Seeing(VectorField):
        takes = ("attended", "state")
        field: ConvField

        def __call__(self, t, attended, h):
            return self.field(t, attended) + h

        def on_batch(self, h):
            return self.field.on_batch(h)

    seeing, h = Seeing(half(32)), single(2, 3, 4, 32)
    assert of_batch(seeing, h) is not None
    assert of_batch(_Attended(seeing, Elementwise()), h) is None


def test_a_field_of_a_users_own_is_not_passed_over_for_the_kernels_it_inherits(kernels):
    class Slower(ConvField):
        def __call__(self, t, h):
            return 0.1 * super().__call__(t, h)

    slower, h0 = perturbed(Slower(32, 1, precision="float16", key=jax.random.key(0))), single(2, 3, 4, 32)
    assert of_batch(_Alone(slower), h0) is None
    assert of_batch(_Attended(slower, Elementwise()), h0) is None
    ode = NeuralODE(slower, Solver("euler", step=1.0, max_steps=1, checkpoints=2))
    h = eqx.filter_jit(ode)(h0, jnp.array([0.0, 1.0])).h[:, -1]
    np.testing.assert_allclose(h, h0 + jax.vmap(slower)(jnp.zeros(2), h0), atol=1e-5)


# --- on a GPU -------------------------------------------------------------------------------------------------


def for_cuda(function, *inputs) -> str:
    """The program that a GPU would get, as far as it is made without one."""
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        return jax.jit(lambda *inputs: function(*inputs)).trace(*inputs).lower(lowering_platforms=("cuda",)).as_text()


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(block, "backend", lambda: "gpu")
    monkeypatch.setattr(fields, "backend", lambda: "gpu")

    def copy(program, x, out):
        out[...] = x[...]

    shape = jax.ShapeDtypeStruct((16,), jnp.float32)
    try:
        for_cuda(lambda x: block.launch([block.Kernel(copy)], [(x,)], [shape], 1, warps=4), jnp.zeros(16))
    except (ImportError, NotImplementedError) as reason:
        pytest.skip(f"JAX makes no kernels for CUDA here: {reason}")


def step_and_gradient(field, y, args):
    """Of a step by itself, and of a solve, which keeps what its gradient needs."""
    tableau, count = METHODS["heun"], len(jax.tree.leaves(y)[0])
    ends = jnp.tile(jnp.array([0.0, 1.0]), (count, 1))
    solver = Solver("heun", step=0.5, max_steps=4, checkpoints=4, kept_steps=1)
    solved = eqx.filter_grad(lambda field: jax.tree.leaves(solver.solve(field, y, ends, args)[0])[0].sum())(field)
    return step(field, y, args, tableau, True), gradient(field, y, args, tableau, True), solved


@pytest.mark.parametrize("problem", [alone, frozen])
def test_the_compiler_for_cuda_takes_a_step_and_its_gradient(problem, compiler):
    assert "triton" in for_cuda(step_and_gradient, *problem())


def test_the_compiler_for_cuda_takes_the_steps_of_an_ensemble_and_their_gradients(compiler):
    field, y, _ = evolved(128)
    both = stack([field, field]), stack([y, y])
    assert "triton" in for_cuda(jax.vmap(lambda field, y: step_and_gradient(field, y, None)), *both)


def test_stages_that_are_alike_have_their_kernels_in_common(compiler):
    """Every stage has its own time and its own weights of slopes, and yet a kernel is compiled once."""
    field, y, args = alone()
    kernels = lambda program: for_cuda(program, field, y).count("xla.gpu.triton")  # noqa: E731
    one = lambda field, y: step(field, y, args, METHODS["dopri5"], True)  # noqa: E731
    two = lambda field, y: one(field, one(field, y)[0])  # noqa: E731
    three = lambda field, y: one(field, two(field, y)[0])  # noqa: E731
    # The state from so many slopes as a stage has, six of them, and one for its convolution.
    assert kernels(one) == 7
    assert kernels(three) == kernels(two) <= 8
