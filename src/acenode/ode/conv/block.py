"""The block of a kernel for feature maps: a program that has the whole map of a sample, and normalises what it makes.

A batch of maps is one matrix, a row for each pixel of each sample; the pixel at an offset is the row at a distance,
unless it lies beyond the edge.
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

from ...backend import backend
from .layers import EPSILON
from .steps import TAPS, Columns, Normal, Plan

PIXELS = 64  # of a map, at most
# Rows of sums over the pixels of a sample: for each tap, of the gradient where it has that neighbour, and then these.
SUMS, OF_SCALE, OF_SHIFT, OF_BIAS = 16, 9, 10, 11
_PIPELINED = 3  # taps of a convolution that are on their way at a time


def columns(h: Float[Array, "batch y x channels"], groups: int) -> Columns | None:
    """Where the channels of these maps are in the blocks of a program, whose sizes are powers of two; None where there
    are no kernels for them."""
    _, height, width, channels = h.shape
    each = channels // groups
    found = Columns(groups, each, pl.next_power_of_2(groups), pl.next_power_of_2(each))
    fits = height * width <= PIXELS and found.rooms * found.width in (32, 64, 128)
    return found if fits and h.dtype == jnp.float32 and _has_bfloat16() else None


def _has_bfloat16() -> bool:
    """Whether the GPU has products in bfloat16: those of NVIDIA since Ampere (compute capability 8) have."""
    capability = getattr(jax.devices()[0], "compute_capability", None)  # "9.0"; of AMD "gfx942"; of a CPU none
    return capability is None or (capability[0].isdigit() and float(capability) >= 8)


class Stage(NamedTuple):
    """A stage of a step of every sample. Its numbers are arrays, so that one kernel serves every stage."""

    t: Any  # of each sample, at the beginning of its step
    dt: Any  # likewise
    node: Any  # a number
    number: Any  # likewise
    maps: Any = None  # which map of what is kept is whose, of each evaluation and sample; None where nothing is kept

    @classmethod
    def of(cls, t, dt, node: float, number: int, maps=None) -> "Stage":
        return cls(t, dt, jnp.array([node], t.dtype), jnp.array([number], jnp.int32), maps)


class Kernel(NamedTuple):
    """`function(*told, program, ..., out)`, where `told` is what is known before it is compiled."""

    function: Callable
    told: tuple = ()


def launch(kernels: Sequence[Kernel], given: Sequence, written: Sequence, programs: int, *, warps: int):
    """Kernels side by side, each with its own tree of arrays to read, and of shapes to write: what these become.

    An array in the place of a shape is written into: what a kernel leaves out of it stays. Kernels that are alike are
    traced and lowered once.
    """
    targets, answers = jax.tree.flatten(tuple(written))
    shapes = tuple(jax.ShapeDtypeStruct(target.shape, target.dtype) for target in targets)
    into = {k: target for k, target in enumerate(targets) if not isinstance(target, jax.ShapeDtypeStruct)}
    interpret = backend() == "cpu"  # for tests
    told = tuple(kernels), shapes, answers, programs, warps, interpret
    return jax.tree.unflatten(answers, _launch(told, tuple(given), into))


@ft.partial(jax.jit, static_argnums=0)
def _launch(told: tuple, given: tuple, into: dict[int, Array]) -> Sequence[Array]:
    kernels, shapes, answers, programs, warps, interpret = told
    params = None if interpret else triton.CompilerParams(num_warps=warps, num_stages=_PIPELINED)
    leaves, structure = jax.tree.flatten(given)
    given_first = len(leaves) + len(into)

    def kernel(*refs):
        reads = jax.tree.unflatten(structure, refs[: len(leaves)])
        writes = jax.tree.unflatten(answers, refs[given_first:])
        which, program = pl.program_id(0), pl.program_id(1)
        for k, (each, read, write) in enumerate(zip(kernels, reads, writes, strict=True)):
            run = ft.partial(each.function, *each.told, program, *read, write)
            run() if len(kernels) == 1 else pl.when(which == k)(run)

    called = pl.pallas_call(
        kernel,
        out_shape=shapes,
        grid=(len(kernels), programs),
        input_output_aliases={len(leaves) + n: k for n, k in enumerate(into)},
        interpret=interpret,
        compiler_params=params,
        name=kernels[0].function.__name__,
    )
    return called(*leaves, *into.values())


def warps_of(channels: int) -> int:
    return 4 if channels <= 64 else 8


def number(array, place: int = 0):
    """One of an array of numbers."""
    return triton.load(array.at[jnp.int32(place)])


def numbers(count: int):
    return lax.broadcasted_iota(jnp.int32, (count,), 0)


def quotient(n, by: int):
    """Of whole numbers that are not negative: Python's own operators are not known to the kernels' compiler."""
    return lax.div(jnp.asarray(n, jnp.int32), jnp.int32(by))


def remainder(n, by: int):
    return lax.rem(jnp.asarray(n, jnp.int32), jnp.int32(by))


def read_rows(matrix, rows, there=None):
    """Rows of a matrix, zero where there is none."""
    columns = lax.broadcasted_iota(jnp.int32, (1, matrix.shape[1]), 1)
    mask = {} if there is None else {"mask": there[:, None], "other": 0.0}
    return triton.load(matrix.at[rows[:, None], columns], **mask)


def write_rows(matrix, rows, values, there=None) -> None:
    columns = lax.broadcasted_iota(jnp.int32, (1, matrix.shape[1]), 1)
    mask = None if there is None else there[:, None]
    triton.store(matrix.at[rows[:, None], columns], values.astype(matrix.dtype), mask=mask)


def neighbour(pixel, tap, size: tuple[int, int]):
    """Which pixels have a neighbour there, and how many rows it is away."""
    height, width = size
    down, right = quotient(tap, 3) - 1, remainder(tap, 3) - 1
    y, x = quotient(pixel, width) + down, remainder(pixel, width) + right
    return (y >= 0) & (y < height) & (x >= 0) & (x < width), down * width + right


class Block:
    """The rows of this program: the pixels of its sample. In what is kept they are those of one of many maps."""

    def __init__(self, plan: Plan, sample, channels: int, stage: Stage):
        self.plan, self.sample, self.channels, self.stage = plan, sample, channels, stage
        self.pixel = numbers(PIXELS)
        self.rows, self.there = sample * plan.pixels + self.pixel, self.pixel < plan.pixels
        self.filled = self.there[:, None]  # where a matrix of these rows has something
        if not plan.columns.full:
            column = numbers(channels)
            of_group = quotient(column, plan.columns.width) < plan.columns.groups
            self.filled &= (of_group & (remainder(column, plan.columns.width) < plan.columns.channels))[None, :]
        if stage.maps is not None:
            self.map = triton.load(stage.maps.at[number(stage.number), sample])
            self.kept_rows = self.map * plan.pixels + self.pixel

    @property
    def length(self):
        """Of the step."""
        return triton.load(self.stage.dt.at[self.sample])

    @property
    def time(self):
        """Of the stage."""
        return triton.load(self.stage.t.at[self.sample]) + number(self.stage.node) * self.length

    def combined(self, weights, matrices):
        """The step's length times the sum of these, each by its weight."""
        terms = (number(weights, k) * self.read(matrix) for k, matrix in enumerate(matrices))
        return self.length * sum(terms)

    def read(self, matrix):
        return read_rows(matrix, self.rows, self.there).astype(jnp.float32)

    def write(self, matrix, values) -> None:
        write_rows(matrix, self.rows, values, self.there)

    def read_kept(self, matrix):
        return read_rows(matrix, self.kept_rows, self.there).astype(jnp.float32)

    def keep(self, matrix, values) -> None:
        write_rows(matrix, self.kept_rows, values, self.there)

    def kept_row(self, matrix):
        """Where the map's own row is in a matrix that has one for each."""
        return matrix.at[self.map, numbers(self.channels)]

    def group_mean(self, sums):
        """For each channel the mean over its group and all pixels, from sums over pixels."""
        columns = self.plan.columns
        shape = columns.rooms, columns.width
        total = jnp.sum(sums.reshape(shape), axis=1) / (columns.channels * self.plan.pixels)
        return jnp.broadcast_to(total[:, None], shape).reshape(self.channels)

    def normalised(self, values):
        """With mean 0 and variance 1 in every group, rounded as a gradient will see it, and the factors for that."""
        values = jnp.where(self.filled, values, 0.0)
        mean = self.group_mean(jnp.sum(values, axis=0))
        centred = jnp.where(self.filled, values - mean[None, :], 0.0)
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
        return jnp.where(self.filled, precision[None, :] * (given - along), 0.0)

    def conv(self, matrix, rows, weight):
        """The sum over neighbours of these rows of a matrix times the weights of that neighbour."""

        def add(tap, total):
            inside, away = neighbour(self.pixel, tap, self.plan.size)
            return total + triton.dot(read_rows(matrix, rows + away, inside & self.there), weight[tap])

        return lax.fori_loop(0, TAPS, add, jnp.zeros((PIXELS, self.channels), jnp.float32))

    def add_sums(self, before, out, of_shift, of_scale, back=None, time: Any = 0.0) -> None:
        """Sums over pixels, added to those of stages before: what a shift and a scale get, and for a convolution below
        the gradient where a pixel has the neighbour, times the time, and all of it."""
        kind = numbers(SUMS)[:, None]
        total = jnp.where(kind == OF_SHIFT, of_shift[None, :], 0.0)
        total += jnp.where(kind == OF_SCALE, of_scale[None, :], 0.0)
        if back is not None:
            tap, pixel = (lax.broadcasted_iota(jnp.int32, (SUMS, PIXELS), axis) for axis in (0, 1))
            inside, _ = neighbour(pixel, tap, self.plan.size)
            counted = jnp.where((inside & (tap < TAPS)) | (tap == OF_BIAS), 1.0, 0.0).astype(jnp.bfloat16)
            total += jnp.where(kind == OF_BIAS, 1.0, time) * triton.dot(counted, back.astype(jnp.bfloat16))
        rows = self.sample * SUMS + numbers(SUMS)
        write_rows(out, rows, total if before is None else total + read_rows(before, rows))


class Shapes(NamedTuple):
    """Of what kernels write."""

    rows: int
    channels: int
    samples: int

    @classmethod
    def of(cls, plan: Plan, h) -> "Shapes":
        rows, channels = h.shape
        return cls(rows, channels, rows // plan.pixels)

    def maps(self, dtype=jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.rows, self.channels), dtype)

    def sums(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.samples * SUMS, self.channels), jnp.float32)
