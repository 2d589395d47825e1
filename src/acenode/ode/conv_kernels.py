"""`ConvField` for a whole batch, by kernels for a GPU: group norm, ReLU and timed 3 x 3 convolutions.

Feature maps are small here (8 x 8, 64 channels), so what XLA spends its time on is to write every neighbourhood to
memory and to start many small operations. These kernels read neighbourhoods where they lie. A batch of maps is one
matrix, a row for each pixel of each sample; the pixel at an offset is the row at a distance, unless it lies beyond the
edge. `ConvField` itself is the plain twin, which CPUs use and tests compare with.

Convolutions take inputs in half precision and add up in single precision, as `Conv(precision="float16")` does. Their
gradients are small numbers, beyond the range of half precision: they, and what they are multiplied by, are rounded to
bfloat16. There is no derivative of these gradients: a Hessian needs the plain form (`Conv(precision=None)`).

Several fields on the same state are evaluated at once, f and g for one: the layers that they all have are one kernel.
"""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from ..precision import matmul
from .convolution import EPSILON

BACKENDS = ("gpu",)  # where they are used

_STAGES = 3  # taps of a convolution that are on their way at a time
_ROWS = 128  # of a matrix that a program of the convolution makes
_PARTS = 16  # the gradient of a weight is added up in so many parts
_TAPS = 9  # pixels of a neighbourhood
_PIXELS = 64  # of a map, at most
# Rows of sums over the pixels of a sample: for each tap, of the gradient where it has that neighbour, and then these.
_SUMS, _OF_SCALE, _OF_SHIFT, _OF_BIAS = 16, 9, 10, 11


class Layer(NamedTuple):
    """Weights of `Conv`."""

    weight: Float[Array, "outputs 3 3 inputs"]
    clock: Float[Array, "outputs 3 3"]
    bias: Float[Array, " outputs"]

    def taps(self, dtype) -> Float[Array, "taps inputs outputs"]:
        outputs, *_, inputs = self.weight.shape
        return jnp.transpose(self.weight.reshape(outputs, _TAPS, inputs), (1, 2, 0)).astype(dtype)

    def turned(self, dtype) -> Float[Array, "taps outputs inputs"]:
        """Those of the convolution that takes gradients back."""
        outputs, *_, inputs = self.weight.shape
        return jnp.transpose(self.weight.reshape(outputs, _TAPS, inputs)[:, ::-1], (1, 0, 2)).astype(dtype)

    def clock_map(self, size: tuple[int, int]) -> Float[Array, "pixels outputs"]:
        """The convolution of a channel of ones."""
        padded = jnp.pad(jnp.ones(size), 1)
        near = [padded[i : i + size[0], j : j + size[1]].ravel() for i in range(3) for j in range(3)]
        return matmul(jnp.stack(near, axis=1), self.clock.reshape(-1, _TAPS).T)


class Weights(NamedTuple):
    """Weights of `ConvField`: scales and shifts of its norms, one more than layers."""

    affines: tuple[Float[Array, "2 channels"], ...]
    layers: tuple[Layer, ...]


def usable(h: Float[Array, "batch y x channels"]) -> bool:
    """Whether there are kernels for these maps, here: a program holds whole blocks, whose sizes are powers of two."""
    _, height, width, channels = h.shape
    fits = height * width <= _PIXELS and channels in (32, 64, 128)
    return fits and h.dtype == jnp.float32 and _backend() in BACKENDS and _has_bfloat16()


def _backend() -> str:
    """Where programs run: on a default device that is set, if it is."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def _has_bfloat16() -> bool:
    """Whether the GPU has products in bfloat16: those of NVIDIA since Ampere (compute capability 8) have."""
    capability = getattr(jax.devices()[0], "compute_capability", None)  # "9.0"; of AMD "gfx942"; of a CPU none
    return capability is None or (capability[0].isdigit() and float(capability) >= 8)


# --- kernels: parts they have in common ------------------------------------------------------------------------------


def _call(kernel, shapes, grid, specs=None, *, warps: int = 4, stages: int = 1):
    interpret = _backend() == "cpu"  # for tests
    params = None if interpret else triton.CompilerParams(num_warps=warps, num_stages=stages)
    given = {} if specs is None else {"out_specs": specs}
    return pl.pallas_call(kernel, out_shape=shapes, grid=grid, interpret=interpret, compiler_params=params, **given)


def _warps(*channels: int) -> int:
    return 4 if max(channels) <= 64 else 8


def _numbers(count: int):
    return lax.broadcasted_iota(jnp.int32, (count,), 0)


def _quotient(n, by: int):
    """Of whole numbers that are not negative: Python's own operators are not known to the kernels' compiler."""
    return lax.div(jnp.asarray(n, jnp.int32), jnp.int32(by))


def _remainder(n, by: int):
    return lax.rem(jnp.asarray(n, jnp.int32), jnp.int32(by))


def _read(matrix, rows, there):
    """Rows of a matrix, zero where there is none."""
    columns = lax.broadcasted_iota(jnp.int32, (1, matrix.shape[1]), 1)
    return triton.load(matrix.at[rows[:, None], columns], mask=there[:, None], other=0.0)


def _write(matrix, rows, there, values) -> None:
    columns = lax.broadcasted_iota(jnp.int32, (1, matrix.shape[1]), 1)
    triton.store(matrix.at[rows[:, None], columns], values.astype(matrix.dtype), mask=there[:, None])


def _inside(pixel, tap, size: tuple[int, int]):
    """Which pixels have a neighbour there, and how many rows it is away."""
    height, width = size
    down, right = _quotient(tap, 3) - 1, _remainder(tap, 3) - 1
    y, x = _quotient(pixel, width) + down, _remainder(pixel, width) + right
    return (y >= 0) & (y < height) & (x >= 0) & (x < width), down * width + right


# --- the convolution -------------------------------------------------------------------------------------------------


def _conv_kernel(x, weight, *more, size: tuple[int, int]):
    """Rows of the convolution of x (rows, inputs) with weight (taps, inputs, outputs); with a time of each sample, what
    the clock adds to each pixel and biases, these as well."""
    *timed, out = more
    count, outputs = out.shape
    pixels = size[0] * size[1]
    rows = pl.program_id(0) * _ROWS + _numbers(_ROWS)
    there, pixel = rows < count, _remainder(rows, pixels)

    def add(tap, total):
        inside, away = _inside(pixel, tap, size)
        return total + triton.dot(_read(x, rows + away, inside & there), weight[tap])

    total = lax.fori_loop(0, _TAPS, add, jnp.zeros((_ROWS, outputs), jnp.float32))
    if timed:
        t, clock, bias = timed
        time = triton.load(t.at[_quotient(rows, pixels)], mask=there, other=0.0)
        total += time[:, None] * _read(clock, pixel, there) + bias[...][None, :]
    _write(out, rows, there, total)


def _convolved(size, x, weight, *timed):
    rows, outputs = x.shape[0], weight.shape[2]
    kernel = ft.partial(_conv_kernel, size=size)
    shape = jax.ShapeDtypeStruct((rows, outputs), jnp.float32)
    return _call(kernel, shape, (pl.cdiv(rows, _ROWS),), warps=_warps(outputs), stages=_STAGES)(x, weight, *timed)


def _weight_kernel(x, grad, weight, *, size: tuple[int, int], skip: int, count: int):
    """A part of the gradient of the weights of one tap."""
    tap, part = pl.program_id(0), pl.program_id(1)
    each = pl.cdiv(pl.cdiv(count, _ROWS), _PARTS)
    total = jnp.zeros(weight.shape, jnp.float32)
    for k in range(each):
        rows = (part * each + k) * _ROWS + _numbers(_ROWS)
        inside, away = _inside(_remainder(rows, size[0] * size[1]), tap, size)
        there = inside & (rows < count)
        a = _read(x, skip + rows + away, there).astype(jnp.bfloat16)
        total += triton.dot(_read(grad, skip + rows, there), a, trans_a=True)
    weight[...] = total


def _weight_gradient(size, x, grad, field: int, fields: int) -> Float[Array, "outputs 3 3 inputs"]:
    """That of one of several fields, whose rows lie one behind the other."""
    inputs, outputs, count = x.shape[1], grad.shape[1], x.shape[0] // fields
    shape = jax.ShapeDtypeStruct((_PARTS, outputs, _TAPS, inputs), jnp.float32)
    spec = pl.BlockSpec((None, outputs, None, inputs), lambda tap, part: (part, 0, tap, 0))
    kernel = ft.partial(_weight_kernel, size=size, skip=field * count, count=count)
    parts = _call(kernel, shape, (_TAPS, _PARTS), spec, warps=_warps(inputs, outputs))(x, grad)
    return parts.sum(axis=0).reshape(outputs, 3, 3, inputs)


# --- group norm ------------------------------------------------------------------------------------------------------


def _normalised(x, pixels: int, groups: int, skip: int):
    """The map of this program's sample with mean 0 and variance 1 in every group, the factor for that, which rows are
    there, and how to take means over groups."""
    channels = x.shape[1]
    pixel, sample = _numbers(_PIXELS), pl.program_id(0)
    there = pixel < pixels
    i, j = (lax.broadcasted_iota(jnp.int32, (channels, channels), axis) for axis in (0, 1))
    i, j = (_quotient(each, channels // groups) for each in (i, j))
    same_group = jnp.where(i == j, groups / channels, 0.0)

    def over_group(by_channel):
        return jnp.sum(same_group * by_channel[None, :], axis=1)

    values = _read(x, (skip + sample) * pixels + pixel, there)
    mean = over_group(jnp.sum(values, axis=0) / pixels)
    centred = jnp.where(there[:, None], values - mean[None, :], 0.0)
    precision = lax.rsqrt(over_group(jnp.sum(centred * centred, axis=0) / pixels) + EPSILON)
    return centred * precision[None, :], precision, sample * pixels + pixel, there, over_group


def _norm_kernel(x, affine, out, *, pixels: int, groups: int, relu: bool, skip: int):
    normal, _, rows, there, _ = _normalised(x, pixels, groups, skip)
    z = normal * affine[0, :][None, :] + affine[1, :][None, :]
    _write(out, rows, there, jnp.where(z > 0, z, 0.0) if relu else z)


def _norm(size, groups: int, relu: bool, x, affine, skip: int = 0, samples: int | None = None):
    """Group norm of maps, with a ReLU in half precision; `skip` leaves out first maps."""
    pixels = size[0] * size[1]
    samples = x.shape[0] // pixels if samples is None else samples
    shape = jax.ShapeDtypeStruct((samples * pixels, x.shape[1]), jnp.float16 if relu else x.dtype)
    kernel = ft.partial(_norm_kernel, pixels=pixels, groups=groups, relu=relu, skip=skip)
    return _call(kernel, shape, (samples,), warps=_warps(x.shape[1]))(x, affine)


def _norm_back_kernel(x, affine, grad, grad_x, sums, *, size, groups: int, relu: bool, below: bool, skip: int):
    """The gradient of x, and sums of it over pixels: those of each tap's, for a convolution `below` the norm."""
    pixels = size[0] * size[1]
    normal, precision, rows, there, over_group = _normalised(x, pixels, groups, skip)
    scale = affine[0, :]
    given = _read(grad, rows, there)
    if relu:
        given = jnp.where(normal * scale[None, :] + affine[1, :][None, :] > 0, given, 0.0)
    by_channel, with_normal = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
    along_mean, along_normal = (over_group(scale * each) / pixels for each in (by_channel, with_normal))
    back = precision[None, :] * (scale[None, :] * given - along_mean[None, :] - normal * along_normal[None, :])
    back = jnp.where(there[:, None], back, 0.0)
    _write(grad_x, rows, there, back)
    row = lax.broadcasted_iota(jnp.int32, sums.shape, 0)
    total = jnp.where(row == _OF_SCALE, with_normal[None, :], 0.0)
    total += jnp.where(row == _OF_SHIFT, by_channel[None, :], 0.0)
    if below:
        tap, pixel = (lax.broadcasted_iota(jnp.int32, (_SUMS, _PIXELS), axis) for axis in (0, 1))
        inside, _ = _inside(pixel, tap, size)
        counted = (pixel < pixels) & ((inside & (tap < _TAPS)) | (tap == _OF_BIAS))
        total += triton.dot(jnp.where(counted, 1.0, 0.0).astype(jnp.bfloat16), back.astype(jnp.bfloat16))
    sums[...] = total


def _norm_back(size, groups: int, relu: bool, below: bool, x, affine, grad, t, skip: int = 0):
    """The gradient of x, in bfloat16 for a convolution `below`, and sums over samples, those of taps times `t`."""
    samples, channels = grad.shape[0] // (size[0] * size[1]), x.shape[1]
    shapes = [
        jax.ShapeDtypeStruct(grad.shape, jnp.bfloat16 if below else grad.dtype),
        jax.ShapeDtypeStruct((samples, _SUMS, channels), jnp.float32),
    ]
    specs = [pl.BlockSpec(None), pl.BlockSpec((None, _SUMS, channels), lambda sample: (sample, 0, 0))]
    kernel = ft.partial(_norm_back_kernel, size=size, groups=groups, relu=relu, below=below, skip=skip)
    back, sums = _call(kernel, shapes, (samples,), specs, warps=_warps(channels))(x, affine, grad)
    factor = jnp.where(jnp.arange(_SUMS)[:, None] < _TAPS, t[:, None, None], 1.0)
    return back, jnp.sum(factor * sums, axis=0)


# --- fields ----------------------------------------------------------------------------------------------------------


@ft.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def evaluate(
    size: tuple[int, int],
    groups: int,
    x: Float[Array, "rows channels"],
    t: Float[Array, " batch"],
    fields: tuple[Weights, ...],
) -> tuple[Float[Array, "rows channels"], ...]:
    """What fields answer to maps of `size`, at a time for each sample. The layers that all have are stacked."""
    return _evaluate_fwd(size, groups, x, t, fields)[0]


def _stack(trees: Sequence):
    return jax.tree.map(lambda *each: jnp.stack(each), *trees)


def _rows(stacked):
    """Maps of several fields, their rows one behind the other."""
    return stacked.reshape(-1, stacked.shape[-1])


def _shared_depth(fields: Sequence[Weights]) -> int:
    return min(len(field.layers) for field in fields)


def _evaluate_fwd(size, groups, x, t, fields):
    samples, shared = t.shape[0], _shared_depth(fields)
    activate, finish = ft.partial(_norm, size, groups, True), ft.partial(_norm, size, groups, False)

    def conv(active, layer: Layer):
        return _convolved(size, active, layer.taps(jnp.float16), t, layer.clock_map(size), layer.bias)

    stacked, alone = [], []  # what the gradient needs: inputs of the norm, and of the convolution
    maps = x
    for depth in range(shared):
        affine = jnp.stack([field.affines[depth] for field in fields])
        active = jax.vmap(activate, in_axes=(0 if depth else None, 0))(maps, affine)
        stacked.append((maps, active))
        maps = jax.vmap(conv)(active, _stack([field.layers[depth] for field in fields]))
    if all(len(field.layers) == shared for field in fields):
        last = jnp.stack([field.affines[-1] for field in fields])
        return tuple(jax.vmap(finish)(maps, last)), (t, fields, stacked, maps, alone)
    answers = []
    for k, field in enumerate(fields):
        here, skip, kept = _rows(maps), k * samples, []
        for affine, layer in zip(field.affines[shared:-1], field.layers[shared:], strict=True):
            active = activate(here, affine, skip, samples)
            kept.append((here, skip, active))
            here, skip = conv(active, layer), 0
        alone.append((kept, here, skip))
        answers.append(finish(here, field.affines[-1], skip, samples))
    return tuple(answers), (t, fields, stacked, maps, alone)


def _evaluate_bwd(size, groups, kept, grads):
    t, fields, stacked, maps, alone = kept
    shared = _shared_depth(fields)
    of_affines: list[list[Any]] = [[None] * len(field.affines) for field in fields]
    of_layers: list[list[Any]] = [[None] * len(field.layers) for field in fields]
    back_to_conv = lambda relu, *given: _norm_back(size, groups, relu, True, *given)  # noqa: E731
    back_conv = lambda grad, layer: _convolved(size, grad, layer.turned(jnp.bfloat16))  # noqa: E731

    def keep(k: int, depth: int, sums, weight: Any = None) -> None:
        """Gradients of a norm and of the convolution below it."""
        of_affines[k][depth] = sums[_OF_SCALE : _OF_SHIFT + 1]
        if depth:
            like = fields[k].layers[depth - 1].clock
            of_layers[k][depth - 1] = Layer(weight, sums[:_TAPS].T.reshape(like.shape), sums[_OF_BIAS])

    if alone:
        each = []
        for k, (field, grad, (below, here, skip)) in enumerate(zip(fields, grads, alone, strict=True)):
            grad, sums = back_to_conv(False, here, field.affines[-1], grad, t, skip)
            for depth in range(len(field.layers), shared, -1):
                here, skip, active = below[depth - 1 - shared]
                keep(k, depth, sums, _weight_gradient(size, active, grad, 0, 1))
                back = back_conv(grad, field.layers[depth - 1])
                grad, sums = back_to_conv(True, here, field.affines[depth - 1], back, t, skip)
            each.append((grad, sums))
        grad, sums = _stack(each)
    else:
        last = jnp.stack([field.affines[-1] for field in fields])
        grad, sums = jax.vmap(back_to_conv, in_axes=(None, 0, 0, 0, None))(False, maps, last, jnp.stack(grads), t)
    for depth in range(shared, 0, -1):
        maps, active = stacked[depth - 1]
        for k in range(len(fields)):
            keep(k, depth, sums[k], _weight_gradient(size, _rows(active), _rows(grad), k, len(fields)))
        back = jax.vmap(back_conv)(grad, _stack([field.layers[depth - 1] for field in fields]))
        affine = jnp.stack([field.affines[depth - 1] for field in fields])
        to_conv = ft.partial(_norm_back, size, groups, True, depth > 1)
        grad, sums = jax.vmap(to_conv, in_axes=(0 if depth > 1 else None, 0, 0, None))(maps, affine, back, t)
    for k in range(len(fields)):
        keep(k, 0, sums[k])
    weights = tuple(Weights(tuple(a), tuple(b)) for a, b in zip(of_affines, of_layers, strict=True))
    # Times are what the solver chose: they count as constants.
    return grad.sum(axis=0), jnp.zeros_like(t), weights


evaluate.defvjp(_evaluate_fwd, _evaluate_bwd)
