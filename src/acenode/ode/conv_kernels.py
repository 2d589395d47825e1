"""Steps of an ODE on feature maps, by kernels for a GPU: group norm, ReLU and timed 3 x 3 convolutions of f and of g.

Feature maps are small (8 x 8, 64 channels), so what XLA spends its time on is to write every neighbourhood to memory
and to start many small operations. Here a program has the whole map of a sample, so that it can normalise what it
makes. An evaluation of f and g is one kernel for the state of the stage, the attention and the first norm, and one for
each convolution with the norm behind it, of both fields side by side. When to stop, which steps count and how long the
next one is remain the solver's affair. `ConvField` and `runge_kutta.stages` are the plain twins, which CPUs use and
tests compare with.

A batch of maps is one matrix, a row for each pixel of each sample; the pixel at an offset is the row at a distance,
unless it lies beyond the edge. Convolutions take inputs in half precision and add up in single precision, as
`Conv(precision="float16")` does; slopes are rounded to half precision too. Gradients are small numbers, beyond its
range: they, and what they are multiplied by, are rounded to bfloat16. There is no derivative of these gradients: a
Hessian needs the plain form (`Conv(precision=None)`).

A gradient needs of every evaluation its state, what its norms made and what its convolutions read. A solve writes them
down (`Kept`), one map of each evaluation of each sample, and the way back reads them.
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from ..precision import matmul, products_in
from .convolution import EPSILON
from .solver.runge_kutta import Tableau, combine

BACKENDS = ("gpu",)  # where they are used

_PIPELINED = 3  # taps of a convolution that are on their way at a time
_ROWS = 64  # of a matrix that a program of the gradient of weights reads at a time
_PARTS = 32  # the gradient of a weight is added up in so many parts
_TAPS = 9  # pixels of a neighbourhood
_TOGETHER = 3  # of them in one program of the gradient of weights: those of a row
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
    """Kernels side by side, each with its own tree of arrays to read, and of shapes to write: what these become.

    An array in the place of a shape is written into: what a kernel leaves out of it stays.
    """
    interpret = _backend() == "cpu"  # for tests
    params = None if interpret else triton.CompilerParams(num_warps=warps, num_stages=_PIPELINED)
    leaves, structure = jax.tree.flatten(tuple(given))
    targets, answers = jax.tree.flatten(tuple(written))
    into = {k: target for k, target in enumerate(targets) if not isinstance(target, jax.ShapeDtypeStruct)}
    shapes = [jax.ShapeDtypeStruct(target.shape, target.dtype) for target in targets]
    given_first = len(leaves) + len(into)

    def kernel(*refs):
        reads = jax.tree.unflatten(structure, refs[: len(leaves)])
        writes = jax.tree.unflatten(answers, refs[given_first:])
        which, program = pl.program_id(0), pl.program_id(1)
        for k, (each, read, write) in enumerate(zip(kernels, reads, writes, strict=True)):
            run = ft.partial(each, program, *read, write)
            run() if len(kernels) == 1 else pl.when(which == k)(run)

    grid = (len(kernels), programs)
    name = getattr(kernels[0], "func", kernels[0]).__name__
    called = pl.pallas_call(
        kernel,
        out_shape=shapes,
        grid=grid,
        input_output_aliases={len(leaves) + n: k for n, k in enumerate(into)},
        interpret=interpret,
        compiler_params=params,
        name=name,
    )
    return jax.tree.unflatten(answers, called(*leaves, *into.values()))


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
    """The rows of this program: the pixels of its sample. In what is kept they are those of one of many maps."""

    def __init__(self, plan: Plan, sample, channels: int, of_step: "_OfStep | None" = None):
        self.plan, self.sample, self.channels = plan, sample, channels
        self.pixel = _numbers(_PIXELS)
        self.rows, self.there = sample * plan.pixels + self.pixel, self.pixel < plan.pixels
        if of_step is not None:
            self.map = triton.load(of_step.maps.at[jnp.int32(of_step.stage), sample])
            self.kept_rows = self.map * plan.pixels + self.pixel

    def read(self, matrix):
        return _read(matrix, self.rows, self.there).astype(jnp.float32)

    def write(self, matrix, values) -> None:
        _write(matrix, self.rows, values, self.there)

    def read_kept(self, matrix):
        return _read(matrix, self.kept_rows, self.there).astype(jnp.float32)

    def keep(self, matrix, values) -> None:
        _write(matrix, self.kept_rows, values, self.there)

    def number(self, of_samples):
        """The sample's own."""
        return triton.load(of_samples.at[self.sample])

    def kept_row(self, matrix):
        """Where the map's own row is in a matrix that has one for each."""
        return matrix.at[self.map, _numbers(self.channels)]

    def group_mean(self, sums):
        """For each channel the mean over its group and all pixels, from sums over pixels."""
        shape = self.plan.groups, self.channels // self.plan.groups
        total = jnp.sum(sums.reshape(shape), axis=1) / (shape[1] * self.plan.pixels)
        return jnp.broadcast_to(total[:, None], shape).reshape(self.channels)

    def normalised(self, values):
        """With mean 0 and variance 1 in every group, in half precision as a gradient will see it; the factors for that."""
        values = jnp.where(self.there[:, None], values, 0.0)
        mean = self.group_mean(jnp.sum(values, axis=0))
        centred = jnp.where(self.there[:, None], values - mean[None, :], 0.0)
        precision = lax.rsqrt(self.group_mean(jnp.sum(centred * centred, axis=0)) + EPSILON)
        return (centred * precision[None, :]).astype(jnp.float16).astype(jnp.float32), precision

    def keep_normal(self, kept: "Normal | None", normal, precision) -> None:
        if kept is not None:
            self.keep(kept.normal, normal)
            triton.store(self.kept_row(kept.precision), precision)

    def normalised_back(self, kept: "Normal", normal, given, total, total_normal):
        """The gradient of what was normalised. `given` is that of the normal form; `total` and `total_normal` are its
        sums over pixels, alone and times the normal form."""
        precision = triton.load(self.kept_row(kept.precision))
        along = self.group_mean(total)[None, :] + normal * self.group_mean(total_normal)[None, :]
        return jnp.where(self.there[:, None], precision[None, :] * (given - along), 0.0)

    def conv(self, matrix, rows, weight):
        """The sum over neighbours of these rows of a matrix times the weights of that neighbour."""

        def add(tap, total):
            inside, away = _inside(self.pixel, tap, self.plan.size)
            return total + triton.dot(_read(matrix, rows + away, inside & self.there), weight[tap])

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


class Normal(NamedTuple):
    """What the gradient of a norm needs: a row for each pixel of each map, and one for each map."""

    normal: Float[Array, "rows channels"]
    precision: Float[Array, "maps channels"]


class Kept(NamedTuple):
    """What the gradient of a solve needs of its evaluations. Which map is whose is told by whoever writes and reads."""

    state: tuple  # h and a, if there is an attention
    first: Normal  # the norm of the attended state
    others: tuple[tuple[Normal, ...], ...]  # of each field, its other norms
    actives: tuple[tuple[Float[Array, "rows channels"], ...], ...]  # of each field, the inputs of its convolutions


class _OfStep(NamedTuple):
    """Which map of what is kept is a sample's, at this stage of a step."""

    maps: Any  # of every stage and sample
    stage: int


def space(plan: Plan, y: tuple, fields: tuple[Weights, ...], evaluations: int) -> Kept:
    """Space for what the gradient of so many evaluations needs; what is in it is not defined."""
    rows, channels = y[0].shape
    maps = evaluations * (rows // plan.pixels)
    of_maps = lambda dtype: jax.ShapeDtypeStruct((maps * plan.pixels, channels), dtype)  # noqa: E731
    half, state = of_maps(jnp.float16), of_maps(jnp.bfloat16)
    normal = Normal(half, jax.ShapeDtypeStruct((maps, channels), jnp.float32))
    kept = Kept(
        (state,) * (0 if plan.attend is None else len(y)),
        normal,
        tuple((normal,) * len(field.layers) for field in fields),
        tuple((half,) * len(field.layers) for field in fields),
    )
    # Given the state, it is mapped over an ensemble with it; memory for one member would be copied for all.
    return _launch([_nothing], [(lax.stop_gradient(y[0]),)], [kept], 1, warps=1)[0]


def _nothing(program, state, out) -> None:
    """A kernel that writes nothing is the one way to get memory that nobody fills."""


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


def _scale_and_shift(normal, affine, relu: bool):
    z = normal * affine[0, :][None, :] + affine[1, :][None, :]
    # On a GPU the maximum of 0 and what is not a number is 0: the second term keeps it.
    return jnp.maximum(z, 0.0) + 0.0 * z if relu else z


def _state_kernel(plan: Plan, weights, stage: int, sample, dt, y, slopes, affines, maps, out) -> None:
    """The state of a stage, attended and normalised, and the input of the first convolution of each field."""
    block = _Block(plan, sample, y[0].shape[1], None if maps is None else _OfStep(maps, stage))
    state = [block.read(matrix) for matrix in y]
    if slopes:
        length = block.number(dt)
        for k, of_state in enumerate(slopes):
            state[k] += length * sum(w * block.read(slope) for w, slope in zip(weights, of_state, strict=True))
    for matrix, values in zip(out.end, state, strict=False):
        block.write(matrix, values)
    for matrix, values in zip(out.state, state, strict=False):
        block.keep(matrix, values)
    normal, precision = block.normalised(plan.attended(state))
    block.keep_normal(out.first, normal, precision)
    write = block.write if maps is None else block.keep
    for active, affine in zip(out.actives, affines, strict=True):
        write(active, _scale_and_shift(normal, affine, True))


class _StateOut(NamedTuple):
    end: tuple  # the state itself
    state: tuple  # the same, kept
    first: Normal | None
    actives: tuple


def _layer_kernel(
    plan: Plan, relu: bool, node: float, stage: int, sample, t, dt, active, taps, clock, bias, affine, maps, out
) -> None:
    """A convolution and the norm of what it answers, with a ReLU if another convolution follows."""
    block = _Block(plan, sample, active.shape[1], None if maps is None else _OfStep(maps, stage))
    time = block.number(t) + node * block.number(dt)
    added = time * _read(clock, block.pixel, block.there) + bias[...][None, :]
    rows = block.rows if maps is None else block.kept_rows
    normal, precision = block.normalised(block.conv(active, rows, taps) + added)
    answer, kept = out
    block.keep_normal(kept, normal, precision)
    write = block.keep if relu and maps is not None else block.write
    write(answer, _scale_and_shift(normal, affine, relu))


class _Evaluated(NamedTuple):
    """The fields at a stage of a step."""

    slopes: tuple
    end: tuple  # the state, if it is that at the end of the step
    kept: Kept | None


def _evaluate(
    plan: Plan, fields: Sequence[_Field], t, dt, node, y, weights, slopes, *, end=False, kept=None, maps=None, stage=0
) -> _Evaluated:
    """The fields at `y + dt * sum_j weights[j] * slopes[j]`; with space in `kept`, what a gradient needs."""
    shapes, warps = _Shapes.of(plan, y[0]), _warps(y[0].shape[1])
    pairs = [(w, slope) for w, slope in zip(weights, slopes, strict=False) if w != 0.0]
    kernel = ft.partial(_state_kernel, plan, [w for w, _ in pairs], stage)
    by_state = tuple(zip(*(slope for _, slope in pairs), strict=True))
    half = shapes.maps(jnp.float16)
    state, first = ((), None) if kept is None else (kept.state, kept.first)
    # What a convolution reads is written where it is kept; without that it is gone with the evaluation.
    place = lambda k, depth: half if kept is None else kept.actives[k][depth]  # noqa: E731
    out = _StateOut((shapes.maps(),) * len(y) if end else (), state, first, tuple(place(k, 0) for k in range(len(fields))))
    given = dt, y, by_state, [field.affines[0] for field in fields], maps
    (made,) = _launch([kernel], [given], [out], shapes.samples, warps=warps)
    actives, normals = [[active] for active in made.actives], [[] for _ in fields]
    for depth in range(max(field.depth for field in fields)):
        going = [k for k, field in enumerate(fields) if field.depth > depth]
        kernels, given, out = [], [], []
        for k in going:
            relu = depth + 1 < fields[k].depth
            kernels.append(ft.partial(_layer_kernel, plan, relu, node, stage))
            given.append((t, dt, actives[k][depth], *fields[k].layer(depth), fields[k].affines[depth + 1], maps))
            out.append((place(k, depth + 1) if relu else half, None if kept is None else kept.others[k][depth]))
        for k, (answer, normal) in zip(going, _launch(kernels, given, out, shapes.samples, warps=warps), strict=True):
            actives[k].append(answer)
            normals[k].append(normal)
    slopes_of = tuple(active.pop() for active in actives)
    if kept is not None:
        kept = Kept(made.state, made.first, tuple(map(tuple, normals)), tuple(map(tuple, actives)))
    return _Evaluated(slopes_of, made.end, kept)


def _prepared(plan: Plan, fields: Sequence[Weights]) -> list[_Field]:
    return [_Field.of(field, plan.size) for field in fields]


def slopes(plan: Plan, t, y: tuple, fields: tuple[Weights, ...], kept: Kept | None = None, maps=None):
    """What fields answer to the attended state, without a gradient, and what is kept of it: its maps are `maps[0]`."""
    found = _evaluate(plan, _prepared(plan, fields), t, jnp.zeros_like(t), 0.0, y, (), (), kept=kept, maps=maps)
    return found.slopes, found.kept


def step(
    plan: Plan,
    tableau: Tableau,
    t: Float[Array, " batch"],
    dt: Float[Array, " batch"],
    y: tuple,
    slope: tuple,
    fields: tuple[Weights, ...],
    kept: Kept | None = None,
    maps: Int[Array, "evaluations batch"] | None = None,
):
    """The state at the end of a step, the slope there, the error and what is kept, without a gradient.

    The maps of evaluation i of the step are `maps[i]`; the first of them is that of `slope`, which was evaluated before.
    """
    prepared, every, found = _prepared(plan, fields), [slope], None
    rows = [*zip(tableau.a, tableau.c, strict=True), *([] if tableau.fsal else [(tableau.b, 1.0)])]
    for i, (weights, node) in enumerate(rows, start=1):
        told = {"end": i == len(rows), "kept": kept, "maps": maps, "stage": i}
        found = _evaluate(plan, prepared, t, dt, node, y, weights, every, **told)
        every.append(found.slopes)
        kept = found.kept
    assert found is not None
    error = () if tableau.b_error is None else _combined(None, dt, tableau.b_error, every)
    return found.end[: len(fields)], found.slopes, error, kept


def _combined(y: tuple | None, dt, weights, slopes: Sequence[tuple]) -> tuple:
    """`combine` of matrices."""
    by_sample = lambda maps: tuple(x.reshape(dt.shape[0], -1, x.shape[1]).astype(jnp.float32) for x in maps)  # noqa: E731
    answer = combine(None if y is None else by_sample(y), dt, weights, list(map(by_sample, slopes)))
    return tuple(x.reshape(like.shape) for x, like in zip(answer, slopes[0], strict=True))


# --- a step backwards ------------------------------------------------------------------------------------------------


def _answer_back_kernel(
    plan: Plan, weights, node: float, stage: int, sample, t, dt, terms, kept, maps, affine, before, out
) -> None:
    """Back through the last norm of a field, from gradients that make that of its answer."""
    block = _Block(plan, sample, kept.normal.shape[1], _OfStep(maps, stage))
    length = block.number(dt)
    time = block.number(t) + node * length
    given = length * sum(w * block.read(term) for w, term in zip(weights, terms, strict=True))
    _norm_back(block, kept, block.read_kept(kept.normal), affine, given, time, before, out)


def _norm_back(block: _Block, kept, normal, affine, given, time, before, out) -> None:
    """Back through a norm that a convolution is below, and what is summed on the way."""
    scale = affine[0, :]
    of_shift, of_scale = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
    back = block.normalised_back(kept, normal, scale[None, :] * given, scale * of_shift, scale * of_scale)
    grad, sums = out
    block.write(grad, back)
    block.add_sums(before, sums, of_shift, of_scale, back, time)


def _through_relu(block: _Block, normal, affine, grad, turned):
    """Back through a convolution and the ReLU below it."""
    return jnp.where(_scale_and_shift(normal, affine, False) > 0, block.conv(grad, block.rows, turned), 0.0)


def _layer_back_kernel(
    plan: Plan, node: float, stage: int, sample, t, dt, grad, turned, kept, maps, affine, before, out
) -> None:
    """Back through a convolution, the ReLU below it and the norm below that."""
    block = _Block(plan, sample, grad.shape[1], _OfStep(maps, stage))
    normal = block.read_kept(kept.normal)
    given = _through_relu(block, normal, affine, grad, turned)
    _norm_back(block, kept, normal, affine, given, block.number(t) + node * block.number(dt), before, out)


def _state_back_kernel(plan: Plan, stage: int, sample, grads, turned, affines, kept, state, maps, before, out) -> None:
    """Back through the first convolution of every field, their norm and the attention, to the state."""
    block = _Block(plan, sample, grads[0].shape[1], _OfStep(maps, stage))
    of_state, sums = out
    normal = block.read_kept(kept.normal)
    totals: Any = None
    for k, grad in enumerate(grads):
        given = _through_relu(block, normal, affines[k], grad, turned[k])
        of_shift, of_scale = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
        block.add_sums(before[k], sums[k], of_shift, of_scale)
        scale = affines[k][0, :]
        terms = scale[None, :] * given, scale * of_shift, scale * of_scale
        totals = terms if totals is None else [total + term for total, term in zip(totals, terms, strict=True)]
    back = block.normalised_back(kept, normal, *totals)
    back = (back,) if plan.attend is None else jax.vjp(plan.attend, *map(block.read_kept, state))[1](back)
    for matrix, values in zip(of_state, back, strict=True):
        block.write(matrix, values)


class _Back(NamedTuple):
    """A stage backwards."""

    state: tuple  # its gradient
    given: tuple  # of each field, the gradients of what its convolutions answer
    sums: tuple  # of each field, those of its norms, this stage's and those of the stages before


def _evaluate_back(
    plan: Plan, fields: Sequence[_Field], kept: Kept, maps, stage: int, t, dt, node, weights, terms, before
) -> _Back:
    """From `dt * sum_j weights[j] * terms[k][j]`, the gradient of the slope of field k at a stage."""
    shapes, warps = _Shapes.of(plan, terms[0][0]), _warps(terms[0][0].shape[1])
    sums = [[None] * (field.depth + 1) for field in fields]
    out = (shapes.maps(jnp.bfloat16), shapes.sums())
    kernels = [ft.partial(_answer_back_kernel, plan, weights, node, stage)] * len(fields)
    given = [
        (t, dt, terms[k], kept.others[k][-1], maps, field.affines[-1], before[k][-1]) for k, field in enumerate(fields)
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
            norm = kept.others[k][depth - 1], maps, field.affines[depth], before[k][depth]
            given.append((t, dt, grads[k][-1], field.turned[depth], *norm))
        kernels = [ft.partial(_layer_back_kernel, plan, node, stage)] * len(going)
        answers = _launch(kernels, given, [out] * len(going), shapes.samples, warps=warps)
        for k, answer in zip(going, answers, strict=True):
            grads[k].append(answer[0])
            sums[k][fields[k].depth - above] = answer[1]
    given = (
        [grad[-1] for grad in grads],
        [field.turned[0] for field in fields],
        [field.affines[0] for field in fields],
        kept.first,
        kept.state,
        maps,
        [each[0] for each in before],
    )
    # Sums of a few of these follow, so that their rounding is no more than that of the gradients they are made of.
    out = ((shapes.maps(jnp.bfloat16),) * max(len(kept.state), 1), (shapes.sums(),) * len(fields))
    kernel = ft.partial(_state_back_kernel, plan, stage)
    ((of_state, firsts),) = _launch([kernel], [given], [out], shapes.samples, warps=warps)
    for k, first in enumerate(firsts):
        sums[k][0] = first
    return _Back(of_state, tuple(tuple(grad[::-1]) for grad in grads), tuple(map(tuple, sums)))


def _weight_kernel(plan: Plan, stages: Sequence[int], program, active, maps, given, parts) -> None:
    """A part of the gradient of the weights of some taps."""
    channels = active.shape[1]
    first, part = _TOGETHER * _quotient(program, _PARTS), _remainder(program, _PARTS)
    count = given[0].shape[0]
    each = pl.cdiv(pl.cdiv(count, _ROWS), _PARTS)
    totals = tuple(jnp.zeros((channels, channels), jnp.float32) for _ in range(_TOGETHER))
    for stage, grad in zip(stages, given, strict=True):

        def add(k, totals, stage=stage, grad=grad):
            rows = (part * each + k) * _ROWS + _numbers(_ROWS)
            known, pixel = rows < count, _remainder(rows, plan.pixels)
            at = triton.load(maps.at[jnp.int32(stage), _quotient(rows, plan.pixels)], mask=known, other=0)
            back = _read(grad, rows, known)

            def of_tap(i):
                inside, away = _inside(pixel, first + i, plan.size)
                near = _read(active, at * plan.pixels + pixel + away, inside & known)
                return triton.dot(back, near.astype(jnp.bfloat16), trans_a=True)

            return tuple(total + of_tap(i) for i, total in enumerate(totals))

        totals = lax.fori_loop(0, each, add, totals)
    for i, total in enumerate(totals):
        _write(parts, (part * _TAPS + first + i) * channels + _numbers(channels), total)


def _weight_gradient(
    plan: Plan, active, maps, stages: Sequence[int], given: Sequence
) -> Float[Array, "outputs 3 3 inputs"]:
    """From the inputs of a convolution and the gradients of what it answers, at every stage."""
    channels = active.shape[1]
    shape = jax.ShapeDtypeStruct((_PARTS * _TAPS * channels, channels), jnp.float32)
    kernel, warps, programs = ft.partial(_weight_kernel, plan, stages), _warps(channels), _TAPS // _TOGETHER * _PARTS
    (parts,) = _launch([kernel], [(active, maps, given)], [shape], programs, warps=warps)
    total = parts.reshape(_PARTS, _TAPS, channels, channels).sum(axis=0)
    return jnp.transpose(total, (1, 0, 2)).reshape(channels, 3, 3, channels)


def _rows_of(tableau: Tableau):
    """(weights of slopes, node) of every stage that the new state depends on, and the new state's weights."""
    rows = [((), 0.0), *zip(tableau.a, tableau.c, strict=True)]
    return (rows[:-1] if tableau.fsal else rows), tableau.b


def keep(plan: Plan, tableau: Tableau, t, dt, y: tuple, fields: tuple[Weights, ...], kept: Kept, maps) -> Kept:
    """Evaluate a step once more, for what the gradient needs of it."""
    prepared, every = _prepared(plan, fields), []
    for i, (weights, node) in enumerate(_rows_of(tableau)[0]):
        found = _evaluate(plan, prepared, t, dt, node, y, weights, every, kept=kept, maps=maps, stage=i)
        every.append(found.slopes)
        kept = found.kept  # type: ignore[assignment]
    return kept


@ft.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def replay(
    plan: Plan,
    tableau: Tableau,
    t: Float[Array, " batch"],
    dt: Float[Array, " batch"],
    y: tuple,
    fields: tuple,
    kept: Kept,
    maps: Int[Array, "evaluations batch"],
) -> tuple:
    """The state at the end of a step that was kept, with a gradient in the state at its beginning and in the weights.

    Times and steps are what the solver chose: they count as constants.
    """
    rows, weights = _rows_of(tableau)

    def slope(stage: int, k: int):
        normal = kept.others[k][-1].normal.reshape(-1, plan.pixels, y[k].shape[1])[maps[stage]]
        return _scale_and_shift(normal.reshape(y[k].shape).astype(jnp.float32), fields[k].affines[-1], False)

    every = [tuple(slope(stage, k) for k in range(len(fields))) for stage in range(len(rows))]
    return _combined(y[: len(fields)], dt, weights, every)


def _replay_fwd(plan, tableau, t, dt, y, fields, kept, maps):
    return replay(plan, tableau, t, dt, y, fields, kept, maps), (t, dt, _prepared(plan, fields), kept, maps)


def _replay_bwd(plan, tableau, saved, grad):
    t, dt, prepared, kept, maps = saved
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
        backs[i] = _evaluate_back(plan, prepared, kept, maps, i, t, dt, rows[i][1], of_terms, terms, sums)
        sums = backs[i].sums
    counted = [i for i, back in enumerate(backs) if back]
    of_y = [sum(backs[i].state[k].astype(jnp.float32) for i in counted) for k in range(len(backs[counted[0]].state))]
    of_y = [total + grad[k] if k < len(grad) else total for k, total in enumerate(of_y)]
    answers = []
    for k, field in enumerate(prepared):
        totals = [each.reshape(-1, _SUMS, each.shape[1]).sum(axis=0) for each in sums[k]]
        layers = [
            Layer(
                _weight_gradient(
                    plan, kept.actives[k][depth], maps, counted, [backs[i].given[k][depth] for i in counted]
                ),
                totals[depth + 1][:_TAPS].T.reshape(-1, 3, 3),
                totals[depth + 1][_OF_BIAS],
            )
            for depth in range(field.depth)
        ]
        answers.append(Weights(tuple(total[_OF_SCALE : _OF_SHIFT + 1] for total in totals), tuple(layers)))
    return jnp.zeros_like(t), jnp.zeros_like(dt), tuple(of_y), tuple(answers), None, None


replay.defvjp(_replay_fwd, _replay_bwd)
