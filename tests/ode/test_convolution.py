"""Convolutions and group norm on maps (y, x, channels): against loops in numpy, and their gradients."""

import functools as ft
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from problems import count, noise

from acenode.ode import Conv, GroupNorm
from acenode.ode.conv.layers import _half_product, _product, as_patches, patches

now = jnp.asarray(0.7)
call = eqx.filter_jit(lambda layer, x: layer(x))


def assert_slopes(function, *at):
    """The gradient is that of central differences, in a random direction."""
    check_grads(jax.jit(function), at, order=1, modes=["rev"])


# --- Conv -----------------------------------------------------------------------------------------------------


def looped(conv: Conv, x, t: float) -> np.ndarray:
    """What a convolution is: one loop for each axis of its answer, the time as one more channel before the others."""
    x, weight = np.asarray(x), np.asarray(conv.weight)
    if conv.clock is not None:
        x = np.concatenate([np.full((*x.shape[:2], 1), t), x], axis=-1)
        weight = np.concatenate([np.asarray(conv.clock)[..., None], weight], axis=-1)
    x = np.pad(x, ((conv.padding, conv.padding), (conv.padding, conv.padding), (0, 0)))
    outputs, kernel = weight.shape[:2]
    rows, columns = ((n - kernel) // conv.stride + 1 for n in x.shape[:2])
    out = np.empty((rows, columns, outputs))
    for v, u, o in itertools.product(range(rows), range(columns), range(outputs)):
        top, left = v * conv.stride, u * conv.stride
        out[v, u, o] = (weight[o] * x[top : top + kernel, left : left + kernel]).sum()
    return out if conv.bias is None else out + np.asarray(conv.bias)


def test_a_map_smaller_than_the_kernel_is_refused(key):
    conv = Conv(3, 4, 5, 1, 0, key=key)
    with pytest.raises(ValueError, match="the map has 3 x 3 pixels.*too few for a kernel of 5 x 5"):
        jax.eval_shape(conv, jnp.ones((3, 3, 3)))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 4])
def test_conv_against_a_loop(kernel, stride, padding, key):
    # Timed or not, with a bias or without.
    kinds = [dict(zip(("timed", "bias"), kind, strict=True)) for kind in itertools.product((True, False), repeat=2)]
    convs = [Conv(2, 3, kernel, stride, padding, **kind, key=key) for kind in kinds]
    x = noise(6, 9, 2)  # not square, and no whole number of strides either way
    answers = eqx.filter_jit(lambda convs: [conv(x, now) if conv.clock is not None else conv(x) for conv in convs])
    for kind, conv, answer in zip(kinds, convs, answers(convs), strict=True):
        expected = looped(conv, x, float(now))
        assert answer.shape == expected.shape
        np.testing.assert_allclose(answer, expected, rtol=1e-11, atol=1e-13, err_msg=str(kind))


def test_patches_are_neighbourhoods():
    x = jnp.arange(5 * 4 * 2.0).reshape(5, 4, 2)
    near = patches(x, 3)
    assert near.shape == (3, 2, 18)
    np.testing.assert_array_equal(near[1, 1].reshape(3, 3, 2), x[1:4, 1:4])
    np.testing.assert_array_equal(patches(x, 3, 2, 1)[1, 1].reshape(3, 3, 2), x[1:4, 1:4])
    np.testing.assert_array_equal(patches(x, 3, 2, 1)[0, 0].reshape(3, 3, 2)[0], 0.0)  # the border is of zeros


def test_the_gradient_of_a_conv(key):
    conv = Conv(2, 3, 3, 2, timed=True, key=key)
    many = noise(2, 5, 4, 2)
    # Alone, over a batch with the same weights, and with weights of their own, as in an ensemble.
    assert_slopes(lambda conv, x, t: conv(x, t), conv, many[0], now)
    assert_slopes(lambda conv, x: jax.vmap(lambda x: conv(x, now))(x), conv, many)
    two = jax.tree.map(lambda w: jnp.stack([w, 2 * w]), conv)
    assert_slopes(jax.vmap(lambda conv, x: conv(x, now)), two, many)
    # A stride that divides the kernel, with a pixel left over.
    blocks = Conv(2, 3, 4, 2, key=key)
    assert_slopes(lambda conv, x: jax.vmap(conv)(x), blocks, noise(2, 7, 6, 2))


@pytest.mark.parametrize(
    "make, parameters",
    [
        (ft.partial(Conv, 64, 64), 64 * 64 * 9 + 64),
        (ft.partial(Conv, 64, 64, bias=False), 64 * 64 * 9),
        (ft.partial(Conv, 64, 64, timed=True), 65 * 64 * 9 + 64),
        (ft.partial(Conv, 69, 69, timed=True), 70 * 69 * 9 + 69),
        (ft.partial(Conv, 3, 64, 4, stride=2), 3 * 64 * 16 + 64),
    ],
)
def test_conv_parameter_counts(make, parameters, key):
    assert count(make, key=key) == parameters


def test_conv_init_statistics(key):
    conv = Conv(15, 40, timed=True, key=key)
    limit = 1 / np.sqrt(16 * 9)  # the time is an input like the others
    for drawn in (conv.weight, conv.clock, conv.bias):
        drawn = np.asarray(drawn).ravel()
        assert np.abs(drawn).max() <= limit and np.abs(drawn).max() > 0.9 * limit
        assert abs(drawn.mean()) < 4 * limit / np.sqrt(3 * drawn.size)
        assert drawn.std() == pytest.approx(limit / np.sqrt(3), rel=3 / np.sqrt(drawn.size))
    other = Conv(15, 40, timed=True, key=jax.random.key(1))
    assert not np.isclose(conv.weight, other.weight).any(axis=-1).all()


def test_patches_of_blocks_have_their_weights_in_the_same_order():
    weight, x = noise(3, 4, 4, 2), noise(7, 6, 2, seed=1)
    found = patches(x, 4, 2, 1) @ as_patches(weight, 2).T
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    for i, j in np.ndindex(found.shape[:2]):
        near = padded[2 * i : 2 * i + 4, 2 * j : 2 * j + 4]
        np.testing.assert_allclose(found[i, j], np.einsum("oyxc,yxc->o", weight, near), rtol=1e-12)


# --- the product with inputs in half precision -----------------------------------------------------------------

MAPS = jnp.asarray(noise(3, 5, 6, 8), jnp.float32)
WEIGHT = jnp.asarray(0.1 * noise(4, 3, 3, 8, seed=1), jnp.float32)
WEIGHTS = jnp.stack([WEIGHT, -2 * WEIGHT, WEIGHT[::-1]])
PULL = jnp.asarray(noise(3, 5, 6, 4, seed=2), jnp.float32)
MAPPED = {"shared weights": ((0, None), WEIGHT), "weights of their own": ((0, 0), WEIGHTS)}


@eqx.filter_jit
def value_and_pulled(product, axes, maps, weight, pull):
    """The products of a batch of maps, and what their pullback makes of `pull`."""
    value, back = jax.vjp(jax.vmap(ft.partial(product, 1, 1), in_axes=axes), maps, weight)
    return value, *back(pull)


def assert_near(found, expected, tolerance: float):
    """As near as `tolerance` times the largest of the expected numbers."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("inputs", [8, 3])  # few inputs have a gradient of the weights for each sample
@pytest.mark.parametrize("case", MAPPED)
def test_half_precision_is_close(case, inputs):
    axes, weight = MAPPED[case]
    given = axes, MAPS[..., :inputs], weight[..., :inputs], PULL
    value, to_maps, to_weight = value_and_pulled(_half_product, *given)
    exact, exact_to_maps, exact_to_weight = value_and_pulled(_product, *given)
    assert value.dtype == to_maps.dtype == to_weight.dtype == jnp.float32
    assert_near(value, exact, 1e-3)
    assert np.abs(np.asarray(value - exact)).max() > 1e-6  # it did take the other way
    # Only what was rounded on the way forward is rounded on the way back: the map, not the weights.
    assert_near(to_maps, exact_to_maps, 1e-6)
    assert_near(to_weight, exact_to_weight, 1e-3)


@pytest.mark.parametrize("case", MAPPED)
@pytest.mark.parametrize("size", [1e-8, 1e-20])
def test_small_gradients_are_not_lost_to_half_precision(case, size):
    # Half precision has nothing between 0 and 6e-8.
    axes, weight = MAPPED[case]
    _, *small = value_and_pulled(_half_product, axes, MAPS, weight, size * PULL)
    _, *usual = value_and_pulled(_half_product, axes, MAPS, weight, PULL)
    for one, other in zip(small, usual, strict=True):
        assert_near(np.asarray(one, float) / size, other, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("stride, padding", [(1, 0), (1, 3), (2, 1)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_half_precision_with_other_strides_and_paddings(kernel, stride, padding):
    weight = WEIGHT[:, :kernel, :kernel]
    half, exact = (jax.vjp(ft.partial(p, stride, padding), MAPS[0], weight) for p in (_half_product, _product))
    assert_near(half[0], exact[0], 1e-3)
    for found, expected in zip(half[1](exact[0]), exact[1](exact[0]), strict=True):
        assert_near(found, expected, 1e-3)


def test_half_precision_is_chosen_by_name_alone(key, monkeypatch):
    def answers(precision):
        conv = Conv(2, 3, timed=True, precision=precision, key=key)
        single = jax.tree.map(lambda w: w.astype(jnp.float32), conv)
        x, t = noise(4, 4, 2), jnp.asarray(0.7, jnp.float32)
        return conv(x, now), single(x.astype(jnp.float32), t)

    usual, half = answers(None), answers("float16")
    np.testing.assert_array_equal(half[0], usual[0])  # what is in double precision stays so
    assert_near(half[1], usual[1], 1e-3)
    assert half[1].dtype == jnp.float32 and (half[1] != usual[1]).any()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for one, other in zip((*answers(None), *answers("float16")), (*usual, *half), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_named_precision_is_that_of_its_products(precision, key):
    conv = Conv(2, 3, timed=True, precision=precision, key=key)
    names = {"tf32": "HIGH", "bfloat16": "BF16_BF16_F32"}
    program = str(jax.make_jaxpr(jax.grad(lambda x: conv(x, now).sum()))(noise(4, 4, 2)))
    assert program.count("dot_general") == program.count(names[precision]) / (2 if precision == "tf32" else 1) > 1


# --- GroupNorm ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels, groups", [(64, 32), (128, 32), (69, 23), (31, 31), (37, 1), (8, 8), (1, 1)])
def test_group_norm_groups_and_parameters(channels, groups):
    assert GroupNorm(channels).groups == groups
    assert count(GroupNorm, channels) == 2 * channels


def normalised(x: np.ndarray, groups: int) -> np.ndarray:
    """Group after group: its mean away, its standard deviation to one."""
    out = np.empty_like(x)
    for channels in np.split(np.arange(x.shape[-1]), groups):
        part = x[..., channels]
        out[..., channels] = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
    return out


def scaled_norm(channels: int) -> GroupNorm:
    """One whose scales and shifts are not those of the start."""
    return eqx.tree_at(lambda n: n.affine, GroupNorm(channels), noise(2, channels, seed=5))


# Groups of 3, of 2, of 1, and one of 37: short sums are written out in another way than long ones.
@pytest.mark.parametrize("channels, groups", [(69, 23), (64, 32), (8, 8), (37, 1)])
def test_group_norm_against_a_loop(channels, groups):
    x = 2 + noise(3, 4, channels) * np.linspace(0.5, 3.0, channels)
    expected = normalised(np.asarray(x), groups)
    np.testing.assert_allclose(call(GroupNorm(channels), x), expected, rtol=1e-10, atol=1e-12)
    norm = scaled_norm(channels)
    scale, shift = np.asarray(norm.affine)
    np.testing.assert_allclose(call(norm, x), expected * scale + shift, rtol=1e-10, atol=1e-12)


def test_group_norm_keeps_its_digits_far_from_zero():
    """The mean of squares less the square of the mean has none left here in single precision."""
    x = np.asarray(1000 + noise(6, 6, 4), np.float32)
    expected = normalised(np.asarray(x, float), 4)
    np.testing.assert_allclose(call(GroupNorm(4), jnp.asarray(x)), expected, atol=2e-3)


def plain_norm(groups: int, x, affine):
    """The same without a gradient of its own."""
    grouped = x.reshape(*x.shape[:2], groups, -1)
    centred = grouped - grouped.mean(axis=(0, 1, 3), keepdims=True)
    normal = centred / jnp.sqrt(jnp.mean(centred**2, axis=(0, 1, 3), keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * affine[0] + affine[1]


@pytest.mark.parametrize("channels", [69, 64, 37])
def test_the_gradient_of_group_norm_is_that_of_autodiff(channels):
    norm, x, pull = scaled_norm(channels), noise(2, 3, 4, channels), noise(2, 3, 4, channels, seed=1)

    def pulled(f):  # a batch, with one norm for all and with one for each
        shared = jax.vjp(lambda x, affine: jax.vmap(lambda x: f(x, affine))(x), x, norm.affine)[1](pull)
        own = jax.vjp(jax.vmap(f), x, jnp.stack([norm.affine, norm.affine[::-1]]))[1](pull)
        return shared, own

    ours = jax.jit(lambda: pulled(lambda x, affine: eqx.tree_at(lambda n: n.affine, norm, affine)(x)))()
    known = jax.jit(lambda: pulled(ft.partial(plain_norm, norm.groups)))()
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(known), strict=True):
        assert np.abs(expected).max() > 0.1
        assert_near(found, expected, 1e-11)


def test_the_gradient_of_group_norm_is_that_of_differences():
    assert_slopes(lambda norm, x: norm(x), scaled_norm(6), noise(3, 2, 6))
    assert_slopes(lambda norm, x: jax.vmap(norm)(x), scaled_norm(6), noise(2, 3, 2, 6))


@eqx.filter_jit
def norm_and_pulled(norm, x, pull):
    value, back = jax.vjp(lambda norm, x: norm(x), norm, x)
    return value, *back(pull)


@pytest.mark.parametrize("dtype, size", [(jnp.float32, 0), (jnp.float32, 1), (jnp.float32, 300), (jnp.float64, 1e7)])
def test_constant_maps_are_no_trouble(dtype, size):
    # One channel a group, each with a level of its own. Its variance is rounding error, of either sign, and larger than
    # epsilon where the level is high.
    norm = jax.tree.map(lambda w: w.astype(dtype), scaled_norm(32))
    levels, pull = size * noise(32), jnp.asarray(noise(3, 5, 32), dtype)
    x = jnp.broadcast_to(levels.astype(dtype), (3, 5, 32))
    value, grad_norm, grad_x = norm_and_pulled(norm, x, pull)
    # The shift alone is left, but for rounding of the mean times at most 1 / sqrt(epsilon).
    rounding = float(jnp.finfo(dtype).eps) * np.abs(np.asarray(levels)).max() / np.sqrt(1e-5)
    np.testing.assert_allclose(value, np.broadcast_to(norm.affine[1], x.shape), atol=1e-6 + 3 * rounding)
    np.testing.assert_allclose(grad_norm.affine[1], pull.sum(axis=(0, 1)), rtol=1e-4)
    assert np.isfinite(grad_norm.affine).all() and np.isfinite(grad_x).all()
    assert np.abs(grad_x).max() > 0
