"""Steps of an ODE on feature maps, by kernels for a GPU: group norm, ReLU and timed 3 x 3 convolutions of f and of g.

Feature maps are small (8 x 8, 64 channels), so what XLA spends its time on is to write every neighbourhood to memory
and to start many small operations. Here a program has the whole map of a sample, so that it can normalise what it
makes. An evaluation of f and g is one kernel for the state of the stage, the attention and the first norm, and one for
each convolution with the norm behind it, of both fields side by side. When to stop, which steps count and how long the
next one is remain the solver's affair. `ConvField` and `runge_kutta.stages` are the plain twins, which CPUs use and
tests compare with.

A batch of maps is one matrix, a row for each pixel of each sample; the pixel at an offset is the row at a distance,
unless it lies beyond the edge. Convolutions take inputs in half precision and add up in single precision, as
`Conv(precision="float16")` does. Their gradients are small numbers, beyond the range of half precision: they, and what
they are multiplied by, are rounded to bfloat16. There is no derivative of these gradients: a Hessian needs the plain
form (`Conv(precision=None)`).
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from ..precision import matmul, products_in
from .convolution import EPSILON
from .solver.runge_kutta import Tableau, combine

BACKENDS = ("gpu",)  # where they are used

_PIPELINED = 3  # taps of a convolution that are on their way at a time
_ROWS = 128  # of a matrix that a program of the gradient of weights reads at a time
_PARTS = 32  # the gradient of a weight is added up in so many parts
_TAPS = 9  # pixels of a neighbourhood
_PIXELS = 64  # of a map, at most
# Rows of sums over the pixels of a sample: for each tap, of the gradient where it has that neighbour, and then these.
_SUMS, _OF_SCALE, _OF_SHIFT, _OF_BIAS = 16, 9, 10, 11


class Layer(NamedTuple):
    """Weights of `Conv`."""

    weight: Float[Array, "outputs 3 3 inputs"]
    clock: Float[Array, "outputs 3 3"]
    bias: Float[Array, " outputs"]

    def taps(self) -> Float[Array, "taps inputs outputs"]:
        outputs, *_, inputs = self.weight.shape
        return jnp.transpose(self.weight.reshape(outputs, _TAPS, inputs), (1, 2, 0)).astype(jnp.float16)

    def turned(self) -> Float[Array, "taps outputs inputs"]:
        """Those of the convolution that takes gradients back."""
        outputs, *_, inputs = self.weight.shape
        return jnp.transpose(self.weight.reshape(outputs, _TAPS, inputs)[:, ::-1], (1, 0, 2)).astype(jnp.bfloat16)

    def clock_map(self, size: tuple[int, int]) -> Float[Array, "pixels outputs"]:
        """The convolution of a channel of ones."""
        padded = jnp.pad(jnp.ones(size, self.clock.dtype), 1)
        near = [padded[i : i + size[0], j : j + size[1]].ravel() for i in range(3) for j in range(3)]
        with products_in("tf32"):
            return matmul(jnp.stack(near, axis=1), self.clock.reshape(-1, _TAPS).T)


class Weights(NamedTuple):
    """Weights of `ConvField`: scales and shifts of its norms, one more than layers."""

    affines: tuple[Float[Array, "2 channels"], ...]
    layers: tuple[Layer, ...]


class Plan(NamedTuple):
    """What kernels are compiled for."""

    size: tuple[int, int]  # of a map
    groups: int  # of the norms
    attend: Callable | None  # the attended state from h and a, element by element; None where there is no a

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    def attended(self, state: Sequence):
        return state[0] if self.attend is None else self.attend(*state)


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


def _launch(kernels: Sequence[Callable], given: Sequence, written: Sequence, programs: int, *, warps: int):
    """Kernels side by side, each with its own tree of arrays to read, and of shapes to write: what these become."""
    interpret = _backend() == "cpu"  # for tests
    params = None if interpret else triton.CompilerParams(num_warps=warps, num_stages=_PIPELINED)
    leaves, structure = jax.tree.flatten(tuple(given))
    shapes, answers = jax.tree.flatten(tuple(written))

    def kernel(*refs):
        reads = jax.tree.unflatten(structure, refs[: len(leaves)])
        writes = jax.tree.unflatten(answers, refs[len(leaves) :])
        which, program = pl.program_id(0), pl.program_id(1)
        for k, (each, read, write) in enumerate(zip(kernels, reads, writes, strict=True)):
            run = ft.partial(each, program, *read, write)
            run() if len(kernels) == 1 else pl.when(which == k)(run)

    grid = (len(kernels), programs)
    name = getattr(kernels[0], "func", kernels[0]).__name__
    called = pl.pallas_call(kernel, out_shape=shapes, grid=grid, interpret=interpret, compiler_params=params, name=name)
    return jax.tree.unflatten(answers, called(*leaves))


def _warps(channels: int) -> int:
    return 4 if channels <= 64 else 8


def _numbers(count: int):
    return lax.broadcasted_iota(jnp.int32, (count,), 0)


def _quotient(n, by: int):
    """Of whole numbers that are not negative: Python's own operators are not known to the kernels' compiler."""
    return lax.div(jnp.asarray(n, jnp.int32), jnp.int32(by))


def _remainder(n, by: int):
    return lax.rem(jnp.asarray(n, jnp.int32), jnp.int32(by))


def _read(matrix, rows, there=None):
    """Rows of a matrix, zero where there is none."""
    columns = lax.broadcasted_iota(jnp.int32, (1, matrix.shape[1]), 1)
    mask = {} if there is None else {"mask": there[:, None], "other": 0.0}
    return triton.load(matrix.at[rows[:, None], columns], **mask)


def _write(matrix, rows, values, there=None) -> None:
    columns = lax.broadcasted_iota(jnp.int32, (1, matrix.shape[1]), 1)
    mask = None if there is None else there[:, None]
    triton.store(matrix.at[rows[:, None], columns], values.astype(matrix.dtype), mask=mask)


def _inside(pixel, tap, size: tuple[int, int]):
    """Which pixels have a neighbour there, and how many rows it is away."""
    height, width = size
    down, right = _quotient(tap, 3) - 1, _remainder(tap, 3) - 1
    y, x = _quotient(pixel, width) + down, _remainder(pixel, width) + right
    return (y >= 0) & (y < height) & (x >= 0) & (x < width), down * width + right


class _Block:
    """The rows of this program: the pixels of its sample."""

    def __init__(self, plan: Plan, sample, channels: int):
        self.plan, self.sample, self.channels = plan, sample, channels
        self.pixel = _numbers(_PIXELS)
        self.rows, self.there = sample * plan.pixels + self.pixel, self.pixel < plan.pixels

    def read(self, matrix):
        return _read(matrix, self.rows, self.there)

    def write(self, matrix, values) -> None:
        _write(matrix, self.rows, values, self.there)

    def number(self, of_samples):
        """The sample's own."""
        return triton.load(of_samples.at[self.sample])

    def row(self, matrix):
        """Where the sample's own row is in a matrix that has one for each."""
        return matrix.at[self.sample, _numbers(self.channels)]

    def group_mean(self, sums):
        """For each channel the mean over its group and all pixels, from sums over pixels."""
        shape = self.plan.groups, self.channels // self.plan.groups
        total = jnp.sum(sums.reshape(shape), axis=1) / (shape[1] * self.plan.pixels)
        return jnp.broadcast_to(total[:, None], shape).reshape(self.channels)

    def normalised(self, values):
        """With mean 0 and variance 1 in every group, and the factors for that."""
        values = jnp.where(self.there[:, None], values, 0.0)
        mean = self.group_mean(jnp.sum(values, axis=0))
        centred = jnp.where(self.there[:, None], values - mean[None, :], 0.0)
        precision = lax.rsqrt(self.group_mean(jnp.sum(centred * centred, axis=0)) + EPSILON)
        return centred * precision[None, :], precision

    def keep(self, out: "_Normal | None", normal, precision) -> None:
        if out is not None:
            self.write(out.normal, normal)
            triton.store(self.row(out.precision), precision)

    def normalised_back(self, kept: "_Normal", normal, given, total, total_normal):
        """The gradient of what was normalised. `given` is that of the normal form; `total` and `total_normal` are its
        sums over pixels, alone and times the normal form."""
        precision = triton.load(self.row(kept.precision))
        along = self.group_mean(total)[None, :] + normal * self.group_mean(total_normal)[None, :]
        return jnp.where(self.there[:, None], precision[None, :] * (given - along), 0.0)

    def conv(self, matrix, weight):
        """The sum over neighbours of rows of a matrix times the weights of that neighbour."""

        def add(tap, total):
            inside, away = _inside(self.pixel, tap, self.plan.size)
            return total + triton.dot(_read(matrix, self.rows + away, inside & self.there), weight[tap])

        return lax.fori_loop(0, _TAPS, add, jnp.zeros((_PIXELS, self.channels), jnp.float32))

    def add_sums(self, before, out, of_shift, of_scale, back=None, time: Any = 0.0) -> None:
        """Sums over pixels, added to those of stages before: what a shift and a scale get, and for a convolution below
        the gradient where a pixel has the neighbour, times the time, and all of it."""
        kind = _numbers(_SUMS)[:, None]
        total = jnp.where(kind == _OF_SHIFT, of_shift[None, :], 0.0)
        total += jnp.where(kind == _OF_SCALE, of_scale[None, :], 0.0)
        if back is not None:
            tap, pixel = (lax.broadcasted_iota(jnp.int32, (_SUMS, _PIXELS), axis) for axis in (0, 1))
            inside, _ = _inside(pixel, tap, self.plan.size)
            counted = jnp.where((inside & (tap < _TAPS)) | (tap == _OF_BIAS), 1.0, 0.0).astype(jnp.bfloat16)
            total += jnp.where(kind == _OF_BIAS, 1.0, time) * triton.dot(counted, back.astype(jnp.bfloat16))
        rows = self.sample * _SUMS + _numbers(_SUMS)
        _write(out, rows, total if before is None else total + _read(before, rows))


class _Normal(NamedTuple):
    """What the gradient of a norm needs."""

    normal: Any
    precision: Any  # of each sample


class _Shapes(NamedTuple):
    """Of what kernels write."""

    rows: int
    channels: int
    samples: int

    @classmethod
    def of(cls, plan: Plan, h) -> "_Shapes":
        rows, channels = h.shape
        return cls(rows, channels, rows // plan.pixels)

    def maps(self, dtype=jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.rows, self.channels), dtype)

    def normal(self) -> _Normal:
        precision = jax.ShapeDtypeStruct((self.samples, self.channels), jnp.float32)
        return _Normal(self.maps(jnp.float16), precision)

    def sums(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.samples * _SUMS, self.channels), jnp.float32)


class _Field(NamedTuple):
    """Weights of a field as kernels read them."""

    affines: tuple
    taps: tuple
    turned: tuple
    clocks: tuple
    biases: tuple

    @classmethod
    def of(cls, weights: Weights, size: tuple[int, int]) -> "_Field":
        layers = weights.layers
        return cls(
            weights.affines,
            tuple(layer.taps() for layer in layers),
            tuple(layer.turned() for layer in layers),
            tuple(layer.clock_map(size) for layer in layers),
            tuple(layer.bias for layer in layers),
        )

    @property
    def depth(self) -> int:
        return len(self.taps)

    def layer(self, depth: int) -> tuple:
        """The weights of a convolution."""
        return self.taps[depth], self.clocks[depth], self.biases[depth]


# --- an evaluation ---------------------------------------------------------------------------------------------------

# A state is the map h, or h and the attention a. The first of them has the first field, and so on: an attention without
# a field does not move.


class _Stage(NamedTuple):
    """An evaluation of the fields, and what its gradient needs."""

    slopes: tuple
    state: tuple
    first: Any  # `_Normal`
    actives: tuple  # of each field, the inputs of its convolutions
    normals: tuple  # of each field, what its other norms made: `_Normal`


def _scale_and_shift(normal, affine, relu: bool):
    z = normal * affine[0, :][None, :] + affine[1, :][None, :]
    # On a GPU the maximum of 0 and what is not a number is 0: the second term keeps it.
    return jnp.maximum(z, 0.0) + 0.0 * z if relu else z


def _state_kernel(plan: Plan, weights, sample, dt, y, slopes, affines, out) -> None:
    """The state of a stage, attended and normalised, and the input of the first convolution of each field."""
    block = _Block(plan, sample, y[0].shape[1])
    state = [block.read(matrix) for matrix in y]
    if slopes:
        length = block.number(dt)
        for k, of_state in enumerate(slopes):
            state[k] += length * sum(w * block.read(slope) for w, slope in zip(weights, of_state, strict=True))
    for matrix, values in zip(out.state, state, strict=False):
        block.write(matrix, values)
    normal, precision = block.normalised(plan.attended(state))
    block.keep(out.first, normal, precision)
    for active, affine in zip(out.actives, affines, strict=True):
        block.write(active, _scale_and_shift(normal, affine, True))


class _StateOut(NamedTuple):
    state: tuple
    first: _Normal | None
    actives: tuple


def _layer_kernel(plan: Plan, relu: bool, node: float, sample, t, dt, active, taps, clock, bias, affine, out) -> None:
    """A convolution and the norm of what it answers, with a ReLU if another convolution follows."""
    block = _Block(plan, sample, active.shape[1])
    time = block.number(t) + node * block.number(dt)
    added = time * _read(clock, block.pixel, block.there) + bias[...][None, :]
    normal, precision = block.normalised(block.conv(active, taps) + added)
    answer, kept = out
    block.keep(kept, normal, precision)
    block.write(answer, _scale_and_shift(normal, affine, relu))


def _evaluate(plan: Plan, fields: Sequence[_Field], t, dt, node, y, weights, slopes, *, keep=False, state=False):
    """The fields at `y + dt * sum_j weights[j] * slopes[j]`; what a gradient needs, and that state, if wanted."""
    shapes, warps = _Shapes.of(plan, y[0]), _warps(y[0].shape[1])
    pairs = [(w, slope) for w, slope in zip(weights, slopes, strict=False) if w != 0.0]
    kernel = ft.partial(_state_kernel, plan, [w for w, _ in pairs])
    by_state = tuple(zip(*(slope for _, slope in pairs), strict=True))
    normal, half = (shapes.normal() if keep else None), shapes.maps(jnp.float16)
    out = _StateOut((shapes.maps(),) * len(y) if state or keep else (), normal, (half,) * len(fields))
    given = dt, y, by_state, [field.affines[0] for field in fields]
    ((states, first, active),) = _launch([kernel], [given], [out], shapes.samples, warps=warps)
    actives: list[list[Any]] = [[each] for each in active]
    normals: list[list[Any]] = [[] for _ in fields]
    slopes_of: list[Any] = [None for _ in fields]
    for depth in range(max(field.depth for field in fields)):
        going = [k for k, field in enumerate(fields) if field.depth > depth]
        relus = [depth + 1 < fields[k].depth for k in going]
        kernels = [ft.partial(_layer_kernel, plan, relu, node) for relu in relus]
        given = [(t, dt, actives[k][depth], *fields[k].layer(depth), fields[k].affines[depth + 1]) for k in going]
        out = [(half if relu else shapes.maps(), normal) for relu in relus]
        made = _launch(kernels, given, out, shapes.samples, warps=warps)
        for k, relu, (answer, kept) in zip(going, relus, made, strict=True):
            normals[k].append(kept)
            if relu:
                actives[k].append(answer)
            else:
                slopes_of[k] = answer
    return _Stage(tuple(slopes_of), states, first, tuple(map(tuple, actives)), tuple(map(tuple, normals)))


def _prepared(plan: Plan, fields: Sequence[Weights]) -> list[_Field]:
    return [_Field.of(field, plan.size) for field in fields]


def slopes(plan: Plan, t: Float[Array, " batch"], y: tuple, fields: tuple[Weights, ...]) -> tuple:
    """What fields answer to the attended state, without a gradient."""
    return _evaluate(plan, _prepared(plan, fields), t, jnp.zeros_like(t), 0.0, y, (), ()).slopes


def step(plan: Plan, tableau: Tableau, t, dt, y: tuple, slope: tuple, fields: tuple[Weights, ...]):
    """The state at the end of a step, the slope there and the error, without a gradient."""
    prepared, every, stage = _prepared(plan, fields), [slope], None
    for i, (weights, node) in enumerate(zip(tableau.a, tableau.c, strict=True), start=1):
        last = tableau.fsal and i == len(tableau.a)
        stage = _evaluate(plan, prepared, t, dt, node, y, weights, every, state=last)
        every.append(stage.slopes)
    if not tableau.fsal:
        stage = _evaluate(plan, prepared, t, dt, 1.0, y, tableau.b, every, state=True)
        every.append(stage.slopes)
    assert stage is not None
    error = () if tableau.b_error is None else _combined(None, dt, tableau.b_error, every)
    return stage.state[: len(fields)], stage.slopes, error


def _combined(y: tuple | None, dt, weights, slopes: Sequence[tuple]) -> tuple:
    """`combine` of matrices."""
    by_sample = lambda maps: tuple(x.reshape(dt.shape[0], -1, x.shape[1]) for x in maps)  # noqa: E731
    answer = combine(None if y is None else by_sample(y), dt, weights, list(map(by_sample, slopes)))
    return tuple(x.reshape(like.shape) for x, like in zip(answer, slopes[0], strict=True))


# --- a step backwards ------------------------------------------------------------------------------------------------


def _answer_back_kernel(plan: Plan, weights, node: float, sample, t, dt, terms, kept, affine, before, out) -> None:
    """Back through the last norm of a field, from gradients that make that of its answer."""
    block = _Block(plan, sample, kept.normal.shape[1])
    length = block.number(dt)
    time = block.number(t) + node * length
    given = length * sum(w * block.read(term) for w, term in zip(weights, terms, strict=True))
    _norm_back(block, kept, affine, given, time, before, out)


def _norm_back(block: _Block, kept, affine, given, time, before, out) -> None:
    """Back through a norm that a convolution is below, and what is summed on the way."""
    normal, scale = block.read(kept.normal).astype(jnp.float32), affine[0, :]
    of_shift, of_scale = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
    back = block.normalised_back(kept, normal, scale[None, :] * given, scale * of_shift, scale * of_scale)
    grad, sums = out
    block.write(grad, back)
    block.add_sums(before, sums, of_shift, of_scale, back, time)


def _layer_back_kernel(plan: Plan, node: float, sample, t, dt, grad, turned, active, kept, affine, before, out) -> None:
    """Back through a convolution, the ReLU below it and the norm below that."""
    block = _Block(plan, sample, grad.shape[1])
    given = jnp.where(block.read(active) > 0, block.conv(grad, turned), 0.0)
    _norm_back(block, kept, affine, given, block.number(t) + node * block.number(dt), before, out)


def _state_back_kernel(plan: Plan, sample, dt, grads, turned, actives, affines, kept, state, before, out) -> None:
    """Back through the first convolution of every field, their norm and the attention, to the state."""
    block = _Block(plan, sample, grads[0].shape[1])
    of_state, sums = out
    normal = block.read(kept.normal).astype(jnp.float32)
    totals: Any = None
    for k, grad in enumerate(grads):
        given = jnp.where(block.read(actives[k]) > 0, block.conv(grad, turned[k]), 0.0)
        of_shift, of_scale = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
        block.add_sums(before[k], sums[k], of_shift, of_scale)
        scale = affines[k][0, :]
        terms = scale[None, :] * given, scale * of_shift, scale * of_scale
        totals = terms if totals is None else [total + term for total, term in zip(totals, terms, strict=True)]
    back = block.normalised_back(kept, normal, *totals)
    back = (back,) if plan.attend is None else jax.vjp(plan.attend, *map(block.read, state))[1](back)
    for matrix, values in zip(of_state, back, strict=True):
        block.write(matrix, values)


class _Back(NamedTuple):
    """A stage backwards."""

    state: tuple  # its gradient
    given: tuple  # of each field, the gradients of what its convolutions answer
    sums: tuple  # of each field, those of its norms, this stage's and those of the stages before


def _evaluate_back(plan: Plan, fields: Sequence[_Field], stage: _Stage, t, dt, node, weights, terms, before) -> _Back:
    """From `dt * sum_j weights[j] * terms[k][j]`, the gradient of the slope of field k."""
    shapes, warps = _Shapes.of(plan, stage.slopes[0]), _warps(stage.slopes[0].shape[1])
    sums = [[None] * (field.depth + 1) for field in fields]
    out = (shapes.maps(jnp.bfloat16), shapes.sums())
    kernels = [ft.partial(_answer_back_kernel, plan, weights, node)] * len(fields)
    given = [
        (t, dt, terms[k], stage.normals[k][-1], field.affines[-1], before[k][-1]) for k, field in enumerate(fields)
    ]
    answers = _launch(kernels, given, [out] * len(fields), shapes.samples, warps=warps)
    grads = [[answer[0]] for answer in answers]  # the last layer's first
    for k, answer in enumerate(answers):
        sums[k][-1] = answer[1]
    for above in range(1, max(field.depth for field in fields)):
        going = [k for k, field in enumerate(fields) if field.depth > above]
        given = []
        for k in going:
            field, depth = fields[k], fields[k].depth - above
            kept = stage.normals[k][depth - 1], field.affines[depth], before[k][depth]
            given.append((t, dt, grads[k][-1], field.turned[depth], stage.actives[k][depth], *kept))
        kernels = [ft.partial(_layer_back_kernel, plan, node)] * len(going)
        answers = _launch(kernels, given, [out] * len(going), shapes.samples, warps=warps)
        for k, answer in zip(going, answers, strict=True):
            grads[k].append(answer[0])
            sums[k][fields[k].depth - above] = answer[1]
    given = (
        dt,
        [grad[-1] for grad in grads],
        [field.turned[0] for field in fields],
        [active[0] for active in stage.actives],
        [field.affines[0] for field in fields],
        stage.first,
        stage.state,
        [each[0] for each in before],
    )
    out = ((shapes.maps(),) * len(stage.state), (shapes.sums(),) * len(fields))
    kernel = ft.partial(_state_back_kernel, plan)
    ((of_state, firsts),) = _launch([kernel], [given], [out], shapes.samples, warps=warps)
    for k, first in enumerate(firsts):
        sums[k][0] = first
    return _Back(of_state, tuple(tuple(grad[::-1]) for grad in grads), tuple(map(tuple, sums)))


def _weight_kernel(size: tuple[int, int], program, actives, given, parts) -> None:
    """A part of the gradient of the weights of one tap."""
    channels = actives[0].shape[1]
    tap, part = _quotient(program, _PARTS), _remainder(program, _PARTS)
    count = actives[0].shape[0]
    each = pl.cdiv(pl.cdiv(count, _ROWS), _PARTS)
    total = jnp.zeros((channels, channels), jnp.float32)
    for active, grad in zip(actives, given, strict=True):

        def add(k, total, active=active, grad=grad):
            rows = (part * each + k) * _ROWS + _numbers(_ROWS)
            inside, away = _inside(_remainder(rows, size[0] * size[1]), tap, size)
            there = inside & (rows < count)
            a = _read(active, rows + away, there).astype(jnp.bfloat16)
            return total + triton.dot(_read(grad, rows, there), a, trans_a=True)

        total = lax.fori_loop(0, each, add, total)
    _write(parts, (part * _TAPS + tap) * channels + _numbers(channels), total)


def _weight_gradient(size: tuple[int, int], actives: Sequence, given: Sequence) -> Float[Array, "outputs 3 3 inputs"]:
    """From the inputs of a convolution and the gradients of what it answers, at every stage."""
    channels = actives[0].shape[1]
    shape = jax.ShapeDtypeStruct((_PARTS * _TAPS * channels, channels), jnp.float32)
    kernel, warps = ft.partial(_weight_kernel, size), _warps(channels)
    ((parts),) = _launch([kernel], [(actives, given)], [shape], _TAPS * _PARTS, warps=warps)
    total = parts.reshape(_PARTS, _TAPS, channels, channels).sum(axis=0)
    return jnp.transpose(total, (1, 0, 2)).reshape(channels, 3, 3, channels)


@ft.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def replay(
    plan: Plan, tableau: Tableau, t: Float[Array, " batch"], dt: Float[Array, " batch"], y: tuple, fields: tuple
) -> tuple:
    """The state at the end of a step, with a gradient in the state at its beginning and in the weights.

    Times and steps are what the solver chose: they count as constants.
    """
    return _replayed(plan, tableau, t, dt, y, fields, keep=False)[0]


def _rows_of(tableau: Tableau):
    """(weights of slopes, node) of every stage that the new state depends on, and the new state's weights."""
    rows = [((), 0.0), *zip(tableau.a, tableau.c, strict=True)]
    return (rows[:-1] if tableau.fsal else rows), tableau.b


def _replayed(plan, tableau, t, dt, y, fields, keep: bool):
    """The state at the end, the stages, and the weights as kernels read them."""
    prepared, passed = _prepared(plan, fields), []
    rows, weights = _rows_of(tableau)
    for of_slopes, node in rows:
        given = [stage.slopes for stage in passed]
        passed.append(_evaluate(plan, prepared, t, dt, node, y, of_slopes, given, keep=keep))
    return _combined(y[: len(fields)], dt, weights, [stage.slopes for stage in passed]), passed, prepared


def _replay_fwd(plan, tableau, t, dt, y, fields):
    new, passed, prepared = _replayed(plan, tableau, t, dt, y, fields, keep=True)
    return new, (t, dt, passed, prepared)


def _replay_bwd(plan, tableau, kept, grad):
    t, dt, passed, prepared = kept
    rows, weights = _rows_of(tableau)
    backs: list[Any] = [None] * len(rows)
    sums: Any = [[None] * (field.depth + 1) for field in prepared]
    for i in range(len(rows) - 1, -1, -1):
        # The slope is in the state at the end, and in those of stages after it.
        pairs = [(weights[i], grad)] if weights[i] != 0.0 else []
        after = ((rows[j][0], backs[j]) for j in range(i + 1, len(rows)))
        pairs += [(row[i], back.state) for row, back in after if back and row[i] != 0.0]
        if not pairs:
            continue
        terms = [[term[k] for _, term in pairs] for k in range(len(prepared))]
        of_terms = [w for w, _ in pairs]
        backs[i] = _evaluate_back(plan, prepared, passed[i], t, dt, rows[i][1], of_terms, terms, sums)
        sums = backs[i].sums
    counted = [i for i, back in enumerate(backs) if back]
    of_y = [sum(backs[i].state[k] for i in counted) for k in range(len(passed[0].state))]
    of_y = [total + grad[k] if k < len(grad) else total for k, total in enumerate(of_y)]
    answers = []
    for k, field in enumerate(prepared):
        totals = [each.reshape(-1, _SUMS, each.shape[1]).sum(axis=0) for each in sums[k]]
        layers = [
            Layer(
                _weight_gradient(
                    plan.size,
                    [passed[i].actives[k][depth] for i in counted],
                    [backs[i].given[k][depth] for i in counted],
                ),
                totals[depth + 1][:_TAPS].T.reshape(-1, 3, 3),
                totals[depth + 1][_OF_BIAS],
            )
            for depth in range(field.depth)
        ]
        answers.append(Weights(tuple(total[_OF_SCALE : _OF_SHIFT + 1] for total in totals), tuple(layers)))
    return jnp.zeros_like(t), jnp.zeros_like(dt), tuple(of_y), tuple(answers)


replay.defvjp(_replay_fwd, _replay_bwd)
