"""Convolution and group norm on feature maps with channels last, for one sample: the parts of the image models.

A convolution is written as patches times a matrix: one matrix product, of which value and gradient are quick on every
kind of machine. (The compiler's own convolution was measured too: its gradient is many times slower on a CPU, and no
quicker on a GPU at these sizes; `benchmarks/image.py` measures both.)
"""

import functools as ft
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ...precision import Precision, check_precision, matmul, products_in

ConvPrecision = Precision | Literal["float16"]

EPSILON = 1e-5  # added to the variance of a group
_SMALL_PRODUCT = 64  # inputs of one whose gradient is taken for each sample


def patches(x: Float[Array, "y x channels"], kernel: int, stride: int = 1, padding: int = 0) -> Float[Array, "v u n"]:
    """Every `kernel` x `kernel` neighbourhood as one vector, in the order of `as_patches`."""
    # Whatever made x is computed once, not once for each of the neighbourhoods it is part of.
    if min(x.shape[:2]) + 2 * padding < kernel:
        raise ValueError(
            f"Conv: the map has {x.shape[0]} x {x.shape[1]} pixels, with the padding {2 * padding} more; too few for a "
            f"kernel of {kernel} x {kernel}."
        )
    x = lax.optimization_barrier(x)
    x = jnp.pad(x, ((padding, padding), (padding, padding), (0, 0)))
    rows, columns = ((n - kernel) // stride + 1 for n in x.shape[:2])
    if _in_blocks(kernel, stride):
        x, kernel = _blocks(x, stride), kernel // stride
        stride = 1
    shifted = [
        x[i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return jnp.concatenate(shifted, axis=-1)


def as_patches(weight: Float[Array, "outputs kernel kernel inputs"], stride: int) -> Float[Array, "outputs n"]:
    """The weights of a convolution in the order of its patches.

    That is (row of the kernel, column, channel); with a stride that divides the kernel it is (row of the block, column,
    row in the block, column, channel), for blocks as large as the stride: whole blocks are read, and a gradient put
    back, at once.
    """
    outputs, kernel, _, inputs = weight.shape
    if _in_blocks(kernel, stride):
        count = kernel // stride
        weight = jnp.swapaxes(weight.reshape(outputs, count, stride, count, stride, inputs), 2, 3)
    return weight.reshape(outputs, -1)


def _in_blocks(kernel: int, stride: int) -> bool:
    return stride > 1 and kernel % stride == 0


def _blocks(x: Float[Array, "y x channels"], size: int) -> Float[Array, "v u n"]:
    """Squares of pixels as one; what is left over at the end is in none."""
    rows, columns = (n // size for n in x.shape[:2])
    x = x[: rows * size, : columns * size].reshape(rows, size, columns, size, -1)
    return jnp.swapaxes(x, 1, 2).reshape(rows, columns, -1)


class Conv(eqx.Module):
    """A convolution; weights and biases uniform in +-1/sqrt(fan in).

    `timed` adds one more input channel that is filled with t. Such a channel has the same neighbourhood in every
    sample, so its share of the result is t times a map that depends on the weights alone.

    `precision` is that of its products (`acenode.precision`), `None` that around it. `float16` rounds inputs in single
    precision to half precision, on every kind of machine: ten binary digits, as in tf32, and half of the bytes to move.
    Its range is narrow, so inputs have to be of the order of one, as group norm makes them. Its gradient is in tf32,
    or in bfloat16 where whole steps have kernels (`gradient`).
    """

    weight: Float[Array, "outputs kernel kernel inputs"]  # outputs first: so its gradient is the quickest product
    clock: Float[Array, "outputs kernel kernel"] | None
    bias: Float[Array, " outputs"] | None
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)
    precision: ConvPrecision | None = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        padding: int = 1,
        *,
        timed: bool = False,
        bias: bool = True,
        precision: ConvPrecision | None = None,
        key: PRNGKeyArray,
    ):
        check_precision("Conv", precision, "float16")
        channels = inputs + timed
        limit = 1 / np.sqrt(channels * kernel**2)
        one, two = jax.random.split(key)
        weight = jax.random.uniform(one, (outputs, kernel, kernel, channels), minval=-limit, maxval=limit)
        self.weight = weight[..., timed:]
        self.clock = weight[..., 0] if timed else None
        self.bias = jax.random.uniform(two, (outputs,), minval=-limit, maxval=limit) if bias else None
        self.stride, self.padding, self.precision = stride, padding, precision

    def __call__(self, x: Float[Array, "y x inputs"], t: Float[Array, ""] | None = None) -> Float[Array, "v u outputs"]:
        out = self._product(x, self.weight)
        if self.clock is not None:
            assert t is not None, "a timed convolution is called with a time"
            ones = jnp.ones((*x.shape[:2], 1), x.dtype)
            out = out + t * self._plain_product(ones, self.clock[..., None])
        return out if self.bias is None else out + self.bias

    def _product(self, x, weight):
        if self.precision == "float16" and x.dtype == jnp.float32:
            return _half_product(self.stride, self.padding, x, weight)
        return self._plain_product(x, weight)

    def _plain_product(self, x, weight):
        with products_in("tf32" if self.precision == "float16" else self.precision):
            return _product(self.stride, self.padding, x, weight)


def _product(stride: int, padding: int, x, weight):
    return matmul(patches(x, weight.shape[1], stride, padding), as_patches(weight, stride).T)


@ft.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _half_product(stride: int, padding: int, x, weight):
    """The same with inputs in half precision. Gradients are small numbers, beyond its range: they are in tf32."""
    return _with_half_patches(stride, padding, x, weight)[0]


def _with_half_patches(stride: int, padding: int, x, weight):
    near, weights = patches(x.astype(jnp.float16), weight.shape[1], stride, padding), weight.astype(jnp.float16)
    return jnp.matmul(near, as_patches(weights, stride).T, preferred_element_type=jnp.float32), near


@_half_product.defjvp
def _half_product_jvp(stride: int, padding: int, primals, tangents):
    x, weight = primals
    dx, dweight = tangents
    out, near = _with_half_patches(stride, padding, x, weight)
    with products_in("tf32"):
        if near.shape[-1] < _SMALL_PRODUCT:
            # The gradient of a small matrix, as one product over all samples, would keep a part of a GPU busy for long.
            # As if each sample had weights of its own it is a product for each.
            dweight = dweight + 0.0 * (x[0, 0, 0] > 0)
        from_weight = matmul(near.astype(jnp.float32), as_patches(dweight, stride).T)
        return out, _product(stride, padding, dx, weight) + from_weight


class GroupNorm(eqx.Module):
    """Each group of channels to mean 0 and variance 1 over the whole map, then a scale and a shift per channel.

    32 groups, or the largest smaller number that divides the channels (23 for 69).
    """

    affine: Float[Array, "2 channels"]
    groups: int = eqx.field(static=True)

    def __init__(self, channels: int):
        self.affine = jnp.stack([jnp.ones(channels), jnp.zeros(channels)])
        self.groups = next(g for g in range(min(32, channels), 0, -1) if channels % g == 0)

    def __call__(self, x: Float[Array, "y x channels"]) -> Float[Array, "y x channels"]:
        return _group_norm(self.groups, x, self.affine)


@ft.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _group_norm(groups: int, x, affine):
    return _group_norm_fwd(groups, x, affine)[0]


def _group_norm_fwd(groups: int, x, affine):
    scale, shift = affine
    mean = _over_group(groups, x.mean(axis=(0, 1)))
    # In two passes: the mean of squares less the square of the mean would lose all digits where the mean is large.
    centred = x - mean
    variance = _over_group(groups, jnp.square(centred).mean(axis=(0, 1)))
    precision = lax.rsqrt(variance + EPSILON)
    return centred * (precision * scale) + shift, (x, mean, precision, scale)


def _group_norm_bwd(groups: int, kept, grad):
    """By hand: one pass over the map for all sums, one for the result, where autodiff takes several of each."""
    x, mean, precision, scale = kept
    normal = (x - mean) * precision
    pixels = x.shape[0] * x.shape[1]
    by_channel = grad.sum(axis=(0, 1))
    with_normal = (grad * normal).sum(axis=(0, 1))
    along_mean = _over_group(groups, scale * by_channel) / pixels
    along_normal = _over_group(groups, scale * with_normal) / pixels
    grad_x = precision * (scale * grad - along_mean - normal * along_normal)
    return grad_x, jnp.stack([with_normal, by_channel])


_group_norm.defvjp(_group_norm_fwd, _group_norm_bwd)


def _over_group(groups: int, by_channel: Float[Array, " channels"]) -> Float[Array, " channels"]:
    """The mean over the channels of a group, at each of its channels."""
    grouped = by_channel.reshape(groups, -1)
    size = grouped.shape[1]
    # A sum written out joins what comes after it; a reduction of these few numbers is a program of its own.
    total = sum(grouped[:, i : i + 1] for i in range(size)) if size <= 4 else grouped.sum(axis=1, keepdims=True)
    return jnp.broadcast_to(total / size, grouped.shape).reshape(-1)
